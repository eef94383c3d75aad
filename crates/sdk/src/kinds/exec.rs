//! Any program as an observer: in a process group of its own, under helpers that outlive this service just long
//! enough to kill everything that the program has started.
//!
//! The obvious approach is that the service kills its children when it ends. But a killed or frozen service kills
//! nothing, and killing the leader spares its children. So the program is started by a helper (this binary again),
//! whose standard input is a pipe from the service: silence or its end means death to all descendants.

mod descendants;
mod helper;
mod permit;

pub use helper::run_helper_if_asked;
pub(crate) use permit::ENV_PASS;
pub use permit::ExecSettings;

use crate::safety::child_watchdog::{ChildWatchdog, ChildWatchdogs};
use crate::tasks::logs::OUTPUT;
use crate::{Context, Error, Exit, Observer};
use everwatch_core::wire::logs::Stream;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use helper::TERMINATE;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Child;

/// Set for a helper: which of the two it is, and the silence in ms that means death.
const HELPER: &str = "EVERWATCH_EXEC_HELPER";
/// How long a marked process may take to die before it is looked for again.
const DEATH: Duration = Duration::from_millis(10);
/// Longest line of output that is logged; the rest of it is dropped.
const LINE_MAX: usize = 8 * 1024;

/// `{"argv": ["program", "arg"], "env": {}, "cwd": "/somewhere"}`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    argv: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<String>,
}

/// What a spec comes to on this service.
struct Start<'a> {
    program: PathBuf,
    environment: BTreeMap<String, OsString>,
    cwd: Option<&'a Path>,
}

/// The helper with everything below it. Dropped before all of it has ended, it is left to the end of the run.
struct Family {
    ctx: Context,
    /// Resolves once nothing of it is left.
    ended: Option<BoxFuture<'static, std::io::Result<ExitStatus>>>,
    /// Without it the helper ends everything.
    pulse: Option<ChildWatchdog>,
}

impl Observer for Exec {
    const KIND: &'static str = "exec";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let (Some(settings), Some(pulses)) = (ctx.shared::<ExecSettings>(), ctx.shared::<ChildWatchdogs>())
        else {
            return Ok(Exit::Failed("exec is not set up on this service".to_owned()));
        };
        let start = match self.start(&settings) {
            Ok(start) => start,
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        if let Some(cwd) = start.cwd.filter(|cwd| !cwd.is_dir()) {
            return Err(format!("`cwd`: {} is not a folder here", cwd.display()).into());
        }
        let mut child = self.command(&ctx, &start, pulses.silence(settings.fence_after)).spawn()?;
        let pipe = child.stdin.take().ok_or("the helper has no standard input")?;
        let pulse = pulses.add(pipe.into_owned_fd()?)?;
        let ended = all_ended(child, ctx.clone()).boxed();
        let mut family = Family { ctx: ctx.clone(), ended: Some(ended), pulse: Some(pulse) };
        let status = tokio::select! {
            status = family.ended() => status?,
            () = ctx.cancelled() => {
                family.terminate();
                family.ended().await?;
                return Ok(Exit::Done);
            }
        };
        if status.success() { Ok(Exit::Done) } else { Err(ended_as(status).into()) }
    }
}

impl Family {
    async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let Some(ended) = &mut self.ended else { return Ok(ExitStatus::default()) };
        let status = ended.await;
        self.ended = None;
        status
    }
    fn terminate(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.say(TERMINATE);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.pulse = None;
        if let Some(ended) = self.ended.take() {
            self.ctx.leave_behind(ended.map(drop).boxed());
        }
    }
}

/// Waits for the end of both helpers and of everything below them. Its output is read to the last: a program that
/// says something while it ends must not find its pipe broken. And the helpers hold the pipes until they end, so the
/// end of the output is theirs too, whichever of them was killed.
async fn all_ended(mut child: Child, ctx: Context) -> std::io::Result<ExitStatus> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let marks = marks(&ctx).map(|(name, value)| format!("{name}={value}")).to_vec();
    let helper = async {
        let status = child.wait().await?;
        if status.code().is_none() {
            // Killed, and perhaps the other one with it: then this service alone can end what they left.
            end_marked(marks).await;
        }
        Ok(status)
    };
    let (out, err) = (log_lines(out, &ctx, Stream::Stdout), log_lines(err, &ctx, Stream::Stderr));
    tokio::join!(helper, out, err).0
}

async fn end_marked(marks: Vec<String>) {
    loop {
        let marks = marks.clone();
        let found = tokio::task::spawn_blocking(move || descendants::end_marked(&marks)).await;
        if !found.is_ok_and(|found| found > 0) {
            return;
        }
        tokio::time::sleep(DEATH).await;
    }
}

/// What tells the processes of one start from all others, unless they clear their environment.
fn marks(ctx: &Context) -> [(&'static str, String); 3] {
    [
        ("EVERWATCH_OBSERVER_ID", ctx.id()),
        ("EVERWATCH_EPOCH", ctx.epoch().to_string()),
        ("EVERWATCH_ATTEMPT", ctx.attempt().to_string()),
    ]
}

fn ended_as(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) if code > 128 => format!("ended by signal {}", code - 128),
        (Some(code), _) => format!("exited with code {code}"),
        (None, signal) => format!("its helper was ended by signal {}", signal.unwrap_or(0)),
    }
}

impl Exec {
    fn start(&self, settings: &ExecSettings) -> Result<Start<'_>, String> {
        let Some(named) = self.argv.first() else { return Err("`argv` names no program".to_owned()) };
        if let Some(argument) = self.argv.iter().chain(&self.cwd).find(|it| it.contains('\0')) {
            return Err(format!("`{}` holds a zero byte", argument.replace('\0', "\\0")));
        }
        let cwd = permit::folder(self.cwd.as_deref())?;
        Ok(Start {
            program: settings.program(named, cwd)?,
            environment: settings.environment(&self.env, |name| std::env::var_os(name))?,
            cwd,
        })
    }

    fn command(&self, ctx: &Context, start: &Start<'_>, silence: Duration) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command
            .arg(&start.program)
            .args(self.argv.iter().skip(1))
            .env_clear()
            .envs(&start.environment)
            .envs(ctx.trace_headers().map(|(header, value)| (header.to_uppercase(), value)))
            .env(HELPER, helper::outer(silence))
            .env("EVERWATCH_OBSERVER_NAME", ctx.name())
            .envs(marks(ctx))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = start.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

async fn log_lines(pipe: Option<impl AsyncRead + Unpin>, ctx: &Context, stream: Stream) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::with_capacity(4096, pipe);
    let mut line = Vec::new();
    while let Ok(chunk) = reader.fill_buf().await {
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |at| at + 1);
        let room = LINE_MAX.saturating_sub(line.len());
        line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len()).min(room)]);
        reader.consume(taken);
        if end.is_some() {
            log(&line, ctx, stream);
            line.clear();
        }
    }
    if !line.is_empty() {
        log(&line, ctx, stream);
    }
}

fn log(line: &[u8], ctx: &Context, stream: Stream) {
    let text = String::from_utf8_lossy(line);
    tracing::info!(target: OUTPUT, observer = ctx.name(), stream = stream.as_str(), "{text}");
    ctx.say(stream, &text);
}
