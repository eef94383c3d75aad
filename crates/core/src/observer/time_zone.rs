//! Time zones by name.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

/// The rules that are compiled in: all managers of one version go by the same, whatever their machines know.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone with this name; `None` if it is unknown.
pub(super) fn find(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok()
}

/// # Errors
/// That there is no such zone, and what to write instead.
pub(super) fn check(name: &str) -> Result<(), String> {
    if find(name).is_some() {
        return Ok(());
    }
    let name: String = name.chars().take(60).collect();
    Err(format!(
        "`{name}` is not a known time zone: write a name of the IANA time zone database, for example Europe/Berlin or UTC"
    ))
}
