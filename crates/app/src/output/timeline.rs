//! The text picture of a timeline: one lane of blocks for each service name, with a mark where observers ran nowhere or
//! twice and where the service ended.

use super::table::{Tone, cut};
use super::{TerminalStyle, second};
use everwatch_api::{Timeline, TimelineLane, TimelineMark};
use everwatch_core::clock::Timestamp;
use everwatch_core::record::events::EventKind;
use unicode_width::UnicodeWidthStr as _;

/// The number of columns if the output is not a terminal.
const COLUMNS: usize = 100;
/// The minimum number of columns.
const COLUMNS_MIN: usize = 20;
/// The width for the names of services and the numbers of observers that they hold now.
const MARGIN: usize = 30;
const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// A line in parts, each with its tone.
pub(crate) type TonedLine = Vec<(Tone, String)>;

/// Whether the picture begins with the times at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Shown,
    Omitted,
}

/// A timeline as text.
pub(crate) struct Picture {
    /// The times at both ends, and the lanes.
    pub(crate) lanes: Vec<TonedLine>,
    /// What each sign means.
    legend: Vec<String>,
    /// The width before the blocks.
    indent: usize,
}

impl Picture {
    /// The number of columns of a picture that fits this width.
    pub(crate) fn columns(width: Option<usize>) -> usize {
        width.map_or(COLUMNS, |width| width.saturating_sub(MARGIN).max(COLUMNS_MIN))
    }

    /// `choice` says how to choose lanes if some are left out. There are at most as many columns as the manager has sent: a column
    /// has at least a second.
    pub(crate) fn new(it: &Timeline, columns: usize, choice: &str) -> Self {
        let columns = columns.min(it.columns.max(1));
        let widest = it.lanes.iter().map(|lane| lane.service.width()).max().unwrap_or(0).clamp(4, 20);
        let held = it.lanes.iter().flat_map(|lane| &lane.segments).map(|part| part.held_max);
        let most = held.max().unwrap_or(0);
        let (since, until) = (second(it.since), second(it.until));
        let space = columns.saturating_sub(since.len() + until.len()).max(1);
        let plain = |text: String| vec![(Tone::Plain, text)];
        let mut lanes = vec![plain(format!("{:widest$}  {since}{:space$}{until}", "", ""))];
        for lane in &it.lanes {
            let name = cut(&lane.service, widest);
            let state = if lane.lives { format!("{} held", lane.held) } else { "ended".to_owned() };
            let pad = " ".repeat(widest.saturating_sub(name.width()));
            let mut line = plain(format!("{name}{pad}  "));
            line.extend(bars(it, lane, (columns, most)));
            line.push((Tone::Plain, format!("  {state}")));
            lanes.push(line);
        }
        if let Some(others) = &it.others {
            lanes.push(plain(format!("{:widest$}  and {} more{choice}", "", others.lanes)));
        }
        let signs = ["░ ran nowhere", "▒ ran twice", "✕ service lost", "▾ service stopped"];
        let legend =
            [format!("▁…█ observers held, of {most}")].into_iter().chain(signs.map(str::to_owned)).collect();
        Self { lanes, legend, indent: widest + 2 }
    }

    /// All lines for this terminal.
    pub(crate) fn text(&self, head: Head, paper: TerminalStyle) -> String {
        let painted = |line: &TonedLine| line.iter().map(|(tone, text)| tone.paint(text, paper)).collect();
        let width =
            paper.width.map_or(usize::MAX, |width| width.saturating_sub(self.indent).max(COLUMNS_MIN));
        let legend = self.legend_lines(width).into_iter().map(|line| format!("{:1$}{line}", "", self.indent));
        let lanes = self.lanes.iter().skip(usize::from(head == Head::Omitted));
        lanes.map(painted).chain(legend).collect::<Vec<String>>().join("\n")
    }

    /// What the signs mean, in lines of at most this width unless one sign needs more.
    pub(crate) fn legend_lines(&self, width: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for sign in &self.legend {
            match lines.last_mut() {
                Some(line) if line.width() + 2 + sign.width() <= width => line.push_str(&format!("  {sign}")),
                _ => lines.push(sign.clone()),
            }
        }
        lines
    }
}

/// The blocks of a lane. Plain neighbors are one part.
fn bars(it: &Timeline, lane: &TimelineLane, (columns, most): (usize, u64)) -> TonedLine {
    // The columns of the manager begin and end at whole seconds: other edges would show a part of one column in two.
    let since = it.since.0.div_euclid(1000);
    let seconds = ((it.until.0 + 999).div_euclid(1000) - since).max(1);
    let all = i64::try_from(columns).unwrap_or(1).max(1);
    let given = i64::try_from(it.columns).unwrap_or(1).max(1);
    let edge = |column: i64| Timestamp((since + seconds * (column * given / all) / given) * 1000);
    let mut parts = TonedLine::new();
    for column in 0..all {
        let (tone, sign) = block(it, lane, (edge(column), edge(column + 1)), most);
        match parts.last_mut() {
            Some((Tone::Plain, text)) if tone == Tone::Plain => text.push_str(sign),
            _ => parts.push((tone, sign.to_owned())),
        }
    }
    parts
}

/// Where a mark stands: that of a lost service at its last sign of life, with which its gap begins, and the others at their time.
fn place(mark: &TimelineMark) -> Timestamp {
    mark.since.unwrap_or(mark.at)
}

