//! The commands that act on observers, by their names or by a filter: pause, resume, restart, retry, trigger, move and delete.

use super::unknown::{self, Named, explained, hinted};
use super::waiting::{self, FormerRun, Goal};
use super::{bulk, fan_out};
use crate::answers::{Action, is_on};
use crate::cli::{Move, Selection};
use crate::client::{Client, Failure};
use crate::output::note;
use crate::refusals::in_place;
use crate::requests::{all, path, service_path};
use everwatch_api::{Observer, Service};
use everwatch_core::wording::counted_subject;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Acts on the observers that the user names or selects.
pub(super) async fn selected(
    client: &Client,
    action: Action<'_>,
    chosen: &Selection,
    wait: Option<Duration>,
) -> anyhow::Result<()> {
    let filter = chosen.filter.query();
    if filter.is_empty() {
        return named(client, action, &chosen.names, wait).await;
    }
    let mut former = BTreeMap::new();
    if wait.is_some() && action == Action::Restart {
        let before = all(client, &filter, usize::MAX).await?;
        former.extend(before.iter().map(|it| (it.id.to_string(), former_run(action, it))));
    }
    let begun = bulk::run(client, action, (chosen, &filter)).await;
    let Some(timeout) = wait else { return begun.map(drop) };
    let begun = begun?;
    fan_out::each(&begun, "done", |id| {
        let goal = goal(action, former.get(id).copied().unwrap_or_default());
        waiting::until(client, id, goal, timeout)
    })
    .await
}

/// Acts on the observers of these names.
pub(super) async fn named(
    client: &Client,
    action: Action<'_>,
    names: &[String],
    wait: Option<Duration>,
) -> anyhow::Result<()> {
    each(client, action, (names, &BTreeMap::new()), wait).await
}

/// Acts on the observers of these names or ids; `known`: the names of those that are given by their ids, for messages.
async fn each(
    client: &Client,
    action: Action<'_>,
    (names, known): (&[String], &BTreeMap<String, &str>),
    wait: Option<Duration>,
) -> anyhow::Result<()> {
    let body = match action {
        Action::MoveToPool(pool) => Some(json!({ "pool": pool })),
        Action::MoveToService(service) => Some(json!({ "service": service })),
        _ => None,
    };
    let (body, is_alone) = (body.as_ref(), names.len() == 1);
    let one = |name| hinted(client, (unknown::OBSERVERS, name), act(client, action, (name, body), wait));
    fan_out::each(names, "done", |name| async move {
        let acted = one(name).await.map_err(|error| match known.get(name) {
            Some(known) => {
                let text = format!("{known}: {error:#}");
                fan_out::replaced(error, text)
            }
            None => error,
        });
        let it = match acted? {
            Acted::Asked(it) => it,
            Acted::Reached(told) => return Ok(told),
        };
        Ok(if is_alone { action.told_alone(&it) } else { action.told(&it) })
    })
    .await?;
    if !is_alone && wait.is_none() {
        note("see `everwatch observer list`");
    }
    Ok(())
}

/// How an action on one observer ended.
enum Acted {
    Asked(Box<Observer>),
    /// The sentence about what the command waited for.
    Reached(String),
}

async fn act(
    client: &Client,
    action: Action<'_>,
    (name, body): (&str, Option<&Value>),
    wait: Option<Duration>,
) -> anyhow::Result<Acted> {
    let needs_former = wait.is_some() && matches!(action.verb(), "restart" | "move");
    let former = if needs_former {
        former_run(action, &client.read::<Observer>(&path(name)).await?)
    } else {
        FormerRun::default()
    };
    let asked = client.send(Method::POST, &format!("{}/{}", path(name), action.verb()), body).await;
    let to = match action {
        Action::MoveToService(service) => Some(service),
        _ => None,
    };
    let named = Named { service: to, ..Named::default() };
    let place = |word: &str| (word == "/service").then(|| "--to:".to_owned());
    let it: Box<Observer> = explained(client, named, asked).await.map_err(|error| in_place(error, place))?;
    let Some(timeout) = wait else { return Ok(Acted::Asked(it)) };
    // By id: another observer may get the name meanwhile.
    waiting::until(client, &it.id.to_string(), goal(action, former), timeout).await.map(Acted::Reached)
}

