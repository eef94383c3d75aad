//! Plays many histories, each in a separate process. Two plays in one process would differ, because programs
//! keep counters that survive a runtime.

use crate::history::History;
use crate::play::Outcome;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The number of breaches after which a campaign ends.
const BREACHES_MAX: usize = 20;

pub(crate) struct Campaign {
    pub(crate) from: u64,
    pub(crate) seeds: u64,
    pub(crate) minutes: Option<u64>,
    pub(crate) jobs: Option<usize>,
}

/// The results of a campaign so far.
#[derive(Default)]
struct Table {
    histories: u64,
    simulated_ms: u64,
    converged_ms: Vec<u64>,
    exercised: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    answers: BTreeMap<String, u64>,
    breaches: Vec<Outcome>,
}

/// Plays one seed in a process of its own.
pub(crate) fn play_seed(seed: u64) -> Outcome {
    played(this_program().args(["play", &seed.to_string()]), seed)
}

/// Plays a history in a separate process. `tells`: write its story to standard error.
pub(crate) fn play_file(history: &History, tells: bool) -> Outcome {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&serde_json::to_vec(history).unwrap()).unwrap();
    let mut command = this_program();
    command.arg("play").arg("--file").arg(file.path());
    if tells {
        command.arg("--story").stderr(Stdio::inherit());
    }
    played(&mut command, history.setup.seed)
}

/// A command that runs this program at the lowest priority, because tests that measure time run at the same
/// time.
fn this_program() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe().unwrap());
    command
}

fn played(command: &mut Command, seed: u64) -> Outcome {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&output.stderr);
        panic!("seed {seed} ended without an outcome: {text}")
    })
}

impl Table {
    fn add(&mut self, outcome: Outcome) {
        self.histories += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.converged_ms.push(outcome.converged_after_ms);
        for (sum, part) in [
            (&mut self.exercised, &outcome.exercised),
            (&mut self.faults, &outcome.faults),
            (&mut self.answers, &outcome.answers),
        ] {
            for (name, count) in part {
                *sum.entry(name.clone()).or_default() += count;
            }
        }
        if let Some(breach) = &outcome.breach {
            println!("seed {} breaks {}: {}", outcome.seed, breach.rule, breach.text);
            self.breaches.push(outcome);
        }
    }

    fn print(&mut self, began: Instant) {
        let show = |title: &str, counts: &BTreeMap<String, u64>| {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            println!("{title}: {}", counts.join(", "));
        };
        self.converged_ms.sort_unstable();
        let at =
            |part: usize| self.converged_ms.get(self.histories as usize * part / 1000).copied().unwrap_or(0);
        show("faults", &self.faults);
        show("rules", &self.exercised);
        show("answers", &self.answers);
        let longest = self.converged_ms.last().copied().unwrap_or(0);
        println!(
            "at rest after the last fault: median {} ms, 99 % {} ms, longest {longest} ms",
            at(500),
            at(990)
        );
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{} histories, {} simulated minutes, {:.1} histories a second, {} breaches",
            self.histories,
            self.simulated_ms / 60_000,
            self.histories as f64 / seconds,
            self.breaches.len()
        );
    }
}

impl Campaign {
    pub(crate) fn run(&self) -> ExitCode {
        let (table, next, began) = (Mutex::new(Table::default()), AtomicU64::new(self.from), Instant::now());
        let jobs =
            self.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
        let over = |table: &Table| {
            let minutes = table.simulated_ms / 60_000;
            table.breaches.len() >= BREACHES_MAX || self.minutes.is_some_and(|most| minutes >= most)
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.seeds || over(&table.lock().unwrap()) {
                            return;
                        }
                        let outcome = play_seed(seed);
                        table.lock().unwrap().add(outcome);
                    }
                });
            }
        });
        let mut table = table.into_inner().unwrap();
        table.print(began);
        ExitCode::from(u8::from(!table.breaches.is_empty()))
    }
}
