//! The worker under test: a process with its output in a file.

use anyhow::Context as _;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// Lines of its output that a verdict shows.
const TAIL: usize = 8;

/// A running worker. Dropping it kills it and its children.
pub(super) struct Worker {
    child: Child,
    group: Option<Pid>,
    log: PathBuf,
}

impl Worker {
    /// Starts `command` with a shell, in a process group of its own.
    pub(super) fn start(command: &str, environment: &[(&str, String)], log: &Path) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("exec {command}"))
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .context("cannot start a shell")?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Self { child, group, log: log.to_path_buf() })
    }

    /// Asks it to stop, as SIGTERM does.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }
    /// Ends it at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended by itself.
            let _ended = killpg(group, signal);
        }
    }

    /// How it ended, if it ends within this time.
    pub(super) async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let status = tokio::time::timeout(within, self.child.wait()).await.ok()?.ok()?;
        // What it left behind ends too; then its number may belong to another process.
        self.kill();
        self.group = None;
        Some(status)
    }

    /// The last lines of its output.
    pub(super) fn last_lines(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
