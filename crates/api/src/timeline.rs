//! The timeline: what each service held, second by second, and the incidents that moved observers.

use crate::NamedThing;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::record::events::EventKind;
use everwatch_core::timeline as core;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use utoipa::ToSchema;

/// The services that an incident names.
const TO_MAX: usize = 20;

/// The services, events and incidents in a span of time, which is divided into columns of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// The requested start; 15 minutes before `until` by default.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The requested end, at most now; now by default.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Managers no longer have the events before this time: the timeline before it is incomplete.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub complete_since: Option<Timestamp>,
    /// The number of columns. There are fewer than requested if a column would be shorter than a second, or if there are many lanes.
    pub columns: usize,
    /// One lane for each service name, sorted by name; at most 100.
    pub lanes: Vec<TimelineLane>,
    /// The sum of the other lanes, if there are more than 100. Services whose observers ran nowhere or twice come first, then services
    /// that held more observers.
    pub others: Option<TimelineOthers>,
    /// Events that explain changes, the oldest first: services that started or ended, drains, rebalances and others. In the timeline of one
    /// observer: its events other than starts, and the ends of the services on which it ran.
    pub marks: Vec<TimelineMark>,
    /// The number of older marks that the response omits.
    pub marks_left_out: usize,
    /// At most the newest 1,000, the oldest first.
    pub incidents: Vec<Incident>,
}

/// The services of one name, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineLane {
    /// The name of the services.
    pub service: String,
    /// Whether a service of this name lives now.
    pub lives: bool,
    /// The number of observers that it holds at `until`.
    #[serde(default)]
    pub held: u64,
    /// The times in which it held observers, or in which observers of it ran nowhere. Equal neighboring columns are one segment.
    pub segments: Vec<TimelineSegment>,
}

/// The lanes that the response omits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineOthers {
    /// Their number.
    pub lanes: usize,
    /// The sums of these lanes.
    pub segments: Vec<TimelineSegment>,
}

/// A part of a lane in which the columns are equal. It begins and ends at whole seconds, so the first segment may begin, and the last one
/// end, up to a second outside of the requested time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineSegment {
    /// When its first column begins.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When its last column ends.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The fewest observers that the service held in a column.
    pub held_min: u64,
    /// The most observers that the service held in a column.
    pub held_max: u64,
    /// The most observers of the service that ran nowhere at once, until they started on another service. Gaps shorter than 10 ms are not
    /// counted here, but in incidents.
    pub gap: u64,
    /// The most observers of the service that ran on another service, too.
    pub overlap: u64,
}

/// An event in the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineMark {
    /// The time of the event.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Of a lost service: its last sign of life, with which the gaps of its observers begin.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// What happened, as the `type` of the event.
    #[schema(value_type = String, example = "service_lost")]
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The name of the service that it concerns.
    pub service: Option<String>,
    /// The cause, if known; may be empty.
    pub text: String,
}

/// The moves of observers from one service at about the same time. Most moved to other services; if these had no room, the service itself
/// may have started them again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Incident {
    /// The name of the service that ran them before.
    pub from: String,
    /// The cause. `lost`: the service was killed, or silent for too long. `stopped`: the service stopped and handed its observers over.
    /// `handed_over`: the service handed observers over and still runs. `unknown`: the service did not hand them over, and managers
    /// have not yet concluded whether it still runs.
    pub cause: String,
    /// Of the cause `handed_over`: why the service did so: `drain`, `rebalance`, `move`, `resize`, `stall`, `memory` or
    /// `other`. Empty if its connection broke.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// When the first gap began.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When the last observer started; null while the incident is open, because some of its observers run nowhere yet.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// The number of observers that moved.
    pub moved: u64,
    /// The number of observers that run nowhere yet; greater than 0 while the incident is open.
    pub waiting: u64,
    /// Those observers, at most 20, without those that the token of the request may not read.
    #[serde(default)]
    pub waiting_observers: Vec<NamedThing>,
    /// The number of observers that moved to each service, by name: the 20 services with the most.
    pub to: BTreeMap<String, u64>,
    /// The number of observers that moved to the remaining services.
    pub to_others: u64,
    /// The median gap of the moves, in ms.
    pub gap_ms_median: u64,
    /// The 99th percentile of the gaps of the moves, in ms.
    pub gap_ms_p99: u64,
    /// The longest gap, in ms; in an open incident, gaps last until now.
    pub gap_ms_max: u64,
    /// Whether at least one of these gaps is an upper bound: it is counted from the last sign of life of the service, because
    /// a run did not report its end.
    #[serde(default)]
    pub gap_is_bound: bool,
    /// The longest overlap, in ms.
    pub overlap_ms_max: u64,
}

