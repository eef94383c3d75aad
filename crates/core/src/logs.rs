//! What observers say while they run: a bounded ring of lines for each, how it is read and followed, and the
//! question and answer about it. Lines are never stored: the service that runs an observer keeps its newest.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{AnswersId, ObserverId, ServiceId};
use crate::row::Row;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// The longest line, in bytes; the rest of a longer one is dropped.
pub const LINE_MAX: usize = 4096;
/// What a line takes beside its text.
const LINE_COST: usize = 64;
/// The most lines that a ring may be told to keep.
pub const LINES_MAX: u32 = 10_000;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    /// Said by the observer's code, or by its service about it.
    Log,
    /// Told by a newer version.
    #[serde(other)]
    Other,
}

impl Stream {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Log => "log",
            Self::Other => "other",
        }
    }
}

/// Where a line stands among all that an observer has ever said: a run is on one service, and a later run has
/// a higher epoch, so this order holds across services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    pub epoch: Epoch,
    /// Counts the lines of one run, from 1.
    pub seq: u64,
}

/// `3.2.57`: the 57th line of run 3.2.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next()?.parse::<u64>().ok();
        let half = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let (generation, acquisitions, seq) = (half(next()), half(next()), next());
        let read = generation.zip(acquisitions).zip(seq);
        let ((generation, acquisitions), seq) =
            read.ok_or_else(|| format!("`{text}` is not the id of a line, as 3.2.57"))?;
        Ok(Self { epoch: Epoch::new(generation, acquisitions), seq })
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    pub place: Place,
    /// By the clock of the service's host.
    pub at: Timestamp,
    pub stream: Stream,
    pub text: Box<str>,
}

/// The newest lines of one observer, in the order of their places. Empty it has no memory of its own.
#[derive(Debug, Default)]
pub struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    last: Option<Place>,
}

/// Some lines of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lines {
    /// The oldest first.
    pub lines: Vec<Line>,
    /// How many lines before the first of these, and after the one that was asked for, are known to be gone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// There are more after the last of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Ring {
    /// Adds a line and drops the oldest beyond `most` lines, or a KiB for each of them on the average. Runs
    /// that were replaced have nothing more to say.
    pub fn push(&mut self, (epoch, at): (Epoch, Timestamp), stream: Stream, text: &str, most: u32) {
        let last = self.last.unwrap_or(Place { epoch, seq: 0 });
        if most == 0 || epoch < last.epoch {
            return;
        }
        let seq = if epoch == last.epoch { last.seq + 1 } else { 1 };
        let place = Place { epoch, seq };
        self.last = Some(place);
        let text = cut(text);
        self.bytes += text.len() + LINE_COST;
        self.lines.push_back(Line { place, at, stream, text });
        let (most, bytes) = (most as usize, (most as usize * 1024).max(LINE_MAX + LINE_COST));
        while self.lines.len() > most || self.bytes > bytes {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.text.len() + LINE_COST;
        }
    }

    /// The newest lines, or the first ones after a place; at most `most`.
    #[must_use]
    pub fn read(&self, after: Option<Place>, most: usize) -> Lines {
        let Some(after) = after else {
            let from = self.lines.len().saturating_sub(most);
            return Lines { lines: self.lines.range(from..).cloned().collect(), ..Lines::default() };
        };
        let from = self.lines.partition_point(|line| line.place <= after);
        let lines: Vec<Line> = self.lines.range(from..).take(most).cloned().collect();
        let before = |first: Place| if first.epoch == after.epoch { after.seq } else { 0 };
        let missed = self.lines.get(from).map_or(0, |it| it.place.seq - 1 - before(it.place));
        Lines { missed, more: from + lines.len() < self.lines.len(), lines }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

fn cut(text: &str) -> Box<str> {
    if text.len() <= LINE_MAX {
        return text.into();
    }
    const MARK: &str = "…";
    format!("{}{MARK}", &text[..text.floor_char_boundary(LINE_MAX - MARK.len())]).into()
}

/// What has an observer said?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskLogs {
    /// Comes back with the answer.
    pub number: u64,
    /// Where the answer goes.
    pub to: AnswersId,
    pub id: ObserverId,
    /// None: the newest lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Place>,
    pub most: u32,
}

/// What a service answers one manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Logs(LogsAnswer),
    /// Written by a newer version: passed over.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogsAnswer {
    pub number: u64,
    pub lines: Lines,
}

/// Who has the newest lines of an observer: its holder, else whoever ran it last in this generation.
#[must_use]
pub fn keeper(row: &Row) -> Option<ServiceId> {
    let ran = || row.seen.ran.as_ref().map(|it| it.service);
    let former = || row.former.last().map(|it| it.service);
    row.holder().or_else(ran).or_else(former)
}
