//! Prints answers as tables that fit the terminal, JSON, YAML or names. Independent of commands and requests.

mod cells;
mod describe;
mod form;
mod incident;
mod json_path;
mod prose;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod views;

pub(crate) use cells::{age, line, reason_or_error, second, time_of_day, with_times_of_day};
pub(crate) use describe::{
    BOUND, batch as describe_batch, kind as describe_kind, observer as describe_observer,
    pool as describe_pool, rollout as describe_rollout, schedule, service as describe_service,
};
pub(crate) use form::{Output, OutputArgs};
pub(crate) use incident::{destinations, grown, incident};
pub(crate) use prose::{fitted, prose};
pub(crate) use status::{Condition, NAMED_MAX, is_able, status};
pub(crate) use table::{Column, Least, Lines, Tone, View, cut, shrink};
pub(crate) use timeline::{Head, Picture, TonedLine};
pub(crate) use views::{
    AUDIT, BATCH_MEMBERS, BATCHES, Change, EVENTS, INCIDENTS, INCIDENTS_OF_DAY, INCIDENTS_SHORT,
    INCIDENTS_WIDTH, KINDS, LIMITS, MEMBERS, NAMESPACES, OBSERVERS, PARKED, POOLS, RATES, REBALANCE, ROLES,
    ROLLOUTS, SERVICES, TOKENS, VERSIONS,
};

#[cfg(test)]
pub(crate) use tests::observer as an_observer;

use crate::item::Item;
use everwatch_core::clock::{self, Timestamp};
use json_path::{CustomColumn, Path};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write as _};

/// The width and color support of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalStyle {
    /// The width in columns; `None`: unlimited.
    pub(crate) width: Option<usize>,
    pub(crate) colours: bool,
}

impl TerminalStyle {
    pub(crate) fn stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    pub(crate) fn stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let terminal = stream.is_terminal();
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

/// Whether an answer is a list or one object, for JSONPath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    List,
    Object,
}

/// A list as text, without a newline at its end.
pub(crate) fn many<T>(
    view: &View<T>,
    items: &[Item<T>],
    shown: &OutputArgs,
    on: (TerminalStyle, Timestamp),
) -> anyhow::Result<String> {
    Ok(match &shown.output {
        Output::Table | Output::Wide | Output::Columns(_) => Lines::new(view, shown, on.0).page(items, on.1),
        Output::Json => serde_json::to_string_pretty(items)?,
        Output::Yaml => yaml(&items)?,
        Output::Name => items.iter().map(|it| (view.name)(it)).collect::<Vec<_>>().join("\n"),
        Output::JsonPath(path) => path.values(&root(items, Root::List)).join("\n"),
    })
}

/// What JSONPath sees of these objects.
fn root<T>(items: &[Item<T>], root: Root) -> Value {
    match (root, items) {
        (Root::Object, [it]) => it.sent().clone(),
        _ => json!({ "items": items }),
    }
}

/// Whether a change of an object changes how it is shown: the cells or values without those that only time changes.
pub(crate) fn gist<T>(view: &View<T>, it: &Item<T>, shown: &OutputArgs, of: Root) -> Vec<String> {
    match &shown.output {
        Output::Columns(columns) => columns.iter().map(|column| column.cell(it.sent())).collect(),
        Output::JsonPath(path) => path.values(&root(std::slice::from_ref(it), of)),
        _ => view.gist(it),
    }
}

/// The values of one object that `-o jsonpath` prints.
pub(crate) fn values<T>(path: &Path, it: &Item<T>, of: Root) -> Vec<String> {
    path.values(&root(std::slice::from_ref(it), of))
}

/// Names the columns whose paths select nothing in any row: such paths are probably misspelled.
pub(crate) fn warn_of_columns<T>(items: &[Item<T>], shown: &OutputArgs) {
    if let Output::Columns(columns) = &shown.output
        && !items.is_empty()
    {
        let selects = |column: &&CustomColumn| items.iter().any(|it| column.selects(it.sent()));
        for column in columns.iter().filter(|column| !selects(column)) {
            note(&format!("{} selects nothing in any row: `-o json` prints all fields", column.text()));
        }
    }
}