/// What to wait for after an action.
fn goal(action: Action<'_>, former: FormerRun) -> Goal<'static> {
    match action {
        Action::Pause => Goal::Paused,
        _ => Goal::Runs(former),
    }
}

/// The run that the action ends. An observer stays where it is if that is its destination.
fn former_run(action: Action<'_>, it: &Observer) -> FormerRun {
    let on = it.service.as_ref();
    let stays = match action {
        Action::MoveToPool(pool) => it.pool == pool,
        Action::MoveToService(service) => is_on(it, service),
        _ => false,
    };
    match action {
        Action::Restart => FormerRun { epoch: Some(it.epoch), service: None },
        _ if stays => FormerRun::default(),
        _ => FormerRun { epoch: None, service: on.map(|on| on.id) },
    }
}

/// Moves observers to a pool, to a service, or to whichever service has room.
pub(super) async fn relocate(client: &Client, asked: &Move) -> anyhow::Result<()> {
    let names = &asked.names;
    let action = match (asked.pool.as_deref(), asked.service.as_deref()) {
        (Some(pool), _) => {
            unknown::check_served(client, pool).await?;
            Action::MoveToPool(pool)
        }
        (None, Some(service)) => Action::MoveToService(service),
        (None, None) => {
            check_last_name(client, names).await?;
            Action::Move
        }
    };
    let filter = asked.labels.query();
    if filter.is_empty() {
        return named(client, action, names, asked.wait.time).await;
    }
    let count = bulk::agreed(client, "move", (asked.expect, asked.yes), &filter).await?;
    let found = all(client, &filter, usize::MAX).await?;
    if found.len() as u64 != count {
        let found = counted_subject(found.len() as u64, "observer", ["matches", "match"]);
        return Err(Failure::Conflict(format!("{found}, not {count}: nothing was done")).into());
    }
    let names: BTreeMap<String, &str> =
        found.iter().map(|it| (it.id.to_string(), it.name.as_str())).collect();
    let ids: Vec<String> = found.iter().map(|it| it.id.to_string()).collect();
    if ids.is_empty() { Ok(()) } else { each(client, action, (&ids, &names), asked.wait.time).await }
}

/// Refuses `move OBSERVER SERVICE`, as one would write it for `mv`, before the observer moves to some other service; also if there
/// is no such service.
async fn check_last_name(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let [_, .., last] = names else { return Ok(()) };
    let is_missing = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(Failure::NotFound(_)));
    let observer = client.read::<Observer>(&path(last)).await;
    if !observer.as_ref().is_err_and(is_missing) {
        return Ok(());
    }
    if client.read::<Service>(&service_path(last)).await.is_err() {
        return hinted(client, (unknown::OBSERVERS, last), async { observer }).await.map(drop);
    }
    let text =
        format!("`{last}` is a service, not an observer: to move observers to it, write `--to {last}`");
    Err(Failure::Usage(text).into())
}

pub(super) async fn delete(
    client: &Client,
    chosen: &Selection,
    wait: Option<Duration>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let filter = chosen.filter.query();
    let names = match (filter.is_empty(), dry_run) {
        (true, _) => chosen.names.clone(),
        (false, true) => {
            let found = all(client, &filter, usize::MAX).await?;
            if found.is_empty() {
                note("no observers");
                unknown::check(client, Named::of(&chosen.filter)).await?;
            }
            found.iter().map(|it| it.id.to_string()).collect()
        }
        (false, false) => {
            let begun = bulk::run(client, Action::Delete, (chosen, &filter)).await?;
            if wait.is_none() {
                return Ok(());
            }
            begun
        }
    };
    let query = wait.map_or_else(String::new, |it| format!("?wait={}s", it.as_secs().clamp(1, 60)));
    let is_alone = names.len() == 1;
    fan_out::each(&names, "deleted", |name| {
        let path = if dry_run { path(name) } else { format!("{}{query}", path(name)) };
        async move {
            let method = if dry_run { Method::GET } else { Method::DELETE };
            let sent = client.send(method, &path, None);
            let it: Observer = hinted(client, (unknown::OBSERVERS, name), sent).await?;
            Ok(match (dry_run, is_alone) {
                (true, _) => format!("observer {} would be deleted; current status: {}", it.name, it.status),
                (false, true) => Action::Delete.told_alone(&it),
                (false, false) => Action::Delete.told(&it),
            })
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_over_on_another_service_unless_the_observer_is_there_already() {
        let it = crate::output::an_observer("prices", "Processing", "");
        let on = it.service.clone().unwrap();
        let elsewhere = FormerRun { epoch: None, service: Some(on.id) };
        for (action, expected) in [
            (Action::Move, elsewhere),
            (Action::MoveToService("another"), elsewhere),
            (Action::MoveToService(&on.name), FormerRun::default()),
            (Action::MoveToService(&on.id.to_string()), FormerRun::default()),
            (Action::MoveToPool("another"), elsewhere),
            (Action::MoveToPool(&it.pool), FormerRun::default()),
            (Action::Restart, FormerRun { epoch: Some(it.epoch), service: None }),
        ] {
            assert_eq!(former_run(action, &it), expected, "{action:?}");
        }
    }
}
