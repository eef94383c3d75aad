//! `everwatch observer wait`, and `--wait` of the commands that start, stop and move observers.

use super::unknown::{self, hinted};
use crate::cli::Wait;
use crate::client::{Client, Failure};
use crate::output::{answer, note};
use crate::requests::path;
use everwatch_api as api;
use everwatch_core::clock;
use everwatch_core::record::health::Health;
use everwatch_core::record::status::Status;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The longest time that a manager holds a request for a status.
const POLL: Duration = Duration::from_secs(30);
/// The pause between two looks at the health, for which managers hold no request.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A program that ends at once appears to run for a moment: only a run that lasts for this long counts.
const STAYS: Duration = Duration::from_millis(400);

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal<'a> {
    Status(&'a str),
    Health(Health),
    /// A run other than the former one, the end of its work, or the status `Scheduled`. A failure for good ends the wait.
    Runs(FormerRun),
    /// The end of the run of a paused observer.
    Paused,
}

/// A run that a command ends: a wait for the next run does not take it for the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FormerRun {
    /// The next run has a higher epoch.
    pub(super) epoch: Option<u64>,
    /// The next run is on another service.
    pub(super) service: Option<Uuid>,
}

impl FormerRun {
    fn is(self, it: &api::Observer) -> bool {
        let on = it.service.as_ref().map(|service| service.id);
        self.epoch.is_some_and(|epoch| it.epoch <= epoch) || (self.service.is_some() && self.service == on)
    }
}

impl<'a> Goal<'a> {
    fn parse(text: &'a str) -> Result<Self, Failure> {
        match text.split_once('=') {
            Some(("status", status)) => match status.parse::<Status>() {
                Ok(_) => Ok(Self::Status(status)),
                Err(error) => Err(Failure::Usage(format!("--for status=`{status}`: {error}"))),
            },
            Some(("health", health)) => health
                .parse()
                .map(Self::Health)
                .map_err(|error| Failure::Usage(format!("--for health=`{health}`: {error}"))),
            _ => Err(Failure::Usage(format!(
                "--for `{text}`: write status=STATUS or health=HEALTH, such as status=Processing or health=running"
            ))),
        }
    }

    fn word(self) -> &'a str {
        match self {
            Self::Status(status) => status,
            Self::Health(health) => health.as_str(),
            Self::Runs(FormerRun { service: Some(_), .. }) => "running on another service",
            Self::Runs(FormerRun { epoch: Some(_), .. }) => "running again",
            Self::Runs(_) => Health::Running.as_str(),
            Self::Paused => Status::Paused.as_str(),
        }
    }

    /// The status that the manager waits for; otherwise, the command looks repeatedly.
    fn status(self) -> Option<&'a str> {
        match self {
            Self::Status(status) => Some(status),
            Self::Health(_) | Self::Runs(_) | Self::Paused => None,
        }
    }

    fn is_a_run(self) -> bool {
        matches!(self, Self::Health(_) | Self::Runs(_))
    }

    /// Whether the observer has reached it, or cannot reach it any more.
    fn judge(self, it: &api::Observer) -> Option<Result<(), Failure>> {
        let is = it.status.as_str();
        let wants_run = matches!(self, Self::Runs(_));
        match self {
            Self::Status(wanted) if is == wanted => return Some(Ok(())),
            Self::Health(wanted) if it.health == Some(wanted) => return Some(Ok(())),
            Self::Runs(former) if it.health == Some(Health::Running) && !former.is(it) => {
                return Some(Ok(()));
            }
            // It is where the move was to take it, and its code fails there, too.
            Self::Runs(former @ FormerRun { service: Some(_), .. })
                if it.health == Some(Health::Restarting) && it.service.is_some() && !former.is(it) =>
            {
                return Some(Ok(()));
            }
            // An observer that has ended cannot be paused, and does not run.
            Self::Paused if matches!(it.status, Status::Paused | Status::Completed | Status::Failed) => {
                return Some(Ok(()));
            }
            _ => {}
        }
        match it.status {
            Status::Deleted => {
                let text = format!("{} is deleted, so it never becomes {}", it.name, self.word());
                Some(Err(Failure::Conflict(text)))
            }
            // One whose time has not come is where its definition wants it.
            Status::Completed | Status::Scheduled if wants_run => Some(Ok(())),
            Status::Failed if wants_run => {
                Some(Err(Failure::Failed(format!("{} is Failed: {}", it.name, it.reason))))
            }
            _ => None,
        }
    }
}

