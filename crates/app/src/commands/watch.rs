//! `--watch`: redraws the table on a terminal; otherwise prints one line for each change.

use crate::client::Client;
use crate::item::Item;
use crate::live;
use crate::output::{self, Lines, Output, OutputArgs, Root, TerminalStyle, View, note, print};
use crossterm::cursor::MoveTo;
use crossterm::execute;
use crossterm::terminal::{self, Clear, ClearType};
use everwatch_core::clock;
use serde::Serialize;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Shows the result of `load` until the process ends. `load` receives the number of rows that fit.
///
/// # Errors
/// Only if the first load fails; later loads are retried.
pub(super) async fn run<T: Clone + Serialize>(
    client: &Client,
    (view, root): (&View<T>, Root),
    shown: &OutputArgs,
    load: impl AsyncFn(usize) -> anyhow::Result<Vec<Item<T>>>,
) -> anyhow::Result<()> {
    let changed = Notify::new();
    let looking = async {
        let mut shown = Shown::new((view, root), shown);
        shown.now(&load(shown.room()).await?)?;
        let mut lost = false;
        loop {
            let looked = Instant::now();
            tokio::select! {
                () = changed.notified() => sleep_until(looked + live::GATHER).await,
                () = sleep_until(looked + live::LOOK_EVERY) => {}
            }
            match load(shown.room()).await {
                Ok(items) => {
                    if std::mem::take(&mut lost) {
                        note("the manager answers again");
                    }
                    shown.now(&items)?;
                }
                Err(error) if live::is_passing(&error) => {
                    if !std::mem::replace(&mut lost, true) {
                        note(&format!("{error:#}; trying again"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    };
    tokio::select! {
        ended = looking => ended,
        () = live::notify(client, &changed) => Ok(()),
    }
}

/// What was shown last, and where.
enum Shown<'a, T: 'static> {
    Screen { view: &'a View<T>, form: &'a OutputArgs },
    Changes { form: (&'a View<T>, Root, &'a OutputArgs), lines: Lines<T>, known: Known },
}

/// For each object, by its key: its name, and the cells or values that do not change with time alone.
type Known = HashMap<String, (String, Vec<String>)>;

impl<'a, T: Clone + Serialize> Shown<'a, T> {
    fn new((view, root): (&'a View<T>, Root), form: &'a OutputArgs) -> Self {
        if std::io::stdout().is_terminal() && form.is_table() {
            return Self::Screen { view, form };
        }
        let lines = Lines::new(view, form, TerminalStyle::stdout());
        Self::Changes { form: (view, root, form), lines, known: HashMap::new() }
    }

    /// Rows that can be seen.
    fn room(&self) -> usize {
        match self {
            Self::Screen { .. } => {
                let rows = terminal::size().map_or(24, |(_, rows)| usize::from(rows));
                rows.saturating_sub(2).max(1)
            }
            Self::Changes { .. } => usize::MAX,
        }
    }

    fn now(&mut self, items: &[Item<T>]) -> anyhow::Result<()> {
        let room = self.room();
        match self {
            Self::Screen { view, form } => {
                let seen = &items[..items.len().min(room)];
                let on = (TerminalStyle::stdout(), clock::now());
                let table = output::many(view, seen, form, on)?;
                execute!(std::io::stdout(), Clear(ClearType::All), MoveTo(0, 0))?;
                print(&if seen.is_empty() { format!("no {}", view.noun) } else { table });
            }
            Self::Changes { form, lines, known } => {
                let all = gists(*form, items);
                let fresh = changes(form.0, (known, &all), items);
                tell(*form, (lines, known.is_empty()), &fresh)?;
                if known.is_empty() {
                    output::warn_of_columns(items, form.2);
                }
                *known = all;
            }
        }
        Ok(())
    }
}

fn gists<T>((view, root, shown): (&View<T>, Root, &OutputArgs), items: &[Item<T>]) -> Known {
    let gist = |it: &Item<T>| ((view.name)(it), output::gist(view, it, shown, root));
    items.iter().map(|it| ((view.key)(it), gist(it))).collect()
}

/// The objects that are new or whose text has changed. Prints a notice for those that are gone.
fn changes<T: Clone>(view: &View<T>, (known, now): (&Known, &Known), items: &[Item<T>]) -> Vec<Item<T>> {
    for (key, (name, _)) in known {
        if !now.contains_key(key) {
            note(&format!("{name} no longer matches"));
        }
    }
    let differs = |it: &&Item<T>| {
        let key = (view.key)(it);
        known.get(&key) != now.get(&key)
    };
    items.iter().filter(differs).cloned().collect()
}

fn tell<T: Serialize>(
    (view, root, shown): (&View<T>, Root, &OutputArgs),
    (lines, first): (&mut Lines<T>, bool),
    fresh: &[Item<T>],
) -> anyhow::Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    match &shown.output {
        _ if shown.is_table() && first => print(&lines.page(fresh, clock::now())),
        Output::Table | Output::Wide | Output::Columns(_) => {
            lines.rows(fresh, clock::now()).iter().for_each(|row| print(row));
        }
        Output::Json => fresh.iter().for_each(|it| print(&it.sent().to_string())),
        Output::Yaml => {
            for it in fresh {
                print(&format!("---\n{}", output::yaml(it)?));
            }
        }
        Output::Name => fresh.iter().for_each(|it| print(&(view.name)(it))),
        Output::JsonPath(path) => {
            let values = fresh.iter().flat_map(|it| output::values(path, it, root));
            values.for_each(|value| print(&value));
        }
    }
    Ok(())
}
