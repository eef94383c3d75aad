//! Keeps a folder in step with another one.

mod copy;
mod pass;
mod progress;
#[cfg(test)]
mod tests;
mod tree;

use super::checkpoints::Checkpoints;
use super::files::{Access, FilesSettings};
use super::spec::{Count, DAY, SECOND, Span};
use crate::{Context, Error, Exit, Observer};
use everwatch_core::clock::show;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use pass::{Folders, Pass, Summary};
use progress::Progress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which progress is shown and stored.
const TICK: Duration = Duration::from_secs(1);

/// Keeps the folder `to` in step with the folder `from`, and emits a summary of each pass that changed something:
/// `{"files", "copied", "deleted", "bytes"}`.
///
/// It copies regular files with their modification time and mode; it does not follow or copy symbolic links. A copy
/// appears under its name only when it is complete. The service must allow both folders.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"from": "/srv/original", "to": "/srv/copy"}]))]
pub struct Replicate {
    /// Absolute path of the folder to copy, in a folder that `[service.files] read` lists.
    #[schemars(extend("pattern" = "^/"), length(max = 4096))]
    from: String,
    /// Absolute path of the copy, in a folder that `[service.files] write` lists. It is created if it is missing.
    #[schemars(extend("pattern" = "^/"), length(max = 4096))]
    to: String,
    /// Time between two passes.
    #[serde(default = "ten_seconds")]
    every: Span<100, DAY>,
    /// Whether to delete files of the copy that the original does not contain.
    #[serde(default)]
    delete: bool,
    /// With `delete`: how many files the original must contain for anything to be deleted. It protects the copy while
    /// the original is not mounted.
    #[serde(default = "one")]
    min_files: Count<0, 1_000_000>,
    /// How to tell that a file has changed: by its size and modification `time`, or also by a digest of its `content`,
    /// which reads all files in each pass.
    #[serde(default)]
    compare: Compare,
    /// Number of files and folders that the original may contain; more are an error.
    #[serde(default = "hundred_thousand")]
    max_files: Count<1, 1_000_000>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Compare {
    #[default]
    Time,
    Content,
}

/// How far an unfinished pass has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The last file that is in step, relative to the folder; none after a finished pass.
    after: Option<PathBuf>,
}

fn ten_seconds() -> Span<100, DAY> {
    Span::ms(10 * SECOND)
}
fn one() -> Count<0, 1_000_000> {
    Count::new(1)
}
fn hundred_thousand() -> Count<1, 1_000_000> {
    Count::new(100_000)
}

impl Observer for Replicate {
    const KIND: &'static str = "replicate";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let settings = ctx.shared::<FilesSettings>().unwrap_or_default();
        let folders = settings
            .path("from", &self.from, Access::Read)
            .and_then(|from| Ok((from, settings.path("to", &self.to, Access::Write)?)))
            .and_then(|(from, to)| Folders::new(from, to, settings));
        let folders = match folders {
            Ok(folders) => Arc::new(folders),
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        let mut after = restored(&ctx).await?.and_then(|mark| mark.after);
        let mut checkpoints = Checkpoints::new(&ctx);
        loop {
            let pass = Pass {
                folders: folders.clone(),
                delete: self.delete,
                min_files: self.min_files.size(),
                by_content: self.compare == Compare::Content,
                max_files: self.max_files.size(),
                after: after.take(),
            };
            let Some(summary) = run(pass, &ctx, &mut checkpoints).await? else { break };
            self.tell(&summary, &ctx, &mut checkpoints).await?;
            let slept = ctx.until_cancelled(tokio::time::sleep(self.every.get()));
            if checkpoints.during(slept).await.is_none() {
                break;
            }
        }
        checkpoints.finish().await;
        Ok(Exit::Done)
    }
}

impl Replicate {
    async fn tell(
        &self,
        summary: &Summary,
        ctx: &Context,
        checkpoints: &mut Checkpoints<Mark>,
    ) -> Result<(), Error> {
        let Summary { files, copied, deleted, bytes, .. } = summary;
        summary.notes.iter().for_each(|note| ctx.log(note));
        if *copied > 0 || *deleted > 0 {
            ctx.log(&format!("{copied} copied, {deleted} deleted, {bytes} bytes"));
            let value = json!({ "files": files, "copied": copied, "deleted": deleted, "bytes": bytes });
            checkpoints.during(ctx.emit(value)).await?;
        }
        if summary.failed > 0 {
            let first = summary.notes.first().map_or("", String::as_str);
            return Err(format!("{} files are not in step: {first}", summary.failed).into());
        }
        ctx.status(&format!("{files} files in step; next pass in {}", show(self.every.get())));
        Ok(())
    }
}

/// Runs one pass on a thread that may wait for the disk; `None`: the code must stop, and the pass has ended early.
async fn run(
    pass: Pass,
    ctx: &Context,
    checkpoints: &mut Checkpoints<Mark>,
) -> Result<Option<Summary>, Error> {
    let mut running = Running::start(pass, ctx);
    loop {
        let ended = tokio::time::timeout(TICK, ctx.until_cancelled(running.ended()));
        match checkpoints.during(ended).await {
            Ok(Some(summary)) => {
                checkpoints.note(Mark { after: None });
                return Ok(Some(summary?));
            }
            Ok(None) => {
                running.progress.stop();
                let stopped = running.ended().await;
                checkpoints.note(Mark { after: running.progress.after() });
                // What was not copied is copied by the next run.
                return stopped.map(|_| None);
            }
            Err(_tick) => {
                let (done, of) = running.progress.counts();
                ctx.progress(done, of);
                checkpoints.note(Mark { after: running.progress.after() });
            }
        }
    }
}

/// A pass on its thread. Dropped before its end, it stops at once and is left to the end of the run: no two passes may
/// write to one folder.
struct Running {
    ctx: Context,
    progress: Arc<Progress>,
    ended: Option<BoxFuture<'static, Result<Summary, Error>>>,
}

impl Running {
    fn start(pass: Pass, ctx: &Context) -> Self {
        let progress = Arc::new(Progress::default());
        let shared = progress.clone();
        let thread = tokio::task::spawn_blocking(move || pass.run(&shared));
        let ended = async move { Ok(thread.await??) };
        Self { ctx: ctx.clone(), progress, ended: Some(ended.boxed()) }
    }
    async fn ended(&mut self) -> Result<Summary, Error> {
        let Some(ended) = &mut self.ended else { return Err("the pass has ended before".into()) };
        let summary = ended.await;
        self.ended = None;
        summary
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.progress.stop();
        if let Some(ended) = self.ended.take() {
            self.ctx.leave_behind(ended.map(drop).boxed());
        }
    }
}

async fn restored(ctx: &Context) -> Result<Option<Mark>, Error> {
    Ok(ctx.restored::<Mark>().await?.map(|restored| restored.value))
}
