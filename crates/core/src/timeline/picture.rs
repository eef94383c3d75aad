//! A picture of a part of the timeline: with as many columns as requested, and of a bounded size.

use super::fact::Mark;
use super::incident::{Cause, Incident, NOWHERE_MAX};
use super::steps::{Steps, second};
use super::{Incarnation, Place, Timeline};
use crate::clock::Timestamp;
use crate::id::{ObserverId, ServiceId};
use crate::wire::command::Cause as Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The maximum number of columns in a picture.
pub const COLUMNS_MAX: usize = 2000;
/// The maximum number of lanes in a picture; a sum replaces the others.
pub const LANES_MAX: usize = 100;
/// The maximum number of columns in all lanes together: if there are many lanes, each has fewer columns.
pub const CELLS_MAX: usize = 60_000;
/// The maximum number of marks in a picture, which has the newest.
pub const MARKS_SHOWN_MAX: usize = 1000;

/// The part of the timeline that is shown, in columns of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub since: Timestamp,
    pub until: Timestamp,
    pub columns: usize,
}

impl Window {
    /// The seconds at which columns begin, and the one at which the last column ends.
    fn edges(&self, lanes: usize) -> Vec<i64> {
        // The last second is included even if it is not over: otherwise the picture would lack the newest events.
        let since = second(self.since);
        let until = second(self.until.plus(Duration::from_millis(999))).max(since + 1);
        let seconds = until - since;
        let columns = self.columns.min(CELLS_MAX / lanes.max(1)).clamp(1, COLUMNS_MAX);
        let columns = i64::try_from(columns).unwrap_or(1).min(seconds);
        (0..=columns).map(|column| since + seconds * column / columns).collect()
    }

    fn has(&self, since: Timestamp, until: Timestamp) -> bool {
        until >= self.since && since <= self.until
    }
}

/// Neighboring columns of a lane that are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The fewest observers that the service held in a column.
    pub held_min: u64,
    /// The most observers that the service held in a column.
    pub held_max: u64,
    /// The most of its observers that ran nowhere at once.
    pub gap: u64,
    /// The most of its observers that ran twice at once.
    pub overlap: u64,
}

/// The services of one name, one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub name: String,
    /// Whether a service of this name lives now.
    pub lives: bool,
    /// The number of observers that it holds at the end of the window.
    pub held: u64,
    /// The segments, without those in which the service held nothing and had no gap.
    pub segments: Vec<Segment>,
}

/// The lanes beyond [`LANES_MAX`], together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Others {
    /// The number of their names.
    pub lanes: usize,
    pub segments: Vec<Segment>,
}

/// The timeline in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The number of columns.
    pub columns: usize,
    pub lanes: Vec<Lane>,
    pub others: Option<Others>,
    pub marks: Vec<Mark>,
    /// The number of older marks in the window that the picture omits.
    pub marks_left_out: usize,
    pub incidents: Vec<Incident>,
    /// The time from which the picture is complete: earlier events are missing.
    pub complete_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Column {
    held_min: i64,
    held_max: i64,
    gap: i64,
    overlap: i64,
}

impl Column {
    fn add(&mut self, other: Self) {
        self.held_min += other.held_min;
        self.held_max += other.held_max;
        self.gap += other.gap;
        self.overlap += other.overlap;
    }

    fn segment(self, since: i64, until: i64) -> Segment {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Segment {
            since: Timestamp(since * 1000),
            until: Timestamp(until * 1000),
            held_min: number(self.held_min),
            held_max: number(self.held_max),
            gap: number(self.gap),
            overlap: number(self.overlap),
        }
    }
}

impl Incarnation {
    /// The observers of this service that run nowhere, by the time at which their gap began.
    fn waiting(&self) -> Steps {
        let mut waiting = self.left.clone();
        if let Some((ended_at, _)) = self.ended
            && self.running > 0
        {
            waiting.add(ended_at, self.running);
        }
        waiting
    }

    /// Whether this service does not appear in these columns.
    fn is_outside(&self, edges: &[i64]) -> bool {
        let (first, last) = (edges.first().copied(), edges.last().copied());
        let is_after = self.registered_at.is_some_and(|at| last.is_some_and(|last| second(at) >= last));
        let is_before = self.ended.is_some_and(|(at, _)| first.is_some_and(|first| second(at) < first));
        is_after
            || is_before
                && self.running <= 0
                && [&self.left, &self.gaps, &self.overlaps].map(Steps::is_empty) == [true; 3]
    }

