//! Follows what a feed shows, and turns log lines and events into rows. Failures become rows too: a feed goes on for as
//! long as it is open, unless the manager refuses it.

use super::feed::{FeedColumn, FeedPart, FeedState, Row, Subject};
use super::target::{Focus, Target};
use crate::client::Client;
use crate::item::Item;
use crate::live::events::{self, EventPart, EventQuery};
use crate::live::logs::{LogFollower, LogPart};
use crate::live::{LOOK_EVERY, is_passing};
use crate::output::{EVENTS, Tone, second};
use crate::requests::path;
use everwatch_api::{Event, LogLine};
use everwatch_core::clock::{self, Timestamp};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

/// How many past lines and events are read first.
const LINES: u32 = 1000;
const EVENTS_MAX: u32 = 500;

/// Runs until the subject has ended, or until the view is closed.
pub(super) async fn follow(client: &Client, subject: &Subject, parts: &Sender<FeedPart>) {
    match subject {
        Subject::Log(target) => log(client, &target.id, parts).await,
        Subject::Events(target) => all_events(client, target.as_ref(), parts).await,
    };
}

/// Sends parts; `None` if the view is closed.
async fn send(parts: &Sender<FeedPart>, new: impl IntoIterator<Item = FeedPart>) -> Option<()> {
    for part in new {
        parts.send(part).await.ok()?;
    }
    Some(())
}

/// Shows why it cannot go on at the moment, or at all. Returns whether another attempt can succeed.
async fn told(parts: &Sender<FeedPart>, error: &anyhow::Error) -> Option<bool> {
    let again = is_passing(error);
    let (state, end) =
        if again { (FeedState::Reconnecting, "; trying again") } else { (FeedState::Failed, "") };
    let row = Row::note(Tone::Bad, &format!("{error:#}{end}"));
    send(parts, [FeedPart::State(state), FeedPart::Rows(vec![row])]).await?;
    Some(again)
}

async fn log(client: &Client, key: &str, parts: &Sender<FeedPart>) -> Option<()> {
    let (mut follower, mut rows) = (LogFollower::new(client, key, LINES), LogRows::default());
    loop {
        match follower.next().await {
            Ok(new) => {
                let has_ended = new.iter().any(|part| matches!(part, LogPart::End(_)));
                send(parts, rows.of(new)).await?;
                if has_ended {
                    return None;
                }
            }
            // The next attempt waits before it connects.
            Err(error) => {
                if !told(parts, &error).await? {
                    return None;
                }
            }
        }
    }
}

/// Turns a log into rows.
#[derive(Debug, Default)]
struct LogRows {
    /// The day of the last line, as text.
    day: String,
    lost: bool,
}

impl LogRows {
    fn of(&mut self, parts: Vec<LogPart>) -> Vec<FeedPart> {
        let (mut rows, mut states) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                LogPart::Opened => {
                    states.push(FeedPart::State(FeedState::Open));
                    rows.extend(connection(&mut self.lost, true));
                }
                LogPart::Lost => {
                    states.push(FeedPart::State(FeedState::Reconnecting));
                    rows.extend(connection(&mut self.lost, false));
                }
                LogPart::Line(line) => self.line(&line, &mut rows),
                LogPart::Note(text) => rows.extend(note(&text)),
                LogPart::End(text) => {
                    states.push(FeedPart::State(FeedState::Ended));
                    rows.extend(note(&text));
                }
            }
        }
        states.extend(Some(FeedPart::Rows(rows)));
        states
    }

    /// A line begins with its time of day. Another day has a row of its own.
    fn line(&mut self, it: &LogLine, rows: &mut Vec<Row>) {
        let at = it.at.to_string();
        let (day, time) = at.split_once('T').unwrap_or(("", &at));
        if day != self.day {
            rows.push(Row::note(Tone::Plain, day));
            day.clone_into(&mut self.day);
        }
        let tone = if it.stream == "stderr" { Tone::Wait } else { Tone::Plain };
        let text = format!("{} {:6} {}", time.trim_end_matches('Z'), it.stream, it.text);
        rows.push(Row::new(tone, &text));
    }
}

fn note(text: &str) -> Option<Row> {
    (!text.is_empty()).then(|| Row::note(Tone::Plain, text))
}

