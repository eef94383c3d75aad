//! One verb for all observers that match a filter: the question, and the check of the confirmed number.

use everwatch_api::Desired;
use everwatch_tests::dev::Dev;
use everwatch_tests::terminal::Terminal;
use serde_json::json;

async fn three(dev: &Dev) {
    for name in ["one", "two", "three"] {
        dev.api.create(json!({"name": name, "kind": "ticker", "labels": {"app": "x"}})).await;
        dev.api.until_status(name, "Processing").await;
    }
    dev.api.create(json!({"name": "other", "kind": "ticker"})).await;
}

#[tokio::test]
async fn without_a_terminal_the_count_is_said_or_nothing_happens() {
    let dev = Dev::start(1, 10).await;
    three(&dev).await;
    let (code, said, beside) = dev.run("observer delete -l app=x");
    assert!(code == Some(2) && said.is_empty(), "{said} {beside}");
    assert!(beside.contains("delete 3 observers") && beside.contains("--expect 3"), "{beside}");
    let (code, _, beside) = dev.run("observer pause -l app=x --expect 2");
    assert!(code == Some(4) && beside.contains("3 observers match, not 2: nothing was done"), "{beside}");
    assert_eq!(dev.run("observer list -l app=x --status Processing -o name").1.lines().count(), 3);

    let (code, said, _) = dev.run("observer pause -l app=x --expect 3");
    assert_eq!((code, said.lines().count()), (Some(0), 3), "{said}");
    dev.api.until_status("one", "Paused").await;
    assert_eq!(dev.run("observer resume --status Paused -q one --yes").0, Some(0));
    dev.api.until_status("one", "Processing").await;
    // The response contains a result for each observer; the first refusal decides the exit code.
    for name in ["two", "three"] {
        dev.api.until_status(name, "Paused").await;
    }
    let (code, said, beside) = dev.run("observer restart -l app=x --yes");
    assert!(code == Some(4) && said.starts_with("observer one restarts "), "{said} {beside}");
    assert!(
        beside.contains("two is Paused: resume it") && beside.contains("1 of 3 done, 2 failed"),
        "{beside}"
    );

    let (code, said, _) = dev.run("observer delete -l app=x --dry-run");
    assert!(code == Some(0) && said.contains("two would be deleted; current status: Paused"), "{said}");
    let (code, said, beside) = dev.run("observer delete -l app=x --yes --wait 30s");
    assert_eq!(
        (code, said.matches(" is deleted\n").count()),
        (Some(0), 5),
        "two are at once: {said} {beside}"
    );
    assert_eq!(dev.run("observer list -o name").1, "other\n");
    assert_eq!(dev.run("observer delete -l app=x"), (Some(0), String::new(), "no observers\n".to_owned()));
}

#[tokio::test]
async fn a_user_is_asked_with_the_count() {
    let dev = Dev::start(1, 10).await;
    three(&dev).await;
    let terminal = Terminal::open(&dev.api.url, (100, 30)).await;
    terminal.runs("everwatch observer delete -l app=x; echo ended with $?");
    terminal.until("the question", |it| it.contains("Delete 3 observers (one, three, two)? [y/N]")).await;
    terminal.presses(&["Enter"]);
    terminal
        .until("the refusal", |it| it.contains("nothing was done") && it.contains("\nended with 1"))
        .await;
    assert_eq!(dev.api.observer("one").await.desired, Desired::Running);
    terminal.runs("clear; everwatch observer delete -q one; echo ended with $?");
    terminal.until("the question", |it| it.contains("Delete 1 observer (one)? [y/N]")).await;
    // The number that the user confirmed counts, not the number of matches at the time of the request.
    dev.api.create(json!({"name": "one-more", "kind": "ticker"})).await;
    terminal.runs("y");
    terminal
        .until("the conflict", |it| it.contains("2 observers match, not 1") && it.contains("ended with 4"))
        .await;
    terminal.runs("clear; everwatch observer delete -l app=x; echo ended with $?");
    terminal.until("the question", |it| it.contains("Delete 3 observers (one, three, two)? [y/N]")).await;
    terminal.runs("y");
    terminal.until("the end", |it| it.contains("\nended with 0")).await;
    dev.api.until_status("three", "Deleted").await;
}