pub(super) async fn run(client: &Client, asked: &Wait) -> anyhow::Result<()> {
    let goal = Goal::parse(&asked.until)?;
    let waited = until(client, &asked.name, goal, asked.timeout);
    answer(&hinted(client, (unknown::OBSERVERS, &asked.name), waited).await?);
    Ok(())
}

/// Waits until the observer has reached the goal; returns a sentence about it. Fails at once if it cannot reach the goal any more.
pub(super) async fn until(
    client: &Client,
    name: &str,
    goal: Goal<'_>,
    timeout: Duration,
) -> anyhow::Result<String> {
    let begun = Instant::now();
    let (mut last, mut since) = (String::new(), None);
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let query = goal.status().map_or_else(String::new, |status| {
            let poll = left.min(POLL).as_secs().max(1);
            format!("?wait_for=status%3D{}&wait={poll}s", Client::part(status))
        });
        let it: api::Observer = client.read(&format!("{}{query}", path(name))).await?;
        let judged = goal.judge(&it);
        let run = (it.epoch, it.attempt);
        if let Some(Ok(())) = judged
            && stays(goal, run, &mut since)
        {
            return Ok(reached(goal, &it));
        }
        match judged {
            Some(Err(failure)) => return Err(failure.into()),
            None => since = None,
            Some(Ok(())) => {}
        }
        if begun.elapsed() >= timeout {
            let (name, now, waited) = (&it.name, current(&it), clock::show(timeout));
            let text = format!("{name} is {now} after {waited}, not {}: {}", goal.word(), why(&it));
            return Err(Failure::TimedOut(text.trim_end_matches([':', ' ']).to_owned()).into());
        }
        let why = why(&it);
        if last != why && !why.is_empty() {
            note(&format!("{} is {}: {why}", it.name, current(&it)));
            last = why;
        }
        if goal.status().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Whether what was reached lasts: a health counts once the same attempt has had it for a moment.
fn stays(goal: Goal<'_>, run: (u64, u32), since: &mut Option<((u64, u32), Instant)>) -> bool {
    if !goal.is_a_run() {
        return true;
    }
    match since {
        Some((known, at)) if *known == run => at.elapsed() >= STAYS,
        _ => {
            *since = Some((run, Instant::now()));
            false
        }
    }
}

/// The reason for its status; an error whose next attempt is due rather than the time of that attempt, which changes.
fn why(it: &api::Observer) -> String {
    match &it.last_error {
        Some(error) if it.health == Some(Health::Restarting) => error.clone(),
        _ => it.reason.clone(),
    }
}

fn current(it: &api::Observer) -> String {
    match it.health {
        Some(health) => format!("{} ({health})", it.status),
        None => it.status.to_string(),
    }
}

/// A run that was over before it was seen has a status alone.
fn reached(goal: Goal<'_>, it: &api::Observer) -> String {
    let now = if goal.is_a_run() { current(it) } else { it.status.to_string() };
    let on = match (goal, &it.service) {
        (Goal::Runs(FormerRun { service: Some(_), .. }), Some(service)) => {
            format!(" on {}", service.name)
        }
        _ => String::new(),
    };
    format!("observer {} is {now}{on}", it.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::an_observer;
    use serde_json::json;

    /// An observer with this health on the service `b`.
    fn on_b(health: &str) -> api::Observer {
        let mut sent = an_observer("a", "Processing", "").sent().clone();
        sent["health"] = json!(health);
        sent["service"] = json!({"id": Uuid::from_u128(2), "name": "b"});
        serde_json::from_value(sent).unwrap()
    }

    #[test]
    fn a_move_is_over_where_the_code_fails_again() {
        let from = |number| FormerRun { epoch: None, service: Some(Uuid::from_u128(number)) };
        let is_over = |former, health: &str| matches!(Goal::Runs(former).judge(&on_b(health)), Some(Ok(())));
        assert!(is_over(from(1), "restarting") && is_over(from(1), "running"));
        assert!(!is_over(from(1), "moving"));
        assert!(!is_over(from(2), "restarting") && !is_over(from(2), "running"), "it has not moved");
        assert!(!is_over(FormerRun::default(), "restarting"), "no move was requested");
    }
}
