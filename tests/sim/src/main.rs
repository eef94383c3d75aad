//! Simulates the shipped managers and services: one process plays one history from one seed. See
//! `everwatch-sim --help`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a simulated world that does not fit together is a failed test"
)]

mod actors;
mod broker;
mod campaign;
mod code;
mod count;
mod database;
mod dice;
mod faults;
mod history;
mod judge;
mod machine;
mod network;
mod play;
mod promises;
mod record;
mod session;
mod shrink;
mod story;
mod users;
mod world;

use campaign::Campaign;
use clap::{Parser, Subcommand};
use dice::Dice;
use everwatch_broker::Topology;
use history::History;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The prefix of all queues.
pub(crate) const PREFIX: &str = "everwatch.";
/// Whether this is a state queue.
pub(crate) fn is_state_queue(queue: &str) -> bool {
    let first = Topology::new(PREFIX).state();
    queue.strip_prefix(&first).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
/// The note in which managers store whether safe mode is on.
pub(crate) const SAFE_MODE_NOTE: &str = "safe_mode";

/// What the names of all work queues begin with.
pub(crate) fn work_prefix() -> String {
    format!("{PREFIX}work.")
}

/// Plays histories of managers and services that ship, in simulated time.
#[derive(Parser)]
#[command(name = "everwatch-sim")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play one history and print its outcome as JSON
    Play {
        #[command(flatten)]
        which: Which,
        /// Tell what happens, in simulated time, on standard error
        #[arg(long)]
        story: bool,
    },
    /// Print the history of a seed as JSON
    History { seed: u64 },
    /// Play the histories of many seeds, each in a process of its own, and print a table
    Run {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many seeds
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// Stop after this many simulated minutes
        #[arg(long)]
        minutes: Option<u64>,
        /// Processes at once [default: one for each core]
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Count the messages of a deployment: while its observers are created, while nothing happens, and after a
    /// service was killed
    Count {
        #[arg(long, default_value_t = 1000)]
        observers: usize,
        #[arg(long, default_value_t = 5)]
        services: usize,
    },
    /// Make a failing history small, and tell its story
    Shrink {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// A seed
    seed: Option<u64>,
    /// A file that holds a history
    #[arg(long)]
    file: Option<PathBuf>,
}

impl Which {
    fn history(&self) -> History {
        match (&self.file, self.seed) {
            (Some(file), _) => serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap(),
            (None, seed) => Dice::history(seed.unwrap_or_default()),
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Play { which, story } => {
            let history = which.history();
            // On a thread of its own: the main thread stays in real time.
            let playing = std::thread::spawn(move || {
                let _told = story.then(story::tell);
                play::play(&history, story)
            });
            let outcome = playing.join().unwrap();
            // The reader of standard output may have closed it.
            let _read = writeln!(std::io::stdout(), "{}", serde_json::to_string(&outcome).unwrap());
            ExitCode::from(u8::from(outcome.breach.is_some()))
        }
        Command::History { seed } => {
            let history = serde_json::to_string_pretty(&Dice::history(seed)).unwrap();
            let _read = writeln!(std::io::stdout(), "{history}");
            ExitCode::SUCCESS
        }
        Command::Count { observers, services } => {
            let counting = std::thread::spawn(move || count::count(observers, services));
            let counts = serde_json::to_string_pretty(&counting.join().unwrap()).unwrap();
            let _read = writeln!(std::io::stdout(), "{counts}");
            ExitCode::SUCCESS
        }
        Command::Run { from, seeds, minutes, jobs } => Campaign { from, seeds, minutes, jobs }.run(),
        Command::Shrink { which } => shrink::account(&which.history()),
    }
}
