//! The helpers between a service and a program. They end the program with all of its descendants when the service
//! falls silent or ends, and they end only after the last of them.
//!
//! There are two, one below the other, each the parent of what is orphaned below it. A single helper that is killed,
//! as by the kernel when memory runs out, would leave the program to itself: so the outer one ends what a killed inner
//! one leaves, and the inner one ends everything when the outer one is gone. No other signal ends them, because a
//! process manager sends SIGTERM to all processes of a service at once.

use super::cgroup::{CGROUP, Cgroup, JOIN};
use super::confinement::Confinement;
use super::{CHANNEL, HELPER, descendants, descriptor};
use crate::boot_clock::boottime;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, read};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The letter that asks for SIGTERM to the program.
pub(super) const TERMINATE: u8 = b'T';
/// The exit code of a helper whose program was killed by SIGKILL, in the way of shells.
const KILLED: i32 = 128 + 9;
/// The exit code of a helper that could not start its program.
pub(super) const NOT_STARTED: i32 = 127;
/// What it says then, between the program and the reason.
const NOT_STARTED_TEXT: &str = " could not be started: ";
/// The last signal there is.
const LAST_SIGNAL: i32 = 64;

/// Whether a program has a channel: a descriptor on which it speaks to its observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    None,
    /// The outer helper receives it over its standard input.
    Comes,
}

/// What a process of this program that is started as a helper has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Starts the inner helper.
    Outer,
    /// Starts the program.
    Inner,
    /// Joins the control group, limits itself, and becomes the program: limits that a helper set on itself would end it.
    Become,
}

/// What the helpers of one program are told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orders {
    /// Silence of the service that ends the program.
    pub(super) silence: Duration,
    pub(super) channel: Channel,
    pub(super) confinement: Confinement,
}

impl Orders {
    /// The value of [`HELPER`].
    pub(super) fn written(&self, task: Task) -> String {
        let task = match task {
            Task::Outer => "outer",
            Task::Inner => "inner",
            Task::Become => "become",
        };
        let channel = if self.channel == Channel::Comes { "channel" } else { "none" };
        format!("{task} {} {channel} {}", self.silence.as_millis(), self.confinement.written())
    }

    /// The inverse of [`Orders::written`].
    fn read(text: &str) -> Option<(Task, Self)> {
        let mut words = text.split(' ');
        let task = match words.next()? {
            "outer" => Task::Outer,
            "inner" => Task::Inner,
            "become" => Task::Become,
            _ => return None,
        };
        let silence = Duration::from_millis(words.next()?.parse().ok()?);
        let channel = if words.next()? == "channel" { Channel::Comes } else { Channel::None };
        Some((task, Self { silence, channel, confinement: Confinement::read(words.next()?)? }))
    }
}

/// To be called first thing in `main`, before any thread: if this process was started as a helper, it
/// does that work and never returns.
pub fn run_helper_if_asked() {
    let Ok(asked) = std::env::var(HELPER) else { return };
    if asked == JOIN {
        let joined = Cgroup::given().map_or(Ok(()), |cgroup| cgroup.join());
        // The service reads its standard error.
        let _nowhere = joined.as_ref().map_err(|error| write!(std::io::stderr(), "{error}"));
        std::process::exit(if joined.is_ok() { 0 } else { NOT_STARTED });
    }
    let helped = match Orders::read(&asked) {
        Some((Task::Outer, orders)) => {
            let code = start_inner(&orders).and_then(|it| Helper::new(it)?.run(orders.silence));
            if let Some(Err(error)) = Cgroup::given().map(|cgroup| cgroup.end()) {
                let _nowhere = writeln!(std::io::stderr(), "{error}");
            }
            code
        }
        Some((Task::Inner, orders)) => {
            start_program(&orders).and_then(|it| Helper::new(it)?.run(orders.silence))
        }
        Some((Task::Become, orders)) => Err(become_program(orders.confinement)),
        None => Err(std::io::Error::other(format!("{HELPER} is `{asked}`, which no service sets"))),
    };
    let code = helped.unwrap_or_else(|error| {
        let program = std::env::args().nth(1).unwrap_or_default();
        // The service logs its children's standard error.
        let said = format!("{program}{NOT_STARTED_TEXT}{error}\n");
        let _nowhere = std::io::stderr().write_all(said.as_bytes());
        NOT_STARTED
    });
    std::process::exit(code)
}

/// Whether a helper says with this line of its standard error that it could not start its program.
pub(super) fn is_not_started(line: &str) -> bool {
    line.contains(NOT_STARTED_TEXT)
}

/// What a helper has started: the program, or the inner helper with the pipe to it.
struct Started {
    child: Pid,
    inner: Option<ChildStdin>,
}

impl Started {
    fn spawn(command: &mut Command) -> std::io::Result<Self> {
        become_parent_of_orphans()?;
        let mut child = command.process_group(0).spawn()?;
        let inner = child.stdin.take();
        // It is reaped below, along with orphans.
        Ok(Self { child: Pid::from_raw(i32::try_from(child.id()).map_err(std::io::Error::other)?), inner })
    }
}

