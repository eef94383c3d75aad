//! The helper of one program with everything below it, and how to end it.

use super::cgroup::Cgroup;
use super::channel::{Channel, serve};
use super::descendants;
use super::helper::TERMINATE;
use super::output::{Output, log_lines};
use crate::Context;
use crate::safety::child_watchdog::ChildWatchdog;
use everwatch_core::wire::logs::Stream;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::process::Child;

/// How long a marked process may take to die before it is looked for again.
const DEATH: Duration = Duration::from_millis(10);

/// The helper with everything below it. Dropped before all of it has ended, it is left to the end of the run.
pub(super) struct Family {
    ctx: Context,
    /// Resolves once nothing of it is left.
    ended: Option<BoxFuture<'static, std::io::Result<ExitStatus>>>,
    /// Without it the helper ends everything.
    pulse: Option<ChildWatchdog>,
}

/// What a family is made of.
pub(super) struct Parts {
    pub(super) child: Child,
    pub(super) pulse: ChildWatchdog,
    /// What tells its processes from all others, as `NAME=value`.
    pub(super) marks: Vec<String>,
    /// The control group of the program, if it has one.
    pub(super) cgroup: Option<Cgroup>,
    pub(super) output: Arc<Output>,
    /// The service's end of the descriptor of the program.
    pub(super) channel: Option<(UnixStream, Arc<Channel>)>,
}

impl Family {
    pub(super) fn new(parts: Parts, ctx: Context) -> Self {
        let Parts { child, pulse, marks, cgroup, output, channel } = parts;
        let ended = all_ended(child, (marks, cgroup), output, channel).boxed();
        Self { ctx, ended: Some(ended), pulse: Some(pulse) }
    }
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let Some(ended) = &mut self.ended else { return Ok(ExitStatus::default()) };
        let status = ended.await;
        self.ended = None;
        status
    }
    /// Sends SIGTERM to the program.
    pub(super) fn terminate(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.say(TERMINATE);
        }
    }
    /// Kills the program with all of its descendants.
    pub(super) fn kill(&mut self) {
        self.pulse = None;
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
async fn all_ended(
    mut child: Child,
    (marks, cgroup): (Vec<String>, Option<Cgroup>),
    output: Arc<Output>,
    channel: Option<(UnixStream, Arc<Channel>)>,
) -> std::io::Result<ExitStatus> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let helper = async {
        let status = child.wait().await?;
        if status.code().is_none() {
            // Killed, and perhaps the other one with it: then this service alone can end what they left.
            end_marked(marks, cgroup).await;
        }
        Ok(status)
    };
    let served = async {
        if let Some((stream, channel)) = channel {
            serve(stream, &channel, &output).await;
        }
    };
    let (out, err) = (log_lines(out, &output, Stream::Stdout), log_lines(err, &output, Stream::Stderr));
    tokio::join!(helper, out, err, served).0
}

async fn end_marked(marks: Vec<String>, cgroup: Option<Cgroup>) {
    if let Some(cgroup) = cgroup {
        let ended = tokio::task::spawn_blocking(move || cgroup.end()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!("{error}");
        }
    }
    loop {
        let marks = marks.clone();
        let found = tokio::task::spawn_blocking(move || descendants::end_marked(&marks)).await;
        if !found.is_ok_and(|found| found > 0) {
            return;
        }
        tokio::time::sleep(DEATH).await;
    }
}