impl From<core::Segment> for TimelineSegment {
    fn from(it: core::Segment) -> Self {
        let core::Segment { since, until, held_min, held_max, gap, overlap } = it;
        Self { since, until, held_min, held_max, gap, overlap }
    }
}

impl Timeline {
    /// `names` has the observers that incidents name.
    #[must_use]
    pub fn of(
        picture: core::Picture,
        window: &core::Window,
        names: &HashMap<ObserverId, NamedThing>,
    ) -> Self {
        let core::Picture { columns, lanes, others, marks, marks_left_out, incidents, complete_since } =
            picture;
        let left_out = incidents.len().saturating_sub(core::INCIDENTS_MAX);
        let others = others.map(|it| TimelineOthers {
            lanes: it.lanes,
            segments: it.segments.into_iter().map(TimelineSegment::from).collect(),
        });
        Self {
            since: window.since,
            until: window.until,
            complete_since,
            columns,
            lanes: lanes.into_iter().map(TimelineLane::from).collect(),
            others,
            marks: marks.into_iter().map(TimelineMark::from).collect(),
            marks_left_out,
            incidents: incidents.into_iter().skip(left_out).map(|it| Incident::of(it, names)).collect(),
        }
    }
}

impl From<core::Lane> for TimelineLane {
    fn from(lane: core::Lane) -> Self {
        Self {
            service: lane.name,
            lives: lane.lives,
            held: lane.held,
            segments: lane.segments.into_iter().map(TimelineSegment::from).collect(),
        }
    }
}

impl From<core::Mark> for TimelineMark {
    fn from(core::Mark { at, since, kind, service, text, .. }: core::Mark) -> Self {
        Self { at, since, kind, service, text }
    }
}

impl Incident {
    fn of(it: core::Incident, names: &HashMap<ObserverId, NamedThing>) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let cause = match it.cause {
            core::Cause::Lost => "lost",
            core::Cause::Stopped => "stopped",
            core::Cause::HandedOver => "handed_over",
            core::Cause::Unknown => "unknown",
        };
        let (gap_ms_median, gap_ms_p99) = (ms(it.gap_median()), ms(it.gap_p99()));
        let mut to: Vec<(String, u64)> = it.to.into_iter().collect();
        to.sort_by_key(|(_, moved)| Reverse(*moved));
        let others = to.split_off(to.len().min(TO_MAX));
        Self {
            from: it.from_name,
            cause: cause.to_owned(),
            reasons: it.reasons.iter().map(|it| it.as_str().to_owned()).collect(),
            since: it.since,
            until: Some(it.until).filter(|_| it.waiting == 0),
            moved: it.moved,
            waiting: it.waiting,
            waiting_observers: it.nowhere.iter().filter_map(|id| names.get(id)).cloned().collect(),
            to: to.into_iter().collect(),
            to_others: others.iter().map(|(_, moved)| moved).sum(),
            gap_ms_median,
            gap_ms_p99,
            gap_ms_max: ms(it.gap_max),
            gap_is_bound: it.gap_is_bound,
            overlap_ms_max: ms(it.overlap_max),
        }
    }
}
