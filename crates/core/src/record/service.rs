//! The managers' row of a service: registration, heartbeats, suspicion and end.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::wire::heartbeat::{Heartbeat, Intent};
use crate::wire::report::Registration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a service that was lost, and is not back, is missing.
pub const MISSING_FOR: Duration = Duration::from_secs(600);

/// One incarnation of a service process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    pub id: ServiceId,
    /// Counts the changes of this row.
    pub version: i64,
    pub registration: Registration,
    pub registered_at: Timestamp,
    pub modified_at: Timestamp,
    /// The last sign of life, by the managers' clock.
    pub heard_at: Timestamp,
    /// Its latest heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Heartbeat>,
    /// When it last sent its inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<Timestamp>,
    /// Since when it is suspect: it is silent, or a newer service has its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect_since: Option<Timestamp>,
    /// How and when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The slots in use by the reports of runs, where a caller has counted them.
    #[serde(skip)]
    pub reported: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub at: Timestamp,
    pub how: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It unregistered.
    Gone,
    /// The broker reports that its session is gone.
    Lost,
}

/// The state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    Active,
    /// It holds no observer, and takes over when the active service of its single pool ends or is cordoned.
    Standby,
    Cordoned,
    Draining,
    Suspect,
    Lost,
    Gone,
}

impl ServiceState {
    /// The states in which the session is not over.
    pub const LIVING: [Self; 5] =
        [Self::Active, Self::Standby, Self::Cordoned, Self::Draining, Self::Suspect];

    /// The state as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
            Self::Gone => "gone",
        }
    }
    /// Whether its session is over.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Lost | Self::Gone => true,
            Self::Active | Self::Standby | Self::Cordoned | Self::Draining | Self::Suspect => false,
        }
    }
}

/// A registration dated further from the database's clock than this comes from a wrong clock, or waited while no
/// manager read the queue.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(120);

/// When a service registered. The service's own clock orders the incarnations of one name even if two managers read
/// their registrations in another order. But a clock that was wrong for a while would make an ended incarnation the
/// newest one of its name for as long as it was ahead; so a date far from the database's clock does not count.
fn registered_at(at: Timestamp, now: Timestamp) -> Timestamp {
    let apart = at.since(now).max(now.since(at));
    if apart > CLOCKS_DIFFER_MAX { now } else { at.min(now) }
}

impl ServiceRow {
    /// A service that has just registered.
    #[must_use]
    pub fn registered(id: ServiceId, registration: Registration, at: Timestamp, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            registration,
            registered_at: registered_at(at, now),
            modified_at: now,
            heard_at: now,
            heartbeat: None,
            listed_at: None,
            suspect_since: None,
            end: None,
            reported: None,
        }
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        match (self.end, self.suspect_since, self.heartbeat.as_ref().map(|heartbeat| heartbeat.state)) {
            (Some(End { how: Ended::Gone, .. }), _, _) => ServiceState::Gone,
            (Some(End { how: Ended::Lost, .. }), _, _) => ServiceState::Lost,
            (None, Some(_), _) => ServiceState::Suspect,
            (None, None, Some(Intent::Cordoned)) => ServiceState::Cordoned,
            (None, None, Some(Intent::Draining)) => ServiceState::Draining,
            (None, None, Some(Intent::Active) | None)
                if self.registration.pool_single && self.held() == 0 =>
            {
                ServiceState::Standby
            }
            (None, None, Some(Intent::Active) | None) => ServiceState::Active,
        }
    }

    /// The number of slots, from its latest heartbeat, otherwise from its registration.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.heartbeat.as_ref().map_or(self.registration.capacity, |heartbeat| heartbeat.capacity)
    }

    /// The number of slots in use: from the reports of runs if they were counted, otherwise from its latest heartbeat.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.reported.unwrap_or_else(|| self.heartbeat.as_ref().map_or(0, |heartbeat| heartbeat.held))
    }

    /// Notes the slots in use by the reports of runs: a heartbeat is up to an interval old, and a service that has just registered has
    /// sent none.
    pub fn set_held(&mut self, held: u64) {
        self.reported = Some(u32::try_from(held).unwrap_or(u32::MAX));
    }

    /// The weight of observers that it surely takes at once, by its latest heartbeat: it takes one more while it uses at most
    /// its capacity less its `weight_max`.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.room_beside(self.held())
    }

    /// The same if observers use `held` of its slots.
    #[must_use]
    pub fn room_beside(&self, held: u32) -> u32 {
        let kept = held.saturating_add(self.registration.weight_max.saturating_sub(1).into());
        self.capacity().saturating_sub(kept)
    }

    /// Applies a heartbeat. Heartbeats may arrive late or twice; the highest number wins.
    pub fn on_heartbeat(&mut self, heartbeat: &Heartbeat, now: Timestamp) -> bool {
        let newer = self.heartbeat.as_ref().is_none_or(|known| heartbeat.seq > known.seq);
        if !newer || self.end.is_some() {
            return false;
        }
        self.heartbeat = Some(heartbeat.clone());
        self.heard_at = self.heard_at.max(now);
        self.suspect_since = None;
        true
    }

    /// It has sent its inventory.
    pub fn on_list(&mut self, now: Timestamp) -> bool {
        let lives = self.end.is_none();
        if lives {
            self.listed_at = Some(now);
        }
        lives
    }

    /// It unregistered. This is final, whatever arrives later.
    pub fn on_gone(&mut self, now: Timestamp) -> bool {
        self.end_as(Ended::Gone, now)
    }

    /// The broker reports that its session is gone.
    pub fn on_session_gone(&mut self, now: Timestamp) -> bool {
        self.end.is_none() && self.end_as(Ended::Lost, now)
    }

    /// The broker reports that its session lives, even if the service is silent.
    pub fn on_session_alive(&mut self, now: Timestamp) {
        self.heard_at = now;
        self.modified_at = now;
    }

    /// A newer incarnation has its name, or it was silent for `lost_after`.
    pub fn suspect(&mut self, now: Timestamp) -> bool {
        if self.end.is_some() || self.suspect_since.is_some() {
            return false;
        }
        self.suspect_since = Some(now);
        self.modified_at = now;
        true
    }

    /// Whether its silence has lasted `lost_after`.
    #[must_use]
    pub fn is_silent(&self, now: Timestamp, lost_after: Duration) -> bool {
        self.end.is_none() && now.since(self.heard_at) >= lost_after
    }

    fn end_as(&mut self, how: Ended, now: Timestamp) -> bool {
        if self.end.is_some_and(|end| end.how == Ended::Gone) {
            return false;
        }
        self.end = Some(End { at: now, how });
        self.modified_at = now;
        true
    }
}

