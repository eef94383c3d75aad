//! Starts programs under the helpers: what a spec comes to on this service.

use super::cgroup::{CGROUP, Cgroup, Cgroups};
use super::channel::Channel;
use super::confinement::Confinement;
use super::family::{Family, Parts};
use super::helper::{self, Orders, Task};
use super::output::Output;
use super::{CHANNEL, Exec, ExecSettings, HELPER, descriptor, ending, permit};
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::{Context, Error};
use everwatch_core::clock::Timestamp;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::process::Command;

/// Set for commands that check a program, so that they can be told from it.
const CHECK: &str = "EVERWATCH_CHECK";
/// What the last checkpoint of the observer was, as JSON.
const CHECKPOINT: &str = "EVERWATCH_CHECKPOINT";

/// A program that may be started, with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Allowed<'a> {
    program: PathBuf,
    arguments: &'a [String],
}

/// The checked spec.
pub(super) struct Spawner<'a> {
    settings: &'a ExecSettings,
    pulses: &'a ChildWatchdogs,
    ctx: &'a Context,
    program: Allowed<'a>,
    environment: BTreeMap<String, OsString>,
    confinement: Confinement,
    cgroups: Option<Cgroups>,
    cwd: Option<&'a Path>,
}

impl<'a> Spawner<'a> {
    /// # Errors
    /// Names the member of the spec and the cure.
    pub(super) fn new(
        spec: &'a Exec,
        settings: &'a ExecSettings,
        pulses: &'a ChildWatchdogs,
        ctx: &'a Context,
    ) -> Result<Self, String> {
        let cwd = spec.cwd.iter().find(|it| it.contains('\0'));
        if let Some(cwd) = cwd {
            return Err(holds_zero(cwd));
        }
        let cwd = permit::folder(spec.cwd.as_deref())?;
        let in_section = |why| format!("[service.exec] {why}");
        Ok(Self {
            settings,
            pulses,
            ctx,
            program: allowed("argv", &spec.argv, settings, cwd)?,
            environment: settings.environment(&spec.env, |name| std::env::var_os(name))?,
            confinement: settings.confinement().map_err(in_section)?,
            cgroups: settings.cgroups().map_err(in_section)?,
            cwd,
        })
    }

    /// # Errors
    /// If the folder is missing, which may pass.
    pub(super) fn ensure_folder(&self) -> Result<(), Error> {
        match self.cwd.filter(|cwd| !cwd.is_dir()) {
            Some(cwd) => Err(format!("`cwd`: {} is not a folder here", cwd.display()).into()),
            None => Ok(()),
        }
    }

