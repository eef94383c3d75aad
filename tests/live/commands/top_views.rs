//! The views of `everwatch top` in a real terminal: the log of an observer, events, and the timeline.

use super::top::{line, open_top, with_observers};
use everwatch_tests::cluster::free_address;
use everwatch_tests::dev::Dev;
use serde_json::json;

/// An observer that counts on its standard output, and says on its standard error that it has begun.
async fn counter(dev: &Dev, name: &str) {
    let script = "echo begun >&2; n=0; while :; do n=$((n+1)); echo number $n; sleep 0.1; done";
    dev.api.create(json!({"name": name, "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}})).await;
    dev.api.until_status(name, "Processing").await;
}

/// The highest number that the counter has on the screen.
fn newest(screen: &str) -> u32 {
    let numbers = screen.lines().filter_map(|it| it.split("number ").nth(1)?.split_whitespace().next());
    numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

#[tokio::test]
async fn a_user_follows_a_log_reads_it_back_and_returns() {
    let dev = Dev::start(1, 10).await;
    counter(&dev, "counter").await;
    let top = open_top(&dev).await;
    top.until("the observer", |it| line(it, "counter").contains("running")).await;
    top.types("l");
    let screen = top.until("its log", |it| it.contains("Log of counter") && newest(it) > 0).await;
    assert!(screen.contains("following") && screen.contains("Esc back"), "{screen}");
    let first = newest(&screen);
    // More lines than fit the screen, so the first line is no longer visible.
    let screen = top.until("new lines", |it| newest(it) > first + 30).await;
    assert!(!screen.contains("stderr begun"), "{screen}");
    top.types("f");
    let paused = top.until("the pause", |it| it.contains("paused")).await;
    top.until("lines below", |it| it.contains("lines below") && newest(it) == newest(&paused)).await;
    top.types("g");
    top.until("the first lines", |it| line(it, "stderr").contains("begun") && it.contains(" number 1 "))
        .await;
    top.types("?");
    top.until("the help", |it| it.contains("Keys") && it.contains("follow new lines")).await;
    top.presses(&["Escape"]);
    top.until("the log again", |it| it.contains("Log of counter") && it.contains("stderr begun")).await;
    top.types("G");
    top.until("new lines again", |it| it.contains("following") && newest(it) > newest(&paused)).await;
    top.resize((60, 20));
    top.until("a narrow log", |it| {
        it.contains("Log of counter") && it.lines().all(|line| line.chars().count() <= 60)
    })
    .await;
    // An observer that ends, ends its log but not the view.
    assert_eq!(dev.run("observer delete counter").0, Some(0));
    top.until("the end", |it| it.contains(" ended ")).await;
    top.presses(&["Escape"]);
    top.until("the lists", |it| it.contains("Observers") && it.contains("q quit")).await;
}

#[tokio::test]
async fn a_user_follows_events_of_one_and_of_all() {
    let dev = Dev::start(1, 10).await;
    with_observers(&dev, &["one", "two"]).await;
    let top = open_top(&dev).await;
    top.until("the observers", |it| line(it, "two").contains("running")).await;
    top.types("e");
    top.until("its events", |it| {
        it.contains("Events of observer one") && line(it, "started").contains("one")
    })
    .await;
    assert_eq!(dev.run("observer pause one").0, Some(0));
    let screen = top.until("the pause", |it| it.contains("pause_requested")).await;
    assert!(!screen.contains(" two "), "{screen}");
    top.types("E");
    let is_all = |it: &str| line(it, "service_registered").contains("service-1") && it.contains(" two ");
    top.until("all events", |it| it.contains("Events of all") && is_all(it)).await;
    dev.api.create(json!({"name": "three", "kind": "ticker"})).await;
    top.until("the new one", |it| {
        line(it, "created").contains("three") || it.contains("three     service-1")
    })
    .await;
    top.presses(&["Escape"]);
    top.until("the lists", |it| it.contains("q quit")).await;
    top.presses(&["Tab"]);
    top.types("e");
    top.until("events of a service", |it| {
        it.contains("Events of service service-1") && it.contains("started")
    })
    .await;
    top.presses(&["Escape"]);
    top.types("l");
    top.until("what to do", |it| it.contains("logs are those of observers")).await;
}

#[tokio::test]
async fn the_timeline_shows_a_killed_service() {
    let dev = Dev::start(2, 10).await;
    with_observers(&dev, &["one", "two", "three", "four"]).await;
    let top = open_top(&dev).await;
    // So wide that a row of the table of incidents fits one line.
    top.resize((130, 30));
    top.types("T");
    let held = |it: &str, name: &str| {
        let lane = line(it, name);
        lane.split(" held").next().and_then(|it| it.split_whitespace().last()?.parse::<u32>().ok())
    };
    let both = |it: &str| Some((held(it, "service-1")?, held(it, "service-2")?));
    let are_shown = |it: &str| both(it).is_some_and(|(one, two)| one + two == 4);
    let screen =
        top.until("both lanes", |it| it.contains("Timeline: last 15 minutes") && are_shown(it)).await;
    // The broker divides them as it likes.
    let (one, two) = both(&screen).unwrap();
    let (killed, other, moved) =
        if two >= one { ("service-2", "service-1", two) } else { ("service-1", "service-2", one) };
    assert_eq!(dev.run(&format!("chaos kill {killed}")).0, Some(0));
    let (lost, to) = (format!("{killed}  lost"), format!("{other} ({moved})"));
    top.until("the incident", |it| it.lines().any(|it| it.contains(&lost) && it.contains(&to))).await;
    top.types("+");
    top.until("an hour", |it| it.contains("Timeline: last hour") && line(it, killed).contains('✕')).await;
    top.types("+");
    top.until("a day", |it| it.contains("Timeline: last 24 hours")).await;
    top.types("-");
    top.until("an hour again", |it| it.contains("Timeline: last hour")).await;
    top.presses(&["Escape"]);
    top.until("the lists", |it| it.contains("Services 2")).await;
}

#[tokio::test]
async fn a_lost_manager_ends_no_view() {
    let address = free_address();
    let dev = Dev::start_at(&address, (1, 10)).await;
    counter(&dev, "counter").await;
    let top = open_top(&dev).await;
    top.until("the observer", |it| line(it, "counter").contains("running")).await;
    top.types("l");
    let screen = top.until("its log", |it| newest(it) > 3).await;
    drop(dev);
    let lost = top.until("the loss", |it| it.contains("connection lost; reconnecting")).await;
    assert!(newest(&lost) >= newest(&screen), "what was read stays: {lost}");
    // The next manager has another database, which does not contain this observer.
    let again = Dev::start_at(&address, (1, 10)).await;
    top.until("the refusal", |it| it.contains(" failed ") && it.contains("no observer")).await;
    top.types("E");
    top.until("its events", |it| line(it, "service_registered").contains("service-1")).await;
    top.types("T");
    top.until("its timeline", |it| it.contains("Timeline: last 15 minutes") && it.contains("no incidents"))
        .await;
    top.presses(&["Escape"]);
    top.until("its lists", |it| it.contains("live  ") && it.contains("none yet")).await;
    drop(again);
}
