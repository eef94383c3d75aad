//! Writes the log to standard error through a queue and a separate thread. Code that logs never waits for the reader of
//! standard error; lines for which the queue has no room are counted, and a warning gives their number once there is
//! room again.

use crate::tasks::mask;
use std::borrow::Cow;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const WAITING_MAX: usize = 8192;
/// How long the end of the process waits for them.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The sending half; cheap to clone.
#[derive(Clone)]
pub(super) struct Lines {
    queue: NonBlocking,
    handed: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

/// The writing half, on the thread of the queue.
struct Stderr {
    written: Arc<AtomicU64>,
    lost: Arc<OnceLock<ErrorCounter>>,
    told: usize,
}

/// When dropped, waits a moment until the queued lines are written.
pub(super) struct LastLines(Lines);

/// Starts the thread that writes.
pub(super) fn lines() -> (Lines, LastLines) {
    let (written, lost) = (Arc::<AtomicU64>::default(), Arc::<OnceLock<_>>::default());
    let stderr = Stderr { written: written.clone(), lost: lost.clone(), told: 0 };
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_MAX);
    let (queue, guard) = builder.thread_name("log").finish(stderr);
    // Dropped while the queue is full, the guard would write to standard output, which may be stuck as well.
    std::mem::forget(guard);
    let _first = lost.set(queue.error_counter());
    let lines = Lines { queue, handed: Arc::default(), written };
    (lines.clone(), LastLines(lines))
}

impl Lines {
    fn lost(&self) -> u64 {
        u64::try_from(self.queue.error_counter().dropped_lines()).unwrap_or(u64::MAX)
    }
    fn are_written(&self) -> bool {
        self.written.load(Ordering::Acquire) + self.lost() >= self.handed.load(Ordering::Acquire)
    }
}

impl Write for Lines {
    /// Takes a whole line, and hides the secrets of all observers in it.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.handed.fetch_add(1, Ordering::AcqRel);
        let masked = std::str::from_utf8(line).map_or(Cow::Borrowed(""), mask::of_process);
        let taken = if let Cow::Owned(masked) = masked {
            self.queue.write(masked.as_bytes()).map(|_| line.len())
        } else {
            self.queue.write(line)
        };
        let lost = self.lost();
        if lost > 0 {
            metrics::counter!(everwatch_trace::LOST_LOG_LINES).absolute(lost);
        }
        taken
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        // If standard error is closed, the line is lost; there is no other place to report that.
        let _closed = std::io::stderr().write_all(line);
        self.written.fetch_add(1, Ordering::AcqRel);
        Ok(line.len())
    }
    /// Called once the queue is empty, so that there is room for the line that reports the loss.
    fn flush(&mut self) -> std::io::Result<()> {
        let lost = self.lost.get().map_or(0, ErrorCounter::dropped_lines);
        let lines = lost - std::mem::replace(&mut self.told, lost);
        if lines > 0 {
            tracing::warn!(lines, "log lines dropped: nothing read standard error in time");
        }
        Ok(())
    }
}

impl Drop for LastLines {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.0.are_written() && begun.elapsed() < END_WITHIN {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes the last line of a program to standard error; waits for its reader for at most a second.
pub fn last_words(text: &str) {
    let (done, ended) = std::sync::mpsc::channel();
    let line = format!("{text}\n");
    let speak = move || {
        let _closed = std::io::stderr().write_all(line.as_bytes());
        let _late = done.send(());
    };
    if std::thread::Builder::new().name("last-words".to_owned()).spawn(speak).is_ok() {
        let _late = ended.recv_timeout(END_WITHIN);
    }
}
