//! A log or a list of events that grows: keeps a limited number of rows, and decides which lines of them are visible.
//! Independent of terminal, HTTP and clock.

use super::target::Target;
use crate::output::{Least, Tone, cut, line, shrink};
use everwatch_core::wording::counted;
use std::collections::VecDeque;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How many rows are kept; older ones are dropped.
pub(super) const ROWS_MAX: usize = 5000;
/// The indent of the lines after the first of a wrapped row.
const INDENT: &str = "  ";

/// What a feed shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The log of an observer.
    Log(Target),
    /// The events of an observer or a service; `None`: of all.
    Events(Option<Target>),
}

/// The space between two columns.
const BETWEEN: &str = "  ";

/// One row, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) tone: Tone,
    /// One text, or the cells of a table.
    pub(super) cells: Vec<String>,
    is_notice: bool,
}

impl Row {
    pub(super) fn new(tone: Tone, text: &str) -> Self {
        Self { tone, cells: vec![line(text)], is_notice: false }
    }

    /// A row of a table.
    pub(super) fn of_cells(tone: Tone, cells: &[String]) -> Self {
        Self { tone, cells: cells.iter().map(|cell| line(cell)).collect(), is_notice: false }
    }

    /// A notice that is not a row of the observer or a manager.
    pub(super) fn note(tone: Tone, text: &str) -> Self {
        Self { is_notice: true, ..Self::new(tone, &format!("— {text} —")) }
    }
}

/// Whether rows arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedState {
    Connecting,
    Open,
    Reconnecting,
    /// The observer has ended.
    Ended,
    /// The manager refuses the request.
    Failed,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeedColumn {
    pub(super) head: &'static str,
    pub(super) least: Option<Least>,
}

/// What arrives for a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FeedPart {
    Head(Vec<FeedColumn>),
    Rows(Vec<Row>),
    State(FeedState),
}

/// The rows of one subject, and the part of them that is visible.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) subject: Subject,
    pub(super) state: FeedState,
    /// The columns, each with the width of its widest cell; empty if the rows are not those of a table.
    columns: Vec<(FeedColumn, usize)>,
    /// Whether the newest row stays visible.
    pub(super) follows: bool,
    /// Whether rows that are too wide are wrapped instead of cut.
    pub(super) wraps: bool,
    /// The rows, each with the number of its lines.
    rows: VecDeque<(Row, usize)>,
    /// The number of lines of all rows.
    all: usize,
    /// The number of lines below the visible ones.
    below: usize,
    is_cropped: bool,
    /// The columns and lines that fit the screen.
    room: (usize, usize),
}

impl Feed {
    pub(super) fn new(subject: Subject, room: (usize, usize)) -> Self {
        Self {
            state: FeedState::Connecting,
            columns: Vec::new(),
            follows: true,
            // A line of a log is read as a whole; rows of a table are compared.
            wraps: matches!(subject, Subject::Log(_)),
            subject,
            rows: VecDeque::new(),
            all: 0,
            below: 0,
            is_cropped: false,
            room,
        }
    }

    pub(super) fn take(&mut self, part: FeedPart) {
        match part {
            FeedPart::Head(columns) => {
                self.columns = columns.into_iter().map(|it| (it.clone(), it.head.width())).collect();
            }
            FeedPart::Rows(rows) => {
                let has_widened = self.widen(&rows);
                rows.into_iter().for_each(|row| self.push(row));
                // Wider columns may need more lines.
                if has_widened && self.wraps {
                    self.lay_out();
                }
            }
            FeedPart::State(state) => self.state = state,
        }
    }

    /// Widens the columns to these rows; returns whether any is wider now.
    fn widen(&mut self, rows: &[Row]) -> bool {
        let mut has_widened = false;
        for row in rows.iter().filter(|row| !row.is_notice) {
            for ((_, width), cell) in self.columns.iter_mut().zip(&row.cells) {
                has_widened |= cell.width() > *width;
                *width = cell.width().max(*width);
            }
        }
        has_widened
    }

    fn push(&mut self, row: Row) {
        // The same failure of each attempt to reconnect is shown once.
        if row.is_notice && self.rows.back().is_some_and(|(last, _)| *last == row) {
            return;
        }
        let height = self.laid_out(&row).len();
        self.rows.push_back((row, height));
        self.all += height;
        self.below += if self.follows { 0 } else { height };
        if self.rows.len() > ROWS_MAX
            && let Some((_, height)) = self.rows.pop_front()
        {
            self.all -= height;
            self.is_cropped = true;
        }
        self.below = self.below.min(self.below_max());
    }

