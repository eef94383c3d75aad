//! The logs of observers: a bounded ring of lines for each observer, how to read and follow it, and the request and
//! reply about it. Lines are never stored: the service that runs an observer keeps the newest lines in memory.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{ObserverId, RepliesId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// The longest line, in bytes; the rest of a longer one is dropped.
pub const LINE_MAX: usize = 4096;
/// The memory that a line takes beside its text.
const LINE_COST: usize = 64;
/// The most lines that a ring can be configured to keep.
pub const LINES_MAX: u32 = 10_000;

/// The source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    /// Logged by the observer's code, or by its service about it.
    Log,
    /// Sent by a newer version.
    #[serde(other)]
    Other,
}

impl Stream {
    /// The source as text.
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

/// The position of a line among all lines of an observer: a run is on one service, and a later run has a higher epoch,
/// so this order holds across services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LogCursor {
    pub epoch: Epoch,
    /// Counts the lines of one run, from 1.
    pub seq: u64,
}

/// `3.2.57`: the 57th line of run 3.2.
impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl FromStr for LogCursor {
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
    pub place: LogCursor,
    /// By the clock of the service's host.
    pub at: Timestamp,
    pub stream: Stream,
    pub text: Box<str>,
}

/// The newest lines of one observer, sorted by cursor. An empty ring allocates no memory.
#[derive(Debug, Default)]
pub struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    last: Option<LogCursor>,
}

/// Some lines of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lines {
    /// Oldest first.
    pub lines: Vec<Line>,
    /// The number of lines known to be lost between the requested cursor and the first of these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// Whether more lines follow the last of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Ring {
    /// Adds a line and drops the oldest beyond `most` lines, or beyond an average of one KiB per line. Lines of
    /// replaced runs are ignored. Returns the added line.
    pub fn push(
        &mut self,
        (epoch, at): (Epoch, Timestamp),
        stream: Stream,
        text: &str,
        most: u32,
    ) -> Option<&Line> {
        let last = self.last.unwrap_or(LogCursor { epoch, seq: 0 });
        if epoch < last.epoch {
            return None;
        }
        let seq = if epoch == last.epoch { last.seq + 1 } else { 1 };
        self.add(Line { place: LogCursor { epoch, seq }, at, stream, text: cut(text) }, most)
    }

    /// Adds a line that a ring of an earlier process has kept, unless it is no newer than the last one.
    pub fn restore(&mut self, line: Line, most: u32) {
        if self.last.is_none_or(|last| line.place > last) {
            self.add(line, most);
        }
    }

    fn add(&mut self, line: Line, most: u32) -> Option<&Line> {
        if most == 0 {
            return None;
        }
        self.last = Some(line.place);
        self.bytes += line.text.len() + LINE_COST;
        self.lines.push_back(line);
        while self.lines.len() > most as usize || self.bytes > Self::bytes_max(most) {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len() + LINE_COST;
        }
        self.lines.back()
    }

    /// The most bytes that a ring of `most` lines keeps.
    #[must_use]
    pub fn bytes_max(most: u32) -> usize {
        (most as usize * 1024).max(LINE_MAX + LINE_COST)
    }

    /// The newest lines, or the first ones after a cursor; at most `most`.
    #[must_use]
    pub fn read(&self, after: Option<LogCursor>, most: usize) -> Lines {
        let Some(after) = after else {
            let from = self.lines.len().saturating_sub(most);
            return Lines { lines: self.lines.range(from..).cloned().collect(), ..Lines::default() };
        };
        let from = self.lines.partition_point(|line| line.place <= after);
        let lines: Vec<Line> = self.lines.range(from..).take(most).cloned().collect();
        let before = |first: LogCursor| if first.epoch == after.epoch { after.seq } else { 0 };
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

/// A request for the log of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskLogs {
    /// Returned with the reply.
    pub number: u64,
    /// The destination of the reply.
    pub to: RepliesId,
    pub id: ObserverId,
    /// `None` requests the newest lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<LogCursor>,
    pub most: u32,
}

/// A service's reply to one manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Logs(LogsAnswer),
    /// Written by a newer version: ignored.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogsAnswer {
    pub number: u64,
    pub lines: Lines,
}
