//! Types for the members of specs: they carry their limits into the JSON schema, so that managers refuse a wrong spec
//! when it is created, and check them again when a service reads the spec.

use everwatch_core::clock::{DURATION_FORMAT, DURATION_MAXIMUM, DURATION_MINIMUM, parse_duration, show};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::time::Duration;

/// One second, minute, hour and day in the unit of [`Span`].
pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// A duration in friendly notation, from `MIN` to `MAX` milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Span<MIN, MAX> {
    /// For defaults: this many milliseconds, within the limits.
    pub(super) const fn ms(ms: u64) -> Self {
        assert!(MIN <= ms && ms <= MAX);
        Self(ms)
    }
    pub(super) fn get(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Span<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show(self.get()))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Span<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let duration = parse_duration(&text).map_err(de::Error::custom)?;
        let (least, most) = (Duration::from_millis(MIN), Duration::from_millis(MAX));
        if duration < least || duration > most {
            let (least, most) = (show(least), show(most));
            return Err(de::Error::custom(format!("`{text}` must be from {least} to {most}")));
        }
        Ok(Self(u64::try_from(duration.as_millis()).unwrap_or(MAX)))
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Span<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Duration_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string", "format": DURATION_FORMAT });
        schema.insert(DURATION_MINIMUM.to_owned(), show(Duration::from_millis(MIN)).into());
        schema.insert(DURATION_MAXIMUM.to_owned(), show(Duration::from_millis(MAX)).into());
        schema
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// For defaults: this number, within the limits.
    pub(super) const fn new(count: u32) -> Self {
        assert!(MIN <= count && count <= MAX);
        Self(count)
    }
    pub(super) fn get(self) -> u32 {
        self.0
    }
    pub(super) fn size(self) -> usize {
        self.0 as usize
    }
}

impl<const MAX: u32> Default for Count<0, MAX> {
    fn default() -> Self {
        Self(0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            count if (MIN..=MAX).contains(&count) => Ok(Self(count)),
            count => Err(de::Error::custom(format!("{count} must be from {MIN} to {MAX}"))),
        }
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Count_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A text that is cut for a log line or an error, at most `limit` bytes long.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_out_of_its_limits_is_refused_with_the_limits() {
        type Pause = Span<100, HOUR>;
        assert_eq!(serde_json::from_str::<Pause>("\"1m 30s\"").unwrap().get(), Duration::from_secs(90));
        for (wrong, told) in [
            ("\"99ms\"", "`99ms` must be from 100ms to 1h"),
            ("\"2h\"", "`2h` must be from 100ms to 1h"),
            ("\"1 parsec\"", "`1 parsec` is not a duration"),
        ] {
            let error = serde_json::from_str::<Pause>(wrong).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        type Few = Count<1, 5>;
        assert_eq!(serde_json::from_str::<Few>("5").unwrap().get(), 5);
        let error = serde_json::from_str::<Few>("6").unwrap_err().to_string();
        assert!(error.contains("6 must be from 1 to 5"), "{error}");
    }

    #[test]
    fn a_schema_names_the_limits_and_defaults_fit_them() {
        let schema = serde_json::to_value(schemars::schema_for!(Span<100, HOUR>)).unwrap();
        assert_eq!(schema["durationMinimum"], "100ms");
        assert_eq!(schema["durationMaximum"], "1h");
        assert_eq!(serde_json::to_value(Span::<100, HOUR>::ms(5000)).unwrap(), "5s");
        let schema = serde_json::to_value(schemars::schema_for!(Count<1, 5>)).unwrap();
        assert_eq!((schema["minimum"].as_u64(), schema["maximum"].as_u64()), (Some(1), Some(5)));
    }
}
