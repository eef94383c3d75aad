//! Emits a count at a fixed pace: for trying things out.

use crate::{Context, Error, Exit, Observer};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// `{"every": "1s"}`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ticker {
    #[serde(default = "second", with = "everwatch_core::clock::friendly")]
    #[schemars(with = "String")]
    every: Duration,
}

fn second() -> Duration {
    Duration::from_secs(1)
}

impl Observer for Ticker {
    const KIND: &'static str = "ticker";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        if self.every < Duration::from_millis(10) {
            return Ok(Exit::Failed("`every` is at least 10ms".to_owned()));
        }
        // Not at once: a service that takes over many starts them without a burst of messages.
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + self.every, self.every);
        let mut count = 0_u64;
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            count += 1;
            ctx.log(&format!("tick {count}"));
            ctx.emit(serde_json::json!({ "tick": count })).await?;
        }
        Ok(Exit::Done)
    }
}
