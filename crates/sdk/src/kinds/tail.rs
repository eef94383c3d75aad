//! Follows a file by its name and emits its lines, across rotations and restarts.

mod fingerprint;
mod follower;
mod splitter;
#[cfg(test)]
mod tests;

use super::checkpoints::Checkpoints;
use super::files::{Access, FilesSettings};
use super::spec::{Count, MINUTE, SECOND, Span};
use crate::{Context, Error, Exit, Observer};
use follower::{Batch, Follower, Position};
use futures::FutureExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use splitter::Line;
use std::time::Duration;

/// Follows a file by its name and emits each line as `{"line": "…", "offset": 123}`.
///
/// It goes on with the next file when the file is rotated, starts over when the file is truncated, and resumes where
/// the last run stopped. The service must allow the folder of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"path": "/var/log/syslog"}]))]
pub struct Tail {
    /// Absolute path of the file, in a folder that `[service.files] read` lists. The file may be missing at first.
    #[schemars(extend("pattern" = "^/", "examples" = ["/var/log/syslog"]), length(max = 4096))]
    path: String,
    /// Where the first run starts: at the `end` of the file or at its `beginning`. A file that appears later is read
    /// from its beginning.
    #[serde(default)]
    from: StartAt,
    /// Interval at which to look for new lines and for another file of that name.
    #[serde(default = "one_second")]
    every: Span<10, { 10 * MINUTE }>,
    /// Length of the longest line, in bytes. Longer lines are cut and emitted with `"truncated": true`.
    #[serde(default = "sixty_four_kibibytes")]
    max_line: Count<1, { 1 << 20 }>,
    /// Whether to emit lines that are JSON as JSON.
    #[serde(default)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum StartAt {
    #[default]
    End,
    Beginning,
}

fn one_second() -> Span<10, { 10 * MINUTE }> {
    Span::ms(SECOND)
}
fn sixty_four_kibibytes() -> Count<1, { 1 << 20 }> {
    Count::new(64 << 10)
}

impl Observer for Tail {
    const KIND: &'static str = "tail";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let settings = ctx.shared::<FilesSettings>().unwrap_or_default();
        let path = match settings.path("path", &self.path, Access::Read) {
            Ok(path) => path,
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        let restored = restored(&ctx).await?;
        let from_end = self.from == StartAt::End;
        let mut follower = Follower::new(path, settings, self.max_line.size(), restored, from_end);
        let mut checkpoints = Checkpoints::new(&ctx);
        loop {
            let (returned, polled) = blocking(follower, Follower::poll).await?;
            follower = returned;
            let Batch { lines, file, position, has_more, notes } = polled?;
            notes.iter().for_each(|note| ctx.log(note));
            let all = lines.len();
            let emitted = checkpoints.during(self.emit(lines, &ctx)).await?;
            let reached = match emitted.last {
                _ if emitted.count == all => position,
                Some(end) => file.map(|it| it.at(end)),
                None => None,
            };
            reached.into_iter().for_each(|it| checkpoints.note(it));
            let pause = if has_more { Duration::ZERO } else { self.every.get() };
            let slept = checkpoints.during(ctx.until_cancelled(tokio::time::sleep(pause))).await;
            if slept.is_none() {
                checkpoints.finish().await;
                return Ok(Exit::Done);
            }
        }
    }
}

/// What was emitted of a batch.
struct Emitted {
    count: usize,
    /// Where the last emitted line ends.
    last: Option<u64>,
}

impl Tail {
    /// Emits lines one after the other, because several at once could change their order. Stops between two of them if
    /// the code must stop.
    async fn emit(&self, lines: Vec<Line>, ctx: &Context) -> Result<Emitted, Error> {
        let mut emitted = Emitted { count: 0, last: None };
        for line in lines {
            if ctx.cancelled().now_or_never().is_some() {
                break;
            }
            let end = line.end;
            ctx.emit(self.value(&line)).await?;
            emitted = Emitted { count: emitted.count + 1, last: Some(end) };
        }
        Ok(emitted)
    }

    fn value(&self, line: &Line) -> Value {
        let text = String::from_utf8_lossy(&line.bytes);
        let parsed = self.json.then(|| serde_json::from_str(&text).ok()).flatten();
        let shown = parsed.unwrap_or_else(|| Value::String(text.into_owned()));
        let mut value = json!({ "line": shown, "offset": line.start });
        if line.was_cut {
            value["truncated"] = true.into();
        }
        value
    }
}

async fn restored(ctx: &Context) -> Result<Option<Position>, Error> {
    Ok(ctx.restored::<Position>().await?.map(|restored| restored.value))
}

/// Reads files on a thread that may wait for the disk.
async fn blocking<T: Send + 'static, R: Send + 'static>(
    mut value: T,
    work: impl FnOnce(&mut T) -> R + Send + 'static,
) -> Result<(T, R), Error> {
    Ok(tokio::task::spawn_blocking(move || {
        let result = work(&mut value);
        (value, result)
    })
    .await?)
}
