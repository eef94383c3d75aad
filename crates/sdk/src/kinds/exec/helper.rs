//! The helpers between a service and a program. They end the program with all of its descendants when the service
//! falls silent or ends, and they end only after the last of them.
//!
//! There are two, one below the other, each the parent of what is orphaned below it. A single helper that is killed,
//! as by the kernel when memory runs out, would leave the program to itself: so the outer one ends what a killed inner
//! one leaves, and the inner one ends everything when the outer one is gone. No other signal ends them, because a
//! process manager sends SIGTERM to all processes of a service at once.

use super::run_as::RunAs;
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
const NOT_STARTED: i32 = 127;
/// The last signal there is.
const LAST_SIGNAL: i32 = 64;

/// Whether a program has a channel: a descriptor on which it speaks to its observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    None,
    /// The outer helper receives it over its standard input.
    Comes,
}

/// The value of [`HELPER`] for the outer one.
pub(super) fn outer(silence: Duration, channel: Channel, user: Option<RunAs>) -> String {
    asked("outer", silence, (channel, user))
}

fn asked(which: &str, silence: Duration, (channel, user): (Channel, Option<RunAs>)) -> String {
    let channel = if channel == Channel::Comes { "channel" } else { "none" };
    let user = user.map(|user| format!(" {}", user.written())).unwrap_or_default();
    format!("{which} {} {channel}{user}", silence.as_millis())
}

/// To be called first thing in `main`, before any thread: if this process was started as a helper, it
/// does that work and never returns.
pub fn run_helper_if_asked() {
    let Ok(asked) = std::env::var(HELPER) else { return };
    let mut words = asked.split(' ');
    let is_outer = words.next() == Some("outer");
    let limit = words.next().and_then(|limit| limit.parse().ok());
    let limit = Duration::from_millis(limit.unwrap_or(5000));
    let channel = if words.next() == Some("channel") { Channel::Comes } else { Channel::None };
    let user = words.next().and_then(RunAs::read);
    let helped = if is_outer { start_inner(limit, (channel, user)) } else { start_program(channel, user) };
    let code = helped.and_then(|started| Helper::new(started)?.run(limit)).unwrap_or_else(|error| {
        let program = std::env::args().nth(1).unwrap_or_default();
        // The service logs its children's standard error.
        let said = format!("{program} could not be started: {error}\n");
        let _nowhere = std::io::stderr().write_all(said.as_bytes());
        NOT_STARTED
    });
    std::process::exit(code)
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

fn start_inner(limit: Duration, (channel, user): (Channel, Option<RunAs>)) -> std::io::Result<Started> {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1));
    command.env(HELPER, asked("inner", limit, (channel, user))).stdin(Stdio::piped());
    // Closed here once the inner one has it: its end is the end of the program's processes.
    let mut passed = None;
    if channel == Channel::Comes {
        let received = descriptor::receive(std::io::stdin())?;
        command.env(CHANNEL, descriptor::pass_on(&received)?.to_string());
        passed = Some(received);
    }
    let started = Started::spawn(&mut command);
    drop(passed);
    started
}

fn start_program(channel: Channel, user: Option<RunAs>) -> std::io::Result<Started> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or_else(|| std::io::Error::other("no program"))?;
    let mut command = Command::new(program);
    // The helpers keep the user of the service, so that the program cannot end them.
    user.map_or(Ok(()), |user| user.apply(&mut command))?;
    let started = Started::spawn(command.args(arguments).env_remove(HELPER).stdin(Stdio::null()))?;
    if channel == Channel::Comes {
        // Inherited, and passed on to the program.
        let inherited = std::env::var(CHANNEL).ok().and_then(|number| number.parse::<RawFd>().ok());
        if let Some(inherited) = inherited.filter(|number| *number > 2) {
            nix::unistd::close(inherited)?;
        }
    }
    Ok(started)
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
                descendants::end_all();
                return Ok(code);
            }
            let silence = boottime().saturating_sub(self.heard);
            if silence >= limit || !self.listen(limit.saturating_sub(silence))? {
                descendants::end_all();
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
