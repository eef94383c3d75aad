//! Formats tables: each column takes the width that it needs, and text that does not fit is cut with …, never
//! wrapped.

use super::cells::line;
use super::json_path::CustomColumn;
use super::{Output, OutputArgs, TerminalStyle};
use crate::item::Item;
use everwatch_core::clock::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

const BETWEEN: usize = 2;
/// The width from which a shortened column still says something.
const USEFUL: usize = 5;
/// Longer names are cut before text is left out.
const LONG_NAME: usize = 24;

/// A column: its content, and how it may be shortened if the table is too wide.
pub(crate) struct Column<T> {
    head: &'static str,
    cell: fn(&T, Timestamp) -> String,
    least: Option<Least>,
    wide: bool,
    toned: bool,
    right: bool,
    /// Whether the cell changes with time alone, such as an age.
    moving: bool,
    /// Whether the column is shown only if its cells differ.
    varied: bool,
}

impl<T> Column<T> {
    pub(crate) const fn new(head: &'static str, cell: fn(&T, Timestamp) -> String) -> Self {
        Self {
            head,
            cell,
            least: None,
            wide: false,
            toned: false,
            right: false,
            moving: false,
            varied: false,
        }
    }
    pub(crate) const fn least(self, width: usize) -> Self {
        Self { least: Some(Least { width, is_name: false }), ..self }
    }
    /// As [`Column::least`], for the name of an object: shortened only if leaving out other columns is not enough.
    pub(crate) const fn least_of_name(self, width: usize) -> Self {
        Self { least: Some(Least { width, is_name: true }), ..self }
    }
    /// Shows the column only with `-o wide`.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
    pub(crate) const fn toned(self) -> Self {
        Self { toned: true, ..self }
    }
    pub(crate) const fn right(self) -> Self {
        Self { right: true, ..self }
    }
    /// Shows the column only if the cells of the first page differ.
    pub(crate) const fn varied(self) -> Self {
        Self { varied: true, ..self }
    }
    pub(crate) const fn moving(self) -> Self {
        Self { moving: true, ..self }
    }
}

/// The width to which a column may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Least {
    width: usize,
    is_name: bool,
}

impl From<usize> for Least {
    /// The least width of a column of text.
    fn from(width: usize) -> Self {
        Self { width, is_name: false }
    }
}

/// How a list of one type of object is shown.
pub(crate) struct View<T: 'static> {
    /// The plural noun, for messages.
    pub(crate) noun: &'static str,
    /// The name of one, for `-o name`.
    pub(crate) name: fn(&T) -> String,
    /// A text that identifies the object in the list.
    pub(crate) key: fn(&T) -> String,
    pub(crate) columns: &'static [Column<T>],
}

impl<T> View<T> {
    fn narrow(&self) -> impl Iterator<Item = &'static Column<T>> {
        self.columns.iter().filter(|column| !column.wide)
    }

    /// The names of the columns that are shown without `-o wide`, and the widths to which they may be shortened.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&'static str, Option<Least>)> {
        self.narrow().map(|column| (column.head, column.least))
    }

    /// The cells of these columns.
    pub(crate) fn cells(&self, it: &T, now: Timestamp) -> impl Iterator<Item = String> {
        self.narrow().map(move |column| (column.cell)(it, now))
    }

    /// The cells whose changes `--watch` reports.
    pub(crate) fn gist(&self, it: &T) -> Vec<String> {
        let still = self.columns.iter().filter(|column| !column.moving);
        still.map(|column| (column.cell)(it, Timestamp::default())).collect()
    }
}

/// Whether a word reports a good, waiting or bad state; decides its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Wait,
    Bad,
}

impl Tone {
    /// Classifies a status or health of an observer, a state of a service, or an event. A status does not
    /// tell whether an observer does its work, so only a health can be good.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "running" | "done" | "Completed" | "active" | "started" => Self::Good,
            "restarting" | "waiting" | "moving" | "stopping" => Self::Wait,
            "changed" | "reverting" | "Reverting" | "Created" | "OnDeleting" | "cordoned" | "draining"
            | "suspect" | "errored" | "refused" => Self::Wait,
            "Creating" | "Incomplete" | "Cancelling" | "Deleting" | "preempted" => Self::Wait,
            "Failed" | "lost" | "failed" | "service_lost" | "service_suspect" => Self::Bad,
            _ => Self::Plain,
        }
    }
    /// The text in its color.
    pub(super) fn paint(self, text: &str, paper: TerminalStyle) -> String {
        match self.code().filter(|_| paper.colours) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Wait => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// A table that is printed in parts: its columns only become wider, so that later rows stay aligned.
pub(crate) struct Lines<T: 'static> {
    columns: Vec<Drawn<T>>,
    widths: Vec<usize>,
    paper: TerminalStyle,
    headers: bool,
}

/// A column of a table.
#[derive(Clone)]
enum Drawn<T: 'static> {
    Own(&'static Column<T>),
    /// One that the user defined.
    Custom(CustomColumn),
}

