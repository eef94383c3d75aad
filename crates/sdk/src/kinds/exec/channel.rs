//! The descriptor on which a program speaks to its observer: one JSON object in each line.
//!
//! | line | what follows |
//! |---|---|
//! | `{"emit": value}` | the value is emitted; the next line is read when the broker has it |
//! | `{"checkpoint": value}` | the value is stored; the next line is read when a manager has stored it |
//! | `{"status": "text"}`, `{"progress": [37, 120]}`, `{"log": "text"}` | shown beside the observer, or logged |
//! | `{"ready": true}` | the program is ready |
//! | `{"acquire": {"openai": 1}}` | permits of rates are acquired; the next line is read when a manager has granted them |
//!
//! A line with a member `id` is answered with `{"id": …, "ok": true}` or `{"id": …, "error": "…"}`.

use super::lines::Lines;
use super::output::Output;
use crate::kinds::spec::cut;
use crate::{Context, Error};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Longest line, in bytes.
const LINE_MAX: usize = 1024 * 1024;
/// Largest checkpoint, in bytes: it is passed to the program in its environment.
const CHECKPOINT_MAX: usize = 64 * 1024;

const ACQUIRE: &str = "`acquire` is the number of permits of each rate: {\"openai\": 1}";

/// What the starts of one attempt share.
pub(super) struct Channel {
    ctx: Context,
    /// The last checkpoint, as JSON.
    checkpoint: Mutex<Option<String>>,
    ready: watch::Sender<bool>,
}

#[derive(Debug, PartialEq)]
enum Request {
    Emit(Value),
    Checkpoint(Value),
    Status(String),
    Progress(u64, u64),
    Log(String),
    Ready,
    Acquire(BTreeMap<String, u32>),
}

