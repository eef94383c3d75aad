//! A pulse on pipes: the process at the other end knows that this service lives and owns its work.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The pipes to keep alive. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildWatchdogs(Arc<Mutex<Pipes>>);

#[derive(Debug, Default)]
struct Pipes {
    next: u64,
    open: HashMap<u64, File>,
    /// The silence that fences this session.
    silence: Option<Duration>,
}

/// One pipe. Dropping it closes the pipe, and the other end takes that for the death of the service.
#[derive(Debug)]
pub(crate) struct ChildWatchdog {
    pulses: ChildWatchdogs,
    key: u64,
}

impl ChildWatchdogs {
    /// Adds a pipe. Writing to it never blocks: the fence must not wait for a frozen helper.
    pub(crate) fn add(&self, pipe: OwnedFd) -> std::io::Result<ChildWatchdog> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.next += 1;
        let key = pipes.next;
        pipes.open.insert(key, File::from(pipe));
        Ok(ChildWatchdog { pulses: self.clone(), key })
    }
    /// Sets the silence that fences this session, which is the one that means death at the other end.
    pub(crate) fn set_silence(&self, silence: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).silence = Some(silence);
    }
    /// The silence that means death at the other end, at most `configured`.
    pub(crate) fn silence(&self, configured: Duration) -> Duration {
        let pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.silence.map_or(configured, |silence| silence.min(configured))
    }
    /// Writes one byte to each pipe; closed and full pipes are left to their owners.
    pub(crate) fn heartbeat(&self) {
        let pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut pipe in pipes.open.values() {
            let _closed_or_full = pipe.write(b".");
        }
    }
}

impl ChildWatchdog {
    /// Sends one letter to the other end.
    pub(crate) fn say(&self, letter: u8) {
        let pipes = self.pulses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut pipe) = pipes.open.get(&self.key) {
            let _closed_or_full = pipe.write(&[letter]);
        }
    }
}

impl Drop for ChildWatchdog {
    fn drop(&mut self) {
        let mut pipes = self.pulses.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.open.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_pipe_that_is_full_does_not_hold_up_the_others() {
        let pulses = ChildWatchdogs::default();
        let (_full, writer) = std::io::pipe().unwrap();
        let stuck = pulses.add(writer.into()).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let _other = pulses.add(writer.into()).unwrap();
        // More than any pipe holds.
        for _ in 0..(1 << 21) {
            stuck.say(b'x');
        }
        pulses.heartbeat();
        let mut letter = [0];
        reader.read_exact(&mut letter).unwrap();
        assert_eq!(&letter, b".");
    }
}