impl<T> Drawn<T> {
    fn head(&self) -> &str {
        match self {
            Self::Own(column) => column.head,
            Self::Custom(column) => &column.head,
        }
    }

    fn cell(&self, it: &Item<T>, now: Timestamp) -> String {
        match self {
            Self::Own(column) => (column.cell)(it, now),
            Self::Custom(column) => column.cell(it.sent()),
        }
    }

    fn own(&self) -> Option<&'static Column<T>> {
        match self {
            Self::Own(column) => Some(column),
            Self::Custom(_) => None,
        }
    }
}

impl<T> Lines<T> {
    pub(crate) fn new(view: &View<T>, shown: &OutputArgs, paper: TerminalStyle) -> Self {
        let is_shown = |column: &&'static Column<T>| shown.output == Output::Wide || !column.wide;
        let (columns, width): (Vec<_>, _) = match &shown.output {
            // The user chose these columns, or all: none of them is cut.
            Output::Columns(columns) => (columns.iter().cloned().map(Drawn::Custom).collect(), None),
            Output::Wide => (view.columns.iter().filter(is_shown).map(Drawn::Own).collect(), None),
            _ => (view.columns.iter().filter(is_shown).map(Drawn::Own).collect(), paper.width),
        };
        let mut lines = Self {
            columns,
            widths: Vec::new(),
            paper: TerminalStyle { width, ..paper },
            headers: !shown.no_headers,
        };
        lines.widths = lines.least_widths();
        lines
    }

    fn least_widths(&self) -> Vec<usize> {
        self.columns.iter().map(|column| if self.headers { column.head().width() } else { 0 }).collect()
    }

    /// Head and rows.
    pub(crate) fn page(&mut self, items: &[Item<T>], now: Timestamp) -> String {
        self.leave_out_equal(items, now);
        let rows = self.cells(items, now);
        let heads = self.columns.iter().map(|it| it.head().to_owned()).collect::<Vec<_>>();
        let head = self.headers.then(|| self.row(&heads, Row::Head));
        let rows = rows.iter().map(|cells| self.row(cells, Row::Body));
        head.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }

    fn leave_out_equal(&mut self, items: &[Item<T>], now: Timestamp) {
        let varies = |column: &Drawn<T>| {
            let mut cells = items.iter().map(|it| column.cell(it, now));
            let first = cells.next();
            cells.any(|cell| Some(cell) != first)
        };
        self.columns.retain(|column| !column.own().is_some_and(|own| own.varied) || varies(column));
        self.widths = self.least_widths();
    }

    /// Rows alone.
    pub(crate) fn rows(&mut self, items: &[Item<T>], now: Timestamp) -> Vec<String> {
        let rows = self.cells(items, now);
        rows.iter().map(|cells| self.row(cells, Row::Body)).collect()
    }

    fn cells(&mut self, items: &[Item<T>], now: Timestamp) -> Vec<Vec<String>> {
        let mut rows = Vec::with_capacity(items.len());
        for it in items {
            let cells: Vec<_> = self.columns.iter().map(|column| line(&column.cell(it, now))).collect();
            for (width, cell) in self.widths.iter_mut().zip(&cells) {
                *width = cell.width().max(*width);
            }
            rows.push(cells);
        }
        rows
    }

    /// The column widths that fit the terminal.
    fn fitting(&self) -> Vec<usize> {
        let mut widths = self.widths.clone();
        if let Some(room) = self.paper.width {
            let least: Vec<_> =
                self.columns.iter().map(|column| column.own().and_then(|own| own.least)).collect();
            shrink(&mut widths, &least, room);
        }
        widths
    }

    /// The names of the columns that say something about these objects and have no room in the terminal.
    pub(crate) fn left_out(&self, items: &[Item<T>], now: Timestamp) -> Vec<String> {
        let (mut used, mut left_out) = (0, Vec::new());
        for (column, width) in self.columns.iter().zip(self.fitting()) {
            let begins = if used == 0 { 0 } else { used + BETWEEN };
            let has_room = width > 0 && self.paper.width.is_none_or(|room| begins < room);
            if has_room {
                used = begins + width;
            } else if items.iter().any(|it| !matches!(column.cell(it, now).as_str(), "" | "-" | "0")) {
                left_out.push(column.head().to_owned());
            }
        }
        left_out
    }

    fn row(&self, cells: &[String], row: Row) -> String {
        let (mut written, mut used) = (String::new(), 0);
        let fitting = self.fitting();
        let shown = cells.iter().zip(fitting).zip(&self.columns).filter(|((_, width), _)| *width > 0);
        for ((cell, width), column) in shown {
            let gap = if used == 0 { 0 } else { BETWEEN };
            let left = self.paper.width.map_or(usize::MAX, |room| room.saturating_sub(used + gap));
            if left == 0 {
                break;
            }
            let width = width.min(left);
            let shown = cut(cell, width);
            let blank = " ".repeat(width - shown.width());
            let (right, toned) = column.own().map_or((false, false), |own| (own.right, own.toned));
            let (before, after) = if right { (blank, String::new()) } else { (String::new(), blank) };
            let shown = if toned && row == Row::Body { self.toned(cell, &shown) } else { shown };
            written.push_str(&format!("{}{before}{shown}{after}", " ".repeat(gap)));
            used += gap + width;
        }
        written.trim_end().to_owned()
    }