    /// The lines of a row at the width of the screen.
    fn laid_out(&self, row: &Row) -> Vec<String> {
        let is_table = !row.is_notice && !self.columns.is_empty();
        let text = if is_table { self.aligned(&row.cells) } else { row.cells.join(BETWEEN) };
        // A notice says what to do, possibly at its end.
        if self.wraps || row.is_notice { wrapped(&text, self.room.0) } else { vec![cut(&text, self.room.0)] }
    }

    /// The cells below each other. If rows are cut, so is each cell that is too wide.
    fn aligned<T: AsRef<str>>(&self, cells: &[T]) -> String {
        let mut widths: Vec<_> = self.columns.iter().map(|(_, width)| *width).collect();
        if !self.wraps {
            let least: Vec<_> = self.columns.iter().map(|(column, _)| column.least).collect();
            shrink(&mut widths, &least, self.room.0);
        }
        let shown = cells.iter().zip(widths).filter(|(_, width)| *width > 0);
        let padded = shown.map(|(cell, width)| {
            let shown = cut(cell.as_ref(), width);
            let blank = " ".repeat(width.saturating_sub(shown.width()));
            shown + &blank
        });
        padded.collect::<Vec<_>>().join(BETWEEN).trim_end().to_owned()
    }

    /// The names of the columns, if the rows are those of a table.
    pub(super) fn head(&self) -> Option<String> {
        let heads: Vec<_> = self.columns.iter().map(|(column, _)| column.head).collect();
        (!heads.is_empty()).then(|| cut(&self.aligned(&heads), self.room.0))
    }

    fn lines_room(&self) -> usize {
        self.room.1.saturating_sub(usize::from(!self.columns.is_empty())).max(1)
    }

    fn below_max(&self) -> usize {
        self.all.saturating_sub(self.lines_room())
    }

    /// Lays out all rows for another size of the screen. The lowest visible row stays visible.
    pub(super) fn resize(&mut self, room: (usize, usize)) {
        if self.room != room {
            self.room = room;
            self.lay_out();
        }
    }

    pub(super) fn toggle_wrap(&mut self) {
        self.wraps = !self.wraps;
        self.lay_out();
    }

    fn lay_out(&mut self) {
        let mut left = self.below;
        let is_below = |(_, height): &&(Row, usize)| {
            let fits = *height <= left;
            left = left.saturating_sub(*height);
            fits
        };
        let rows_below = self.rows.iter().rev().take_while(is_below).count();
        let heights: Vec<_> = self.rows.iter().map(|(row, _)| self.laid_out(row).len()).collect();
        for ((_, height), new) in self.rows.iter_mut().zip(&heights) {
            *height = *new;
        }
        self.all = heights.iter().sum();
        self.below = heights.iter().rev().take(rows_below).sum::<usize>().min(self.below_max());
    }

    pub(super) fn toggle_follow(&mut self) {
        if self.follows { self.follows = false } else { self.last() }
    }

    /// Scrolls back, which ends following.
    pub(super) fn up(&mut self, lines: usize) {
        if self.below_max() > 0 {
            self.follows = false;
        }
        self.below = (self.below + lines).min(self.below_max());
    }

    pub(super) fn down(&mut self, lines: usize) {
        self.below = self.below.saturating_sub(lines);
    }

    pub(super) fn page(&self) -> usize {
        self.lines_room().saturating_sub(1).max(1)
    }

    pub(super) fn first(&mut self) {
        self.up(usize::MAX / 2);
    }

    pub(super) fn last(&mut self) {
        (self.follows, self.below) = (true, 0);
    }

    /// The visible lines, each with its tone.
    pub(super) fn visible(&self) -> Vec<(Tone, String)> {
        let (first, end) = self.range();
        let (mut lines, mut at) = (Vec::new(), 0);
        for (row, height) in &self.rows {
            if at + height > first && at < end {
                let parts = self.laid_out(row).into_iter().enumerate();
                let seen = parts.filter(|(number, _)| (first..end).contains(&(at + number)));
                lines.extend(seen.map(|(_, text)| (row.tone, text)));
            }
            at += height;
        }
        lines
    }

