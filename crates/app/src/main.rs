//! The `everwatch` binary.

mod answers;
mod cli;
mod client;
mod commands;
mod contexts;
mod error_wording;
mod failure;
mod item;
mod live;
mod output;
mod refusals;
mod requests;
mod top;
mod trust;

use std::process::ExitCode;

/// Managers and services allocate for every message; with the allocator of the C library, a move costs the manager a
/// sixth more processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    everwatch::kinds::exec::run_helper_if_asked();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    if commands::completion_answered() {
        return ExitCode::SUCCESS;
    }
    commands::run(cli::parse())
}
