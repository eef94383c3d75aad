//! A service with one kind: watches a file and emits its size when it changes.
//!
//! ```sh
//! cargo run --example file_watch
//! everwatch observer create passwords --kind file-watch --spec '{"path": "/etc/passwd"}'
//! ```
//! It is configured as any service: `EVERWATCH_BROKER__URL`, `EVERWATCH_SERVICE__NAME` and so on.

use everwatch::{Context, Error, Exit, Observer, Service};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The arguments of one such observer: its `spec`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileWatch {
    path: PathBuf,
}

impl Observer for FileWatch {
    const KIND: &'static str = "file-watch";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        let mut last = None;
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            // An error starts this code again by the observer's retry policy.
            let size = tokio::fs::metadata(&self.path).await?.len();
            if last != Some(size) {
                ctx.emit(serde_json::json!({ "path": self.path, "size": size, "epoch": ctx.epoch() }))
                    .await?;
                ctx.status(&format!("{size} bytes"));
                last = Some(size);
            }
        }
        Ok(Exit::Stopped)
    }
}

fn main() -> ExitCode {
    Service::new().observer::<FileWatch>().main()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch::testing::Trial;

    #[tokio::test]
    async fn a_growing_file_is_noticed() {
        let path = std::env::temp_dir().join(format!("file-watch-{}", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let mut trial = Trial::start(FileWatch { path: path.clone() });
        assert_eq!(trial.emitted().await.unwrap()["size"], 3);
        std::fs::write(&path, "one two").unwrap();
        assert_eq!(trial.emitted().await.unwrap()["size"], 7);
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Stopped);
        std::fs::remove_file(&path).unwrap();
    }
}