    /// The numbers of the first visible line and of the line after the last.
    fn range(&self) -> (usize, usize) {
        let end = self.all.saturating_sub(self.below);
        (end.saturating_sub(self.lines_room()), end)
    }

    /// Which lines are visible, if not all.
    pub(super) fn position(&self) -> Option<String> {
        let (first, end) = self.range();
        let dropped = if self.is_cropped { ", older ones dropped" } else { "" };
        let is_part = self.all > self.lines_room() || self.is_cropped;
        is_part.then(|| format!("lines {}–{end} of {}{dropped}", first + 1, self.all))
    }

    /// Whether and how the feed goes on.
    pub(super) fn progress(&self) -> String {
        match self.state {
            FeedState::Connecting => "connecting …".to_owned(),
            FeedState::Reconnecting => "reconnecting …".to_owned(),
            FeedState::Ended => "ended".to_owned(),
            FeedState::Failed => "failed".to_owned(),
            FeedState::Open if self.follows => "following".to_owned(),
            FeedState::Open if self.below > 0 => {
                format!("paused, {} below", counted(self.below as u64, "line"))
            }
            FeedState::Open => "paused".to_owned(),
        }
    }
}

/// Text in lines of at most this width, divided between words if they are not too long. The lines after the first are
/// indented.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(INDENT.len() + 2);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        if used + wide > width {
            let rest = word_at_end(&mut line, width);
            lines.push(std::mem::replace(&mut line, format!("{INDENT}{rest}")));
            used = line.width();
        }
        line.push(letter);
        used += wide;
    }
    lines.push(line);
    lines
}

