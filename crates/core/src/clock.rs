//! Time as a value. No other module of the workspace reads the wall clock.

use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A moment in milliseconds since 1970-01-01 UTC; RFC 3339 on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// What the machine's wall clock says.
#[must_use]
pub fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Timestamp {
    /// This moment plus `duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
    /// This moment minus `duration`, saturating.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
    /// The time since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}
impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = text.parse::<jiff::Timestamp>();
        let moment =
            moment.map_err(|_| format!("`{text}` is not a time; write it like 2026-01-31T09:30:00.000Z"))?;
        Ok(Self(moment.as_millisecond()))
    }
}
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Self);
        }
        jiff::Timestamp::deserialize(deserializer).map(|moment| Self(moment.as_millisecond()))
    }
}

/// The JSON schema `format` of durations that [`parse_duration`] reads.
pub const DURATION_FORMAT: &str = "friendly-duration";
/// JSON schema keywords: the least and the greatest duration, in the same notation. Validators that do not know them
/// ignore them.
pub const DURATION_MINIMUM: &str = "durationMinimum";
/// See [`DURATION_MINIMUM`].
pub const DURATION_MAXIMUM: &str = "durationMaximum";

/// Durations in friendly notation (`"30s"`, `"1h 30m"`), for `#[serde(with = "clock::friendly")]`.
pub mod friendly {
    use super::Duration;
    use serde::{Deserialize as _, Deserializer, Serializer};

    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::show(*value))
    }
    /// # Errors
    /// Names the text and the form that is expected.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(serde::de::Error::custom)
    }

    /// The same for durations that may be missing.
    pub mod optional {
        use super::Duration;
        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

        /// # Errors
        /// As the serializer.
        pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            value.map(crate::clock::show).serialize(serializer)
        }
        /// # Errors
        /// Names the text and the form that is expected.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| crate::clock::parse_duration(&text)).transpose().map_err(serde::de::Error::custom)
        }
    }
}

/// Parses a duration in friendly notation: `"10s"`, `"5m"`, `"1h 30m"`, `"30d"`. A day has 24 hours.
///
/// # Errors
/// Names the text and the form that is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a duration: write it like \"500ms\", \"30s\", \"1h 30m\" or \"30d\"");
    let span: Span = text.parse().map_err(|_| wrong())?;
    let parsed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| format!("`{text}` is negative; a duration here is zero or more"))
}

/// The shortest friendly form: `30s`, `1m 30s`.
#[must_use]
pub fn show(duration: Duration) -> String {
    SignedDuration::try_from(duration).map_or_else(|_| format!("{duration:?}"), |it| format!("{it:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_serializes_as_rfc_3339() {
        let moment = Timestamp(1_700_000_000_123);
        let wire = serde_json::to_string(&moment).unwrap();
        assert_eq!(wire, "\"2023-11-14T22:13:20.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&wire).unwrap(), moment);
    }

    #[test]
    fn a_time_in_a_query_is_read_to_the_millisecond() {
        assert_eq!("2026-01-31T09:30:00.125Z".parse(), Ok(Timestamp(1_769_851_800_125)));
        assert_eq!("2026-01-31T10:30:00.125+01:00".parse(), Ok(Timestamp(1_769_851_800_125)));
        for wrong in ["", "yesterday", "2026-01-31", "1769851800"] {
            let error = wrong.parse::<Timestamp>().unwrap_err();
            assert!(error.contains(&format!("`{wrong}` is not a time")), "{error}");
        }
    }
    #[test]
    fn durations_parse_and_print_in_friendly_notation() {
        for (text, secs) in
            [("30s", 30), ("5m", 300), ("1h 30m", 5400), ("1d 1h", 90_000), ("365d", 31_536_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(secs)));
        }
        assert_eq!(show(Duration::from_secs(90)), "1m 30s");
        assert!(parse_duration("5").unwrap_err().contains("`5`"));
        assert!(parse_duration("1 month").unwrap_err().contains("\"30d\""));
        assert!(parse_duration("-5s").unwrap_err().contains("negative"));
    }

    #[test]
    fn time_since_a_later_moment_is_zero() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
