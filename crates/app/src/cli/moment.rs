//! Times on the command line: RFC 3339, or relative to now.

use everwatch_core::clock::{self, Timestamp, parse_duration, show};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    /// How long before another time, such as now.
    Before(Duration),
}

impl Moment {
    /// The time itself, if it is relative to `end`.
    pub(crate) fn of(self, end: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Before(time) => {
                Timestamp(end.0 - i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(end.0))
            }
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(at) = rfc_3339(text) {
            return Ok(Self::At(at));
        }
        parse_duration(text).map(Self::Before).map_err(|_| {
            format!(
                "`{text}` is not a time: write RFC 3339 with an offset, such as 2030-01-31T09:30:00Z, or how long ago, \
                 such as 15m"
            )
        })
    }
}

/// As a manager reads it.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Before(time) => f.write_str(&show(*time)),
        }
    }
}

fn rfc_3339(text: &str) -> Option<Timestamp> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

/// A time in RFC 3339, or relative to now with a leading plus sign.
pub(super) fn later(text: &str) -> Result<Timestamp, String> {
    if let Some(later) = text.strip_prefix('+') {
        return parse_duration(later).map(|later| clock::now().plus(later));
    }
    rfc_3339(text).ok_or_else(|| {
        "not a time: write RFC 3339 with an offset, such as 2030-01-31T09:30:00Z, or a time relative to now, such as +10m"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_relative_to_another() {
        let end = Timestamp(1_800_000_000_000);
        let of = |text: &str| text.parse::<Moment>().map(|moment| moment.of(end));
        assert_eq!(of("15m"), Ok(Timestamp(end.0 - 900_000)));
        assert_eq!(of("1h 30m"), Ok(Timestamp(end.0 - 5_400_000)));
        assert_eq!(of("1970-01-01T01:00:01+01:00"), Ok(Timestamp(1000)));
        assert_eq!(of("1000000d"), Ok(Timestamp(0)), "the beginning of time");
        for wrong in ["", "yesterday", "-5m", "2030-01-31", "2030-01-31T09:30:00"] {
            assert!(of(wrong).unwrap_err().contains("such as 15m"), "{wrong}");
        }
        for text in ["1h 30m", "2030-01-31T09:30:00Z"] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }
}
