//! The `everwatch` binary.

mod cli;
mod client;
mod commands;
mod item;
mod live;
mod output;
mod requests;
mod settings;
mod top;
mod wiring;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    everwatch::kinds::exec::run_helper_if_asked();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    commands::run(cli::Cli::parse())
}
