//! Sends the model's requests to the manager: loads data and performs actions.

use super::filter::{Filter, parsed, unknown_label};
use super::incident::SHOWN_FOR;
use super::model::{Trouble, Verb, Wish};
use super::query::{Query, Sort};
use super::seen::{Observer, Page, Pool, SafeMode, Seen, Service, Stats, with_lost};
use super::target::{Focus, Target};
use super::timeline::Span;
use crate::answers::{Action, Order};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{
    INCIDENTS_OF_DAY, INCIDENTS_SHORT, INCIDENTS_WIDTH, Lines, OutputArgs, Picture, TerminalStyle, Tone,
    TonedLine, cut, second,
};
use crate::requests::{described_observer, described_service, path as path_of, service_path};
use everwatch_api as api;
use everwatch_core::clock;
use everwatch_core::doctor::Severity;
use everwatch_core::record::health::Health;
use futures::future::join_all;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// A manager that takes longer to answer counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most services that may vanish between two loads and are looked at.
const VANISHED_MAX: usize = 20;
/// How many observers are read to be sorted here: the most of one response.
pub(super) const SORTED_MAX: usize = 1000;

/// Everything that the screen shows. `known` are the ids of the services that it shows now: those that have vanished may be lost.
pub(super) async fn screen(client: &Client, query: &Query, known: &[String]) -> Result<Box<Seen>, Trouble> {
    let filter = parsed(&query.filter).map_err(Trouble::Refused)?;
    let observers = path(query, &filter);
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
        let (ended, unknown_label) =
            tokio::join!(vanished(client, &services.items, known), unknown(client, &filter, observers.total));
        Ok(Box::new(Seen {
            stats,
            pools: pools.items,
            services: with_lost(services.items, ended, clock::now()),
            observers: page(observers, query),
            safe_mode,
            unknown_label,
        }))
    };
    within(all).await
}

/// The services that no longer live, as far as managers still know them.
async fn vanished(client: &Client, living: &[Service], known: &[String]) -> Vec<Service> {
    let lives = |id: &&String| living.iter().any(|it| it.id == **id);
    let gone = known.iter().filter(|id| !lives(id)).take(VANISHED_MAX);
    let read = join_all(gone.map(|id| async move { client.read::<Service>(&service_path(id)).await.ok() }));
    read.await.into_iter().flatten().collect()
}

/// What to say if nothing matches because of a label that no observer has.
async fn unknown(client: &Client, filter: &Filter<'_>, found: u64) -> Option<String> {
    let key = filter.labels.first().filter(|_| found == 0)?;
    let path = format!("/v1/observers?limit=1&selector={}", Client::part(key));
    let having = client.read::<Page<Observer>>(&path).await.ok()?;
    (having.total == 0).then(|| unknown_label(key))
}

/// The page of the query. If managers do not know its order, it is a part of what they sent, and its cursor counts the observers
/// before it.
fn page(mut read: Page<Observer>, query: &Query) -> Page<Observer> {
    match query.sort {
        Sort::Health => read.items.sort_by_key(severity),
        Sort::Restarts => read.items.sort_by_key(|it| std::cmp::Reverse(it.restarts)),
        Sort::Name | Sort::NameDown | Sort::Oldest | Sort::Newest => return read,
    }
    let before = query.pages.last().and_then(|(cursor, _)| cursor.parse().ok()).unwrap_or(0_usize);
    let end = before.saturating_add(query.rows.max(1));
    let next_cursor = (read.items.len() > end).then(|| end.to_string());
    let items = read.items.into_iter().skip(before).take(query.rows.max(1)).collect();
    Page { items, next_cursor, total: read.total }
}

/// The place in the order by health: failed observers, those that do not do their work, and those that do.
fn severity(it: &Observer) -> usize {
    let last = Health::ALL.len() + 1;
    match it.health.as_deref().map(str::parse) {
        None if it.status == "Failed" => 0,
        Some(Ok(Health::Restarting)) => 1,
        Some(Ok(Health::Waiting)) => 2,
        Some(Ok(Health::Moving)) => 3,
        Some(Ok(Health::Stopping)) => 4,
        Some(Ok(Health::Running)) => last - 1,
        None | Some(Err(_)) => last,
    }
}