    /// A command of the member `member` of the spec, if it may be started.
    ///
    /// # Errors
    /// Names the member and the cure.
    pub(super) fn allow<'b>(&self, member: &str, argv: &'b [String]) -> Result<Allowed<'b>, String> {
        allowed(member, argv, self.settings, self.cwd)
    }

    /// Starts the program of the observer.
    ///
    /// # Errors
    /// If the machine starts no process.
    pub(super) fn program(
        &self,
        output: &Arc<Output>,
        channel: Option<&Arc<Channel>>,
    ) -> Result<Family, Error> {
        let marks = marks(self.ctx).to_vec();
        let mut command = self.command(&self.program, &marks);
        let Some(channel) = channel else { return self.spawn(command, marks, output, None) };
        if let Some(checkpoint) = channel.checkpoint() {
            command.env(CHECKPOINT, checkpoint);
        }
        let (ours, of_program) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(ours)?;
        self.spawn(command, marks, output, Some((stream, of_program, channel)))
    }

    /// Runs a command that checks the program.
    ///
    /// # Errors
    /// Why the check failed: its exit code and its newest line of output.
    pub(super) async fn check(&self, allowed: &Allowed<'_>, timeout: Duration) -> Result<(), String> {
        let mut marks = marks(self.ctx).to_vec();
        marks.push((CHECK, "1".to_owned()));
        let output = Arc::new(Output::quiet(self.ctx.clone()));
        let family = self.spawn(self.command(allowed, &marks), marks, &output, None);
        let mut family = family.map_err(|error| format!("cannot start: {error}"))?;
        let Ok(ended) = tokio::time::timeout(timeout, family.ended()).await else {
            family.kill();
            // Not left behind: one check after the other would pile up.
            let _killed = family.ended().await;
            return Err(format!("not within {timeout:?}"));
        };
        let status = ended.map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let said = output.newest();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Err(format!("{}{said}", ending::ended_as(status)))
    }

    fn spawn(
        &self,
        mut command: Command,
        marks: Vec<(&'static str, String)>,
        output: &Arc<Output>,
        channel: Option<(tokio::net::UnixStream, UnixStream, &Arc<Channel>)>,
    ) -> Result<Family, Error> {
        let silence = self.pulses.silence(self.settings.fence_after);
        let has_channel = if channel.is_some() { helper::Channel::Comes } else { helper::Channel::None };
        let orders = Orders { silence, channel: has_channel, confinement: self.confinement };
        command.env(HELPER, orders.written(Task::Outer));
        let (pipe, channel) = match channel {
            None => (None, None),
            Some((stream, of_program, channel)) => {
                let (ours, theirs) = UnixStream::pair()?;
                descriptor::send(&ours, &of_program)?;
                command.stdin(OwnedFd::from(theirs));
                (Some(OwnedFd::from(ours)), Some((stream, channel.clone())))
            }
        };
        let cgroup = self.cgroups.as_ref().map(Cgroups::create).transpose()?;
        if let Some(cgroup) = &cgroup {
            command.env(CGROUP, cgroup.folder());
        }
        let mut child = command.spawn().inspect_err(|_| {
            let _empty = cgroup.as_ref().map(Cgroup::end);
        })?;
        // The end of the helper's pipe in this process would keep it open.
        drop(command);
        let pipe = match pipe {
            Some(pipe) => pipe,
            None => child.stdin.take().ok_or("the helper has no standard input")?.into_owned_fd()?,
        };
        let pulse = self.pulses.add(pipe)?;
        let marks = marks.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let parts = Parts { child, pulse, marks, cgroup, output: output.clone(), channel };
        Ok(Family::new(parts, self.ctx.clone()))
    }

    fn command(&self, allowed: &Allowed<'_>, marks: &[(&'static str, String)]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(&allowed.program)
            .args(allowed.arguments)
            .env_clear()
            .envs(&self.environment)
            .envs(self.ctx.trace_headers().map(|(header, value)| (header.to_uppercase(), value)))
            .env("EVERWATCH_OBSERVER_NAME", self.ctx.name())
            .env("EVERWATCH_OBSERVER_NAMESPACE", self.ctx.namespace())
            .envs(self.ctx.scheduled_for().map(|at| ("EVERWATCH_SCHEDULED_FOR", rfc3339(at))))
            .envs(marks.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // The helpers set it for a program that has a channel.
        command.env_remove(CHANNEL);
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

fn rfc3339(time: SystemTime) -> String {
    Timestamp(0).plus(time.duration_since(UNIX_EPOCH).unwrap_or_default()).to_string()
}

/// What tells the processes of one start from all others, unless they clear their environment.
fn marks(ctx: &Context) -> [(&'static str, String); 3] {
    [
        ("EVERWATCH_OBSERVER_ID", ctx.id()),
        ("EVERWATCH_EPOCH", ctx.epoch().to_string()),
        ("EVERWATCH_ATTEMPT", ctx.attempt().to_string()),
    ]
}

fn allowed<'a>(
    member: &str,
    argv: &'a [String],
    settings: &ExecSettings,
    cwd: Option<&Path>,
) -> Result<Allowed<'a>, String> {
    let Some((named, arguments)) = argv.split_first() else {
        return Err(format!("`{member}` names no program"));
    };
    if let Some(argument) = argv.iter().find(|it| it.contains('\0')) {
        return Err(holds_zero(argument));
    }
    Ok(Allowed { program: settings.program(named, cwd)?, arguments })
}

fn holds_zero(text: &str) -> String {
    format!("`{}` holds a zero byte", text.replace('\0', "\\0"))
}
