//! `--watch`: redraws the table on a terminal; otherwise prints one line for each change.

use crate::client::{Client, Failure};
use crate::item::Item;
use crate::live;
use crate::output::{self, Lines, Output, TerminalStyle, View, note, print};
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
    view: &View<T>,
    output: Output,
    load: impl AsyncFn(usize) -> anyhow::Result<Vec<Item<T>>>,
) -> anyhow::Result<()> {
    let changed = Notify::new();
    let looking = async {
        let mut shown = Shown::new(view, output);
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
                Err(error) if is_passing(&error) => {
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
        () = live::events(client, &changed) => Ok(()),
    }
}

fn is_passing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::Unreachable(_) | Failure::Failed(_)))
}

/// What was shown last, and where.
enum Shown<'a, T: 'static> {
    Screen {
        view: &'a View<T>,
        output: Output,
    },
    /// Prints changes. `known`: for each object, by its key, the cells that do not change with time alone.
    Changes {
        view: &'a View<T>,
        output: Output,
        lines: Lines<T>,
        known: HashMap<String, Vec<String>>,
    },
}

impl<'a, T: Clone + Serialize> Shown<'a, T> {
    fn new(view: &'a View<T>, output: Output) -> Self {
        if std::io::stdout().is_terminal() && matches!(output, Output::Table | Output::Wide) {
            return Self::Screen { view, output };
        }
        let lines = Lines::new(view, output, TerminalStyle::stdout());
        Self::Changes { view, output, lines, known: HashMap::new() }
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
            Self::Screen { view, output } => {
                let seen = &items[..items.len().min(room)];
                let on = (TerminalStyle::stdout(), clock::now());
                let table = output::many(view, seen, *output, on)?;
                execute!(std::io::stdout(), Clear(ClearType::All), MoveTo(0, 0))?;
                print(&if seen.is_empty() { format!("no {}", view.noun) } else { table });
            }
            Self::Changes { view, output, lines, known } => {
                let fresh = changes(view, known, items);
                tell(*output, lines, (known.is_empty(), view), &fresh)?;
                *known = items.iter().map(|it| ((view.key)(it), view.gist(it))).collect();
            }
        }
        Ok(())
    }
}

/// The objects that are new or whose text has changed. Prints a notice for those that are gone.
fn changes<T: Clone>(
    view: &View<T>,
    known: &HashMap<String, Vec<String>>,
    items: &[Item<T>],
) -> Vec<Item<T>> {
    let mut gone: HashMap<_, _> = known.iter().collect();
    let mut fresh = Vec::new();
    for it in items {
        if gone.remove(&(view.key)(it)) != Some(&view.gist(it)) {
            fresh.push(it.clone());
        }
    }
    for gist in gone.values() {
        note(&format!("{} no longer matches", gist.first().map_or("", String::as_str)));
    }
    fresh
}

fn tell<T: Serialize>(
    output: Output,
    lines: &mut Lines<T>,
    (first, view): (bool, &View<T>),
    fresh: &[Item<T>],
) -> anyhow::Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    match output {
        Output::Table | Output::Wide if first => print(&lines.page(fresh, clock::now())),
        Output::Table | Output::Wide => lines.rows(fresh, clock::now()).iter().for_each(|row| print(row)),
        Output::Json => fresh.iter().for_each(|it| print(&it.sent().to_string())),
        Output::Yaml => {
            for it in fresh {
                print(&format!("---\n{}", output::yaml(it)?));
            }
        }
        Output::Name => fresh.iter().for_each(|it| print(&(view.name)(it))),
    }
    Ok(())
}
