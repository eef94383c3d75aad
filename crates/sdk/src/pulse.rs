//! A pulse on pipes: whoever holds the other end knows that this service is alive and owns its work.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The pipes that are to be kept alive. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulses(Arc<Mutex<Pipes>>);

#[derive(Debug, Default)]
struct Pipes {
    next: u64,
    open: HashMap<u64, File>,
    /// The silence that fences this session.
    silence: Option<Duration>,
}

/// One pipe; dropping it closes the pipe, which the other end takes for death.
#[derive(Debug)]
pub(crate) struct Pulse {
    pulses: Pulses,
    key: u64,
}

impl Pulses {
    /// Takes a pipe. Writing to it never blocks: the fence must not wait for a helper that stands still.
    pub(crate) fn add(&self, pipe: OwnedFd) -> std::io::Result<Pulse> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.next += 1;
        let key = pipes.next;
        pipes.open.insert(key, File::from(pipe));
        Ok(Pulse { pulses: self.clone(), key })
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
    /// Writes one byte to each pipe; one that is closed or full is its owner's business.
    pub(crate) fn beat(&self) {
        let pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut pipe in pipes.open.values() {
            let _closed_or_full = pipe.write(b".");
        }
    }
}

impl Pulse {
    /// Says one letter to the other end.
    pub(crate) fn say(&self, letter: u8) {
        let pipes = self.pulses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut pipe) = pipes.open.get(&self.key) {
            let _closed_or_full = pipe.write(&[letter]);
        }
    }
}

impl Drop for Pulse {
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
        let pulses = Pulses::default();
        let (_full, writer) = std::io::pipe().unwrap();
        let stuck = pulses.add(writer.into()).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let _other = pulses.add(writer.into()).unwrap();
        // More than any pipe holds.
        for _ in 0..(1 << 21) {
            stuck.say(b'x');
        }
        pulses.beat();
        let mut letter = [0];
        reader.read_exact(&mut letter).unwrap();
        assert_eq!(&letter, b".");
    }
}
