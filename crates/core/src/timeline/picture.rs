//! A picture of a part of the timeline, as wide as a reader wants it.

use super::incident::Incident;
use super::{Incarnation, Mark, Steps, Timeline, second};
use crate::clock::Timestamp;
use crate::id::ServiceId;
use std::collections::BTreeMap;

/// The most columns of a picture.
pub const COLUMNS_MAX: usize = 2000;

/// The part of the timeline that is shown, in columns of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub since: Timestamp,
    pub until: Timestamp,
    pub columns: usize,
}

impl Window {
    /// The seconds at which columns begin, and the one at which the last column ends.
    fn edges(&self) -> Vec<i64> {
        let (since, until) = (second(self.since), second(self.until).max(second(self.since) + 1));
        let seconds = until - since;
        let columns = i64::try_from(self.columns.clamp(1, COLUMNS_MAX)).unwrap_or(1).min(seconds);
        (0..=columns).map(|column| since + seconds * column / columns).collect()
    }
}

/// A time in which nothing of a lane changes, as far as the columns show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The fewest observers that the service held in a column.
    pub held_min: u64,
    /// The most.
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
    /// Without those in which it held nothing and nothing of it stood still.
    pub segments: Vec<Segment>,
}

/// What a window shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub lanes: Vec<Lane>,
    pub marks: Vec<Mark>,
    pub incidents: Vec<Incident>,
    /// The time from which it is complete; earlier events are forgotten.
    pub complete_since: Option<Timestamp>,
}

/// The least and the most of a number in each column.
fn columns(steps: &Steps, at_first: i64, edges: &[i64]) -> Vec<(i64, i64)> {
    let mut now = at_first + steps.0.range(..edges[0]).map(|(_, change)| change).sum::<i64>();
    let pairs = edges.windows(2);
    pairs
        .map(|pair| {
            // A change in the first second of a column holds for all of it.
            let mut changes = steps.0.range(pair[0]..pair[1]).peekable();
            if let Some((_, change)) = changes.next_if(|(at, _)| **at == pair[0]) {
                now += change;
            }
            let (mut least, mut most) = (now, now);
            for (_, change) in changes {
                now += change;
                (least, most) = (least.min(now), most.max(now));
            }
            (least.max(0), most.max(0))
        })
        .collect()
}

impl Incarnation {
    /// What it held before the first change that is known: nothing if its registration is known, otherwise what it holds now,
    /// less all changes.
    fn held_at_first(&self, held_now: u64) -> i64 {
        if self.registered_at.is_some() {
            return 0;
        }
        let held_now = if self.ended_at.is_some() { 0 } else { i64::try_from(held_now).unwrap_or(i64::MAX) };
        (held_now - self.held.sum()).max(0)
    }

    fn add_to(&self, columns_of_lane: &mut [Column], (edges, held_now): (&[i64], u64)) {
        let from = self.registered_at.map_or(i64::MIN, second);
        let to = self.ended_at.map_or(i64::MAX, second);
        let held = columns(&self.held, self.held_at_first(held_now), edges);
        let gaps = columns(&self.gaps, 0, edges);
        let overlaps = columns(&self.overlaps, 0, edges);
        for (place, column) in columns_of_lane.iter_mut().enumerate() {
            let (begins, ends) = (edges[place], edges[place + 1]);
            if begins <= to && ends > from {
                let is_part = begins < from || ends > to.saturating_add(1);
                column.held_min += if is_part { 0 } else { held[place].0 };
                column.held_max += held[place].1;
            }
            column.gap += gaps[place].1;
            column.overlap += overlaps[place].1;
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Column {
    held_min: i64,
    held_max: i64,
    gap: i64,
    overlap: i64,
}

impl Column {
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

fn segments(columns: &[Column], edges: &[i64]) -> Vec<Segment> {
    let mut segments: Vec<(Column, Segment)> = Vec::new();
    for (place, column) in columns.iter().enumerate().filter(|(_, column)| **column != Column::default()) {
        let segment = column.segment(edges[place], edges[place + 1]);
        match segments.last_mut() {
            Some((same, last)) if same == column && last.until == segment.since => last.until = segment.until,
            _ => segments.push((*column, segment)),
        }
    }
    segments.into_iter().map(|(_, segment)| segment).collect()
}

impl Timeline {
    /// What a window shows. `held` is what each living service holds now.
    #[must_use]
    pub fn picture(&self, window: &Window, held: &BTreeMap<ServiceId, u64>) -> Picture {
        let edges = window.edges();
        let mut lanes: BTreeMap<&str, (bool, Vec<Column>)> = BTreeMap::new();
        for (id, it) in &self.services {
            let Some(name) = it.name.as_deref() else { continue };
            let empty = || (false, vec![Column::default(); edges.len() - 1]);
            let (lives, columns) = lanes.entry(name).or_insert_with(empty);
            *lives |= it.ended_at.is_none();
            it.add_to(columns, (&edges, held.get(id).copied().unwrap_or(0)));
        }
        let lanes = lanes.into_iter().map(|(name, (lives, columns))| Lane {
            name: name.to_owned(),
            lives,
            segments: segments(&columns, &edges),
        });
        let is_in = |since: Timestamp, until: Timestamp| until >= window.since && since <= window.until;
        Picture {
            lanes: lanes.filter(|lane| lane.lives || !lane.segments.is_empty()).collect(),
            marks: self.marks.iter().filter(|mark| is_in(mark.at, mark.at)).cloned().collect(),
            incidents: self.incidents.all().filter(|it| is_in(it.since, it.until)).cloned().collect(),
            complete_since: self.since,
        }
    }
}
