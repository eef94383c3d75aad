//! The format and the keywords of durations in JSON schemas.

use everwatch_core::clock::{DURATION_FORMAT, DURATION_MAXIMUM, DURATION_MINIMUM, parse_duration, show};
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value};
use std::time::Duration;

/// Adds them to the options of a validator.
pub(super) fn known_to(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options
        .with_format(DURATION_FORMAT, |text: &str| parse_duration(text).is_ok())
        .with_keyword(DURATION_MINIMUM, |_: &Map<String, Value>, limit: &Value, _: Location| {
            Bound::of(limit, Side::Least)
        })
        .with_keyword(DURATION_MAXIMUM, |_: &Map<String, Value>, limit: &Value, _: Location| {
            Bound::of(limit, Side::Most)
        })
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Least,
    Most,
}

struct Bound {
    limit: Duration,
    side: Side,
}

impl Bound {
    fn of<'a>(limit: &'a Value, side: Side) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
        let text =
            limit.as_str().ok_or_else(|| ValidationError::custom("a bound of durations is a string"))?;
        let limit = parse_duration(text).map_err(ValidationError::custom)?;
        Ok(Box::new(Self { limit, side }))
    }

    /// Anything that is not a duration is not out of bounds: its type or its format is wrong.
    fn error(&self, instance: &Value) -> Option<String> {
        let duration = parse_duration(instance.as_str()?).ok()?;
        match self.side {
            Side::Least if duration < self.limit => {
                Some(format!("is below the minimum of {}", show(self.limit)))
            }
            Side::Most if duration > self.limit => {
                Some(format!("is above the maximum of {}", show(self.limit)))
            }
            Side::Least | Side::Most => None,
        }
    }
}

impl<'i> Keyword<'i> for Bound {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.error(instance).map_or(Ok(()), |error| Err(ValidationError::custom(error)))
    }
    fn is_valid(&self, instance: &'i Value) -> bool {
        self.error(instance).is_none()
    }
}
