//! Follows the lines of one observer from service to service.
//!
//! Each second the row tells who runs it now, and that service is asked for the lines after the last one. A
//! subscription would spare questions, but needs a lease, its renewal, its end and a second path for what it
//! missed, and all that anew after each move; a question that is lost is simply asked again. It costs two
//! small messages a second for each follower, none of them durable, and nothing for who is not followed.

use super::{former, gone, name, standing};
use crate::context::Manager;
use crate::events::actor;
use crate::http::problem::{Code, Problem};
use crate::outgoing::log_requests::{self, Unanswered};
use everwatch_api::{LogLine, LogNote, ServiceName};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::wire::logs::{Lines, LogCursor};
use everwatch_door::quota::Permit;
use futures::Stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lines in one answer, once it is under way.
const PAGE: u32 = 500;
/// Before every line.
const BEGINNING: LogCursor = LogCursor { epoch: Epoch::first_of(0), seq: 0 };

/// What a follower is told.
pub(super) enum LogItem {
    Line(LogLine),
    Note(LogNote),
    /// Nothing more comes.
    End(LogNote),
}

pub(super) struct Follower {
    manager: Arc<Manager>,
    id: ObserverId,
    after: Option<LogCursor>,
    tail: u32,
    /// The run that was last seen, and who runs it.
    run: Option<(ServiceName, Epoch)>,
    /// Why there is nothing, as it was last told.
    waits: String,
    ready: VecDeque<LogItem>,
    /// There is more to be read at once.
    more: bool,
    over: bool,
    _permit: Permit,
}

impl Follower {
    pub(super) fn new(
        manager: &Arc<Manager>,
        id: ObserverId,
        after: Option<LogCursor>,
        tail: u32,
    ) -> Result<Self, Problem> {
        let permit = manager
            .requests
            .limits
            .log_streams
            .acquire(actor::client())
            .map_err(|full| Problem::too_many(Code::TooManyStreams, full, "follow lines"))?;
        let manager = Arc::clone(manager);
        let (run, waits, ready) = (None, String::new(), VecDeque::new());
        Ok(Self { manager, id, after, tail, run, waits, ready, more: true, over: false, _permit: permit })
    }

    pub(super) fn told(self) -> impl Stream<Item = LogItem> + Send {
        futures::stream::unfold(self, |mut it| async move {
            loop {
                if let Some(told) = it.ready.pop_front() {
                    return Some((told, it));
                }
                if it.over {
                    return None;
                }
                if !std::mem::take(&mut it.more) {
                    tokio::select! {
                        () = it.manager.stop.cancelled() => return None,
                        () = tokio::time::sleep(LOOK_EVERY) => {}
                    }
                }
                if let Err(problem) = it.look().await {
                    debug!(?problem, "a follower of lines waits");
                }
            }
        })
    }

    async fn look(&mut self) -> Result<(), Problem> {
        let Some(row) = self.manager.records.store.load(&[self.id]).await?.one()? else {
            self.end("it is deleted".to_owned());
            return Ok(());
        };
        match row.log_holder() {
            None => self.wait_for(standing(&row)),
            Some(service) => self.ask(&row, service).await?,
        }
        // Its code has ended before that was told: what it said was there to be read.
        if row.verdict().status.is_final() && !self.more {
            self.end(standing(&row));
        }
        Ok(())
    }

    async fn ask(&mut self, row: &Row, service: ServiceId) -> Result<(), Problem> {
        let most = if self.after.is_some() { PAGE } else { self.tail };
        let answer = log_requests::logs(&self.manager, service, (self.id, self.after, most)).await;
        let name = match &self.run {
            Some((known, _)) if known.id == service.0 => known.clone(),
            _ => name(&self.manager.records, service).await?,
        };
        match answer {
            Ok(lines) => self.on_lines(row, name, lines),
            Err(Unanswered::Gone) => {
                let kept = former::next_process(&self.manager, self.id, &name, (self.after, most)).await?;
                match kept {
                    Some(lines) => self.on_lines(row, name, lines),
                    None => self.wait_for(gone(row, &name)),
                }
            }
            Err(Unanswered::Silent) => self.wait_for(format!("service {} does not answer", name.name)),
            Err(Unanswered::NoBroker) => self.wait_for("the broker does not answer".to_owned()),
            Err(Unanswered::TooMany) => {}
        }
        Ok(())
    }

    fn on_lines(&mut self, row: &Row, service: ServiceName, lines: Lines) {
        self.more = lines.more;
        if lines.missed > 0 {
            self.note(format!("{} lines are not kept any more", lines.missed));
        }
        let run = row.epoch();
        let (before, now): (Vec<_>, Vec<_>) =
            lines.lines.into_iter().partition(|line| line.place.epoch < run);
        let last = now.last().or(before.last()).map(|line| line.place);
        self.ready.extend(before.into_iter().map(|line| LogItem::Line(LogLine::of(line))));
        if row.holder().is_some() {
            self.waits.clear();
            self.on_run(service, run);
        }
        self.ready.extend(now.into_iter().map(|line| LogItem::Line(LogLine::of(line))));
        // Its newest run has ended: the reason follows the last line of that run.
        if row.holder().is_none() && !lines.more {
            self.wait_for(standing(row));
        }
        self.after = last.or(self.after).or(Some(BEGINNING));
    }

    /// It runs, so and there.
    fn on_run(&mut self, service: ServiceName, run: Epoch) {
        let before = self.run.as_ref().map(|(_, epoch)| *epoch).or(self.after.map(|place| place.epoch));
        if let Some(before) = before.filter(|before| *before != run && *before != BEGINNING.epoch) {
            let stays = self.run.as_ref().is_some_and(|(known, _)| *known == service);
            let word = match before.generation() == run.generation() {
                _ if stays => "runs again on",
                true => "moved to",
                // After a resume, a change or a restart, managers publish the observer in a new generation.
                false => "started on",
            };
            self.note(format!("{word} {} (epoch {run})", service.name));
        }
        self.run = Some((service, run));
    }

    fn wait_for(&mut self, reason: String) {
        if self.waits != reason {
            self.note(reason.clone());
            self.waits = reason;
        }
    }
    fn note(&mut self, text: String) {
        self.ready.push_back(LogItem::Note(LogNote { text }));
    }
    fn end(&mut self, text: String) {
        self.over = true;
        self.ready.retain(|told| !matches!(told, LogItem::Note(note) if note.text == text));
        self.ready.push_back(LogItem::End(LogNote { text }));
    }
}
