//! `everwatch top` and `--watch` in a real terminal, controlled by key presses.

use everwatch_core::record::status::Status;
use everwatch_tests::cluster::free_address;
use everwatch_tests::dev::Dev;
use everwatch_tests::http::holder;
use everwatch_tests::terminal::Terminal;
use everwatch_tests::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

pub(super) async fn with_observers(dev: &Dev, names: &[&str]) {
    for name in names {
        dev.api.create(json!({"name": name, "kind": "ticker"})).await;
        dev.api.until_status(name, "Processing").await;
    }
}

/// The line of the screen that contains this name.
pub(super) fn line<'a>(screen: &'a str, name: &str) -> &'a str {
    screen.lines().find(|line| line.contains(name)).unwrap_or_default()
}

pub(super) async fn open_top(dev: &Dev) -> Terminal {
    let terminal = Terminal::open(&dev.api.url, (100, 30)).await;
    terminal.runs("everwatch top; echo ended with $?");
    terminal.until("the first screen", |screen| screen.contains("live  ")).await;
    terminal
}

#[tokio::test]
async fn a_user_steers_observers_by_keys() {
    let dev = Dev::start(2, 10).await;
    with_observers(&dev, &["one", "three", "two"]).await;
    let top = open_top(&dev).await;
    let screen = top.until("all observers", |it| line(it, "two").contains("running")).await;
    assert!(screen.contains("Services 2") && line(&screen, "one").starts_with("▸ one"), "{screen}");
    top.presses(&["Down"]);
    top.types("p");
    top.until("the question", |it| it.contains("Pause three?")).await;
    top.types("y");
    top.until("the pause on the screen", |it| line(it, "three  ").contains("Paused")).await;
    dev.api.until_status("three", "Paused").await;
    top.types("r");
    dev.api.until_status("three", "Processing").await;
    // The screen shows changes by other clients without a key press.
    dev.api.create(json!({"name": "zebra", "kind": "ticker"})).await;
    top.until("the new one", |it| line(it, "zebra").contains("running")).await;
    top.types("/two");
    top.presses(&["Enter"]);
    top.until("the filter", |it| it.contains("/two") && !it.contains("zebra")).await;
    top.types("d");
    top.until("the question", |it| it.contains("Delete two?")).await;
    top.types("n");
    top.until("no question", |it| !it.contains("Delete two?")).await;
    assert_eq!(dev.api.observer("two").await.status, Status::Processing);
    top.types("dy");
    dev.api.until_status("two", "Deleted").await;
    top.until("nothing that matches", |it| it.contains("no observer matches the filter")).await;
    top.presses(&["Escape"]);
    top.until("all again", |it| it.contains("zebra")).await;
    top.presses(&["Home", "Enter"]);
    top.until("the details", |it| it.contains("Observer one") && it.contains("Retry:")).await;
    top.presses(&["End"]);
    top.until("the events", |it| it.contains("started")).await;
    top.presses(&["Escape"]);
    top.resize((60, 20));
    top.until("a narrow screen", |it| {
        it.lines().all(|line| line.chars().count() <= 60) && it.contains("q quit")
    })
    .await;
}