/// Shows that the connection is lost, and later that it is back.
fn connection(lost: &mut bool, open: bool) -> Option<Row> {
    let was_lost = std::mem::replace(lost, !open);
    match (was_lost, open) {
        (true, true) => Some(Row::note(Tone::Plain, "connected again")),
        (false, false) => Some(Row::note(Tone::Bad, "connection lost; reconnecting")),
        (true, false) | (false, true) => None,
    }
}

async fn all_events(client: &Client, target: Option<&Target>, parts: &Sender<FeedPart>) -> Option<()> {
    let path = match target {
        None => "/v1/events".to_owned(),
        Some(Target { what: Focus::Observers, id, .. }) => format!("{}/events", path(id)),
        Some(Target { what: Focus::Services, id, .. }) => format!("/v1/events?service={}", Client::part(id)),
    };
    let query = EventQuery { path, types: String::new(), since: None, limit: EVENTS_MAX };
    let mut rows = EventRows::default();
    loop {
        let error = one_stream(client, &query, (&mut rows, parts)).await?;
        if !told(parts, &error).await? {
            return None;
        }
        // The connection may have been lost for so long that events are missing: the next stream begins with the newest
        // ones.
        rows.lost = true;
        sleep(LOOK_EVERY).await;
    }
}

/// Shows the newest events and follows later ones. Returns the error that ends it, or `None` if the view is closed.
async fn one_stream(
    client: &Client,
    query: &EventQuery,
    (rows, parts): (&mut EventRows, &Sender<FeedPart>),
) -> Option<anyhow::Error> {
    let (history, mut follower) = match events::read(client, query).await {
        Ok(read) => read,
        Err(error) => return Some(error),
    };
    send(parts, rows.of_events(&history.items, clock::now())).await?;
    loop {
        match follower.next().await {
            Ok(new) => send(parts, rows.of(new, clock::now())).await?,
            Err(error) => return Some(error),
        }
    }
}

/// Turns events into rows of the table of `everwatch events`, with the time of day. Another day than that of the row
/// before, and than today, has a row of its own.
#[derive(Default)]
struct EventRows {
    /// The number of the last event.
    last: i64,
    /// The day of the last row, as text.
    day: Option<String>,
    begun: bool,
    lost: bool,
}

