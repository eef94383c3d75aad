//! Any program as an observer: in a process group of its own, under a helper that outlives this service
//! just long enough to kill the group.
//!
//! Naively the service kills its children when it ends. But a killed or frozen service kills nobody, and
//! killing the leader spares its children. So the program is started by a helper (this binary again),
//! whose standard input is a pipe from the service: silence or its end means death to the whole group.

use crate::logs::OUTPUT;
use crate::pulse::{Pulse, Pulses};
use crate::{Context, Error, Exit, Observer};
use everwatch_core::logs::Stream;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Set for the helper; its value is the silence in ms that means death.
const HELPER: &str = "EVERWATCH_EXEC_HELPER";
/// The letter that asks the helper to pass on SIGTERM.
const TERMINATE: u8 = b'T';
/// Longest line of output that is logged; the rest of it is dropped.
const LINE_MAX: usize = 8 * 1024;

/// What the `exec` of a service may do.
#[derive(Debug, Clone)]
pub struct ExecSettings {
    /// Programs that may be started, as they are written in `argv[0]`; `*` is any.
    pub allow: Vec<String>,
    /// Silence of the service after which its children are killed.
    pub fence_after: Duration,
}

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

impl Observer for Exec {
    const KIND: &'static str = "exec";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let (Some(settings), Some(pulses)) = (ctx.shared::<ExecSettings>(), ctx.shared::<Pulses>()) else {
            return Ok(Exit::Failed("exec is not set up on this service".to_owned()));
        };
        let Some(program) = self.argv.first() else {
            return Ok(Exit::Failed("`argv` names no program".to_owned()));
        };
        if !settings.allow.iter().any(|allowed| allowed == "*" || allowed == program) {
            let key = "[service.exec] allow";
            return Ok(Exit::Failed(format!("`{program}` is not in {key} of this service; add it there")));
        }
        let mut child = self.command(&ctx, settings.fence_after).spawn()?;
        let pipe = child.stdin.take().ok_or("the helper has no standard input")?;
        let pulse = pulses.add(pipe.into_owned_fd()?);
        let out = log_lines(child.stdout.take(), &ctx, Stream::Stdout);
        let err = log_lines(child.stderr.take(), &ctx, Stream::Stderr);
        // Its output is read to the last: a program that says something while it ends must not find its
        // pipe broken.
        let mut all = std::pin::pin!(async { tokio::join!(child.wait(), out, err).0 });
        let status = tokio::select! {
            status = &mut all => status?,
            () = ctx.cancelled() => {
                pulse.say(TERMINATE);
                all.await?;
                return Ok(Exit::Done);
            }
        };
        drop::<Pulse>(pulse);
        if status.success() { Ok(Exit::Done) } else { Err(ended(status).into()) }
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) if code > 128 => format!("ended by signal {}", code - 128),
        (Some(code), _) => format!("exited with code {code}"),
        (None, signal) => format!("its helper was ended by signal {}", signal.unwrap_or(0)),
    }
}

impl Exec {
    fn command(&self, ctx: &Context, fence_after: Duration) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command
            .args(&self.argv)
            .envs(ctx.trace_headers().map(|(header, value)| (header.to_uppercase(), value)))
            .envs(&self.env)
            .env(HELPER, fence_after.as_millis().to_string())
            .env("EVERWATCH_OBSERVER_ID", ctx.id())
            .env("EVERWATCH_OBSERVER_NAME", ctx.name())
            .env("EVERWATCH_EPOCH", ctx.epoch().to_string())
            .env("EVERWATCH_ATTEMPT", ctx.attempt().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = &self.cwd {
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

/// To be called first thing in `main`, before any thread: if this process was started as a helper, it
/// does that work and never returns.
pub fn run_helper_if_asked() {
    let Ok(limit) = std::env::var(HELPER) else { return };
    let limit = Duration::from_millis(limit.parse().unwrap_or(5000));
    std::process::exit(match helper(limit) {
        Ok(code) => code,
        Err(error) => {
            let program = std::env::args().nth(1).unwrap_or_default();
            // The service logs its children's standard error.
            let _nowhere = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("{program} could not be started: {error}\n").as_bytes(),
            );
            127
        }
    });
}

fn helper(limit: Duration) -> std::io::Result<i32> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or_else(|| std::io::Error::other("no program"))?;
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .env_remove(HELPER)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(std::io::Error::other)?);
    let (heard, hearing) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("pulse".to_owned()).spawn(move || {
        let mut letters = [0; 64];
        let mut pipe = std::io::stdin();
        while let Ok(count @ 1..) = pipe.read(&mut letters) {
            if heard.send(letters[..count].contains(&TERMINATE)).is_err() {
                return;
            }
        }
    })?;
    std::thread::Builder::new().name("guard".to_owned()).spawn(move || {
        loop {
            match hearing.recv_timeout(limit) {
                Ok(true) => signal_group(group, Signal::SIGTERM),
                Ok(false) => {}
                Err(_silence_or_end) => {
                    signal_group(group, Signal::SIGKILL);
                    return;
                }
            }
        }
    })?;
    let status = child.wait()?;
    // The leader is gone: what it left behind goes too.
    signal_group(group, Signal::SIGKILL);
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(9)))
}

/// The group may be gone already; then there is nothing to signal.
fn signal_group(group: Pid, signal: Signal) {
    let _gone = killpg(group, signal);
}
