//! The timeline: what each service held, second by second, and the incidents that moved observers.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::record::events::EventKind;
use everwatch_core::timeline as core;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// What happened in a span of time, in columns of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Events before this time are not kept any more.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub complete_since: Option<Timestamp>,
    /// One for each name of services, in the order of names.
    pub lanes: Vec<TimelineLane>,
    /// What explains changes: services that started or ended, drains, rebalances and the like, the oldest first.
    pub marks: Vec<TimelineMark>,
    /// The oldest first.
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

/// A part of a lane in which the columns are equal.
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
    /// `lost`: it was killed or silent for too long; `stopped`: it handed them over at its end; `handed_over`: it lives.
    pub cause: String,
    /// When the first observer stood still.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When the last one started.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The number of observers that moved.
    pub moved: u64,
    /// The names of the services that run them now, and how many.
    pub to: BTreeMap<String, u64>,
    /// The median time without a run, in ms.
    pub gap_ms_median: u64,
    /// 99 % were without a run for at most this time, in ms.
    pub gap_ms_p99: u64,
    /// The longest time without a run, in ms.
    pub gap_ms_max: u64,
    /// The longest time with two runs, in ms.
    pub overlap_ms_max: u64,
}

impl Timeline {
    /// The names of services are those that `name` knows; others are shown by their ids.
    #[must_use]
    pub fn of(
        picture: core::Picture,
        window: &core::Window,
        name: impl Fn(ServiceId) -> Option<String>,
    ) -> Self {
        let core::Picture { lanes, marks, incidents, complete_since } = picture;
        let name = |id: ServiceId| name(id).unwrap_or_else(|| id.to_string());
        Self {
            since: window.since,
            until: window.until,
            complete_since,
            lanes: lanes.into_iter().map(TimelineLane::from).collect(),
            marks: marks.into_iter().map(TimelineMark::from).collect(),
            incidents: incidents.iter().map(|it| Incident::of(it, name)).collect(),
        }
    }
}

impl From<core::Lane> for TimelineLane {
    fn from(lane: core::Lane) -> Self {
        let segment = |it: core::Segment| TimelineSegment {
            since: it.since,
            until: it.until,
            held_min: it.held_min,
            held_max: it.held_max,
            gap: it.gap,
            overlap: it.overlap,
        };
        Self {
            service: lane.name,
            lives: lane.lives,
            segments: lane.segments.into_iter().map(segment).collect(),
        }
    }
}

impl From<core::Mark> for TimelineMark {
    fn from(core::Mark { at, kind, service, text }: core::Mark) -> Self {
        Self { at, kind, service, text }
    }
}

impl Incident {
    fn of(it: &core::Incident, name: impl Fn(ServiceId) -> String) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let cause = match it.cause {
            core::Cause::Lost => "lost",
            core::Cause::Stopped => "stopped",
            core::Cause::HandedOver => "handed_over",
        };
        let mut to = BTreeMap::new();
        for (service, moved) in &it.to {
            *to.entry(name(*service)).or_default() += moved;
        }
        Self {
            from: name(it.from),
            cause: cause.to_owned(),
            since: it.since,
            until: it.until,
            moved: it.moved,
            to,
            gap_ms_median: ms(it.gap(0.5)),
            gap_ms_p99: ms(it.gap(0.99)),
            gap_ms_max: ms(it.gap_max),
            overlap_ms_max: ms(it.overlap_max),
        }
    }
}