/// Takes the word at the end of a line, unless it fills more than half of the width.
fn word_at_end(line: &mut String, width: usize) -> String {
    let space = line.rfind(' ').filter(|at| line[..*at].width() > width / 2);
    space.map_or_else(String::new, |at| {
        let word = line.split_off(at + 1);
        line.pop();
        word
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::target::Focus;

    fn log() -> Subject {
        Subject::Log(Target { what: Focus::Observers, id: "1".to_owned(), name: "one".to_owned() })
    }

    fn feed(rows: usize, room: (usize, usize)) -> Feed {
        let mut feed = Feed::new(Subject::Events(None), room);
        add(&mut feed, 1..rows + 1);
        feed
    }

    fn add(feed: &mut Feed, numbers: std::ops::Range<usize>) {
        let rows = numbers.map(|number| Row::new(Tone::Plain, &format!("row {number}"))).collect();
        feed.take(FeedPart::Rows(rows));
    }

    fn seen(feed: &Feed) -> Vec<String> {
        feed.visible().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn the_newest_rows_are_visible_until_the_user_scrolls_back() {
        let mut it = feed(5, (20, 3));
        assert_eq!(seen(&it), ["row 3", "row 4", "row 5"]);
        add(&mut it, 6..7);
        assert_eq!(seen(&it), ["row 4", "row 5", "row 6"]);
        it.up(1);
        add(&mut it, 7..9);
        assert_eq!(seen(&it), ["row 3", "row 4", "row 5"], "new rows do not move what the user reads");
        it.down(1);
        assert_eq!(seen(&it), ["row 4", "row 5", "row 6"]);
        it.first();
        assert_eq!(seen(&it), ["row 1", "row 2", "row 3"]);
        it.up(1);
        assert_eq!(seen(&it), ["row 1", "row 2", "row 3"]);
        it.last();
        add(&mut it, 9..10);
        assert_eq!(seen(&it), ["row 7", "row 8", "row 9"]);
    }

    #[test]
    fn following_ends_and_goes_on_by_its_key() {
        let mut it = feed(3, (20, 3));
        it.take(FeedPart::State(FeedState::Open));
        assert_eq!(it.progress(), "following");
        it.toggle_follow();
        add(&mut it, 4..6);
        assert_eq!((seen(&it)[0].as_str(), it.progress().as_str()), ("row 1", "paused, 2 lines below"));
        it.down(9);
        assert_eq!((seen(&it)[0].as_str(), it.progress().as_str()), ("row 3", "paused"));
        add(&mut it, 6..7);
        assert_eq!(seen(&it)[0], "row 3");
        it.toggle_follow();
        assert_eq!((seen(&it)[0].as_str(), it.progress().as_str()), ("row 4", "following"));
    }

    #[test]
    fn what_fits_the_screen_needs_no_scrolling() {
        let mut it = feed(2, (20, 3));
        it.up(1);
        add(&mut it, 3..5);
        assert_eq!(seen(&it), ["row 2", "row 3", "row 4"], "it still follows");
    }

    #[test]
    fn old_rows_are_dropped_and_the_user_is_told() {
        let mut it = feed(ROWS_MAX + 10, (20, 3));
        it.first();
        assert_eq!(seen(&it)[0], "row 11");
        assert_eq!(it.position().as_deref(), Some("lines 1–3 of 5000, older ones dropped"));
        add(&mut it, 1..ROWS_MAX + 1);
        assert_eq!(seen(&it), ["row 1", "row 2", "row 3"], "what the user read is gone: the oldest is shown");
    }

    #[test]
    fn wide_rows_are_wrapped_or_cut_and_the_lowest_row_stays() {
        let mut it = Feed::new(log(), (8, 3));
        let rows = ["one", "0123456789abcd", "日本語の理由"].map(|text| Row::new(Tone::Plain, text));
        it.take(FeedPart::Rows(rows.to_vec()));
        assert_eq!(seen(&it), ["  89abcd", "日本語の", "  理由"]);
        it.up(2);
        assert_eq!(seen(&it), ["one", "01234567", "  89abcd"]);
        it.toggle_wrap();
        assert_eq!(seen(&it), ["one", "0123456…", "日本語…"]);
        it.toggle_wrap();
        it.resize((80, 2));
        assert_eq!(seen(&it), ["0123456789abcd", "日本語の理由"]);
    }

    #[test]
    fn cells_are_cut_in_their_columns_until_rows_are_wrapped() {
        let mut it = Feed::new(Subject::Events(None), (20, 5));
        let column = |head, least| FeedColumn { head, least };
        it.take(FeedPart::Head(vec![
            column("AT", None),
            column("NAME", Some(6.into())),
            column("CAUSE", Some(7.into())),
        ]));
        let rows = [["12:00", "a", "short"], ["12:01", "long-name", "because it ended"]];
        let row = |cells: [&str; 3]| Row::of_cells(Tone::Plain, &cells.map(str::to_owned));
        it.take(FeedPart::Rows(rows.map(row).to_vec()));
        it.take(FeedPart::Rows(vec![Row::note(Tone::Bad, "no manager; start one")]));
        assert_eq!(it.head().as_deref(), Some("AT     NAME    CAUSE"));
        assert_eq!(
            seen(&it),
            ["12:00  a       short", "12:01  long-…  beca…", "— no manager; start", "  one —"]
                .map(str::to_owned)
        );
        it.toggle_wrap();
        it.resize((30, 5));
        assert_eq!(seen(&it)[1..3], ["12:01  long-name  because it", "  ended"]);
    }

    #[test]
    fn rows_are_divided_between_words() {
        let text = "one two three four";
        assert_eq!(wrapped(text, 10), ["one two", "  three", "  four"]);
        assert_eq!(wrapped(text, 18), [text]);
        assert_eq!(wrapped("a longlonglongword", 10), ["a longlong", "  longword"]);
        assert_eq!(wrapped("one two  three", 8), ["one two", "   three"]);
        for width in 0..30 {
            let lines = wrapped(text, width);
            let letters = |text: &str| text.chars().filter(|it| *it != ' ').collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text), "{width}");
            assert!(lines.iter().all(|line| line.width() <= width.max(4)), "{width}: {lines:?}");
        }
    }

    #[test]
    fn a_head_takes_a_line_and_the_same_failure_is_shown_once() {
        let mut it = feed(0, (20, 3));
        it.take(FeedPart::Head(vec![FeedColumn { head: "NAME", least: None }]));
        add(&mut it, 1..4);
        assert_eq!(seen(&it), ["row 2", "row 3"]);
        for _ in 0..3 {
            it.take(FeedPart::Rows(vec![Row::note(Tone::Bad, "no manager")]));
        }
        assert_eq!(seen(&it), ["row 3", "— no manager —"]);
    }

    #[test]
    fn no_room_is_too_small() {
        for room in [(0, 0), (1, 1), (3, 0)] {
            let mut it = feed(3, room);
            it.up(1);
            it.toggle_wrap();
            assert_eq!(it.visible().len(), 1);
        }
    }
}
