//! `everwatch observer wait`, and `--wait` of `observer create`.

use crate::cli::Wait;
use crate::client::{Client, Failure};
use crate::output::{note, print};
use crate::requests::path;
use everwatch_api as api;
use everwatch_core::clock;
use everwatch_core::record::health::Health;
use everwatch_core::record::status::Status;
use std::time::{Duration, Instant};

/// The longest time that a manager holds a request for a status.
const POLL: Duration = Duration::from_secs(30);
/// The pause between two looks at the health, for which managers hold no request.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A program that ends at once appears to run for a moment: only a run that lasts for this long counts.
const STAYS: Duration = Duration::from_millis(400);

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal<'a> {
    /// The manager knows whether the word is a status.
    Status(&'a str),
    Health(Health),
}

impl<'a> Goal<'a> {
    fn parse(text: &'a str) -> Result<Self, Failure> {
        match text.split_once('=') {
            Some(("status", status)) => Ok(Self::Status(status)),
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
        }
    }

    /// Whether the observer has reached it, or cannot reach it any more.
    fn judge(self, it: &api::Observer, wants_run: bool) -> Option<Result<(), Failure>> {
        let is = it.status.as_str();
        match self {
            Self::Status(wanted) if is == wanted => return Some(Ok(())),
            Self::Health(wanted) if it.health == Some(wanted) => return Some(Ok(())),
            _ => {}
        }
        match it.status {
            Status::Deleted => {
                let text = format!("{} is deleted, so it never becomes {}", it.name, self.word());
                Some(Err(Failure::Conflict(text)))
            }
            Status::Completed if wants_run => Some(Ok(())),
            Status::Failed if wants_run => {
                Some(Err(Failure::Failed(format!("{} is Failed: {}", it.name, it.reason))))
            }
            _ => None,
        }
    }
}

pub(super) async fn run(client: &Client, asked: &Wait) -> anyhow::Result<()> {
    let goal = Goal::parse(&asked.until)?;
    until(client, &asked.name, (goal, false), asked.timeout).await
}

/// Waits until a new observer runs, or has completed. Fails at once if it has failed for good.
pub(super) async fn until_it_runs(client: &Client, name: &str, timeout: Duration) -> anyhow::Result<()> {
    until(client, name, (Goal::Health(Health::Running), true), timeout).await
}

async fn until(
    client: &Client,
    name: &str,
    (goal, wants_run): (Goal<'_>, bool),
    timeout: Duration,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut last, mut since) = (String::new(), None);
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let query = match goal {
            Goal::Status(status) => {
                let poll = left.min(POLL).as_secs().max(1);
                format!("?wait_for=status%3D{}&wait={poll}s", Client::part(status))
            }
            Goal::Health(_) => String::new(),
        };
        let it: api::Observer = client.read(&format!("{}{query}", path(name))).await?;
        let judged = goal.judge(&it, wants_run);
        let run = (it.epoch, it.attempt);
        if let Some(Ok(())) = judged
            && stays(goal, run, &mut since)
        {
            print(&reached(goal, &it));
            return Ok(());
        }
        match judged {
            Some(Err(failure)) => return Err(failure.into()),
            None => since = None,
            Some(Ok(())) => {}
        }
        if begun.elapsed() >= timeout {
            let (now, waited) = (current(&it), clock::show(timeout));
            let text = format!("{name} is {now} after {waited}, not {}: {}", goal.word(), it.reason);
            return Err(Failure::TimedOut(text.trim_end_matches([':', ' ']).to_owned()).into());
        }
        if last != it.reason && !it.reason.is_empty() {
            note(&format!("{name} is {}: {}", current(&it), it.reason));
            last = it.reason;
        }
        if matches!(goal, Goal::Health(_)) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Whether what was reached lasts: a health counts once the same attempt has had it for a moment.
fn stays(goal: Goal<'_>, run: (u64, u32), since: &mut Option<((u64, u32), Instant)>) -> bool {
    if matches!(goal, Goal::Status(_)) {
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

fn current(it: &api::Observer) -> String {
    match it.health {
        Some(health) => format!("{} ({health})", it.status),
        None => it.status.to_string(),
    }
}

/// A run that was over before it was seen has a status alone.
fn reached(goal: Goal<'_>, it: &api::Observer) -> String {
    match goal {
        Goal::Status(_) => format!("{} {}", it.name, it.status),
        Goal::Health(_) => format!("{} {}", it.name, current(it)),
    }
}
