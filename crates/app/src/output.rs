//! Prints answers as tables that fit the terminal, JSON, YAML or names. Independent of commands and requests.

mod cells;
mod describe;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use cells::{age, line};
pub(crate) use describe::{
    batch as describe_batch, kind as describe_kind, observer as describe_observer, pool as describe_pool,
    rollout as describe_rollout, schedule, service as describe_service,
};
pub(crate) use status::{Condition, status};
pub(crate) use table::{Column, Lines, Tone, View, cut};
pub(crate) use views::{
    AUDIT, BATCH_MEMBERS, BATCHES, Change, EVENTS, INCIDENTS, KINDS, LIMITS, MEMBERS, NAMESPACES, OBSERVERS,
    PARKED, POOLS, RATES, REBALANCE, ROLES, ROLLOUTS, SERVICES, TOKENS, VERSIONS,
};

use crate::item::Item;
use clap::ValueEnum;
use everwatch_core::clock::{self, Timestamp};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// The width and color support of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalStyle {
    /// The width in columns; `None`: unlimited.
    pub(crate) width: Option<usize>,
    pub(crate) colours: bool,
}

impl TerminalStyle {
    pub(crate) fn stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let size = crossterm::terminal::size().ok().filter(|_| terminal);
        let width = size.map(|(columns, _)| usize::from(columns)).filter(|width| *width > 0);
        Self { width, colours: terminal && colours_wanted() }
    }
}

/// Whether to use colors: not if `NO_COLOR` is set or the terminal does not support them.
pub(crate) fn colours_wanted() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|it| it.is_empty());
    unset("NO_COLOR") && std::env::var_os("TERM").is_none_or(|it| it != "dumb")
}

/// A list as text, without a newline at its end.
pub(crate) fn many<T>(
    view: &View<T>,
    items: &[Item<T>],
    output: Output,
    on: (TerminalStyle, Timestamp),
) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table | Output::Wide => Lines::new(view, output, on.0).page(items, on.1),
        Output::Json => serde_json::to_string_pretty(items)?,
        Output::Yaml => yaml(&items)?,
        Output::Name => items.iter().map(|it| (view.name)(it)).collect::<Vec<_>>().join("\n"),
    })
}

/// Prints a list. If it is empty, says so on standard error, which no program parses.
pub(crate) fn show<T>(view: &View<T>, items: &[Item<T>], output: Output) -> anyhow::Result<()> {
    let empty = items.is_empty();
    if empty && matches!(output, Output::Table | Output::Wide | Output::Name) {
        note(&format!("no {}", view.noun));
        return Ok(());
    }
    print(&many(view, items, output, (TerminalStyle::stdout(), clock::now()))?);
    Ok(())
}

/// Shows one thing.
pub(crate) fn show_one<T>(view: &View<T>, it: &Item<T>, output: Output) -> anyhow::Result<()> {
    match structured(it, output)? {
        Some(text) => print(&text),
        None => show(view, std::slice::from_ref(it), output)?,
    }
    Ok(())
}

/// A thing as JSON or YAML, if that is what is wanted.
pub(crate) fn structured<T: Serialize>(it: &T, output: Output) -> anyhow::Result<Option<String>> {
    Ok(match output {
        Output::Json => Some(serde_json::to_string_pretty(it)?),
        Output::Yaml => Some(yaml(it)?),
        Output::Table | Output::Wide | Output::Name => None,
    })
}

/// As YAML, without a newline at its end.
pub(crate) fn yaml<T: Serialize>(it: &T) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(it)?.trim_end().to_owned())
}

/// Writes a line of an answer. A closed pipe, as after `head`, is not a failure.
pub(crate) fn print(text: &str) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}") {
        std::process::exit(i32::from(error.kind() != ErrorKind::BrokenPipe));
    }
}

/// Tells the user something that is not part of the answer.
#[expect(clippy::print_stderr, reason = "beside a command's answer")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}
