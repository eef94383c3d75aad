//! Schedules: the times at which the executions of a finite observer start.

use crate::clock::{Timestamp, friendly, show};
use crate::id::ObserverId;
use crate::observer::time_zone;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Zoned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The longest cron expression, in bytes.
const CRON_MAX_BYTES: usize = 200;
/// The longest `jitter`, and the longest `catch_up`.
const DELAY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// The most times that [`Schedule::preview`] returns.
pub const PREVIEW_MAX: usize = 100;

/// What happens at a time of the schedule while the execution before is still active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfRunning {
    /// Nothing: the time is skipped.
    #[default]
    Skip,
    /// The next execution starts when this one has ended; of several such times, the latest counts.
    Queue,
    /// The execution is stopped, and the next one starts.
    Restart,
}

/// The times at which the executions of an observer start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Minute, hour, day of the month, month and day of the week, for example `0 3 * * *`. A sixth field before them
    /// gives the seconds.
    pub cron: String,
    /// A name of the IANA time zone database; the times are those of its clocks.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// How late an execution may start for a time at which no manager was alive. Of several such times, the latest counts.
    #[serde(default = "an_hour", with = "friendly")]
    #[schemars(with = "String")]
    pub catch_up: Duration,
    #[serde(default)]
    pub if_running: IfRunning,
    /// Each observer executes later than the times of its expression by its own fixed delay of up to this.
    #[serde(default, with = "friendly", skip_serializing_if = "Duration::is_zero")]
    #[schemars(with = "String")]
    pub jitter: Duration,
}

fn utc() -> String {
    "UTC".to_owned()
}
fn an_hour() -> Duration {
    Duration::from_secs(3600)
}

impl fmt::Display for IfRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Restart => "restart",
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.cron, self.time_zone)?;
        if self.if_running != IfRunning::default() {
            write!(f, ", if running {}", self.if_running)?;
        }
        if self.catch_up != an_hour() {
            write!(f, ", catches up {}", show(self.catch_up))?;
        }
        if !self.jitter.is_zero() {
            write!(f, ", jitter {}", show(self.jitter))?;
        }
        Ok(())
    }
}

fn parsed(cron: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(cron).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("Component error: ").unwrap_or(&text);
        text.trim_end_matches('.').to_lowercase()
    })
}

impl Schedule {
    /// # Errors
    /// The place of each member that is wrong, below the schedule, and the rule: an unknown time zone, an expression
    /// that cannot be read or that matches no date, a delay that is too long.
    pub fn check(&self) -> Result<(), Vec<(String, String)>> {
        let mut errors = Vec::new();
        let mut wrong = |pointer: &str, rule: String| errors.push((pointer.to_owned(), rule));
        if let Err(rule) = time_zone::check(&self.time_zone) {
            wrong("/time_zone", rule);
        }
        if let Err(rule) = self.check_cron() {
            wrong("/cron", rule);
        }
        for (member, delay) in [("/catch_up", self.catch_up), ("/jitter", self.jitter)] {
            if delay > DELAY_MAX {
                wrong(member, format!("at most {}", show(DELAY_MAX)));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn check_cron(&self) -> Result<(), String> {
        if self.cron.len() > CRON_MAX_BYTES {
            return Err(format!("at most {CRON_MAX_BYTES} bytes"));
        }
        let fields = self.cron.split_whitespace().count();
        let is_nickname = self.cron.trim_start().starts_with('@');
        let cron = parsed(&self.cron).map_err(|why| {
            let wrong = match fields {
                5 | 6 => format!("cannot be read ({why})"),
                _ if is_nickname => "is not known".to_owned(),
                1 => "has 1 field".to_owned(),
                _ => format!("has {fields} fields"),
            };
            let form = "minute, hour, day of the month, month and day of the week";
            format!("`{}` {wrong}: write {form}, for example `0 3 * * *`", self.cron)
        })?;
        let start = jiff::Timestamp::UNIX_EPOCH.to_zoned(jiff::tz::TimeZone::UTC);
        match cron.find_next_occurrence(&start, false) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "`{}` matches no date, so the observer would never execute: change its days or months",
                self.cron
            )),
        }
    }

    /// The expression in English, for example `At 03:00.`; empty if it cannot be read.
    #[must_use]
    pub fn description(&self) -> String {
        parsed(&self.cron).map_or_else(|_| String::new(), |cron| cron.describe())
    }

    /// How much later than the times of its expression this observer starts.
    #[must_use]
    pub fn delay(&self, id: ObserverId) -> Duration {
        let most = self.jitter.as_millis();
        let part = if most == 0 { 0 } else { id.0.as_u128() % most };
        Duration::from_millis(u64::try_from(part).unwrap_or(0))
    }

    /// The first time after `time` at which an execution of this observer starts; `None` if there is none, or if the expression
    /// or the time zone is no longer known.
    #[must_use]
    pub fn next_after(&self, time: Timestamp, id: ObserverId) -> Option<Timestamp> {
        let delay = self.delay(id);
        let found = parsed(&self.cron).ok()?.find_next_occurrence(&self.local(time.minus(delay))?, false);
        Some(Timestamp(found.ok()?.timestamp().as_millisecond()).plus(delay)).filter(|it| *it > time)
    }

    /// The latest time after `after` and up to `now` at which an execution of this observer starts.
    #[must_use]
    pub fn latest(&self, after: Timestamp, now: Timestamp, id: ObserverId) -> Option<Timestamp> {
        let delay = self.delay(id);
        let found = parsed(&self.cron).ok()?.find_previous_occurrence(&self.local(now.minus(delay))?, true);
        let found = Timestamp(found.ok()?.timestamp().as_millisecond()).plus(delay);
        (after < found && found <= now).then_some(found)
    }

    /// The next times after `time` at which an execution of this observer starts, at most [`PREVIEW_MAX`].
    #[must_use]
    pub fn preview(&self, time: Timestamp, id: ObserverId, count: usize) -> Vec<Timestamp> {
        let next = |time: &Timestamp| self.next_after(*time, id);
        std::iter::successors(self.next_after(time, id), next).take(count.min(PREVIEW_MAX)).collect()
    }

    fn local(&self, time: Timestamp) -> Option<Zoned> {
        let zone = time_zone::find(&self.time_zone)?;
        Some(jiff::Timestamp::from_millisecond(time.0).ok()?.to_zoned(zone))
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