fn become_parent_of_orphans() -> std::io::Result<()> {
    // A handler, unlike an ignored signal, is not passed on to the program.
    for signal in (1..=LAST_SIGNAL).filter(|signal| can_be_survived(*signal)) {
        // Some numbers belong to the C library.
        let _refused = signal_hook::flag::register(signal, Arc::default());
    }
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

fn can_be_survived(signal: i32) -> bool {
    use nix::libc::{
        SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP,
    };
    let others =
        [SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP];
    !others.contains(&signal)
}

fn start_inner(orders: &Orders) -> std::io::Result<Started> {
    let mut command = this_program(orders, Task::Inner);
    command.stdin(Stdio::piped());
    // Closed here once the inner one has it: its end is the end of the program's processes.
    let mut passed = None;
    if orders.channel == Channel::Comes {
        let received = descriptor::receive(std::io::stdin())?;
        command.env(CHANNEL, descriptor::pass_on(&received)?.to_string());
        passed = Some(received);
    }
    let started = Started::spawn(&mut command);
    drop(passed);
    started
}

/// A command that does another task of the same orders.
fn this_program(orders: &Orders, task: Task) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(HELPER, orders.written(task));
    command
}

/// The program with its arguments, as its user. The helpers keep the user of the service, so that the program cannot end
/// them.
fn program(confinement: Confinement) -> std::io::Result<Command> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or_else(|| std::io::Error::other("no program"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_remove(HELPER).env_remove(CGROUP);
    confinement.apply_user(&mut command)?;
    Ok(command)
}

/// Returns only if that fails.
fn become_program(confinement: Confinement) -> std::io::Error {
    let joined = Cgroup::given().map_or(Ok(()), |cgroup| cgroup.join());
    let limited = joined.and_then(|()| confinement.limit_this_process());
    match limited.and_then(|()| program(confinement)) {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    }
}

fn start_program(orders: &Orders) -> std::io::Result<Started> {
    let mut command = if orders.confinement.has_limits() || Cgroup::given().is_some() {
        this_program(orders, Task::Become)
    } else {
        program(orders.confinement)?
    };
    let started = Started::spawn(command.stdin(Stdio::null()))?;
    if orders.channel == Channel::Comes {
        // Inherited, and passed on to the program.
        let inherited = std::env::var(CHANNEL).ok().and_then(|number| number.parse::<RawFd>().ok());
        if let Some(inherited) = inherited.filter(|number| *number > 2) {
            nix::unistd::close(inherited)?;
        }
    }
    Ok(started)
}

/// Kills everything below this process, and everything in the control group of the program.
fn end_all() {
    Cgroup::given().iter().for_each(Cgroup::kill);
    descendants::end_all();
}

struct Helper {
    started: Started,
    /// Readable once a child has ended.
    ended: UnixStream,
    /// When the service was heard last.
    heard: Duration,
}

impl Helper {
    fn new(started: Started) -> std::io::Result<Self> {
        let (ended, tells) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(nix::libc::SIGCHLD, tells)?;
        if let Some(pipe) = &started.inner {
            let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
            nix::fcntl::fcntl(pipe, flags)?;
        }
        Ok(Self { started, ended, heard: boottime() })
    }

    /// Until nothing is left of the program; answers its exit code.
    fn run(mut self, limit: Duration) -> std::io::Result<i32> {
        loop {
            if let Some(code) = self.reap() {
                end_all();
                return Ok(code);
            }
            let silence = boottime().saturating_sub(self.heard);
            if silence >= limit || !self.listen(limit.saturating_sub(silence))? {
                end_all();
                return Ok(KILLED);
            }
        }
    }

    /// The exit code of the child, if it has ended; orphans that have ended are forgotten.
    fn reap(&self) -> Option<i32> {
        let mut code = None;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, exited)) if pid == self.started.child => code = Some(exited),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.started.child => {
                    code = Some(128 + signal as i32);
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return code,
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Waits for a word of the service or the end of a child; `false` once the service has ended.
    fn listen(&mut self, limit: Duration) -> std::io::Result<bool> {
        let stdin = std::io::stdin();
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut ends = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ends, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let [heard, ended] = ends.map(|end| end.revents().is_some_and(|events| !events.is_empty()));
        if ended {
            let _drained = self.ended.read(&mut [0; 64]);
        }
        if !heard {
            return Ok(true);
        }
        let mut letters = [0; 64];
        match read(stdin.as_fd(), &mut letters) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.heard = boottime();
                self.pass_on(&letters[..count]);
                Ok(true)
            }
            Err(Errno::EINTR) => Ok(true),
            Err(_broken) => Ok(false),
        }
    }

    fn pass_on(&mut self, letters: &[u8]) {
        if let Some(inner) = &mut self.started.inner {
            // One that stands still has a full pipe; one that has ended is seen elsewhere.
            let _full_or_closed = inner.write(letters);
        } else if letters.contains(&TERMINATE) {
            // The group may be gone already.
            let _gone = killpg(self.started.child, Signal::SIGTERM);
        }
    }
}