/// The services that were lost within [`MISSING_FOR`] and have not come back, sorted by name: the newest one of a name is lost. If it has
/// stopped since, it is not missing.
pub fn missing<'a>(all: impl IntoIterator<Item = &'a ServiceRow>, now: Timestamp) -> Vec<&'a ServiceRow> {
    let age = |it: &ServiceRow| (it.end.is_none(), it.registered_at);
    let mut newest = BTreeMap::<&str, &ServiceRow>::new();
    for it in all {
        let known = newest.entry(it.registration.name.as_str()).or_insert(it);
        if age(it) > age(known) {
            *known = it;
        }
    }
    let is_lost = |it: &&ServiceRow| {
        it.end.is_some_and(|end| end.how == Ended::Lost && now.since(end.at) < MISSING_FOR)
    };
    newest.into_values().filter(is_lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_service_is_missing_if_the_newest_one_of_its_name_was_lost_lately() {
        let now = Timestamp(10_000_000);
        let ago = |secs| now.minus(Duration::from_secs(secs));
        let row = |name: &str, registered: u64, end: Option<(u64, Ended)>| {
            let registration = serde_json::from_value(serde_json::json!({
                "name": name, "pool": "default", "capacity": 10, "kinds": [], "version": "1", "host": "h",
            }));
            let at = ago(registered);
            let id = ServiceId(Uuid::from_u128(registered.into()));
            let mut it = ServiceRow::registered(id, registration.unwrap(), at, at);
            it.end = end.map(|(at, how)| End { at: ago(at), how });
            it
        };
        let (lost, gone) = (|at| Some((at, Ended::Lost)), |at| Some((at, Ended::Gone)));
        let all = [
            row("missing", 90, lost(5)),
            row("missing", 200, lost(100)),
            row("back", 90, lost(5)),
            row("back", 4, None),
            row("lives-since-before", 50, None),
            row("lives-since-before", 40, lost(30)),
            row("long-ago", 2000, lost(600)),
            row("stopped", 90, gone(5)),
            row("stopped-since", 90, lost(50)),
            row("stopped-since", 40, gone(5)),
        ];
        let named = |all: Vec<&ServiceRow>| {
            all.iter().map(|it| (it.registration.name.to_string(), it.registered_at)).collect::<Vec<_>>()
        };
        assert_eq!(named(missing(&all, now)), [("missing".to_owned(), ago(90))]);
        assert_eq!(named(missing(all.iter().rev(), now)), [("missing".to_owned(), ago(90))]);
    }

    #[test]
    fn the_slots_in_use_by_reports_count_before_the_first_heartbeat() {
        let mut it = crate::record::test_services::service("s", 10, &[]);
        it.heartbeat = None;
        it.set_held(4);
        assert_eq!((it.held(), it.room()), (4, 6));
    }

    #[test]
    fn a_wrong_clock_does_not_make_an_ended_incarnation_the_newest_of_its_name() {
        let now = Timestamp(1_000_000);
        for (at, expected) in [
            (now, now),
            (now.minus(Duration::from_secs(90)), now.minus(Duration::from_secs(90))),
            (now.plus(Duration::from_secs(1)), now),
            (now.plus(Duration::from_secs(600)), now),
            (now.minus(Duration::from_secs(600)), now),
        ] {
            assert_eq!(registered_at(at, now), expected, "{at:?}");
        }
    }
}
