//! The reaction to an error: restart within the same run, or give up.

use crate::clock::friendly;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When an observer restarts after its code failed. `attempts` counts the starts of one run, including the first;
/// `null` means forever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Retry {
    /// Doubling delays with jitter.
    Exponential {
        #[serde(with = "friendly", default = "second")]
        #[schemars(with = "String")]
        first: Duration,
        #[serde(with = "friendly", default = "minute")]
        #[schemars(with = "String")]
        max: Duration,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        #[serde(with = "friendly", default = "five_minutes")]
        #[schemars(with = "String")]
        reset_after: Duration,
    },
    /// The same delay each time.
    Fixed {
        #[serde(with = "friendly")]
        #[schemars(with = "String")]
        every: Duration,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// A list of delays, then give up: n delays allow n + 1 starts. With an empty list, the first error fails the observer.
    Intervals { delays: Vec<Delay> },
}

/// One delay in a list, written like `"4m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Delay(
    #[serde(with = "friendly")]
    #[schemars(with = "String")]
    pub Duration,
);

fn second() -> Duration {
    Duration::from_secs(1)
}
fn minute() -> Duration {
    Duration::from_secs(60)
}
fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

impl Default for Retry {
    fn default() -> Self {
        Self::Exponential { first: second(), max: minute(), attempts: None, reset_after: five_minutes() }
    }
}

/// The decision after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Restart after this delay.
    Again(Duration),
    /// That was the last attempt.
    GiveUp,
}

impl Retry {
    /// `attempt` is the number of the failed start (1 is the first); `chance` in 0..1 determines the jitter.
    #[must_use]
    pub fn after(&self, attempt: u32, chance: f64) -> Verdict {
        let exhausted = |limit: &Option<u32>| limit.is_some_and(|limit| attempt >= limit);
        match self {
            Self::Exponential { attempts, .. } | Self::Fixed { attempts, .. } if exhausted(attempts) => {
                Verdict::GiveUp
            }
            Self::Exponential { first, max, .. } => {
                let doublings = attempt.saturating_sub(1).min(32);
                let full = first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(*max);
                Verdict::Again(full.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0))
            }
            Self::Fixed { every, .. } => Verdict::Again(*every),
            Self::Intervals { delays } => {
                let index = attempt.saturating_sub(1) as usize;
                delays.get(index).map_or(Verdict::GiveUp, |delay| Verdict::Again(delay.0))
            }
        }
    }

    /// After this long without an error, the next error counts as the first; `None` means never.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        match self {
            Self::Exponential { reset_after, .. } => Some(*reset_after),
            Self::Fixed { .. } | Self::Intervals { .. } => None,
        }
    }

    /// Checks the policy.
    ///
    /// # Errors
    /// A JSON pointer into the policy, and the violated rule.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        const YEAR: Duration = Duration::from_secs(365 * 86_400);
        match self {
            Self::Exponential { attempts: Some(0), .. } | Self::Fixed { attempts: Some(0), .. } => {
                Err(("/attempts", "counts the first start too: 1 or more, or null for ever"))
            }
            Self::Exponential { first, max, .. } if first.is_zero() || max < first => {
                Err(("/first", "must be more than zero, and at most `max`"))
            }
            Self::Exponential { max, .. } if *max > YEAR => Err(("/max", "must be at most a year")),
            Self::Fixed { every, .. } if *every > YEAR => Err(("/every", "must be at most a year")),
            Self::Intervals { delays } if delays.len() > 100 => {
                Err(("/delays", "must be at most 100 delays"))
            }
            Self::Intervals { delays } if delays.iter().any(|delay| delay.0 > YEAR) => {
                Err(("/delays", "must each be at most a year"))
            }
            Self::Exponential { .. } | Self::Fixed { .. } | Self::Intervals { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn exponential_doubles_up_to_its_maximum_and_never_gives_up() {
        let delays: Vec<_> = (1..=9).map(|attempt| Retry::default().after(attempt, 1.0)).collect();
        let expected = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(|s| Verdict::Again(secs(s)));
        assert_eq!(delays, expected);
        assert_eq!(Retry::default().after(u32::MAX, 0.0), Verdict::Again(secs(30)));
    }

    #[test]
    fn attempts_count_the_first_start() {
        let fixed = Retry::Fixed { every: secs(1), attempts: Some(3) };
        assert_eq!(fixed.after(2, 0.0), Verdict::Again(secs(1)));
        assert_eq!(fixed.after(3, 0.0), Verdict::GiveUp);
    }

    #[test]
    fn three_delays_are_four_starts() {
        let policy: Retry =
            serde_json::from_str(r#"{"kind":"intervals","delays":["1m","4m","10m"]}"#).unwrap();
        let verdicts: Vec<_> = (1..=4).map(|attempt| policy.after(attempt, 0.0)).collect();
        let again = |minutes: u64| Verdict::Again(secs(minutes * 60));
        assert_eq!(verdicts, [again(1), again(4), again(10), Verdict::GiveUp]);
    }

    #[test]
    fn an_invalid_policy_is_refused() {
        for wire in [
            r#"{"kind":"fixed","every":"1s","attempts":0}"#,
            r#"{"kind":"exponential","first":"2m","max":"1m"}"#,
            r#"{"kind":"fixed","every":"100000h"}"#,
        ] {
            assert!(serde_json::from_str::<Retry>(wire).unwrap().check().is_err(), "{wire}");
        }
        assert!(serde_json::from_str::<Retry>(r#"{"kind":"fixed","every":"1s","extra":1}"#).is_err());
    }
}