#[tokio::test]
async fn a_user_cordons_and_drains_services_by_keys() {
    let dev = Dev::start(2, 10).await;
    with_observers(&dev, &["one", "two"]).await;
    let top = open_top(&dev).await;
    top.presses(&["Tab"]);
    top.types("c");
    top.until("the cordon", |it| line(it, "service-1").contains("cordoned")).await;
    assert!(dev.api.service("service-1").await.cordoned);
    top.types("u");
    top.until("no cordon", |it| line(it, "service-1").contains("active")).await;
    top.types("o");
    top.until("its observers", |it| it.contains("/service=service-1")).await;
    top.presses(&["Escape", "Tab"]);
    top.types("D");
    top.until("the question", |it| it.contains("Drain service-1?")).await;
    top.types("y");
    wait_for("all to be on the other", || async {
        let all = dev.api.observers().await;
        let moved = all.iter().filter(|it| holder(it) == Some("service-2")).count();
        if moved == 2 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_lost_manager_is_told_and_found_again() {
    let address = free_address();
    let dev = Dev::start_at(&address, (1, 10)).await;
    with_observers(&dev, &["one"]).await;
    let top = open_top(&dev).await;
    top.until("the observer", |it| line(it, "one").contains("running")).await;
    drop(dev);
    let screen = top.until("the loss", |it| it.contains("CONNECTION LOST")).await;
    assert!(screen.contains("no manager answers at") && screen.contains("one"), "{screen}");
    let _again = Dev::start_at(&address, (2, 10)).await;
    top.until("another manager", |it| it.contains("live  ") && it.contains("Services 2")).await;
}

#[tokio::test]
async fn the_terminal_is_given_back_however_it_ends() {
    let dev = Dev::start(1, 1).await;
    for end in ["q", "ctrl-c", "SIGTERM", "SIGINT"] {
        let top = open_top(&dev).await;
        match end {
            "q" => top.types("q"),
            "ctrl-c" => top.presses(&["C-c"]),
            "SIGTERM" => kill(Pid::from_raw(top.process()), Signal::SIGTERM).unwrap(),
            _ => kill(Pid::from_raw(top.process()), Signal::SIGINT).unwrap(),
        }
        let screen = top.until("the end", |it| it.contains("\nended with ")).await;
        assert!(screen.contains("ended with 0") && screen.contains("everwatch top;"), "{end}: {screen}");
        assert!(!screen.contains("Capacity"), "{end}: {screen}");
        top.runs("stty -a");
        let screen = top.until("the settings", |it| it.contains("icanon") && it.contains(" echo ")).await;
        assert!(!screen.contains("-icanon") && !screen.contains("-echo "), "{end}: {screen}");
    }
}

#[tokio::test]
async fn without_a_terminal_it_is_wrong_usage() {
    let dev = Dev::start(1, 1).await;
    let (code, said, beside) = dev.run("top");
    assert!(code == Some(2) && said.is_empty() && beside.contains("top needs a terminal"), "{beside}");
}

#[tokio::test]
async fn tables_fit_the_terminal_and_a_watch_draws_in_place() {
    let dev = Dev::start(1, 10).await;
    let name = "an-observer-with-quite-a-long-name-that-nobody-would-give";
    with_observers(&dev, &["one", name]).await;
    let terminal = Terminal::open(&dev.api.url, (70, 20)).await;
    terminal.runs("clear; everwatch observer list; echo first");
    let shown = |it: &str| it.contains("\nfirst\n") && it.trim_end().ends_with("ready>");
    let screen = terminal.until("the table and the prompt after it", shown).await;
    assert!(screen.contains("an-observer-wit…"), "{screen}");
    assert_eq!(screen.lines().filter(|line| !line.is_empty()).count(), 5, "no line is wrapped: {screen}");
    assert!(terminal.coloured().contains("\u{1b}[32mrunning"), "{}", terminal.coloured());
    // Whoever asks for all columns gets them whole.
    terminal.runs("clear; everwatch observer list -o wide; echo wide");
    let screen = terminal.until("the wide table", |it| it.contains("\nwide\n")).await;
    assert!(screen.contains(name) && !screen.contains('…'), "{screen}");
    terminal.runs("clear; NO_COLOR=1 everwatch observer list; echo second");
    terminal.until("the table", |it| it.contains("\nsecond\n")).await;
    assert!(!terminal.coloured().contains("\u{1b}[32m"), "{}", terminal.coloured());
    terminal.runs("clear; everwatch observer list --watch");
    terminal.until("the first look", |it| it.contains("one") && !it.contains("ready>")).await;
    assert_eq!(dev.run("observer pause one").0, Some(0));
    let screen = terminal.until("the pause", |it| line(it, "one  ").contains("Paused")).await;
    assert_eq!(screen.matches("NAME").count(), 1, "{screen}");
    terminal.presses(&["C-c"]);
    terminal.until("the shell again", |it| it.contains("ready>")).await;
}
