//! The newest lines of every observer that this process holds, and of the last ones that it held. They outlive a
//! session with the broker; those that are also in files outlive the process.

use super::log_files::LogFiles;
use everwatch_core::clock;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::logs::{Lines, LogCursor, Ring, Stream};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of observers that are no longer held and whose lines are kept.
const FORMER_MAX: usize = 100;
/// The target of `tracing` events that are in the log of an observer already.
pub(crate) const OUTPUT: &str = "everwatch::output";

/// The log of one observer that has written a line.
pub(crate) struct LogBuffer {
    most: u32,
    ring: Mutex<Ring>,
    /// Where its lines are kept as well.
    files: Option<(ObserverId, Arc<LogFiles>)>,
}

impl LogBuffer {
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Arc::new(Self { most, ring: Mutex::default(), files: None })
    }
    fn in_file(most: u32, id: ObserverId, files: Option<&Arc<LogFiles>>) -> Arc<Self> {
        let files = files.map(|files| (id, Arc::clone(files)));
        Arc::new(Self { most, ring: Mutex::default(), files })
    }
    /// Adds each line of the text.
    pub(crate) fn write(&self, epoch: Epoch, stream: Stream, text: &str) {
        if self.most == 0 {
            return;
        }
        let now = clock::now();
        let mut ring = self.lock();
        for line in text.trim_end_matches(['\r', '\n']).split('\n') {
            let added = ring.push((epoch, now), stream, line.trim_end_matches('\r'), self.most);
            if let (Some(line), Some((id, files))) = (added, &self.files) {
                files.write(*id, line.clone());
            }
        }
    }
    pub(crate) fn read(&self, after: Option<LogCursor>, most: usize) -> Lines {
        self.lock().read(after, most)
    }
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The logs of one process.
pub(crate) struct Logs {
    most: u32,
    files: Option<Arc<LogFiles>>,
    books: Mutex<LogBuffers>,
}

#[derive(Default)]
struct LogBuffers {
    /// The number of sessions that have ended.
    ended_sessions: u64,
    /// Each with its newest run.
    of: HashMap<ObserverId, (Epoch, Arc<LogBuffer>)>,
    /// Those that are no longer held, the oldest first.
    former: VecDeque<ObserverId>,
}

impl Logs {
    /// Keeps `most` lines of each observer.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, files: None, books: Mutex::default() }
    }
    /// Keeps them in files as well.
    pub(crate) fn in_files(self, files: Option<Arc<LogFiles>>) -> Self {
        Self { files, ..self }
    }
    /// The logs of a session that begins.
    pub(crate) fn session(self: &Arc<Self>) -> SessionLogs {
        SessionLogs { number: self.lock().ended_sessions, logs: self.clone() }
    }
    /// This run is no longer held.
    pub(crate) fn close(&self, id: ObserverId, epoch: Epoch) {
        self.lock().close(id, epoch);
    }
    /// No run is held any longer.
    pub(crate) fn close_all(&self) {
        let mut books = self.lock();
        books.ended_sessions += 1;
        let all: Vec<_> = books.of.iter().map(|(id, (epoch, _))| (*id, *epoch)).collect();
        all.into_iter().for_each(|(id, epoch)| books.close(id, epoch));
    }
    /// Waits a moment until all lines are in the files.
    pub(crate) async fn flush(&self) {
        if let Some(files) = self.files.clone() {
            let _panicked = tokio::task::spawn_blocking(move || files.flush()).await;
        }
    }
    /// The lines in memory, if the observer has any there.
    pub(crate) fn in_memory(&self, id: ObserverId, after: Option<LogCursor>, most: usize) -> Option<Lines> {
        let book = self.lock().of.get(&id).cloned();
        book.map(|(_, book)| book.read(after, most))
    }
    /// The lines in memory, with those in files if the former do not suffice.
    pub(crate) async fn read(&self, id: ObserverId, after: Option<LogCursor>, most: usize) -> Lines {
        let asked = || self.in_memory(id, after, most).unwrap_or_default();
        let Some(files) = self.files.clone() else { return asked() };
        let all = self.in_memory(id, None, usize::MAX).unwrap_or_default().lines;
        let suffices = match after {
            None => all.len() >= most,
            Some(after) => {
                all.first().is_some_and(|oldest| oldest.place.epoch == after.epoch && oldest.place <= after)
            }
        };
        if suffices {
            return asked();
        }
        let merged = tokio::task::spawn_blocking(move || files.read(id, all).read(after, most)).await;
        merged.unwrap_or_else(|_panicked| asked())
    }
    fn lock(&self) -> MutexGuard<'_, LogBuffers> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The logs of one session. Most observers never write a line, so only the first line creates a log.
#[derive(Clone)]
pub(crate) struct SessionLogs {
    logs: Arc<Logs>,
    number: u64,
}

