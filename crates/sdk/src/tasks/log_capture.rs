//! Adds the `tracing` events of code to the log of its observer.

use crate::tasks::attempt::Attempt;
use crate::tasks::logs::OUTPUT;
use everwatch_core::wire::logs::Stream;
use std::sync::Arc;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields as _;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

tokio::task_local! {
    /// The attempt whose code runs on this thread.
    static SPEAKER: Arc<Attempt>;
}

/// Runs a piece of code so that its `tracing` events go to the log of its run. A span could do this, but each span
/// costs hundreds of bytes, and a filter may drop it.
pub(crate) fn as_speaker<T>(attempt: Arc<Attempt>, code: impl FnOnce() -> T) -> T {
    SPEAKER.sync_scope(attempt, code)
}

/// Adds `tracing` events to the log of the observer whose code emits them.
pub(crate) struct LogCaptureLayer;

impl<S: Subscriber> Layer<S> for LogCaptureLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() == OUTPUT {
            return;
        }
        let _no_observer_s = SPEAKER.try_with(|attempt| {
            let mut text = format!("{} ", event.metadata().level());
            if DefaultFields::new().format_fields(Writer::new(&mut text), event).is_ok() {
                attempt.say(Stream::Log, &text);
            }
        });
    }
}
