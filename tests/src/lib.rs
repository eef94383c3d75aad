//! Everwatch as a whole: real processes on a real broker and a real database, with beacons of every run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

pub mod beacons;
pub mod cluster;
pub mod dev;
pub mod disk;
pub mod http;
pub mod postgres;
pub mod proxy;
pub mod rabbitmq;
pub mod terminal;

/// Runs one of the scripts beside this package; answers what it said.
fn script(name: &str, arguments: &[&std::path::Path]) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    // Output to files: a server inherits it and would keep a pipe open.
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
