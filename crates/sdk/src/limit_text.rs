//! Limits in the configuration that may be switched off: a duration or a size, as text.

use everwatch_core::clock::{parse_duration, show};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The word for no limit.
const OFF: &str = "off";
/// Units of sizes, the largest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A duration such as `"60s"`; `"off"`, `"0"` and `"0s"` are no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub struct TimeLimitText(pub Option<Duration>);

/// A size such as `"2GiB"`, or a number of bytes; `"off"` and `0` are no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub struct SizeLimitText(pub Option<u64>);

/// The environment knows only text, and a file may contain a number.
fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl TryFrom<serde_json::Value> for TimeLimitText {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = text(&value);
        if [OFF, "0"].contains(&text.as_str()) {
            return Ok(Self(None));
        }
        let limit = parse_duration(&text).map_err(|error| format!("{error}, or \"{OFF}\""))?;
        Ok(Self(Some(limit).filter(|limit| !limit.is_zero())))
    }
}

impl From<TimeLimitText> for String {
    fn from(limit: TimeLimitText) -> Self {
        limit.0.map_or_else(|| OFF.to_owned(), show)
    }
}

impl TryFrom<serde_json::Value> for SizeLimitText {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = text(&value);
        if text == OFF {
            return Ok(Self(None));
        }
        let (number, unit) = UNITS
            .iter()
            .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))
            .unwrap_or((&text, 1));
        let bytes = number.trim_end().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        match bytes {
            Some(bytes) => Ok(Self(Some(bytes).filter(|bytes| *bytes > 0))),
            None => Err(format!("`{text}` is not a size: write it like \"512MiB\", \"2GiB\" or \"{OFF}\"")),
        }
    }
}

impl From<SizeLimitText> for String {
    fn from(limit: SizeLimitText) -> Self {
        let Some(bytes) = limit.0 else { return OFF.to_owned() };
        let whole = UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
        whole.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_read_with_their_units_and_written_in_the_largest_that_fits() {
        let read = |value| SizeLimitText::try_from(value).map(|limit| (limit.0, String::from(limit)));
        for (value, bytes, written) in [
            (json!("2GiB"), Some(2 << 30), "2GiB"),
            (json!("1536 MiB"), Some(1536 << 20), "1536MiB"),
            (json!(1000), Some(1000), "1000B"),
            (json!("1000B"), Some(1000), "1000B"),
            (json!("off"), None, "off"),
            (json!(0), None, "off"),
        ] {
            assert_eq!(read(value.clone()), Ok((bytes, written.to_owned())), "{value}");
        }
        for wrong in ["2GB", "x", "-1", "1.5GiB", "99999999999GiB"] {
            assert!(read(json!(wrong)).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_time_limit_may_be_off() {
        let read =
            |text: &str| TimeLimitText::try_from(json!(text)).map(|limit| (limit.0, String::from(limit)));
        assert_eq!(read("90s"), Ok((Some(Duration::from_secs(90)), "1m 30s".to_owned())));
        for off in ["off", "0", "0s"] {
            assert_eq!(read(off), Ok((None, "off".to_owned())), "{off}");
        }
        assert_eq!(TimeLimitText::try_from(json!(0)).map(|limit| limit.0), Ok(None));
        assert!(read("soon").unwrap_err().contains("`soon`"));
    }
}