    fn toned(&self, word: &str, shown: &str) -> String {
        Tone::of(word).paint(shown, self.paper)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Head,
    Body,
}

/// Shortens names, or text, to a width that depends on their least width.
type Step = (bool, fn(usize) -> usize);

/// Shortens columns until the table fits the room, the last one first: first text to its least widths, then long names, then
/// text further, or to nothing if hardly anything would be left, and then names to their least widths. Columns without a
/// least width keep their width.
pub(crate) fn shrink(widths: &mut [usize], least: &[Option<Least>], room: usize) {
    let steps: [Step; 4] =
        [(false, |least| least), (true, |least| least.max(LONG_NAME)), (false, |_| 0), (true, |least| least)];
    for (is_name, to) in steps {
        for at in (0..widths.len()).rev() {
            let Some(least) = least[at].filter(|least| least.is_name == is_name) else { continue };
            let surplus = needed(widths).saturating_sub(room);
            let least = to(least.width).min(widths[at]);
            let left = widths[at].saturating_sub(surplus).max(least);
            let is_useless = surplus > 0 && least == 0 && left < USEFUL;
            widths[at] = if is_useless { 0 } else { left };
        }
    }
}

/// The width of a table whose columns of no width are left out.
fn needed(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.clone().sum::<usize>() + BETWEEN * shown.count().saturating_sub(1)
}

/// Shortens `text` to at most `width` columns, with … in place of the rest.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for it in text.chars() {
        used += it.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        kept.push(it);
    }
    if width == 0 { kept } else { kept + "…" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Thing(&'static str, u32, &'static str);

    const VIEW: View<Thing> = View {
        noun: "things",
        name: |it| it.0.to_owned(),
        key: |it| it.0.to_owned(),
        columns: &[
            Column::<Thing>::new("A", |it, _| it.0.to_owned()).least_of_name(4),
            Column::<Thing>::new("N", |it, _| it.1.to_string()).right(),
            Column::<Thing>::new("WHY", |it, _| it.2.to_owned()).least(5),
        ],
    };

    fn things<const N: usize>(all: [Thing; N]) -> [Item<Thing>; N] {
        all.map(|it| Item::new(it).unwrap())
    }

    fn table(width: Option<usize>, items: &[Item<Thing>]) -> (String, Vec<String>) {
        let mut lines = Lines::new(&VIEW, &OutputArgs::default(), TerminalStyle { width, colours: false });
        (lines.page(items, Timestamp(0)), lines.left_out(items, Timestamp(0)))
    }

    fn written(width: Option<usize>) -> String {
        let items =
            things([Thing("first", 7, "because it was so"), Thing("zweiter", 1234, "日本語の理由です")]);
        table(width, &items).0
    }

    #[test]
    fn columns_without_room_are_named_if_they_say_anything() {
        let why = |why| things([Thing("first", 7, ""), Thing("zweiter", 1234, why)]);
        let left_out = |width, items: &[Item<Thing>]| table(width, items).1.join(" ");
        for width in [None, Some(20)] {
            assert_eq!(left_out(width, &why("because")), "", "{width:?}");
        }
        assert_eq!(left_out(Some(17), &why("because")), "WHY");
        assert_eq!(left_out(Some(17), &why("-")), "");
        assert_eq!(left_out(Some(5), &why("because")), "N WHY", "nothing else can be shortened");
    }

    #[test]
    fn a_table_is_as_wide_as_need_be_where_nothing_ends() {
        assert_eq!(
            written(None),
            "A           N  WHY\nfirst       7  because it was so\nzweiter  1234  日本語の理由です"
        );
    }

    #[test]
    fn the_least_important_column_is_cut_first_and_nothing_is_wider_than_the_paper() {
        assert_eq!(
            written(Some(25)),
            "A           N  WHY\nfirst       7  because i…\nzweiter  1234  日本語の…"
        );
        assert_eq!(
            written(Some(19)),
            "A           N\nfirst       7\nzweiter  1234",
            "what is left of WHY says nothing"
        );
        assert_eq!(written(Some(12)), "A          N\nfirst      7\nzweit…  1234");
        for width in 1..40 {
            let widest = written(Some(width)).lines().map(UnicodeWidthStr::width).max();
            assert!(widest <= Some(width), "{width}: {widest:?}");
        }
    }

    #[test]
    fn later_rows_keep_to_the_columns() {
        let mut lines =
            Lines::new(&VIEW, &OutputArgs::default(), TerminalStyle { width: None, colours: false });
        lines.page(&things([Thing("first", 7, "x")]), Timestamp(0));
        assert_eq!(lines.rows(&things([Thing("b", 8, "")]), Timestamp(0)), ["b      8"]);
    }
}
