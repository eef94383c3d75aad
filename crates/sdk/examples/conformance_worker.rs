//! The service that `everwatch conformance` checks: observers of the kind `conformance` do what their spec says.
//!
//! ```sh
//! cargo build --example conformance_worker
//! everwatch conformance --command target/debug/examples/conformance_worker
//! ```

use everwatch::{Context, Error, Exit, Observer, Service};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;

/// The pause between two lines of a beacon.
const BEACON_EVERY: Duration = Duration::from_millis(50);

/// What the observer does.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Wait until it is told to stop.
    Wait,
    /// Fail, so that it starts again.
    Fail,
    /// Fail for good.
    GiveUp,
    /// Return.
    Complete,
    /// Go on until it is aborted.
    IgnoreCancel,
    /// Emit the text, then wait.
    Emit,
    /// Log the text, then wait.
    Log,
}

/// The arguments of one such observer: its `spec`.
#[derive(Deserialize, JsonSchema)]
struct Conformance {
    #[serde(rename = "do")]
    action: Action,
    #[serde(default)]
    text: String,
    /// A file to which the code writes a line again and again while it waits.
    #[serde(default)]
    beacon: Option<PathBuf>,
}

impl Observer for Conformance {
    const KIND: &'static str = "conformance";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        match self.action {
            Action::Wait => {}
            Action::Fail => return Err(self.text.into()),
            Action::GiveUp => return Ok(Exit::Failed(self.text)),
            Action::Complete => return Ok(Exit::Done),
            Action::IgnoreCancel => std::future::pending().await,
            Action::Emit => ctx.emit(serde_json::json!({"text": self.text, "epoch": ctx.epoch()})).await?,
            Action::Log => ctx.log(&self.text),
        }
        match &self.beacon {
            Some(beacon) => write_until_cancelled(&ctx, beacon).await?,
            None => ctx.cancelled().await,
        }
        Ok(Exit::Done)
    }
}

async fn write_until_cancelled(ctx: &Context, beacon: &Path) -> Result<(), Error> {
    let mut file = OpenOptions::new().create(true).append(true).open(beacon).await?;
    while ctx.until_cancelled(tokio::time::sleep(BEACON_EVERY)).await.is_some() {
        file.write_all(format!("{}\n", ctx.epoch()).as_bytes()).await?;
        file.flush().await?;
    }
    Ok(())
}

fn main() -> ExitCode {
    Service::new().observer::<Conformance>().main()
}
