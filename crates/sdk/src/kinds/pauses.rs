//! The member `reconnect` of specs: when to connect again, and when to give up.

use super::spec::{Count, DAY, HOUR, MINUTE, SECOND, Span};
use crate::Context;
use crate::Reconnect;
use everwatch_core::clock::show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The pauses between two connections double from `first` to `max`; half of each is random.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct Pauses {
    /// The pause after the first loss.
    first: Span<10, HOUR>,
    /// The longest pause.
    max: Span<10, HOUR>,
    /// How long a connection must last for the next pause to be `first` again.
    healthy_after: Span<0, DAY>,
    /// Number of connections in a row that may fail or end before `healthy_after`. Then the attempt ends with an
    /// error, and the retry policy of the observer decides what follows.
    attempts: Count<1, 1_000_000>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            first: Span::ms(500),
            max: Span::ms(30 * SECOND),
            healthy_after: Span::ms(MINUTE),
            attempts: Count::new(10),
        }
    }
}

/// The connections of one attempt.
pub(super) struct Connections<'a> {
    spec: &'a Pauses,
    reconnect: Reconnect,
    failures: u32,
}

impl<'a> Connections<'a> {
    pub(super) fn new(spec: &'a Pauses) -> Self {
        let reconnect = Reconnect::new()
            .first(spec.first.get())
            .max(spec.max.get())
            .healthy_after(spec.healthy_after.get());
        Self { spec, reconnect, failures: 0 }
    }

    /// Waits before the next connection, after one that lived this long; `None` if the code must stop first.
    ///
    /// # Errors
    /// After too many connections in a row that did not last.
    pub(super) async fn wait(
        &mut self,
        ctx: &Context,
        lived_for: Duration,
        lost: &str,
    ) -> Result<Option<()>, String> {
        let healthy_after = self.spec.healthy_after.get();
        self.failures = if lived_for >= healthy_after { 1 } else { self.failures + 1 };
        if self.failures >= self.spec.attempts.get() {
            let in_a_row = format!("connection {} in a row", self.failures);
            return Err(format!("{lost}; {in_a_row} that did not last for {}", show(healthy_after)));
        }
        let pause = self.reconnect.next_pause(lived_for);
        let in_ms = Duration::from_millis(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        ctx.log(&format!("{lost}; connecting again in {}", show(in_ms)));
        ctx.status(&format!("disconnected: {lost}"));
        Ok(ctx.until_cancelled(tokio::time::sleep(pause)).await)
    }
}