    /// The reasons that the service reported while it handed over the observers of this incident. Its clock and that of the next service
    /// may differ by a second.
    fn reasons_of(&self, incident: &Incident) -> BTreeSet<Reason> {
        let (first, last) = (second(incident.since) - 1, second(incident.until) + 1);
        let during = self.reasons.iter().filter(|(at, _)| (first..=last).contains(at));
        during.map(|(_, why)| *why).collect()
    }

    /// From its registration to its end.
    fn life(&self) -> (i64, i64) {
        let to = self.ended.map_or(i64::MAX, |(at, _)| second(at));
        (self.registered_at.map_or(i64::MIN, second), to)
    }
}

fn segments(columns: &[Column], edges: &[i64]) -> Vec<Segment> {
    let mut segments: Vec<(Column, Segment)> = Vec::new();
    for (column, pair) in columns.iter().zip(edges.windows(2)).filter(|(it, _)| **it != Column::default()) {
        let segment = column.segment(pair[0], pair[1]);
        match segments.last_mut() {
            Some((same, last)) if same == column && last.until == segment.since => last.until = segment.until,
            _ => segments.push((*column, segment)),
        }
    }
    segments.into_iter().map(|(_, segment)| segment).collect()
}

/// The incarnations of one name.
struct Named<'a> {
    name: &'a str,
    /// Whether another incarnation lives, which the timeline lacks.
    has_successor: bool,
    incarnations: Vec<&'a Incarnation>,
}

impl Named<'_> {
    fn lives(&self) -> bool {
        self.has_successor || self.is_unended()
    }

    fn is_unended(&self) -> bool {
        self.incarnations.iter().any(|it| it.ended.is_none())
    }

    /// The number of observers held within these edges.
    fn held(&self, edges: &[i64]) -> Steps {
        let mut held = Steps::new();
        for it in self.incarnations.iter().filter(|it| !it.is_outside(edges)) {
            held.add_part(&it.held, it.life());
        }
        held
    }

    fn columns(&self, edges: &[i64]) -> Vec<Column> {
        // Incarnations follow each other: a column can contain several of them.
        let [mut gaps, mut overlaps] = [const { Steps::new() }; 2];
        let held = self.held(edges);
        for it in self.incarnations.iter().filter(|it| !it.is_outside(edges)) {
            gaps.add_all(&it.gaps);
            gaps.add_all(&it.waiting());
            overlaps.add_all(&it.overlaps);
        }
        let most = |steps: Steps| steps.columns(edges).map(|(_, most)| most).collect::<Vec<_>>();
        let moving = most(gaps).into_iter().zip(most(overlaps));
        let columns = held.columns(edges).zip(moving);
        let column = |((held_min, held_max), (gap, overlap))| Column { held_min, held_max, gap, overlap };
        columns.map(column).collect()
    }

    /// The priority of a lane if there are too many: gaps and overlaps first, then the observers held.
    fn weight(&self, edges: &[i64]) -> (bool, i64, bool) {
        let columns = self.columns(edges);
        let is_moving = columns.iter().any(|it| it.gap > 0 || it.overlap > 0);
        (is_moving, columns.iter().map(|it| it.held_max).max().unwrap_or(0), self.lives())
    }
}