/// Prints a list. If it is empty, says so on standard error, which no program parses.
pub(crate) fn show<T>(view: &View<T>, items: &[Item<T>], shown: &OutputArgs) -> anyhow::Result<()> {
    let empty = items.is_empty();
    if empty && (shown.is_table() || shown.output == Output::Name) {
        note(&format!("no {}", view.noun));
        return Ok(());
    }
    if let Output::JsonPath(path) = &shown.output {
        let values = path.values(&root(items, Root::List));
        match (empty, values.is_empty()) {
            (true, true) => note(&format!("no {}", view.noun)),
            (false, true) if !path.text().contains("items") => note(&format!(
                "{} selects nothing: this answer is a list, so begin with .items, as in {{.items[*].name}}",
                path.text()
            )),
            _ => print_values(path, &values),
        }
        return Ok(());
    }
    let (paper, now) = (TerminalStyle::stdout(), clock::now());
    print(&many(view, items, shown, (paper, now))?);
    warn_of_columns(items, shown);
    if shown.output == Output::Table {
        warn_of_left_out(view, items, shown, (paper, now));
    }
    Ok(())
}

/// Names the columns that the terminal is too narrow for, so that a user does not take them for empty.
fn warn_of_left_out<T>(
    view: &View<T>,
    items: &[Item<T>],
    shown: &OutputArgs,
    (paper, now): (TerminalStyle, Timestamp),
) {
    let mut lines = Lines::new(view, shown, paper);
    lines.page(items, now);
    let left_out = lines.left_out(items, now);
    if !left_out.is_empty() {
        note(&format!("the terminal is too narrow for {}: see `-o wide`", left_out.join(", ")));
    }
}

fn print_values(path: &Path, values: &[String]) {
    if values.is_empty() {
        note(&format!("{} selects nothing in this answer: `-o json` prints all of it", path.text()));
    } else {
        print(&values.join("\n"));
    }
}

/// Shows one thing.
pub(crate) fn show_one<T>(view: &View<T>, it: &Item<T>, shown: &OutputArgs) -> anyhow::Result<()> {
    if !structured(it, shown)? {
        show(view, std::slice::from_ref(it), shown)?;
    }
    Ok(())
}

/// Prints a thing as JSON or YAML, or parts of it, if that is what is wanted. Returns whether it was.
pub(crate) fn structured<T: Serialize>(it: &T, shown: &OutputArgs) -> anyhow::Result<bool> {
    match &shown.output {
        Output::Json => print(&serde_json::to_string_pretty(it)?),
        Output::Yaml => print(&yaml(it)?),
        Output::JsonPath(path) => print_values(path, &path.values(&serde_json::to_value(it)?)),
        Output::Columns(_) => {
            let it = Item::new(serde_json::to_value(it)?)?;
            custom(&[it], shown);
        }
        Output::Table | Output::Wide | Output::Name => return Ok(false),
    }
    Ok(true)
}

/// Prints the columns that a user defined, of objects for which there is no view.
fn custom(items: &[Item<Value>], shown: &OutputArgs) {
    const BARE: View<Value> =
        View { noun: "objects", name: |_| String::new(), key: |_| String::new(), columns: &[] };
    print(&Lines::new(&BARE, shown, TerminalStyle::stdout()).page(items, clock::now()));
    warn_of_columns(items, shown);
}

/// As [`structured`], of a list.
pub(crate) fn structured_list<T: Serialize>(items: &[Item<T>], shown: &OutputArgs) -> anyhow::Result<bool> {
    match &shown.output {
        Output::JsonPath(_) => structured(&json!({ "items": items }), shown),
        Output::Columns(_) => {
            let items = items.iter().map(|it| Item::new(it.sent().clone()));
            custom(&items.collect::<anyhow::Result<Vec<_>>>()?, shown);
            Ok(true)
        }
        _ => structured(&items, shown),
    }
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

/// Prints an answer in sentences, in lines that fit the terminal.
pub(crate) fn answer(text: &str) {
    print(&fitted(text, TerminalStyle::stdout()));
}

/// Prints texts of several lines with an empty line between them.
pub(crate) fn print_paragraphs(all: &[String]) {
    if !all.is_empty() {
        print(&all.join("\n\n"));
    }
}

/// Tells the user something that is not part of the answer, in lines that fit the terminal.
#[expect(clippy::print_stderr, reason = "beside a command's answer")]
pub(crate) fn note(text: &str) {
    eprintln!("{}", fitted(text, TerminalStyle::stderr()));
}