/// The incidents of the last minutes; `None` if the manager does not answer, or does not permit it.
pub(super) async fn incidents(client: &Client) -> Option<Vec<api::Incident>> {
    let path = format!("/v1/timeline?columns=1&since={}", clock::show(SHOWN_FOR));
    within(client.read::<api::Timeline>(&path)).await.ok().map(|it| it.incidents)
}

/// The warnings and critical findings of the doctor, the worst first; `None` if the manager does not answer, or does not permit it.
pub(super) async fn problems(client: &Client) -> Option<Vec<api::Finding>> {
    let found = within(client.read::<api::Listed<api::Finding>>("/v1/doctor")).await.ok()?;
    Some(found.items.into_iter().filter(|it| it.severity >= Severity::Warning).collect())
}

/// Sends the request for this verb.
async fn act<T: DeserializeOwned>(client: &Client, path: &str, wish: &Wish) -> anyhow::Result<T> {
    let body = wish.to.as_ref().map(|service| json!({"service": service}));
    match wish.verb {
        Verb::Delete => client.send(Method::DELETE, path, None).await,
        verb => client.send(Method::POST, &format!("{path}/{}", verb.word()), body.as_ref()).await,
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
    let picture = Picture::new(it, columns, "");
    let legend = picture.legend_lines(width);
    let mut lines = picture.lanes;
    lines.extend(legend.iter().map(|line| plain(line)));
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

/// What a wish asks for.
enum Asked<'a> {
    Action(Action<'a>),
    Order(Order),
}

fn asked(wish: &Wish) -> Asked<'_> {
    match wish.verb {
        Verb::Delete => Asked::Action(Action::Delete),
        Verb::Pause => Asked::Action(Action::Pause),
        Verb::Resume => Asked::Action(Action::Resume),
        Verb::Restart => Asked::Action(Action::Restart),
        Verb::Move => Asked::Action(wish.to.as_deref().map_or(Action::Move, Action::MoveToService)),
        Verb::Retry => Asked::Action(Action::Retry),
        Verb::Cordon => Asked::Order(Order::Cordon),
        Verb::Uncordon => Asked::Order(Order::Uncordon),
        Verb::Drain => Asked::Order(Order::Drain),
    }
}

/// What the last line says about an order. It stays while the order is carried out, so it names no progress.
fn briefly(order: Order, it: &api::Service) -> String {
    match (order, &it.drain) {
        (Order::Drain, Some(_)) => format!("service {} drains: its row shows the progress", it.name),
        _ => order.briefly(it),
    }
}

/// Performs the action; returns the same answer as the command.
pub(super) async fn carry_out(client: &Client, wish: &Wish) -> Result<String, Trouble> {
    let id = &wish.target.id;
    let sent = async {
        Ok(match asked(wish) {
            Asked::Action(action) => action.told(&act(client, &path_of(id), wish).await?),
            Asked::Order(order) => briefly(order, &act(client, &service_path(id), wish).await?),
        })
    };
    within(sent).await
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

/// The path of the observers of a query. Orders that managers do not know need all observers, as far as one response has them.
fn path(query: &Query, filter: &Filter<'_>) -> String {
    let (sort, _) = query.sort.words();
    let limit = if query.sort.is_own() { SORTED_MAX } else { query.rows.clamp(1, SORTED_MAX) };
    let mut path = format!("/v1/observers?limit={limit}&sort={sort}");
    for (key, value) in &filter.parameters {
        path.push_str(&format!("&{key}={}", Client::part(value)));
    }
    if let Some((cursor, _)) = query.pages.last().filter(|_| !query.sort.is_own()) {
        path.push_str(&format!("&cursor={}", Client::part(cursor)));
    }
    path
}

#[cfg(test)]
mod tests;