impl EventRows {
    /// Events that are not shown yet, in their order.
    fn of_events(&mut self, events: &[Item<Event>], now: Timestamp) -> Vec<FeedPart> {
        let new: Vec<_> = events.iter().filter(|it| it.id > self.last).cloned().collect();
        self.last = new.iter().map(|it| it.id).max().unwrap_or(self.last);
        let mut parts = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            let columns = EVENTS.heads().map(|(head, least)| FeedColumn { head, least });
            parts.push(FeedPart::Head(columns.collect()));
        }
        let mut rows = Vec::new();
        for it in &new {
            self.event(it, now, &mut rows);
        }
        parts.push(FeedPart::Rows(rows));
        parts
    }

    fn event(&mut self, it: &Item<Event>, now: Timestamp, rows: &mut Vec<Row>) {
        let (at, today) = (second(it.at), second(now));
        let (day, time) = at.split_once('T').unwrap_or(("", &at));
        let last = self.day.as_deref().or(today.split_once('T').map(|(today, _)| today));
        if last != Some(day) {
            rows.push(Row::note(Tone::Plain, day));
        }
        self.day = Some(day.to_owned());
        let tone = Some(Tone::of(it.kind.as_str())).filter(|tone| *tone != Tone::Good);
        let mut cells: Vec<_> = EVENTS.cells(it, now).collect();
        if let Some(at) = cells.first_mut() {
            time.trim_end_matches('Z').clone_into(at);
        }
        rows.push(Row::of_cells(tone.unwrap_or(Tone::Plain), &cells));
    }

    fn of(&mut self, parts: Vec<EventPart>, now: Timestamp) -> Vec<FeedPart> {
        let mut sent = Vec::new();
        let mut events = Vec::new();
        for part in parts {
            match part {
                EventPart::Event(event) => events.push(*event),
                EventPart::Opened => {
                    sent.push(FeedPart::State(FeedState::Open));
                    sent.push(FeedPart::Rows(connection(&mut self.lost, true).into_iter().collect()));
                }
                EventPart::Lost => {
                    sent.push(FeedPart::State(FeedState::Reconnecting));
                    sent.push(FeedPart::Rows(connection(&mut self.lost, false).into_iter().collect()));
                }
            }
        }
        sent.extend(self.of_events(&events, now));
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(at: i64, stream: &str, text: &str) -> LogPart {
        let line = LogLine {
            id: "1.1.1".to_owned(),
            at: Timestamp(at),
            stream: stream.to_owned(),
            text: text.to_owned(),
        };
        LogPart::Line(Item::new(line).unwrap())
    }

    fn event(id: i64, kind: &str, text: &str) -> Item<Event> {
        let event = json!({"id": id, "at": "2026-11-21T13:35:26.123Z", "type": kind, "observer": null, "service": null,
            "epoch": null, "text": text, "from": null, "gap_ms": null, "overlap_ms": null, "by": null});
        serde_json::from_value(event).unwrap()
    }

    /// The parts as lines: the state, the head of the table, and each row with its tone if it has one.
    fn shown(parts: &[FeedPart]) -> Vec<String> {
        let row = |row: &Row| match row.tone {
            Tone::Plain => row.cells.join("|"),
            tone => format!("{tone:?}: {}", row.cells.join("|")),
        };
        let lines = parts.iter().flat_map(|part| match part {
            FeedPart::Rows(rows) => rows.iter().map(row).collect(),
            FeedPart::Head(columns) => {
                vec![format!("[{}]", columns.iter().map(|it| it.head).collect::<Vec<_>>().join("|"))]
            }
            FeedPart::State(state) => vec![format!("{state:?}")],
        });
        lines.collect()
    }

    #[test]
    fn a_log_shows_days_streams_notes_and_lost_connections() {
        let mut rows = LogRows::default();
        let noon = 1_800_014_400_123;
        let first = vec![
            LogPart::Opened,
            line(noon, "stdout", "one"),
            line(noon + 1000, "stderr", "\u{1b}[31mtwo"),
            LogPart::Note(String::new()),
        ];
        assert_eq!(
            shown(&rows.of(first)),
            ["Open", "— 2027-01-15 —", "12:00:00.123 stdout one", "Wait: 12:00:01.123 stderr  [31mtwo"]
        );
        assert_eq!(
            shown(&rows.of(vec![LogPart::Lost])),
            ["Reconnecting", "Bad: — connection lost; reconnecting —"]
        );
        let later = vec![
            LogPart::Opened,
            line(noon + 86_400_000, "log", "three"),
            LogPart::End("the observer has completed".to_owned()),
        ];
        assert_eq!(
            shown(&rows.of(later)),
            [
                "Open",
                "Ended",
                "— connected again —",
                "— 2027-01-16 —",
                "12:00:00.123 log    three",
                "— the observer has completed —"
            ]
        );
    }

    #[test]
    fn events_are_rows_of_one_table_and_none_is_shown_twice() {
        let mut rows = EventRows::default();
        let history = [event(7, "started", ""), event(8, "service_lost", "no heartbeat")];
        let first = rows.of_events(&history, Timestamp(0));
        assert_eq!(
            shown(&first),
            [
                "[AT|EVENT|OBSERVER|SERVICE|CAUSE]",
                "— 2026-11-21 —",
                "13:35:26|started|-|-|",
                "Bad: 13:35:26|service_lost|-|-|no heartbeat"
            ]
        );
        assert_eq!(shown(&rows.of(vec![EventPart::Opened], Timestamp(0))), ["Open"]);
        assert_eq!(
            shown(&rows.of(vec![EventPart::Lost], Timestamp(0))),
            ["Reconnecting", "Bad: — connection lost; reconnecting —"]
        );
        // The list is read again, and contains events that are shown already.
        let again = rows.of_events(&[event(8, "service_lost", ""), event(9, "waiting", "x")], Timestamp(0));
        assert_eq!(shown(&again), ["Wait: 13:35:26|waiting|-|-|x"]);
    }

    #[test]
    fn the_table_has_a_head_before_the_first_event() {
        let mut rows = EventRows::default();
        let noon = Timestamp(1_795_262_400_000);
        assert_eq!(shown(&rows.of_events(&[], noon)), ["[AT|EVENT|OBSERVER|SERVICE|CAUSE]"]);
        let first = EventPart::Event(Box::new(event(1, "started", "")));
        assert_eq!(shown(&rows.of(vec![first], noon)), ["13:35:26|started|-|-|"], "the day is today");
    }
}
