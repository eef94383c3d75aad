//! Tests of the book in `docs`: every command in it runs, and its generated parts match the code.

#![expect(clippy::unwrap_used, reason = "a failing test says so by panicking")]

mod chapter;
mod commands;
mod configuration;
mod definition;
mod events;
mod links;
mod messages;
mod metrics;
mod reference;
mod schema;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Compares a file with the text that the code generates. With `UPDATE_DOCS=1`, writes the file instead.
#[track_caller]
fn keep(path: &str, made: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    let line = differs.unwrap_or_else(|| kept.lines().count().min(made.lines().count())) + 1;
    assert!(
        kept == made,
        "{path} is not as the code says from line {line} on; run this test with UPDATE_DOCS=1 and look at the change"
    );
}