impl Channel {
    /// # Errors
    /// If the stored checkpoint cannot be read or passed on.
    pub(super) async fn new(ctx: &Context) -> Result<Self, Error> {
        let checkpoint = restored(ctx).await?.map(|value| value.to_string());
        if let Some(size) = checkpoint.as_ref().map(String::len).filter(|size| *size > CHECKPOINT_MAX) {
            let told = format!("the checkpoint has {size} bytes; a program gets at most {CHECKPOINT_MAX}");
            return Err(told.into());
        }
        Ok(Self { ctx: ctx.clone(), checkpoint: Mutex::new(checkpoint), ready: watch::Sender::new(false) })
    }
    pub(super) fn checkpoint(&self) -> Option<String> {
        // A new start announces its own readiness.
        self.ready.send_replace(false);
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Resolves once the program has announced its readiness.
    pub(super) async fn ready(&self) {
        let mut ready = self.ready.subscribe();
        // The sender lives as long as this.
        let _announced = ready.wait_for(|ready| *ready).await;
    }

    async fn handle(&self, request: Request, output: &Output) -> Result<(), String> {
        let told = |error: Error| error.to_string();
        match request {
            Request::Emit(value) => self.ctx.emit(value).await.map_err(told),
            Request::Checkpoint(value) => self.store(value).await,
            Request::Status(text) => {
                self.ctx.status(&text);
                Ok(())
            }
            Request::Progress(done, of) => {
                self.ctx.progress(done, of);
                Ok(())
            }
            Request::Log(text) => {
                output.say(&text);
                Ok(())
            }
            Request::Ready => {
                self.ready.send_replace(true);
                Ok(())
            }
            Request::Acquire(wanted) => {
                let mut wanted = wanted.into_iter();
                let (rate, permits) = wanted.next().ok_or(ACQUIRE)?;
                let first = self.ctx.acquire(rate, permits);
                wanted.fold(first, |all, (rate, permits)| all.and(rate, permits)).await.map_err(told)
            }
        }
    }

    async fn store(&self, value: Value) -> Result<(), String> {
        let text = value.to_string();
        if text.len() > CHECKPOINT_MAX {
            let size = text.len();
            return Err(format!("the checkpoint has {size} bytes; at most {CHECKPOINT_MAX} are stored"));
        }
        store(&self.ctx, &value).await.map_err(|error| error.to_string())?;
        *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(())
    }
}

async fn restored(ctx: &Context) -> Result<Option<Value>, Error> {
    Ok(ctx.restored::<Value>().await?.map(|restored| restored.value))
}

async fn store(ctx: &Context, value: &Value) -> Result<(), Error> {
    ctx.checkpoint(value).await
}

/// Handles what the program writes until every process has closed the descriptor.
pub(super) async fn serve(stream: UnixStream, channel: &Channel, output: &Output) {
    let mut lines = Lines::new(stream, LINE_MAX);
    let mut number = 0_u64;
    while let Some(line) = lines.next().await {
        number += 1;
        output.touch();
        let parsed = if line.was_cut {
            (None, Err(format!("longer than {LINE_MAX} bytes")))
        } else if line.bytes.trim_ascii().is_empty() {
            continue;
        } else {
            parse(line.bytes)
        };
        let (id, request) = parsed;
        let handled = match request {
            Ok(request) => channel.handle(request, output).await,
            Err(wrong) => Err(wrong),
        };
        if let Err(error) = &handled {
            output.say(&format!("EVERWATCH_FD: line {number}: {error}"));
        }
        if let Some(id) = id {
            let answer = match handled {
                Ok(()) => json!({ "id": id, "ok": true }),
                Err(error) => json!({ "id": id, "error": error }),
            };
            // A program that has closed its end wants no answers.
            let _closed = lines.pipe().write_all(format!("{answer}\n").as_bytes()).await;
        }
    }
}

fn parse(line: &[u8]) -> (Option<Value>, Result<Request, String>) {
    let mut members = match serde_json::from_slice::<Map<String, Value>>(line) {
        Ok(members) => members,
        Err(error) => {
            let text = String::from_utf8_lossy(line);
            return (None, Err(format!("`{}` is not a JSON object: {error}", cut(&text, 100))));
        }
    };
    let id = members.remove("id");
    (id, request(members))
}

fn request(members: Map<String, Value>) -> Result<Request, String> {
    const ONE: &str =
        "write exactly one of `emit`, `checkpoint`, `status`, `progress`, `log`, `ready` and `acquire`";
    let mut members = members.into_iter();
    let (Some((name, value)), None) = (members.next(), members.next()) else { return Err(ONE.to_owned()) };
    match (&*name, value) {
        ("emit", value) => Ok(Request::Emit(value)),
        ("checkpoint", value) => Ok(Request::Checkpoint(value)),
        ("status", Value::String(text)) => Ok(Request::Status(text)),
        ("log", Value::String(text)) => Ok(Request::Log(text)),
        ("ready", Value::Bool(true)) => Ok(Request::Ready),
        ("progress", value) => match serde_json::from_value(value) {
            Ok((done, of)) => Ok(Request::Progress(done, of)),
            Err(_) => Err("`progress` is two numbers: [done, of]".to_owned()),
        },
        ("acquire", value) => match serde_json::from_value(value) {
            Ok(wanted) => Ok(Request::Acquire(wanted)),
            Err(_) => Err(ACQUIRE.to_owned()),
        },
        ("status" | "log", _) => Err(format!("`{name}` is a string")),
        ("ready", _) => Err("`ready` is true".to_owned()),
        (other, _) => Err(format!("`{}` is unknown; {ONE}", cut(other, 100))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_exactly_one_request() {
        let request = |line: &str| parse(line.as_bytes()).1;
        assert_eq!(request(r#"{"emit": null}"#), Ok(Request::Emit(Value::Null)));
        assert_eq!(request(r#"{"id": 1, "progress": [1, 2]}"#), Ok(Request::Progress(1, 2)));
        assert_eq!(request(r#"{"ready": true}"#), Ok(Request::Ready));
        let wanted = [("a".to_owned(), 1), ("b".to_owned(), 800)].into();
        assert_eq!(request(r#"{"acquire": {"a": 1, "b": 800}}"#), Ok(Request::Acquire(wanted)));
        for (line, told) in [
            ("x", "`x` is not a JSON object"),
            ("[1]", "`[1]` is not a JSON object"),
            ("{}", "write exactly one of"),
            (r#"{"emit": 1, "log": "x"}"#, "write exactly one of"),
            (r#"{"emmit": 1}"#, "`emmit` is unknown; write exactly one of `emit`"),
            (r#"{"ready": false}"#, "`ready` is true"),
            (r#"{"status": 1}"#, "`status` is a string"),
            (r#"{"progress": 1}"#, "`progress` is two numbers"),
            (r#"{"acquire": "openai"}"#, "`acquire` is the number of permits of each rate"),
            (r#"{"acquire": {"openai": -1}}"#, "`acquire` is the number of permits of each rate"),
        ] {
            let wrong = request(line).unwrap_err();
            assert!(wrong.contains(told), "{line}: {wrong}");
        }
        assert_eq!(parse(br#"{"id": "a", "x": 1}"#).0, Some(json!("a")));
    }
}
