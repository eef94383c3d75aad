//! The loop: keys, answers and time in, effects out. Gives the terminal back however it ends.

use super::load;
use super::model::{Effect, Input, Model};
use super::view;
use crate::client::{Client, Failure};
use crate::live;
use crate::output::colours_wanted;
use anyhow::Context as _;
use crossterm::event::{Event, EventStream};
use everwatch_core::clock;
use futures::StreamExt as _;
use ratatui::DefaultTerminal;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

/// Ages grow by the second.
const TICK: Duration = Duration::from_secs(1);

/// Gives the terminal back as it was.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// # Errors
/// Wrong usage without a terminal; else if the terminal fails.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "top needs a terminal; for pipes and files there is `everwatch observer list --watch`";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    let client = Arc::new(Client::new(server)?);
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A panic gives the terminal back too: this sets the hook for it.
    let mut screen = Screen(ratatui::try_init().context("the terminal cannot be taken")?);
    tokio::select! {
        ended = go_on(&mut screen.0, client, server) => ended,
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn go_on(terminal: &mut DefaultTerminal, client: Arc<Client>, server: &str) -> anyhow::Result<()> {
    let mut model = Model::new(server, clock::now());
    let (changed, mut keys) = (Arc::new(Notify::new()), EventStream::new());
    let mut work: JoinSet<Option<Input>> = JoinSet::new();
    let (heard, follower) = (Arc::clone(&changed), Arc::clone(&client));
    work.spawn(async move {
        live::events(&follower, &heard).await;
        None
    });
    let (mut ticks, mut looked, mut heard) = (interval(TICK), Instant::now(), false);
    let mut inputs = vec![Input::Changed];
    loop {
        let size = terminal.size()?;
        inputs.push(Input::Rows(view::rows(size, &model)));
        for effect in inputs.drain(..).flat_map(|input| model.on(input)).collect::<Vec<_>>() {
            if effect == Effect::Quit {
                return Ok(());
            }
            let (client, width) = (Arc::clone(&client), view::details_width(size));
            work.spawn(async move { carry_out(&client, effect, width).await });
        }
        terminal.draw(|frame| view::draw(frame, &model, colours_wanted()))?;
        // Soon after an event, else after a while.
        let due = looked + if heard { live::GATHER } else { live::LOOK_EVERY };
        tokio::select! {
            key = keys.next() => inputs.extend(input_of(&key.context("the terminal has gone")??)),
            Some(done) = work.join_next() => inputs.extend(done?),
            _ = ticks.tick() => inputs.push(Input::Tick(clock::now())),
            () = changed.notified(), if !heard => heard = true,
            () = sleep_until(due) => {
                (looked, heard) = (Instant::now(), false);
                inputs.push(Input::Changed);
            }
        }
    }
}

fn input_of(event: &Event) -> Option<Input> {
    match event {
        Event::Key(key) => Some(Input::Key(*key)),
        // A resize is drawn at once, as everything is.
        Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

async fn carry_out(client: &Client, effect: Effect, width: usize) -> Option<Input> {
    Some(match effect {
        Effect::Quit => return None,
        Effect::Load(query) => {
            let seen = load::screen(client, &query).await;
            Input::Loaded(query, seen)
        }
        Effect::Describe(target) => {
            let told = load::describe(client, &target, width).await;
            Input::Described(target, told)
        }
        Effect::Do(wish) => {
            let done = load::carry_out(client, &wish).await;
            Input::Done(wish, done)
        }
    })
}