impl Timeline {
    /// The picture of a window, with only these services, unless the set is empty.
    #[must_use]
    pub fn picture(&self, window: &Window, services: &BTreeSet<String>, now: Timestamp) -> Picture {
        let is_shown = |name: &str| services.is_empty() || services.contains(name);
        let mut names: BTreeMap<&str, Vec<&Incarnation>> = BTreeMap::new();
        for it in self.services.values() {
            if let Some(name) = it.name.as_deref().filter(|name| is_shown(name)) {
                names.entry(name).or_default().push(it);
            }
        }
        let named =
            |(name, incarnations)| Named { name, has_successor: self.living.contains(name), incarnations };
        let mut all: Vec<Named<'_>> = names.into_iter().map(named).collect();
        let ends = window.edges(CELLS_MAX);
        all.retain(|it| {
            it.is_unended() || it.columns(&ends).iter().any(|column| *column != Column::default())
        });
        let edges = window.edges(all.len().min(LANES_MAX + 1));
        let others = Self::fold(&mut all, &edges);
        let lanes = all.iter().map(|it| Lane {
            name: it.name.to_owned(),
            lives: it.lives(),
            held: it.held(&edges).at(window.until),
            segments: segments(&it.columns(&edges), &edges),
        });
        let lanes = lanes.collect();
        let marks: Vec<&Mark> = self
            .marks
            .iter()
            .filter(|mark| window.has(mark.at, mark.at) && mark.service.as_deref().is_none_or(is_shown))
            .collect();
        let marks_left_out = marks.len().saturating_sub(MARKS_SHOWN_MAX);
        let mut incidents = self.incidents(now);
        incidents.retain(|it| {
            let until = if it.waiting > 0 { now } else { it.until };
            window.has(it.since, until)
                && (is_shown(&it.from_name) || it.to.keys().any(|name| is_shown(name)))
        });
        Picture {
            columns: edges.len() - 1,
            lanes,
            others,
            marks: marks.into_iter().skip(marks_left_out).cloned().collect(),
            marks_left_out,
            incidents,
            complete_since: self.since,
        }
    }

    /// Removes the lanes beyond [`LANES_MAX`]; returns their sum.
    fn fold(all: &mut Vec<Named<'_>>, edges: &[i64]) -> Option<Others> {
        if all.len() <= LANES_MAX {
            return None;
        }
        all.sort_by_cached_key(|it| Reverse(it.weight(edges)));
        let others = all.split_off(LANES_MAX);
        all.sort_by_key(|it| it.name);
        let mut columns = vec![Column::default(); edges.len().saturating_sub(1)];
        for other in &others {
            columns.iter_mut().zip(other.columns(edges)).for_each(|(column, more)| column.add(more));
        }
        Some(Others { lanes: others.len(), segments: segments(&columns, edges) })
    }

    /// The first observers that ran on this service and run nowhere yet.
    fn nowhere(&self, service: ServiceId) -> Vec<ObserverId> {
        let has_ended = self.services.get(&service).is_some_and(|it| it.ended.is_some());
        let is_left = |place: &Place| place.service == service && (has_ended || place.left_at.is_some());
        let left = self.places.iter().filter(|(_, place)| is_left(place));
        let mut left: Vec<ObserverId> = left.map(|(id, _)| *id).collect();
        left.sort_unstable();
        left.truncate(NOWHERE_MAX);
        left
    }

    /// The incidents, including those whose observers run nowhere yet.
    fn incidents(&self, now: Timestamp) -> Vec<Incident> {
        let mut all = Vec::from(self.incidents.all());
        for (id, it) in &self.services {
            let (waiting, Some(since)) = it.waiting().total() else { continue };
            let Ok(waiting) = u64::try_from(waiting) else { continue };
            if waiting == 0 {
                continue;
            }
            let cause = it.ended.map_or(Cause::HandedOver, |(_, cause)| cause);
            // Steps have whole seconds; the incident must begin at the same time once its first observer has started.
            let since = it.ended.map(|(at, _)| at).filter(|at| second(*at) == second(since)).unwrap_or(since);
            let operations = self.incidents.operations();
            let known = all.iter().rposition(|it| it.has(*id, since, cause, operations));
            let place = known.unwrap_or_else(|| {
                let name = it.name.clone().unwrap_or_else(|| id.to_string());
                all.push(Incident::opened((*id, name), cause, since));
                all.len() - 1
            });
            let Some(incident) = all.get_mut(place) else { continue };
            incident.waiting = waiting;
            incident.since = incident.since.min(since);
            // All gaps after a death begin with the last sign of life of the service.
            incident.gap_is_bound |= it.is_end_bound;
            let begun = if incident.gap_is_bound { incident.since } else { since };
            incident.gap_max = incident.gap_max.max(now.since(begun));
            incident.nowhere = self.nowhere(*id);
        }
        all.iter_mut().filter(|it| it.waiting == 0).for_each(|it| it.conclude(now));
        for it in all.iter_mut().filter(|it| it.cause == Cause::HandedOver) {
            it.reasons = self.services.get(&it.from).map_or_else(BTreeSet::new, |from| from.reasons_of(it));
        }
        all.sort_by_key(|it| it.since);
        all
    }
}
