//! Whether a program is ready, and whether it still works.

use super::Exec;
use super::channel::Channel;
use super::output::{Output, Pattern};
use super::spawn::{Allowed, Spawner};
use crate::Context;
use crate::kinds::spec::{Count, DAY, HOUR, MINUTE, SECOND, Span};
use everwatch_core::clock::show;
use regex::RegexBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::time::Instant;

/// Size of a compiled regular expression, in bytes.
const REGEX_MAX: usize = 256 * 1024;

/// Exactly one of `line`, `contains`, `command` and `message` tells that the program is ready.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct Ready {
    /// A regular expression that fits a line of output.
    #[serde(default)]
    #[schemars(extend("format" = "regex"))]
    line: Option<String>,
    /// A text that a line of output contains.
    #[serde(default)]
    contains: Option<String>,
    /// A command that exits with 0, such as `["/usr/bin/curl", "-fsS", "http://127.0.0.1:8080/ready"]`.
    #[serde(default)]
    command: Option<Vec<String>>,
    /// The program writes `{"ready": true}` to its channel.
    #[serde(default)]
    message: bool,
    /// Interval at which to run `command`.
    #[serde(default = "one_second")]
    every: Span<100, HOUR>,
    /// How long one run of `command` may take.
    #[serde(default = "five_seconds")]
    timeout: Span<100, { 5 * MINUTE }>,
    /// How long the program may take to be ready; then it is stopped, and the attempt ends with an error.
    #[serde(default = "one_minute")]
    within: Span<100, HOUR>,
}

/// How to tell that a program that is ready still works.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct Live {
    /// A command that exits with 0.
    #[serde(default)]
    command: Option<Vec<String>>,
    /// Interval at which to run `command`.
    #[serde(default = "ten_seconds")]
    every: Span<100, HOUR>,
    /// How long one run of `command` may take.
    #[serde(default = "five_seconds")]
    timeout: Span<100, { 5 * MINUTE }>,
    /// How many runs of `command` in a row must fail.
    #[serde(default = "three")]
    failures: Count<1, 100>,
    /// How long the program may print nothing and write nothing to its channel.
    #[serde(default)]
    silence: Option<Span<100, DAY>>,
}

fn one_second() -> Span<100, HOUR> {
    Span::ms(SECOND)
}
fn ten_seconds() -> Span<100, HOUR> {
    Span::ms(10 * SECOND)
}
fn one_minute() -> Span<100, HOUR> {
    Span::ms(MINUTE)
}
fn five_seconds() -> Span<100, { 5 * MINUTE }> {
    Span::ms(5 * SECOND)
}
fn three() -> Count<1, 100> {
    Count::new(3)
}

/// What tells readiness.
enum Sign<'a> {
    Line(Pattern),
    Message,
    Command(Allowed<'a>),
}

/// The checked rules of a spec.
pub(super) struct Rules<'a> {
    spawner: &'a Spawner<'a>,
    ready: Option<(Sign<'a>, &'a Ready)>,
    live: Option<(Option<Allowed<'a>>, &'a Live)>,
}

impl<'a> Rules<'a> {
    /// # Errors
    /// Names the member of the spec and the cure.
    pub(super) fn new(spec: &'a Exec, spawner: &'a Spawner<'a>) -> Result<Self, String> {
        let ready = match &spec.ready {
            Some(ready) => Some((sign(ready, spec.channel, spawner)?, ready)),
            None => None,
        };
        let live = match &spec.live {
            Some(live) => {
                if live.command.is_none() && live.silence.is_none() {
                    return Err("`live`: set `command`, `silence` or both".to_owned());
                }
                let allow = |argv| spawner.allow("live.command", argv);
                Some((live.command.as_deref().map(allow).transpose()?, live))
            }
            None => None,
        };
        Ok(Self { spawner, ready, live })
    }

    /// The line that tells readiness.
    pub(super) fn ready_line(&self) -> Option<Pattern> {
        match &self.ready {
            Some((Sign::Line(pattern), _)) => Some(pattern.clone()),
            _ => None,
        }
    }

    /// Announces readiness when it is due, and returns once the program does not work: the reason.
    pub(super) async fn watch(
        &self,
        output: &Output,
        channel: Option<&Arc<Channel>>,
        ctx: &Context,
    ) -> String {
        if let Some((sign, ready)) = &self.ready {
            if let Err(reason) = self.until_ready((sign, ready), output, channel).await {
                return reason;
            }
            output.say("ready");
        }
        ctx.ready();
        let Some((command, live)) = &self.live else { return std::future::pending().await };
        tokio::select! {
            reason = self.until_failed(command.as_ref(), live) => reason,
            reason = until_silent(output, live) => reason,
        }
    }

    async fn until_ready(
        &self,
        (sign, ready): (&Sign<'_>, &Ready),
        output: &Output,
        channel: Option<&Arc<Channel>>,
    ) -> Result<(), String> {
        let mut failed = String::new();
        let signalled = async {
            match (sign, channel) {
                (Sign::Line(_), _) => output.ready().await,
                (Sign::Message, Some(channel)) => channel.ready().await,
                (Sign::Message, None) => std::future::pending().await,
                (Sign::Command(command), _) => {
                    while let Err(reason) = self.spawner.check(command, ready.timeout.get()).await {
                        failed = format!("; `ready.command`: {reason}");
                        tokio::time::sleep(ready.every.get()).await;
                    }
                }
            }
        };
        let within = ready.within.get();
        let timely = tokio::time::timeout(within, signalled).await;
        timely.map_err(|_| format!("not ready within {}{failed}", show(within)))
    }

    async fn until_failed(&self, command: Option<&Allowed<'_>>, live: &Live) -> String {
        let Some(command) = command else { return std::future::pending().await };
        let mut failures = 0;
        loop {
            tokio::time::sleep(live.every.get()).await;
            match self.spawner.check(command, live.timeout.get()).await {
                Ok(()) => failures = 0,
                Err(reason) => {
                    failures += 1;
                    if failures >= live.failures.get() {
                        return format!("`live.command` failed {failures} times in a row: {reason}");
                    }
                }
            }
        }
    }
}

/// The time until readiness does not count as silence.
async fn until_silent(output: &Output, live: &Live) -> String {
    let Some(silence) = live.silence else { return std::future::pending().await };
    let begun = Instant::now();
    loop {
        let until = output.heard().max(begun) + silence.get();
        if until <= Instant::now() {
            return format!("no output for {}", show(silence.get()));
        }
        tokio::time::sleep_until(until).await;
    }
}

fn sign<'a>(ready: &'a Ready, has_channel: bool, spawner: &Spawner<'_>) -> Result<Sign<'a>, String> {
    match (&ready.line, &ready.contains, &ready.command, ready.message) {
        (Some(line), None, None, false) => {
            let regex = RegexBuilder::new(line).size_limit(REGEX_MAX).build();
            let regex =
                regex.map_err(|error| format!("`ready.line` is not a usable regular expression: {error}"))?;
            Ok(Sign::Line(Pattern::Matches(regex)))
        }
        (None, Some(part), None, false) => Ok(Sign::Line(Pattern::Contains(part.clone()))),
        (None, None, Some(argv), false) => Ok(Sign::Command(spawner.allow("ready.command", argv)?)),
        (None, None, None, true) if has_channel => Ok(Sign::Message),
        (None, None, None, true) => Err("`ready.message` needs a channel; set `channel` to true".to_owned()),
        _ => Err("`ready`: set exactly one of `line`, `contains`, `command` and `message`".to_owned()),
    }
}
