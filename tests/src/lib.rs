//! Everwatch as a whole: real processes on a real broker and a real database, with beacons of every run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

pub mod beacons;
pub mod broker_users;
pub mod brokers;
pub mod cluster;
pub mod dev;
pub mod disk;
pub mod faketime;
pub mod http;
pub mod identity_provider;
pub mod postgres;
pub mod proxy;
pub mod rabbitmq;
pub mod terminal;
pub mod wait;

use std::io::Read;
use std::sync::{Arc, Mutex};

/// Collects the output of a process from a pipe, on a thread that reads until the pipe ends.
pub fn said_by(mut pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let said = Arc::<Mutex<String>>::default();
    let heard = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(some @ 1..) = pipe.read(&mut chunk) {
            heard.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..some]));
        }
    });
    said
}

/// Runs one of the scripts beside this package; answers what it said.
fn script(name: &str, arguments: &[&std::path::Path]) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    // Redirects output to files: a server that the script starts inherits the output and would keep a pipe
    // open.
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let status = std::process::Command::new(path)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .stdout(out.reopen().unwrap())
        .stderr(err.reopen().unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{name} {arguments:?}: {}", std::fs::read_to_string(err.path()).unwrap());
    std::fs::read_to_string(out.path()).unwrap()
}
