//! Plays histories in processes of their own, two at a time, with one mistake or without any.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Processes at once.
const PROCESSES: usize = 2;
/// The time after which a history counts as hung.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The rule that a history broke.
#[derive(Debug, Clone)]
pub(crate) struct Breach {
    pub(crate) seed: u64,
    pub(crate) rule: String,
    pub(crate) text: String,
}

/// The program that carries all mistakes.
pub(crate) struct Player {
    program: PathBuf,
    /// Whether the history of each seed breaks no rule without any mistake.
    clean: Mutex<BTreeMap<u64, bool>>,
}

impl Player {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, clean: Mutex::default() }
    }

    /// The rule that the mistake breaks in the history of this seed. `None` if that history breaks a rule
    /// without the mistake too.
    pub(crate) fn shows(&self, mistake: &str, seed: u64) -> Option<Breach> {
        let breach = self.play(mistake, seed)?;
        self.is_clean(seed).then_some(breach)
    }

    /// The breach of the lowest seed among those that were played.
    pub(crate) fn search(&self, mistake: &str, seeds: Range<u64>) -> Option<Breach> {
        let found = Mutex::new(None);
        let is_found = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        at_once(seeds, |seed| {
            let breach = if is_found() { None } else { self.shows(mistake, seed) };
            if breach.is_some() {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = breach;
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_clean(&self, seed: u64) -> bool {
        let known = self.clean.lock().unwrap_or_else(PoisonError::into_inner).get(&seed).copied();
        known.unwrap_or_else(|| {
            let clean = self.play("", seed).is_none();
            self.clean.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, clean);
            clean
        })
    }

    fn play(&self, mistake: &str, seed: u64) -> Option<Breach> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&self.program);
        command.args(["play", &seed.to_string()]).env(super::copy::CHOICE, mistake);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _unreadable = stdout.read_to_string(&mut text);
            let _too_late = sender.send(text);
        });
        let breach = |rule: &str, text: String| Some(Breach { seed, rule: rule.to_owned(), text });
        let Ok(text) = told.recv_timeout(HANGS_AFTER) else {
            child.kill().unwrap();
            child.wait().unwrap();
            return breach("hangs", format!("it has not ended within {HANGS_AFTER:?}"));
        };
        let status = child.wait().unwrap();
        let Ok(outcome) = serde_json::from_str::<serde_json::Value>(&text) else {
            return breach("no outcome", format!("the process ended: {status}"));
        };
        let broken = outcome.get("breach").filter(|it| !it.is_null())?;
        let part = |name: &str| broken[name].as_str().unwrap_or_default().to_owned();
        breach(&part("rule"), part("text"))
    }
}

/// Calls `act` with each input, `PROCESSES` at a time; answers in the order of the input.
pub(crate) fn at_once<T: Send, O: Send>(
    input: impl Iterator<Item = T> + Send,
    act: impl Fn(T) -> O + Sync,
) -> Vec<O> {
    let (input, output) = (Mutex::new(input.enumerate()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let next = input.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((index, it)) = next else { return };
                    let done = act(it);
                    output.lock().unwrap_or_else(PoisonError::into_inner).push((index, done));
                }
            });
        }
    });
    let mut output = output.into_inner().unwrap_or_else(PoisonError::into_inner);
    output.sort_by_key(|(index, _)| *index);
    output.into_iter().map(|(_, done)| done).collect()
}
