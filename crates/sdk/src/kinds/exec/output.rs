//! The output of a program: a limited number of lines per second goes to the log of its observer.

use super::{helper, lines::Lines};
use crate::Context;
use crate::tasks::logs::OUTPUT;
use everwatch_core::wire::logs::Stream;
use regex::Regex;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Longest line of output that is logged; the rest of it is dropped.
const LINE_MAX: usize = 8 * 1024;
/// The time for which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The line that tells that a program is ready.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    Contains(String),
    Matches(Regex),
}

impl Pattern {
    fn fits(&self, line: &str) -> bool {
        match self {
            Self::Contains(part) => line.contains(part),
            Self::Matches(regex) => regex.is_match(line),
        }
    }
}

/// The output of one start of a program.
pub(super) struct Output {
    ctx: Context,
    state: Mutex<State>,
    ready_line: Option<Pattern>,
    was_ready: Notify,
    /// Keeps the newest line instead of logging: for commands that check a program.
    is_quiet: bool,
}

struct State {
    limit: LineLimit,
    /// When the program printed something last, or was started.
    heard: Instant,
    /// Whether the line that tells readiness was printed.
    is_ready: bool,
    newest: String,
    /// What the helper says if it cannot start the program.
    not_started: Option<String>,
}

impl Output {
    pub(super) fn new(ctx: Context, lines_per_second: u32, ready_line: Option<Pattern>) -> Self {
        let now = Instant::now();
        let limit = LineLimit::new(lines_per_second, now);
        let state = State { limit, heard: now, is_ready: false, newest: String::new(), not_started: None };
        Self { ctx, state: Mutex::new(state), ready_line, was_ready: Notify::new(), is_quiet: false }
    }
    /// For a command that checks a program: only its newest line is kept.
    pub(super) fn quiet(ctx: Context) -> Self {
        Self { is_quiet: true, ..Self::new(ctx, u32::MAX, None) }
    }
    /// A line of Everwatch itself.
    pub(super) fn say(&self, text: &str) {
        self.line(text, Stream::Log);
    }
    /// When the program printed something last.
    pub(super) fn heard(&self) -> Instant {
        self.lock().heard
    }
    /// The program did something else that shows that it works.
    pub(super) fn touch(&self) {
        self.lock().heard = Instant::now();
    }
    pub(super) fn newest(&self) -> String {
        self.lock().newest.clone()
    }
    /// Why the program could not be started.
    pub(super) fn not_started(&self) -> Option<String> {
        self.lock().not_started.clone()
    }
    /// Resolves once the line that tells readiness was printed.
    pub(super) async fn ready(&self) {
        loop {
            let waiting = self.was_ready.notified();
            if self.lock().is_ready {
                return;
            }
            waiting.await;
        }
    }

    fn printed(&self, line: &[u8], stream: Stream) {
        let text = String::from_utf8_lossy(line);
        let mut state = self.lock();
        state.heard = Instant::now();
        if self.is_quiet {
            text.as_ref().clone_into(&mut state.newest);
            return;
        }
        if stream == Stream::Stderr && helper::is_not_started(&text) {
            state.not_started = Some(text.to_string());
        }
        let is_ready = !state.is_ready && self.ready_line.as_ref().is_some_and(|pattern| pattern.fits(&text));
        state.is_ready |= is_ready;
        drop(state);
        self.line(&text, stream);
        if is_ready {
            self.was_ready.notify_waiters();
        }
    }

    fn line(&self, text: &str, stream: Stream) {
        let allowed = self.lock().limit.allows(Instant::now());
        if let Some(dropped) = allowed.dropped_before {
            self.log(&dropped_lines(dropped), Stream::Log);
        }
        if allowed.is_kept {
            self.log(text, stream);
        }
    }

    fn log(&self, text: &str, stream: Stream) {
        tracing::info!(target: OUTPUT, observer = self.ctx.name(), stream = stream.as_str(), "{text}");
        self.ctx.say(stream, text);
    }

    /// Tells how many lines were dropped, when the time for which they were counted is over.
    async fn told_dropped(&self) {
        let until = self.lock().limit.dropping_until();
        match until {
            None => std::future::pending().await,
            Some(until) => tokio::time::sleep_until(until).await,
        }
        self.tell_dropped(Instant::now());
    }

    fn tell_dropped(&self, now: Instant) {
        let dropped = self.lock().limit.take_dropped(now);
        if let Some(dropped) = dropped {
            self.log(&dropped_lines(dropped), Stream::Log);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dropped_lines(count: u64) -> String {
    format!("{count} lines dropped: more than `lines_per_second`")
}

/// Logs what comes out of a pipe until its end.
pub(super) async fn log_lines(pipe: Option<impl AsyncRead + Unpin>, output: &Output, stream: Stream) {
    let Some(pipe) = pipe else { return };
    let mut lines = Lines::new(pipe, LINE_MAX);
    loop {
        tokio::select! {
            biased;
            () = output.told_dropped() => {}
            line = lines.next() => match line {
                Some(line) => output.printed(line.bytes, stream),
                None => break,
            },
        }
    }
    // Lines that were dropped within the last second are told too.
    output.tell_dropped(Instant::now() + WINDOW);
}

/// Counts lines in windows of a second.
struct LineLimit {
    limit: u32,
    since: Instant,
    kept: u32,
    dropped: u64,
}

struct Allowed {
    is_kept: bool,
    /// Lines that the window before has dropped.
    dropped_before: Option<u64>,
}

impl LineLimit {
    fn new(limit: u32, now: Instant) -> Self {
        Self { limit, since: now, kept: 0, dropped: 0 }
    }
    fn allows(&mut self, now: Instant) -> Allowed {
        let mut dropped_before = None;
        if now >= self.since + WINDOW {
            dropped_before = self.take_dropped(now);
            (self.since, self.kept) = (now, 0);
        }
        let is_kept = self.kept < self.limit;
        if is_kept {
            self.kept += 1;
        } else {
            self.dropped += 1;
        }
        Allowed { is_kept, dropped_before }
    }
    fn dropping_until(&self) -> Option<Instant> {
        (self.dropped > 0).then(|| self.since + WINDOW)
    }
    fn take_dropped(&mut self, now: Instant) -> Option<u64> {
        let is_over = self.dropped > 0 && now >= self.since + WINDOW;
        is_over.then(|| std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_limit_of_a_second_are_counted_and_told_once() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut limit = LineLimit::new(2, begun);
        let kept: Vec<bool> = (0..5).map(|ms| limit.allows(at(ms)).is_kept).collect();
        assert_eq!(kept, [true, true, false, false, false]);
        assert_eq!((limit.dropping_until(), limit.take_dropped(at(999))), (Some(at(1000)), None));
        let next = limit.allows(at(1000));
        assert_eq!((next.is_kept, next.dropped_before), (true, Some(3)));
        assert_eq!((limit.dropping_until(), limit.take_dropped(at(9999))), (None, None));
    }
}