impl SessionLogs {
    /// The log of an observer whose code is about to start, if it wrote lines here recently.
    pub(crate) fn resume(&self, id: ObserverId, epoch: Epoch) -> Option<Arc<LogBuffer>> {
        self.logs.lock().resume(id, epoch)
    }
    /// The log of an observer that writes its first line; `over`: its attempt is over.
    pub(crate) fn open(&self, id: ObserverId, epoch: Epoch, over: &AtomicBool) -> Arc<LogBuffer> {
        let mut books = self.logs.lock();
        // A task that outlives its attempt may write the first line. Nothing would remove its log later, so the line
        // is not kept. A run is closed after its attempts are over, so this check cannot come too late.
        if over.load(Ordering::Acquire) || books.ended_sessions != self.number {
            return books
                .of
                .get(&id)
                .map_or_else(|| LogBuffer::new(self.logs.most), |(_, book)| book.clone());
        }
        books.resume(id, epoch).unwrap_or_else(|| {
            let book = LogBuffer::in_file(self.logs.most, id, self.logs.files.as_ref());
            books.of.insert(id, (epoch, book.clone()));
            book
        })
    }
}

impl LogBuffers {
    fn resume(&mut self, id: ObserverId, epoch: Epoch) -> Option<Arc<LogBuffer>> {
        let (newest, book) = self.of.get_mut(&id)?;
        *newest = epoch.max(*newest);
        self.former.retain(|former| *former != id);
        Some(book.clone())
    }
    fn close(&mut self, id: ObserverId, epoch: Epoch) {
        // A leftover of an older run may be settled while a newer one runs.
        let Some((_, book)) = self.of.get(&id).filter(|(newest, _)| *newest <= epoch) else { return };
        if book.lock().is_empty() {
            self.of.remove(&id);
            return;
        }
        self.former.retain(|former| *former != id);
        self.former.push_back(id);
        // Aborted code that still writes holds the only reference to its log: nothing of it is kept here.
        while self.former.len() > FORMER_MAX {
            let gone = self.former.pop_front();
            gone.and_then(|gone| self.of.remove(&gone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const RUN: Epoch = Epoch::first_of(1);

    fn id(number: usize) -> ObserverId {
        ObserverId(Uuid::from_u128(number as u128))
    }
    fn texts(logs: &Logs, number: usize) -> Vec<String> {
        logs.in_memory(id(number), None, 1000)
            .unwrap_or_default()
            .lines
            .into_iter()
            .map(|line| line.text.into())
            .collect()
    }

    fn open(session: &SessionLogs, number: usize, run: Epoch) -> Arc<LogBuffer> {
        session.open(id(number), run, &AtomicBool::new(false))
    }

    #[test]
    fn only_so_many_of_those_that_left_are_kept_and_none_that_is_held_is_dropped() {
        let logs = Arc::new(Logs::new(10));
        let session = logs.session();
        open(&session, 0, RUN).write(RUN, Stream::Log, "held");
        logs.close(id(0), Epoch::new(0, 7));
        for number in 1..=FORMER_MAX + 5 {
            open(&session, number, RUN).write(RUN, Stream::Log, "left");
            logs.close(id(number), RUN);
        }
        let kept = (1..=FORMER_MAX + 5).filter(|number| !texts(&logs, *number).is_empty()).count();
        assert_eq!((kept, texts(&logs, 0)), (FORMER_MAX, vec!["held".to_owned()]));
        assert_eq!((texts(&logs, 5), texts(&logs, 6)), (Vec::new(), vec!["left".to_owned()]));
        assert_eq!(logs.lock().of.len(), FORMER_MAX + 1);
    }

    #[test]
    fn one_that_comes_back_goes_on_in_its_book_and_a_silent_one_leaves_none() {
        let logs = Arc::new(Logs::new(10));
        let session = logs.session();
        open(&session, 1, RUN).write(RUN, Stream::Stdout, "first\r\nsecond\n");
        logs.close_all();
        let session = logs.session();
        let again = Epoch::new(1, 1);
        open(&session, 1, again).write(again, Stream::Stderr, "third");
        assert_eq!(texts(&logs, 1), ["first", "second", "third"]);
        assert!(logs.lock().former.is_empty());
        open(&session, 2, RUN);
        logs.close(id(2), RUN);
        assert_eq!(logs.lock().of.len(), 1);
    }

    #[test]
    fn a_first_line_after_the_end_of_its_attempt_is_not_kept() {
        let logs = Arc::new(Logs::new(10));
        let session = logs.session();
        session.open(id(1), RUN, &AtomicBool::new(true)).write(RUN, Stream::Log, "late");
        logs.close_all();
        open(&session, 2, RUN).write(RUN, Stream::Log, "of an earlier session");
        assert!(logs.lock().of.is_empty());
        assert!(session.resume(id(1), RUN).is_none());
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_to_be_kept() {
        let logs = Arc::new(Logs::new(0));
        let session = logs.session();
        open(&session, 1, RUN).write(RUN, Stream::Log, "gone");
        assert_eq!(logs.in_memory(id(1), None, 10).unwrap_or_default(), Lines::default());
    }
}
