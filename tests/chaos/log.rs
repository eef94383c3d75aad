//! The log of a service as a pipe whose reader can be stopped.

use std::fs::File;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// Copies the log to a file on a thread. The thread ends when both the service and this value have closed the
/// pipe.
pub(crate) struct Log {
    /// Keeps the pipe open, and fills it.
    end: PipeWriter,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Log {
    /// Returns the end that the service writes to.
    pub(crate) fn new(file: &Path) -> (Self, PipeWriter) {
        let (reader, end) = std::io::pipe().unwrap();
        nix::fcntl::fcntl(&end, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let file = File::options().create(true).append(true).open(file).unwrap();
        let gate = Arc::new(Gate::default());
        let passes = Arc::clone(&gate);
        std::thread::spawn(move || copy(reader, file, &passes));
        let of_service = end.try_clone().unwrap();
        (Self { end, gate }, of_service)
    }

    /// Stops reading and fills the pipe.
    pub(crate) fn stall(&self) {
        *self.gate.shut.lock().unwrap() = true;
        // The pipe is opened again, so that only this end of it is non-blocking.
        let path = format!("/proc/self/fd/{}", self.end.as_raw_fd());
        let mut end = File::options().write(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap();
        loop {
            match end.write_all(b"-") {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return;
                }
            }
        }
    }

    pub(crate) fn go_on(&self) {
        *self.gate.shut.lock().unwrap() = false;
        self.gate.opened.notify_all();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn copy(mut reader: PipeReader, mut file: File, gate: &Gate) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        file.write_all(&bytes[..count]).unwrap();
        let mut shut = gate.shut.lock().unwrap();
        while *shut {
            shut = gate.opened.wait(shut).unwrap();
        }
    }
}
