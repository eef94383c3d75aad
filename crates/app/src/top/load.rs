//! Sends the model's requests to the manager: loads data and performs actions.

use super::model::{Query, Trouble, Verb, Wish};
use super::seen::{Observer, Page, Pool, SafeMode, Seen, Service, Stats};
use super::target::{Focus, Target};
use super::timeline::Span;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{
    INCIDENTS_OF_DAY, INCIDENTS_SHORT, Lines, OutputArgs, Picture, TerminalStyle, Tone, TonedLine, cut,
    second,
};
use crate::requests::{described_observer, described_service, path as path_of, service_path};
use everwatch_api as api;
use reqwest::Method;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;
use unicode_width::UnicodeWidthStr as _;

/// A manager that takes longer to answer counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The width from which all columns of incidents fit.
const INCIDENTS_WIDTH: usize = 98;

pub(super) async fn screen(client: &Client, query: &Query) -> Result<Box<Seen>, Trouble> {
    let observers = path(query);
    let all = async {
        let (stats, pools, services, safe_mode, observers) = tokio::try_join!(
            client.read::<Stats>("/v1/stats"),
            client.read::<Page<Pool>>("/v1/pools"),
            client.read::<Page<Service>>(
                "/v1/services?state=active,standby,cordoned,draining,suspect&limit=1000"
            ),
            client.read::<SafeMode>("/v1/safe-mode"),
            client.read::<Page<Observer>>(&observers),
        )?;
        Ok(Box::new(Seen { stats, pools: pools.items, services: services.items, observers, safe_mode }))
    };
    within(all).await
}

/// Sends the request for this verb.
async fn act<T: DeserializeOwned>(client: &Client, path: &str, verb: Verb) -> anyhow::Result<T> {
    match verb {
        Verb::Delete => client.send(Method::DELETE, path, None).await,
        verb => client.send(Method::POST, &format!("{path}/{}", verb.word()), None).await,
    }
}

pub(super) async fn describe(client: &Client, target: &Target, width: usize) -> Result<String, Trouble> {
    let paper = TerminalStyle { width: Some(width), colours: false };
    match target.what {
        Focus::Observers => within(described_observer(client, &target.id, paper)).await,
        Focus::Services => within(described_service(client, &target.id, paper)).await,
    }
}

/// The timeline and its incidents, the newest first, as lines of at most this width.
pub(super) async fn timeline(client: &Client, span: Span, width: usize) -> Result<Vec<TonedLine>, Trouble> {
    let columns = Picture::columns(Some(width));
    let path = format!("/v1/timeline?columns={columns}&since={}", span.words().0);
    within(async { pictured(&client.read(&path).await?, (columns, width)) }).await
}

/// The lines of a timeline with this many columns, at this width.
pub(super) fn pictured(
    it: &api::Timeline,
    (columns, width): (usize, usize),
) -> anyhow::Result<Vec<TonedLine>> {
    let plain = |text: &str| vec![(Tone::Plain, cut(text, width))];
    if it.lanes.is_empty() {
        return Ok(vec![plain("no service ran in this time")]);
    }
    let Picture { lanes, legend, .. } = Picture::new(it, columns, "");
    let mut lines = lanes;
    lines.extend(legend_lines(&legend, width));
    if let Some(since) = it.complete_since.filter(|since| *since > it.since) {
        lines.push(plain(&format!("events before {} are not kept", second(since))));
    }
    lines.push(plain(""));
    let incidents = it.incidents.iter().rev().cloned().map(Item::new).collect::<anyhow::Result<Vec<_>>>()?;
    if incidents.is_empty() {
        lines.push(plain("no incidents"));
        return Ok(lines);
    }
    let paper = TerminalStyle { width: Some(width), colours: false };
    let view = if width < INCIDENTS_WIDTH { &INCIDENTS_SHORT } else { &INCIDENTS_OF_DAY };
    let table = Lines::new(view, &OutputArgs::default(), paper).page(&incidents, it.until);
    lines.extend(table.lines().map(plain));
    Ok(lines)
}

/// The legend, divided between its signs where a line is full.
fn legend_lines(legend: &str, width: usize) -> Vec<TonedLine> {
    let mut lines: Vec<String> = Vec::new();
    for sign in legend.split("  ").filter(|sign| !sign.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.width() + 2 + sign.width() <= width => line.push_str(&format!("  {sign}")),
            _ => lines.push(sign.to_owned()),
        }
    }
    lines.iter().map(|text| vec![(Tone::Plain, cut(text, width))]).collect()
}

/// Performs the action and returns the resulting state as text.
pub(super) async fn carry_out(client: &Client, wish: &Wish) -> Result<String, Trouble> {
    let id = &wish.target.id;
    let asked = async {
        Ok(match wish.target.what {
            Focus::Observers => {
                let it: api::Observer = act(client, &path_of(id), wish.verb).await?;
                format!("{} {}", it.status.as_str(), it.reason).trim_end().to_owned()
            }
            Focus::Services => {
                let it: api::Service = act(client, &service_path(id), wish.verb).await?;
                it.state.as_str().to_owned()
            }
        })
    };
    within(asked).await
}

async fn within<T>(asked: impl Future<Output = anyhow::Result<T>>) -> Result<T, Trouble> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(match error.downcast_ref() {
            Some(Failure::Unreachable(why)) => Trouble::Unreachable(why.clone()),
            _ => Trouble::Refused(format!("{error:#}")),
        }),
        Err(_) => Err(Trouble::Unreachable(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

/// Builds the path from a filter. Words `key=value` become parameters of the API or labels; all other words
/// are searched for in names.
fn path(query: &Query) -> String {
    let mut path = format!("/v1/observers?limit={}&sort={}", query.rows.clamp(1, 1000), query.sort.words().0);
    let mut parts = Vec::new();
    for word in query.filter.split_whitespace() {
        match word.split_once('=') {
            Some((key @ ("status" | "kind" | "pool" | "service"), value)) => {
                path.push_str(&format!("&{key}={}", Client::part(value)));
            }
            Some(_) => path.push_str(&format!("&label={}", Client::part(word))),
            None => parts.push(word),
        }
    }
    if !parts.is_empty() {
        path.push_str(&format!("&q={}", Client::part(&parts.join(" "))));
    }
    if let Some((cursor, _)) = query.pages.last() {
        path.push_str(&format!("&cursor={}", Client::part(cursor)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::Sort;

    #[test]
    fn a_filter_becomes_what_the_manager_knows() {
        let query = Query {
            filter: "feed status=Failed,Created team=a b".to_owned(),
            sort: Sort::Newest,
            rows: 20,
            pages: vec![("c1".to_owned(), 20)],
        };
        assert_eq!(
            path(&query),
            "/v1/observers?limit=20&sort=-created_at&status=Failed%2CCreated&label=team%3Da&q=feed%20b&cursor=c1"
        );
    }
}
