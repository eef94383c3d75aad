//! A pulse on pipes: whoever holds the other end knows that this service is alive and owns its work.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The pipes that are to be kept alive. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulses(Arc<Mutex<Pipes>>);

#[derive(Debug, Default)]
struct Pipes {
    next: u64,
    open: HashMap<u64, File>,
}

/// One pipe; dropping it closes the pipe, which the other end takes for death.
#[derive(Debug)]
pub(crate) struct Pulse {
    pulses: Pulses,
    key: u64,
}

impl Pulses {
    pub(crate) fn add(&self, pipe: OwnedFd) -> Pulse {
        let mut pipes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.next += 1;
        let key = pipes.next;
        pipes.open.insert(key, File::from(pipe));
        Pulse { pulses: self.clone(), key }
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
