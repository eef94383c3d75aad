//! Commands about batches.

use super::observer::status;
use super::{OutputArgs, Watched};
use clap::{Args, Subcommand};
use everwatch_core::record::status::Status;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Batch {
    /// Create up to 10,000 observers as one batch
    #[command(after_help = CreateBatch::EXAMPLES)]
    Create(CreateBatch),
    /// List batches, the newest first
    #[command(alias = "ls")]
    List(Watched),
    /// Show the details of a batch: state, progress, rate, time left, and the members that have failed
    #[command(alias = "get")]
    Describe {
        /// Name (the newest of that name) or id
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// List the members of a batch with their results and errors
    Observers {
        /// Name (the newest of that name) or id
        name: String,
        /// Show only members with these statuses (comma-separated)
        #[arg(long, value_delimiter = ',', value_parser = status)]
        status: Vec<Status>,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Retry the failed members of a batch
    RetryFailed {
        /// Name (the newest of that name) or id
        name: String,
    },
    /// Cancel a batch: delete the members that have not ended
    Cancel {
        /// Name (the newest of that name) or id
        name: String,
    },
    /// Delete a batch that is over, with its members
    Delete {
        /// Name (the newest of that name) or id
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateBatch {
    /// Name, instead of the name in the file; the same as --name
    #[arg(value_name = "NAME", conflicts_with = "name")]
    pub(crate) named: Option<String>,
    /// File with the batch as YAML or JSON: name, defaults, observers, max_running; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Name, instead of the name in the file
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Number of members that run at once, instead of the number in the file
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_running: Option<u32>,
    /// Idempotency key: the same command with the same key continues a batch that was cut off
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Show the progress until the batch is over; exit 1 if a member has failed
    #[arg(long)]
    pub(crate) wait: bool,
}

impl CreateBatch {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch batch create -f reports.json --key reports-2026-03
  everwatch batch create reports-2 -f reports.json --max-running 50 --wait";
}
