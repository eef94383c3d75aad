//! Emits a count at a fixed pace: for trying things out.

use super::spec::{DAY, SECOND, Span};
use crate::{Context, Error, Exit, Observer};
use schemars::JsonSchema;
use serde::Deserialize;

/// Emits a count at a fixed pace: `{"every": "1s"}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"every": "1s"}]))]
pub struct Ticker {
    /// Time between two values.
    #[serde(default = "second")]
    every: Span<10, { 366 * DAY }>,
}

fn second() -> Span<10, { 366 * DAY }> {
    Span::ms(SECOND)
}

impl Observer for Ticker {
    const KIND: &'static str = "ticker";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let every = self.every.get();
        // Not at once: a service that takes over many starts them without a burst of messages.
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        let mut count = 0_u64;
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            count += 1;
            ctx.log(&format!("tick {count}"));
            ctx.emit(serde_json::json!({ "tick": count })).await?;
        }
        Ok(Exit::Done)
    }
}
