//! The timeline: how many observers each service held, how many ran nowhere or twice, and the incidents that moved them. It is
//! computed from events, in their order, and holds a bounded time at a resolution of one second.

mod incident;
mod picture;
#[cfg(test)]
mod tests;

pub use incident::{Cause, Incident};
pub use picture::{COLUMNS_MAX, Lane, Picture, Segment, Window};

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::events::EventKind;
use incident::Incidents;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The time that a timeline holds.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most marks that it holds; the oldest are forgotten first.
pub const MARKS_MAX: usize = 10_000;
/// The most services, living and ended, that it holds; those that ended first are forgotten first.
pub const SERVICES_MAX: usize = 10_000;

/// What an event says about the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A service started an observer.
    Started {
        service: ServiceId,
        moved: Option<Moved>,
    },
    /// A service reported the end of a run.
    Ended {
        service: ServiceId,
        /// Whether the observer continues elsewhere.
        moves: bool,
    },
    Registered {
        service: ServiceId,
        name: String,
    },
    /// A service has ended: it was lost, or it stopped.
    Gone {
        service: ServiceId,
        name: String,
        lost: bool,
    },
    /// Anything else that explains what is seen.
    Mark {
        kind: EventKind,
        service: Option<String>,
        text: String,
    },
}

/// Where an observer that was started ran before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub from: ServiceId,
    pub gap: Duration,
    pub overlap: Duration,
}

/// Something that happened at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub at: Timestamp,
    pub kind: EventKind,
    /// The name of the service that it concerns.
    pub service: Option<String>,
    pub text: String,
}

/// Changes of a number, by second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Steps(BTreeMap<i64, i64>);

impl Steps {
    fn add(&mut self, at: Timestamp, change: i64) {
        let second = second(at);
        let step = self.0.entry(second).or_default();
        *step += change;
        if *step == 0 {
            self.0.remove(&second);
        }
    }

    /// One more from `since` to `until`, for at least one second.
    fn span(&mut self, since: Timestamp, until: Timestamp) {
        let until = if second(until) > second(since) { until } else { since.plus(Duration::from_secs(1)) };
        self.add(since, 1);
        self.add(until, -1);
    }

    fn sum(&self) -> i64 {
        self.0.values().sum()
    }

    /// Forgets the changes before a moment.
    fn forget(&mut self, before: Timestamp) {
        self.0 = self.0.split_off(&second(before));
    }
}

fn second(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

/// One incarnation of a service.
#[derive(Debug, Clone, Default)]
struct Incarnation {
    name: Option<String>,
    registered_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    last_start: Option<Timestamp>,
    held: Steps,
    /// Observers that it ran and that run nowhere yet.
    gaps: Steps,
    /// Observers that it ran and that ran on their next service, too.
    overlaps: Steps,
    /// Runs that it handed over and that are not started elsewhere yet. The end of other runs that continue elsewhere was not
    /// reported: the service died, or was cut off.
    handed_over: u64,
}

/// What has happened, second by second.
#[derive(Debug, Default)]
pub struct Timeline {
    services: BTreeMap<ServiceId, Incarnation>,
    marks: VecDeque<Mark>,
    incidents: Incidents,
    /// The time from which it is complete.
    since: Option<Timestamp>,
}

impl Timeline {
    /// An empty timeline whose facts begin at this time.
    #[must_use]
    pub fn new(since: Timestamp) -> Self {
        Self { since: Some(since), ..Self::default() }
    }

    /// Adds a fact.
    pub fn add(&mut self, at: Timestamp, fact: Fact) {
        match fact {
            Fact::Started { service, moved } => {
                let it = self.service(service);
                it.held.add(at, 1);
                it.last_start = it.last_start.max(Some(at));
                if let Some(moved) = moved {
                    self.moved(at, service, moved);
                }
            }
            Fact::Ended { service, moves } => {
                let it = self.service(service);
                it.held.add(at, -1);
                it.handed_over += u64::from(moves);
            }
            Fact::Registered { service, name } => {
                let it = self.service(service);
                (it.name, it.registered_at) = (Some(name.clone()), Some(at));
                self.mark(Mark {
                    at,
                    kind: EventKind::ServiceRegistered,
                    service: Some(name),
                    text: String::new(),
                });
            }
            Fact::Gone { service, name, lost } => {
                let it = self.service(service);
                (it.name, it.ended_at) = (Some(name.clone()), Some(at));
                let (kind, cause) = if lost {
                    (EventKind::ServiceLost, Cause::Lost)
                } else {
                    (EventKind::ServiceGone, Cause::Stopped)
                };
                self.incidents.explain(service, at, cause);
                self.mark(Mark { at, kind, service: Some(name), text: String::new() });
            }
            Fact::Mark { kind, service, text } => self.mark(Mark { at, kind, service, text }),
        }
    }

    /// The name of a service, where no fact has told it yet.
    pub fn name(&mut self, service: ServiceId, name: &str) {
        self.service(service).name.get_or_insert_with(|| name.to_owned());
    }

    fn service(&mut self, id: ServiceId) -> &mut Incarnation {
        self.services.entry(id).or_default()
    }

    fn moved(&mut self, at: Timestamp, to: ServiceId, moved: Moved) {
        let from = self.service(moved.from);
        match from.handed_over.checked_sub(1) {
            Some(left) => from.handed_over = left,
            // A gap begins with the last sign of life of the service, which may be older than its newest run.
            None => {
                from.held.add(at.minus(moved.gap).max(from.last_start.unwrap_or(Timestamp(i64::MIN))), -1)
            }
        }
        if !moved.gap.is_zero() {
            from.gaps.span(at.minus(moved.gap), at);
        }
        if !moved.overlap.is_zero() {
            from.overlaps.span(at, at.plus(moved.overlap));
        }
        let cause = from.ended_at.is_some().then_some(Cause::Lost);
        self.incidents.add(at, to, moved, cause);
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push_back(mark);
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// Forgets what is older than [`KEPT`].
    pub fn forget(&mut self, now: Timestamp) {
        let before = now.minus(KEPT);
        if self.since.is_some_and(|since| since >= before) {
            return;
        }
        self.since = Some(before);
        self.marks.retain(|mark| mark.at >= before);
        self.incidents.forget(before);
        for it in self.services.values_mut() {
            // A change before the window changes what it held at its beginning, which is computed from the end.
            for steps in [&mut it.held, &mut it.gaps, &mut it.overlaps] {
                steps.forget(before);
            }
            it.registered_at = it.registered_at.filter(|at| *at >= before);
        }
        self.services.retain(|_, it| it.ended_at.is_none_or(|at| at >= before));
        while self.services.len() > SERVICES_MAX {
            let ended = self.services.iter().filter_map(|(id, it)| Some((it.ended_at?, *id)));
            let Some((_, first)) = ended.min() else { break };
            self.services.remove(&first);
        }
    }
}
