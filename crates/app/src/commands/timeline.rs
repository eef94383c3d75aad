//! `everwatch timeline`: what each service held, where observers ran nowhere, and the incidents in which they moved.

use crate::cli::Timeline as Asked;
use crate::client::Client;
use crate::item::Item;
use crate::output::{self, INCIDENTS, TerminalStyle, note, print, second};
use everwatch_api::{Timeline, TimelineLane};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::record::events::EventKind;
use unicode_width::UnicodeWidthStr as _;

/// The number of columns if the output is not a terminal.
const COLUMNS: usize = 100;
/// The minimum number of columns.
const COLUMNS_MIN: usize = 20;
/// The width for the names of services and the numbers of observers that they hold now.
const MARGIN: usize = 30;
const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, asked: &Asked) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let paper = TerminalStyle::stdout();
    let columns = paper.width.map_or(COLUMNS, |width| width.saturating_sub(MARGIN).max(COLUMNS_MIN));
    let mut path = format!("/v1/timeline?columns={columns}&since={}", Client::part(&asked.since.to_string()));
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
    let it: Item<Timeline> = client.read(&path).await?;
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
    print(&drawn(&it, columns, paper.colours));
    if let Some(since) = it.complete_since.filter(|since| *since > it.since) {
        note(&format!("events before {} are not kept", second(since)));
    }
    if !it.incidents.is_empty() {
        let incidents = it.incidents.iter().cloned().map(Item::new).collect::<anyhow::Result<Vec<_>>>()?;
        print("");
        print(&output::many(&INCIDENTS, &incidents, &asked.shown, (paper, clock::now()))?);
    }
    Ok(())
}

/// The lanes as bars of blocks, one line for each service name.
fn drawn(it: &Timeline, columns: usize, colours: bool) -> String {
    let widest = it.lanes.iter().map(|lane| lane.service.width()).max().unwrap_or(0).clamp(4, 20);
    let most = it.lanes.iter().flat_map(|lane| &lane.segments).map(|part| part.held_max).max().unwrap_or(0);
    let (since, until) = (second(it.since), second(it.until));
    let space = columns.saturating_sub(since.len() + until.len()).max(1);
    let mut lines = vec![format!("{:widest$}  {since}{:space$}{until}", "", "")];
    for lane in &it.lanes {
        let name = output::cut(&lane.service, widest);
        let now = lane.segments.last().filter(|part| part.until >= it.until).map_or(0, |part| part.held_max);
        let state = if lane.lives { format!("{now} held") } else { "ended".to_owned() };
        let pad = " ".repeat(widest.saturating_sub(name.width()));
        lines.push(format!("{name}{pad}  {}  {state}", bars(it, lane, (columns, most, colours))));
    }
    if let Some(others) = &it.others {
        lines.push(format!("{:widest$}  and {} more: choose some with --service", "", others.lanes));
    }
    lines.push(format!(
        "{:widest$}  ▁…█ observers held, of {most}  ░ ran nowhere  ▒ ran twice  ✕ service lost  ▾ service stopped",
        ""
    ));
    lines.join("\n")
}

fn bars(it: &Timeline, lane: &TimelineLane, (columns, most, colours): (usize, u64, bool)) -> String {
    let span = (it.until.0 - it.since.0).max(1);
    let all = i64::try_from(columns).unwrap_or(1).max(1);
    let edge = |column: i64| Timestamp(it.since.0 + span * column / all);
    let toned = |tone: &str, sign: &str| {
        if colours { format!("{tone}{sign}{PLAIN}") } else { sign.to_owned() }
    };
    let one = |column: i64| {
        let (begins, ends) = (edge(column), edge(column + 1));
        let ended = it.marks.iter().find(|mark| {
            mark.service.as_ref() == Some(&lane.service)
                && matches!(mark.kind, EventKind::ServiceLost | EventKind::ServiceGone)
                && mark.at >= begins
                && mark.at < ends
        });
        if let Some(mark) = ended {
            let is_lost = mark.kind == EventKind::ServiceLost;
            return if is_lost { toned(RED, "✕") } else { toned(YELLOW, "▾") };
        }
        let here: Vec<_> =
            lane.segments.iter().filter(|part| part.since < ends && part.until > begins).collect();
        let held = here.iter().map(|part| part.held_max).max().unwrap_or(0);
        if here.iter().any(|part| part.gap > 0) {
            return toned(RED, "░");
        }
        if here.iter().any(|part| part.overlap > 0) {
            return toned(YELLOW, "▒");
        }
        let level = usize::try_from((held * 8).div_ceil(most.max(1))).unwrap_or(8);
        level.checked_sub(1).map_or(" ", |level| BARS[level.min(7)]).to_owned()
    };
    (0..all).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_api::{TimelineMark, TimelineSegment};

    #[test]
    fn a_killed_service_is_marked_and_its_gap_is_drawn() {
        let at = |secs: i64| Timestamp(secs * 1000);
        let part = |since, until, held, gap| TimelineSegment {
            since: at(since),
            until: at(until),
            held_min: held,
            held_max: held,
            gap,
            overlap: 0,
        };
        let lane =
            |service: &str, lives, segments| TimelineLane { service: service.to_owned(), lives, segments };
        let it = Timeline {
            since: at(0),
            until: at(10),
            complete_since: None,
            columns: 10,
            others: None,
            marks_left_out: 0,
            lanes: vec![
                lane("amber", false, vec![part(0, 4, 8, 0), part(4, 5, 8, 8)]),
                lane("birch", true, vec![part(0, 5, 4, 0), part(5, 10, 12, 0)]),
            ],
            marks: vec![TimelineMark {
                at: at(5),
                kind: EventKind::ServiceLost,
                service: Some("amber".to_owned()),
                text: String::new(),
            }],
            incidents: Vec::new(),
        };
        let text = drawn(&it, 10, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       1970-01-01T00:00:00Z 1970-01-01T00:00:10Z");
        assert_eq!(lines[1], "amber  ▆▆▆▆░✕      ended");
        assert_eq!(lines[2], "birch  ▃▃▃▃▃█████  12 held");
        assert!(drawn(&it, 10, true).contains("\u{1b}[31m✕\u{1b}[0m"));
    }
}
