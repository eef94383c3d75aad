//! The timeline: what each service held, second by second, and the incidents that moved observers.

use everwatch_core::clock::Timestamp;
use everwatch_core::record::events::EventKind;
use everwatch_core::timeline as core;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// The services that an incident names.
const TO_MAX: usize = 20;

/// What happened in a span of time, in columns of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Events before this time are not kept any more: what is shown before it is incomplete.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub complete_since: Option<Timestamp>,
    /// The number of columns: fewer than requested if one would be shorter than a second, or if there are many lanes.
    pub columns: usize,
    /// One for each name of services, in the order of names; at most 100.
    pub lanes: Vec<TimelineLane>,
    /// If there are more lanes: the sum of those that are not shown. A service has a lane of its own if its observers ran nowhere
    /// or twice, otherwise if it held more than others.
    pub others: Option<TimelineOthers>,
    /// What explains changes, the oldest first: services that started or ended, drains, rebalances and the like. Of one
    /// observer: its events other than starts, and the ends of the services on which it ran.
    pub marks: Vec<TimelineMark>,
    /// The number of older marks that are not shown.
    pub marks_left_out: usize,
    /// The oldest first; at most the newest 1,000.
    pub incidents: Vec<Incident>,
}

/// The services of one name, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineLane {
    pub service: String,
    /// Whether a service of this name lives now.
    pub lives: bool,
    /// The times in which it held observers or observers of it stood still; the columns that are equal are one segment.
    pub segments: Vec<TimelineSegment>,
}

/// Lanes that are not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineOthers {
    /// Their number.
    pub lanes: usize,
    /// What they held together.
    pub segments: Vec<TimelineSegment>,
}

/// A part of a lane in which the columns are equal. It begins and ends at whole seconds: the first one may begin, and the last one
/// end, up to a second outside of the requested time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineSegment {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The fewest observers that the service held in a column.
    pub held_min: u64,
    /// The most.
    pub held_max: u64,
    /// The most observers of the service that ran nowhere at once, until they started on another one.
    pub gap: u64,
    /// The most observers of the service that ran on another one, too.
    pub overlap: u64,
}

/// Something that happened at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineMark {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[schema(value_type = String, example = "service_lost")]
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The name of the service that it concerns.
    pub service: Option<String>,
    pub text: String,
}

/// Moves that belong together: the observers of one service that started on others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Incident {
    /// The name of the service that ran them before.
    pub from: String,
    /// `lost`: it was killed or silent for too long; `stopped`: it handed them over at its end; `handed_over`: it lives;
    /// `unknown`: it did not hand them over, and managers have not yet concluded whether it lives.
    pub cause: String,
    /// When the first observer stood still.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When the last one started; null while the incident is open: some of its observers run nowhere yet.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// The number of observers that moved.
    pub moved: u64,
    /// The number of observers that run nowhere yet; greater than 0 while the incident is open.
    pub waiting: u64,
    /// The names of the services that ran them next, and how many: the 20 with the most observers.
    pub to: BTreeMap<String, u64>,
    /// The observers that started on other services than those.
    pub to_others: u64,
    /// The median time without a run of those that moved, in ms.
    pub gap_ms_median: u64,
    /// 99 % of those that moved were without a run for at most this time, in ms.
    pub gap_ms_p99: u64,
    /// The longest time without a run, in ms; of an open incident, until now.
    pub gap_ms_max: u64,
    /// The longest time with two runs, in ms.
    pub overlap_ms_max: u64,
}

impl From<core::Segment> for TimelineSegment {
    fn from(it: core::Segment) -> Self {
        let core::Segment { since, until, held_min, held_max, gap, overlap } = it;
        Self { since, until, held_min, held_max, gap, overlap }
    }
}

impl Timeline {
    #[must_use]
    pub fn of(picture: core::Picture, window: &core::Window) -> Self {
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
            incidents: incidents.into_iter().skip(left_out).map(Incident::from).collect(),
        }
    }
}

impl From<core::Lane> for TimelineLane {
    fn from(lane: core::Lane) -> Self {
        Self {
            service: lane.name,
            lives: lane.lives,
            segments: lane.segments.into_iter().map(TimelineSegment::from).collect(),
        }
    }
}

impl From<core::Mark> for TimelineMark {
    fn from(core::Mark { at, kind, service, text, .. }: core::Mark) -> Self {
        Self { at, kind, service, text }
    }
}

impl From<core::Incident> for Incident {
    fn from(it: core::Incident) -> Self {
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
            since: it.since,
            until: Some(it.until).filter(|_| it.waiting == 0),
            moved: it.moved,
            waiting: it.waiting,
            to: to.into_iter().collect(),
            to_others: others.iter().map(|(_, moved)| moved).sum(),
            gap_ms_median,
            gap_ms_p99,
            gap_ms_max: ms(it.gap_max),
            overlap_ms_max: ms(it.overlap_max),
        }
    }
}
