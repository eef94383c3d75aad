//! `everwatch timeline`: what each service held, where observers ran nowhere, and the incidents in which they moved.

use super::unknown::{self, Named, hinted};
use crate::cli::Timeline as Asked;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{
    self, BOUND, Head, INCIDENTS, INCIDENTS_SHORT, INCIDENTS_WIDTH, Output, Picture, TerminalStyle, note,
    print, second,
};
use everwatch_api::Timeline;
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::timeline::KEPT;
use std::time::Duration;

/// By how much the clock of the manager may differ from the clock here.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
/// The shortest timeline without `--since`.
const SHORTEST: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, asked: &Asked) -> anyhow::Result<()> {
    if asked.shown.output == Output::Name {
        let text = "`timeline` has no names: use -o table, json or yaml";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    check(asked, clock::now()).map_err(Failure::Usage)?;
    let client = Client::new(server)?;
    let paper = TerminalStyle::stdout();
    let columns = Picture::columns(paper.width);
    let mut path = String::new();
    if let Some(until) = asked.until {
        path += &format!("&until={}", Client::part(&until.of(clock::now()).to_string()));
    }
    for service in &asked.services {
        path += &format!("&service={}", Client::part(service));
    }
    if let Some(observer) = &asked.observer {
        path += &format!("&observer={}", Client::part(observer));
        if let Some(namespace) = client.namespace() {
            path += &format!("&namespace={}", Client::part(namespace));
        }
    }
    let from = |since: &str| format!("/v1/timeline?columns={columns}&since={}{path}", Client::part(since));
    let begun = &from(&asked.since().to_string());
    let mut it: Item<Timeline> = match &asked.observer {
        Some(name) => hinted(&client, (unknown::OBSERVERS, name), client.read(begun)).await?,
        None => client.read(begun).await?,
    };
    if asked.since.is_none()
        && asked.shown.is_table()
        && let Some(first) = beginning(&it)
    {
        it = client.read(&from(&first.to_string())).await?;
    }
    for service in &asked.services {
        check_service(&client, &it, service).await?;
    }
    if output::structured(&it, &asked.shown)? {
        return Ok(());
    }
    if it.lanes.is_empty() {
        note(match &asked.observer {
            Some(_) => "the observer did not run in this time",
            None => "no service ran in this time",
        });
        return Ok(());
    }
    let head = if asked.shown.no_headers { Head::Omitted } else { Head::Shown };
    print(&Picture::new(&it, columns, ": choose some with --service").text(head, paper));
    if let Some(since) = it.complete_since.filter(|since| *since > it.since) {
        note(&format!("events before {} are not kept", second(since)));
    }
    if !it.incidents.is_empty() {
        let incidents = it.incidents.iter().cloned().map(Item::new).collect::<anyhow::Result<Vec<_>>>()?;
        print("");
        let view = if paper.width.is_some_and(|width| width < INCIDENTS_WIDTH) {
            &INCIDENTS_SHORT
        } else {
            &INCIDENTS
        };
        print(&output::many(view, &incidents, &asked.shown, (paper, clock::now()))?);
        if asked.shown.is_table() && incidents.iter().any(|it| it.gap_is_bound) {
            print(&format!("{BOUND} (AT)"));
        }
    }
    Ok(())
}

/// Where a timeline begins that would begin with nothing: shortly before what happened first, at least [`SHORTEST`] before its end.
/// `None`: where it begins already.
fn beginning(it: &Timeline) -> Option<Timestamp> {
    let segments = it.lanes.iter().flat_map(|lane| &lane.segments).map(|segment| segment.since);
    let first = segments.chain(it.marks.iter().map(|mark| mark.at)).min()?;
    let before = it.until.since(first) / 20;
    let at = first.minus(before).min(it.until.minus(SHORTEST));
    // Columns are longer than the difference.
    (at > it.since.plus(SHORTEST)).then_some(at)
}

/// Refuses a service that neither exists nor existed in the time of which managers keep a timeline.
async fn check_service(client: &Client, it: &Timeline, service: &str) -> anyhow::Result<()> {
    if it.lanes.iter().any(|lane| lane.service == service) {
        return Ok(());
    }
    let Err(unknown) = unknown::check(client, Named { service: Some(service), ..Named::default() }).await
    else {
        return Ok(());
    };
    let path = format!("/v1/timeline?columns=1&since=24h&service={}", Client::part(service));
    match client.read::<Timeline>(&path).await {
        Ok(it) if it.lanes.is_empty() => Err(unknown.into()),
        // The token may not read the timeline of all observers, or the service existed.
        _ => Ok(()),
    }
}

/// Refuses times that no manager accepts, and names their flags.
fn check(asked: &Asked, now: Timestamp) -> Result<(), String> {
    let oldest = now.minus(KEPT + CLOCKS_DIFFER);
    let cure = "at most 24h are kept: `everwatch events` shows earlier events";
    let until = asked.until.map(|until| until.of(now));
    if let Some(until) = until.filter(|until| *until < oldest) {
        return Err(format!("--until is {}: {cure}", second(until)));
    }
    let end = until.map_or(now, |until| until.min(now));
    let since = asked.since().of(end);
    if since >= end {
        let end = if until.is_some_and(|until| until <= now) { "--until" } else { "now" };
        return Err(format!("--since is {}, which is not before {end}", second(since)));
    }
    if since < oldest {
        return Err(format!("--since is {}: {cure}", second(since)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::OutputArgs;
    use serde_json::json;

    #[test]
    fn a_timeline_of_a_young_deployment_begins_with_what_happened_first() {
        let at = |secs: i64| Timestamp(secs * 1000);
        let begins = |first: Option<i64>, mark: Option<i64>| {
            let segment = |since| json!({"since": at(since), "until": at(900), "held_min": 1, "held_max": 1, "gap": 0, "overlap": 0});
            let mark_at =
                |since| json!({"at": at(since), "type": "service_registered", "service": "s1", "text": ""});
            let (segments, marks): (Vec<_>, Vec<_>) =
                (first.into_iter().map(segment).collect(), mark.into_iter().map(mark_at).collect());
            let it: Timeline = serde_json::from_value(json!({
                "since": at(0), "until": at(900), "complete_since": null, "columns": 60, "others": null, "marks": marks,
                "marks_left_out": 0, "incidents": [], "lanes": [{"service": "s1", "lives": true, "segments": segments}],
            }))
            .unwrap();
            beginning(&it).map(|it| it.0 / 1000)
        };
        for (first, mark, expected) in [
            (None, None, None),
            (Some(0), None, None),
            (Some(60), Some(30), None),
            (Some(700), None, Some(690)),
            (Some(700), Some(500), Some(480)),
            (Some(890), None, Some(840)),
        ] {
            assert_eq!(begins(first, mark), expected, "{first:?} {mark:?}");
        }
    }

    #[test]
    fn times_that_no_manager_accepts_are_refused_by_their_flags() {
        let now: Timestamp = "2030-01-31T12:00:00Z".parse().unwrap();
        let told = |since: &str, until: &str| {
            let asked = Asked {
                since: Some(since.parse().unwrap()),
                until: (!until.is_empty()).then(|| until.parse().unwrap()),
                services: Vec::new(),
                observer: None,
                shown: OutputArgs::default(),
            };
            check(&asked, now).err().unwrap_or_default()
        };
        let kept = "at most 24h are kept: `everwatch events` shows earlier events";
        for (since, until, error) in [
            ("15m", "", String::new()),
            ("24h", "", String::new()),
            ("23h", "1h", String::new()),
            ("15m", "2030-02-01T00:00:00Z", String::new()),
            ("25h", "", format!("--since is 2030-01-30T11:00:00Z: {kept}")),
            ("24h", "1h", format!("--since is 2030-01-30T11:00:00Z: {kept}")),
            ("15m", "30h", format!("--until is 2030-01-30T06:00:00Z: {kept}")),
            (
                "2030-01-31T11:30:00Z",
                "1h",
                "--since is 2030-01-31T11:30:00Z, which is not before --until".to_owned(),
            ),
            (
                "2030-02-01T00:00:00Z",
                "",
                "--since is 2030-02-01T00:00:00Z, which is not before now".to_owned(),
            ),
        ] {
            assert_eq!(told(since, until), error, "{since} {until}");
        }
    }
}
