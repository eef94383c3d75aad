//! What follows the end of a program: its exit code decides, and restarts are limited. Knows no process.

use everwatch_core::clock::show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// What follows an exit with code 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum Restart {
    #[default]
    OnFailure,
    Always,
}

/// What an exit code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum ExitMeaning {
    Done,
    Failed,
    Retry,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    Done,
    Failed(String),
    Retry(String),
    StartAgain,
}

/// # Errors
/// Names the code that no program can exit with.
pub(super) fn check(codes: &BTreeMap<String, ExitMeaning>) -> Result<(), String> {
    let is_code = |text: &str| text.parse::<u8>().is_ok_and(|code| code.to_string() == text);
    match codes.keys().find(|it| !is_code(it)) {
        Some(wrong) => Err(format!("`exit_codes`: `{wrong}` is not an exit code; write one from 0 to 255")),
        None => Ok(()),
    }
}

pub(super) fn after(status: ExitStatus, restart: Restart, codes: &BTreeMap<String, ExitMeaning>) -> After {
    let meaning = status.code().and_then(|code| codes.get(&code.to_string())).copied();
    match (meaning, restart) {
        (Some(ExitMeaning::Done), _) => After::Done,
        (Some(ExitMeaning::Failed), _) => After::Failed(ended_as(status)),
        (Some(ExitMeaning::Retry), _) => After::Retry(ended_as(status)),
        (None, Restart::OnFailure) if status.success() => After::Done,
        (None, Restart::Always) if status.success() => After::StartAgain,
        (None, Restart::OnFailure | Restart::Always) => After::Retry(ended_as(status)),
    }
}

pub(super) fn ended_as(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) if code > 128 => format!("ended by signal {}", code - 128),
        (Some(code), _) => format!("exited with code {code}"),
        (None, signal) => format!("its helper was ended by signal {}", signal.unwrap_or(0)),
    }
}

pub(super) fn announcement(pause: Duration, limit: u32) -> String {
    if pause.is_zero() {
        return "exited with code 0; starting again".to_owned();
    }
    let pause = show(Duration::from_secs(pause.as_secs().max(1)));
    format!("exited with code 0; starting again in {pause}, because of {limit} restarts within a minute")
}

/// The restarts of the last minute.
pub(super) struct Restarts {
    limit: usize,
    recent: VecDeque<Instant>,
}

impl Restarts {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, recent: VecDeque::new() }
    }
    /// How long to wait before a restart that is due now; counts it.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        while self.recent.front().is_some_and(|first| *first + MINUTE <= now) {
            self.recent.pop_front();
        }
        let mut at = now;
        if self.recent.len() >= self.limit
            && let Some(first) = self.recent.pop_front()
        {
            at = first + MINUTE;
        }
        self.recent.push_back(at);
        at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn the_exit_code_decides_what_follows() {
        let none = BTreeMap::new();
        let codes = [
            ("0".to_owned(), ExitMeaning::Retry),
            ("3".to_owned(), ExitMeaning::Failed),
            ("7".to_owned(), ExitMeaning::Done),
        ];
        let codes = BTreeMap::from(codes);
        let told = |code: i32| format!("exited with code {code}");
        for (code, restart, codes, expected) in [
            (0, Restart::OnFailure, &none, After::Done),
            (0, Restart::Always, &none, After::StartAgain),
            (1, Restart::Always, &none, After::Retry(told(1))),
            (0, Restart::OnFailure, &codes, After::Retry(told(0))),
            (3, Restart::Always, &codes, After::Failed(told(3))),
            (7, Restart::Always, &codes, After::Done),
            (137, Restart::Always, &codes, After::Retry("ended by signal 9".to_owned())),
        ] {
            assert_eq!(after(exited(code), restart, codes), expected, "{code}");
        }
        let killed = after(ExitStatus::from_raw(9), Restart::Always, &none);
        assert_eq!(killed, After::Retry("its helper was ended by signal 9".to_owned()));
        for wrong in ["256", "-1", "x", "007"] {
            let error = check(&BTreeMap::from([(wrong.to_owned(), ExitMeaning::Done)])).unwrap_err();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }

    #[test]
    fn restarts_above_the_limit_wait_until_the_oldest_is_a_minute_old() {
        let begun = Instant::now();
        let at = |secs: u64| begun + Duration::from_secs(secs);
        let mut restarts = Restarts::new(2);
        assert_eq!(restarts.pause(at(0)), Duration::ZERO);
        assert_eq!(restarts.pause(at(10)), Duration::ZERO);
        assert_eq!(restarts.pause(at(20)), Duration::from_secs(40));
        assert_eq!(restarts.pause(at(61)), Duration::from_secs(9));
        assert_eq!(restarts.pause(at(200)), Duration::ZERO);
    }
}
