//! The event loop: reads keys, answers and time, and performs effects. Restores the terminal however it ends.

use super::feed::{FeedPart, Subject};
use super::follow::follow;
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
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often the screen is redrawn, so that ages stay current.
const TICK: Duration = Duration::from_secs(1);

/// How often the findings of the doctor are read: for each, a manager asks the database and the broker.
const FINDINGS_EVERY: Duration = Duration::from_secs(10);

/// How many parts of a feed may wait to be drawn. A manager that sends faster waits.
const PARTS_MAX: usize = 64;

/// The terminal in full-screen mode. Dropping it restores the terminal.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> anyhow::Result<Self> {
        // `try_init` also sets a panic hook that restores the terminal.
        Ok(Self(ratatui::try_init().context("cannot set up the terminal")?))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// # Errors
/// A usage error if there is no terminal; otherwise, errors of the terminal.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "top needs a terminal: for a pipe or a file, use `everwatch observer list --watch`";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    let client = Arc::new(Client::new(server)?);
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut screen = Screen::take()?;
    tokio::select! {
        ended = go_on(&mut screen.0, client, server) => ended,
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// What is followed in the background. Dropping it ends that.
struct Followed {
    subject: Subject,
    parts: mpsc::Receiver<FeedPart>,
    _task: JoinSet<()>,
}

impl Followed {
    fn start(client: &Arc<Client>, subject: Subject) -> Self {
        let (sender, parts) = mpsc::channel(PARTS_MAX);
        let (mut task, client, followed) = (JoinSet::new(), Arc::clone(client), subject.clone());
        task.spawn(async move { follow(&client, &followed, &sender).await });
        Self { subject, parts, _task: task }
    }

    /// The next part and those that wait behind it; never ready after the last one.
    async fn next(followed: &mut Option<Self>) -> Vec<Input> {
        let Some(it) = followed else { return std::future::pending().await };
        let Some(first) = it.parts.recv().await else { return std::future::pending().await };
        let mut parts = vec![first];
        while let Ok(part) = it.parts.try_recv() {
            parts.push(part);
            if parts.len() >= PARTS_MAX {
                break;
            }
        }
        parts.into_iter().map(|part| Input::Fed(it.subject.clone(), part)).collect()
    }
}

async fn go_on(terminal: &mut DefaultTerminal, client: Arc<Client>, server: &str) -> anyhow::Result<()> {
    let mut model = Model::new(server, clock::now());
    let (changed, mut keys) = (Arc::new(Notify::new()), EventStream::new());
    let mut work: JoinSet<Option<Input>> = JoinSet::new();
    let (heard, follower) = (Arc::clone(&changed), Arc::clone(&client));
    work.spawn(async move {
        live::notify(&follower, &heard).await;
        None
    });
    let (mut ticks, mut looked, mut heard) = (interval(TICK), Instant::now(), false);
    let mut diagnoses = interval(FINDINGS_EVERY);
    diagnoses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut inputs = vec![Input::Changed];
    let mut followed = None;
    loop {
        let size = terminal.size()?;
        let (width, height) = view::room(size);
        inputs.extend([Input::Rows(view::rows(size, &model)), Input::Room(width, height)]);
        for effect in inputs.drain(..).flat_map(|input| model.on(input)).collect::<Vec<_>>() {
            match effect {
                Effect::Quit => return Ok(()),
                Effect::Follow(subject) => followed = Some(Followed::start(&client, subject)),
                Effect::Unfollow => followed = None,
                effect => {
                    let (client, known) = (Arc::clone(&client), model.services());
                    work.spawn(async move { carry_out(&client, effect, (width, &known)).await });
                }
            }
        }
        terminal.draw(|frame| view::draw(frame, &model, colours_wanted()))?;
        // Reloads soon after an event, otherwise after the reload interval.
        let due = looked + if heard { live::GATHER } else { model.look_every() };
        tokio::select! {
            key = keys.next() => inputs.extend(input_of(&key.context("the terminal has gone")??)),
            Some(done) = work.join_next() => inputs.extend(done?),
            parts = Followed::next(&mut followed) => inputs.extend(parts),
            _ = ticks.tick() => inputs.push(Input::Tick(clock::now())),
            _ = diagnoses.tick() => {
                let client = Arc::clone(&client);
                work.spawn(async move { load::problems(&client).await.map(Input::Problems) });
            }
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
        // The loop redraws after every event, so a resize needs no action.
        Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

/// `width` is that of the view, and `known` are the services on the screen.
async fn carry_out(client: &Client, effect: Effect, (width, known): (usize, &[String])) -> Option<Input> {
    Some(match effect {
        Effect::Quit | Effect::Follow(_) | Effect::Unfollow => return None,
        Effect::Load(query) => {
            let seen = load::screen(client, &query, known).await;
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
        Effect::Timeline(span) => {
            let lines = load::timeline(client, span, width).await;
            Input::Timeline(span, lines)
        }
        Effect::Incidents => Input::Incidents(load::incidents(client).await),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{LocalFlags, tcgetattr};
    use std::io::Read as _;
    use std::process::Command;

    /// This variable is set for the child process that must panic.
    const PANICS: &str = "EVERWATCH_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::take().unwrap();
            assert!(crossterm::terminal::is_raw_mode_enabled().unwrap(), "the terminal is taken");
            panic!("as a bug would");
        }
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(&size, None).unwrap();
        let before = tcgetattr(&terminal.master).unwrap();
        let name = "top::run::tests::a_panic_gives_the_terminal_back";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(PANICS, "yes").env("RUST_BACKTRACE", "0");
        let slave = || terminal.slave.try_clone().unwrap();
        let mut process = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        drop(command);
        drop(terminal.slave);
        let mut screen = Vec::new();
        let mut master = std::fs::File::from(terminal.master);
        let mut chunk = [0; 4096];
        // The read fails once no process holds the other end of the terminal.
        while let Ok(some @ 1..) = master.read(&mut chunk) {
            screen.extend_from_slice(&chunk[..some]);
        }
        assert!(!process.wait().unwrap().success(), "it panics");
        let screen = String::from_utf8_lossy(&screen);
        let place = |words: &str| screen.find(words).unwrap_or_else(|| panic!("{words:?} in {screen:?}"));
        let (taken, given_back) = (place("\u{1b}[?1049h"), place("\u{1b}[?1049l"));
        assert!(taken < given_back && given_back < place("as a bug would"), "{screen:?}");
        let after = tcgetattr(&master).unwrap();
        assert!(after.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "{after:?}");
        assert_eq!(after.local_flags, before.local_flags);
    }
}
