//! Shrinks a failing history: removes one action after another and keeps each removal after which the history
//! still breaks the same rule. Each attempt runs in a separate process.

use crate::campaign::play_file;
use crate::history::History;
use crate::play::Outcome;
use std::process::ExitCode;

/// The smallest history found that breaks the same rule, and its outcome; `None` if it breaks none.
pub(crate) fn shrink(history: &History) -> Option<(History, Outcome)> {
    let (mut small, mut outcome) = (history.clone(), play_file(history, false));
    let rule = outcome.breach.as_ref()?.rule.clone();
    let mut still = |candidate: &History| {
        let played = play_file(candidate, false);
        let same = played.breach.as_ref().is_some_and(|breach| breach.rule == rule);
        if same {
            outcome = played;
        }
        same
    };
    loop {
        let before = small.actions.len();
        for index in (0..small.actions.len()).rev() {
            let mut candidate = small.clone();
            candidate.actions.remove(index);
            if still(&candidate) {
                small = candidate;
            }
        }
        for simpler in simpler_setups(&small) {
            if still(&simpler) {
                small = simpler;
            }
        }
        if small.actions.len() == before {
            return Some((small, outcome));
        }
    }
}

fn simpler_setups(history: &History) -> Vec<History> {
    let mut simpler = Vec::new();
    if history.setup.managers_leave {
        let mut candidate = history.clone();
        candidate.setup.managers_leave = false;
        simpler.push(candidate);
    }
    if history.setup.skews.iter().any(|skew| *skew != 0) {
        let mut candidate = history.clone();
        candidate.setup.skews.fill(0);
        simpler.push(candidate);
    }
    simpler
}

/// Prints the story of the smallest history, and how to play it again.
pub(crate) fn account(history: &History) -> ExitCode {
    let Some((small, outcome)) = shrink(history) else {
        println!("seed {} breaks no rule", history.setup.seed);
        return ExitCode::SUCCESS;
    };
    let told = play_file(&small, true);
    debug_assert_eq!(told.digest, outcome.digest);
    println!("{}", serde_json::to_string_pretty(&small).unwrap());
    let (needed, all) = (small.actions.len(), history.actions.len());
    if let Some(breach) = outcome.breach {
        println!("seed {} breaks {}: {}", history.setup.seed, breach.rule, breach.text);
    }
    println!("{needed} of {all} actions are needed; everything again:");
    println!("cargo run -p everwatch-sim -- play {} --story", history.setup.seed);
    ExitCode::FAILURE
}
