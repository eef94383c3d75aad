//! The timeline as `top` shows it: its span, its text, and when to read it again. Independent of terminal, HTTP and clock.

use super::feed::wrapped;
use crate::output::{Tone, TonedLine, line};
use everwatch_core::clock::Timestamp;
use std::time::Duration;

/// The pause after a request that failed.
const RETRY_AFTER: Duration = Duration::from_secs(4);

/// The time that a timeline shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Span {
    Minute,
    FiveMinutes,
    #[default]
    QuarterHour,
    Hour,
    Day,
}

impl Span {
    const ALL: [Self; 5] = [Self::Minute, Self::FiveMinutes, Self::QuarterHour, Self::Hour, Self::Day];

    /// The parameter of the API, and the text on the screen.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Minute => ("1m", "last minute"),
            Self::FiveMinutes => ("5m", "last 5 minutes"),
            Self::QuarterHour => ("15m", "last 15 minutes"),
            Self::Hour => ("1h", "last hour"),
            Self::Day => ("24h", "last 24 hours"),
        }
    }

    /// The next longer or shorter span, or why there is none.
    fn next(self, step: Zoom) -> Result<Self, &'static str> {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        let (next, end) = match step {
            Zoom::Longer => (at.checked_add(1), "24 hours are the longest timeline: - shows a shorter one"),
            Zoom::Shorter => (at.checked_sub(1), "1 minute is the shortest timeline: + shows a longer one"),
        };
        next.and_then(|at| Self::ALL.get(at).copied()).ok_or(end)
    }

    /// How long a picture is shown until it is read again: less than the time of one column, but at least 1 s.
    fn fresh_for(self) -> Duration {
        Duration::from_secs(match self {
            Self::Minute | Self::FiveMinutes => 1,
            Self::QuarterHour => 4,
            Self::Hour => 15,
            Self::Day => 60,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zoom {
    Longer,
    Shorter,
}

#[derive(Debug)]
pub(super) struct TimelineView {
    pub(super) span: Span,
    /// The last picture; empty before the first answer.
    picture: Vec<TonedLine>,
    /// Why the last request failed; stands above the picture.
    trouble: Option<String>,
    /// The first visible line.
    pub(super) from: usize,
    requested_at: Option<Timestamp>,
    loading: bool,
    /// The columns and lines that fit the screen.
    room: (usize, usize),
}

impl TimelineView {
    pub(super) fn new(room: (usize, usize)) -> Self {
        Self {
            span: Span::default(),
            picture: Vec::new(),
            trouble: None,
            from: 0,
            requested_at: None,
            loading: false,
            room,
        }
    }

    /// The span to request now, if it is time. Only one request is in progress at a time.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Span> {
        let after = if self.trouble.is_some() { RETRY_AFTER } else { self.span.fresh_for() };
        let is_due = self.requested_at.is_none_or(|then| now.since(then) >= after);
        if self.loading || !is_due {
            return None;
        }
        (self.loading, self.requested_at) = (true, Some(now));
        Some(self.span)
    }

    /// Chooses another span; fails with a message at the longest and at the shortest.
    pub(super) fn choose(&mut self, step: Zoom) -> Result<(), &'static str> {
        (self.span, self.requested_at) = (self.span.next(step)?, None);
        Ok(())
    }

    pub(super) fn resize(&mut self, room: (usize, usize)) {
        // The picture is drawn for a number of columns.
        if room.0 != self.room.0 {
            self.requested_at = None;
        }
        self.room = room;
        self.scroll_to(self.from);
    }

    pub(super) fn take(&mut self, span: Span, outcome: Result<Vec<TonedLine>, String>) {
        self.loading = false;
        match outcome {
            // The user has chosen another span meanwhile.
            _ if span != self.span => self.requested_at = None,
            Ok(picture) => (self.picture, self.trouble) = (picture, None),
            Err(why) => self.trouble = Some(why),
        }
        self.scroll_to(self.from);
    }

    pub(super) fn scroll_to(&mut self, line: usize) {
        self.from = line.min(self.lines().len().saturating_sub(self.room.1));
    }

    /// The failure of the last request, and the last picture.
    fn lines(&self) -> Vec<TonedLine> {
        let trouble = self.trouble.iter().flat_map(|why| wrapped(&line(why), self.room.0));
        trouble.map(|text| vec![(Tone::Bad, text)]).chain(self.picture.iter().cloned()).collect()
    }

    pub(super) fn visible(&self) -> Vec<TonedLine> {
        self.lines().into_iter().skip(self.from).take(self.room.1).collect()
    }

    /// Which lines are visible, if not all.
    pub(super) fn position(&self) -> Option<String> {
        let (all, room) = (self.lines().len(), self.room.1);
        let end = (self.from + room).min(all);
        (all > room).then(|| format!("lines {}–{end} of {all}", self.from + 1))
    }

    /// Whether the picture is current.
    pub(super) fn progress(&self) -> (Tone, &'static str) {
        match &self.trouble {
            Some(_) => (Tone::Bad, "failed; trying again"),
            None if self.picture.is_empty() => (Tone::Wait, "loading …"),
            None => (Tone::Good, "live"),
        }
    }

    pub(super) fn page(&self) -> usize {
        self.room.1.saturating_sub(1).max(1)
    }
}