/// The sign of one column.
fn block(
    it: &Timeline,
    lane: &TimelineLane,
    (begins, ends): (Timestamp, Timestamp),
    most: u64,
) -> (Tone, &'static str) {
    let ended = it.marks.iter().find(|mark| {
        let at = place(mark);
        mark.service.as_ref() == Some(&lane.service)
            && matches!(mark.kind, EventKind::ServiceLost | EventKind::ServiceGone)
            && at >= begins
            && at < ends
    });
    if let Some(mark) = ended {
        let is_lost = mark.kind == EventKind::ServiceLost;
        return if is_lost { (Tone::Bad, "✕") } else { (Tone::Wait, "▾") };
    }
    let here: Vec<_> = lane.segments.iter().filter(|part| part.since < ends && part.until > begins).collect();
    let held = here.iter().map(|part| part.held_max).max().unwrap_or(0);
    let gap = here.iter().map(|part| part.gap).max().unwrap_or(0);
    // A few observers that move away do not hide what the service holds.
    if gap > 0 && gap >= held {
        return (Tone::Bad, "░");
    }
    if here.iter().any(|part| part.overlap > 0) {
        return (Tone::Wait, "▒");
    }
    let level = usize::try_from((held * 8).div_ceil(most.max(1))).unwrap_or(8);
    let sign = level.checked_sub(1).and_then(|level| BARS.get(level.min(7))).copied().unwrap_or(" ");
    (if gap > 0 { Tone::Bad } else { Tone::Plain }, sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_api::TimelineSegment;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }

    fn part(since: i64, until: i64, held: u64, gap: u64) -> TimelineSegment {
        let (since, until) = (at(since), at(until));
        TimelineSegment { since, until, held_min: held, held_max: held, gap, overlap: 0 }
    }

    fn lane(service: &str, held: Option<u64>, segments: Vec<TimelineSegment>) -> TimelineLane {
        let (service, lives, held) = (service.to_owned(), held.is_some(), held.unwrap_or(0));
        TimelineLane { service, lives, held, segments }
    }

    /// Ten seconds, of which service amber was lost in the fifth.
    fn killed() -> Timeline {
        Timeline {
            since: at(0),
            until: at(10),
            complete_since: None,
            columns: 10,
            others: None,
            marks_left_out: 0,
            lanes: vec![
                lane("amber", None, vec![part(0, 4, 8, 0), part(4, 5, 8, 8)]),
                lane("birch", Some(11), vec![part(0, 5, 4, 0), part(5, 10, 12, 0)]),
            ],
            marks: vec![TimelineMark {
                at: at(5),
                since: None,
                kind: EventKind::ServiceLost,
                service: Some("amber".to_owned()),
                text: String::new(),
            }],
            incidents: Vec::new(),
        }
    }

    fn lines(it: &Timeline, columns: usize) -> Vec<String> {
        let paper = TerminalStyle { width: None, colours: false };
        Picture::new(it, columns, "").text(Head::Omitted, paper).lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_column_of_the_manager_is_one_cell_whatever_the_window() {
        // The window begins within a second, and has fewer columns than the terminal.
        let mut it = killed();
        (it.since, it.until, it.columns) = (Timestamp(400), Timestamp(10_400), 11);
        it.lanes = vec![lane("birch", Some(4), vec![part(0, 5, 4, 0), part(5, 6, 4, 4), part(6, 11, 4, 0)])];
        for columns in [11, 70] {
            assert_eq!(lines(&it, columns)[0], "birch  █████░█████  4 held", "{columns}");
        }
    }

    #[test]
    fn a_few_observers_that_move_away_do_not_hide_what_a_service_holds() {
        let mut it = killed();
        it.lanes = vec![lane("birch", Some(8), vec![part(0, 5, 9, 0), part(5, 8, 8, 1), part(8, 10, 8, 0)])];
        assert_eq!(lines(&it, 10)[0], "birch  ██████████  8 held");
        let red = Picture::new(&it, 10, "").text(Head::Omitted, TerminalStyle { width: None, colours: true });
        assert_eq!(red.lines().next().unwrap().matches("\u{1b}[31m█\u{1b}[0m").count(), 3);
    }

    #[test]
    fn a_lost_service_is_marked_where_its_gap_begins() {
        let mut it = killed();
        for (since, row) in [(Some(at(4)), "amber  ▆▆▆▆✕       ended"), (None, "amber  ▆▆▆▆░✕      ended")]
        {
            it.marks[0].since = since;
            assert_eq!(lines(&it, 10)[0], row, "{since:?}");
        }
    }

    #[test]
    fn a_killed_service_is_marked_and_its_gap_is_drawn() {
        let it = killed();
        let paper = |colours| TerminalStyle { width: None, colours };
        let drawn = |colours| Picture::new(&it, 10, "").text(Head::Shown, paper(colours));
        let text = drawn(false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       1970-01-01T00:00:00Z 1970-01-01T00:00:10Z");
        assert_eq!(lines[1], "amber  ▆▆▆▆░✕      ended");
        assert_eq!(lines[2], "birch  ▃▃▃▃▃█████  11 held");
        assert!(drawn(true).contains("\u{1b}[31m✕\u{1b}[0m"));
        let without = Picture::new(&it, 10, "").text(Head::Omitted, paper(false));
        assert_eq!(without.lines().collect::<Vec<_>>(), lines[1..]);
    }
}
