//! The output of several observers, times relative to now, and names that do not exist.

use super::Going;
use everwatch_api::LogLine;
use everwatch_tests::dev::Dev;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Mutex;

async fn tickers(names: &[&str]) -> Dev {
    let dev = Dev::start(1, 10).await;
    for name in names {
        let spec = json!({"every": "100ms"});
        dev.api.create(json!({"name": name, "kind": "ticker", "spec": spec, "labels": {"team": "x"}})).await;
    }
    for name in names {
        wait_for("a line", || async {
            let (_, said, beside) = dev.run(&format!("observer logs {name} -o raw"));
            if said.contains("tick 1\n") { Ok(()) } else { Err(beside) }
        })
        .await;
    }
    dev
}

#[tokio::test]
async fn the_output_of_several_observers_is_merged() {
    let dev = tickers(&["one", "two", "three"]).await;
    let (code, said, _) = dev.run("observer logs -l team=x");
    assert_eq!(code, Some(0));
    for name in ["one", "two", "three"] {
        assert!(
            said.lines().any(|line| line.starts_with(&format!("[{name}] ")) && line.ends_with(" tick 1")),
            "{said}"
        );
    }
    let times: Vec<&str> = said.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(times.is_sorted(), "{said}");
    let (_, said, _) = dev.run("observer logs one two -o json --tail 1");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut names: Vec<_> = lines.iter().map(|line| line["observer"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
    assert!(lines.iter().all(|line| serde_json::from_value::<LogLine>(line.clone()).is_ok()), "{said}");

    // A failure does not hide the lines of the others.
    let (code, said, beside) = dev.run("observer logs one absent -o raw");
    assert!(code == Some(3) && said.starts_with("[one] tick ") && beside.contains("absent"), "{beside}");
    let (code, said, beside) = dev.run("observer logs -l team=x --max-log-requests 2");
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(beside.contains("3 observers match `team=x`, and the limit is 2"), "{beside}");
    assert_eq!(dev.run("observer logs one two three --max-log-requests 2").0, Some(2));
    let (code, said, _) = dev.run("observer logs one one --max-log-requests 1 -o raw");
    assert!(code == Some(0) && said.starts_with("tick "), "a name counts once: {said}");
    assert_eq!(
        dev.run("observer logs -l team=nobody"),
        (Some(0), String::new(), "no observers\n".to_owned())
    );
}

#[tokio::test]
async fn several_observers_are_followed_until_each_has_ended() {
    let dev = tickers(&["one", "two"]).await;
    let following =
        Going::start(&dev, &["observer", "logs", "-l", "team=x", "-f", "--tail", "1", "-o", "raw"]);
    let ticks = |said: &str, name: &str| said.matches(&format!("[{name}] tick ")).count();
    following.until("lines of both", |said| ticks(said, "one") > 3 && ticks(said, "two") > 3).await;
    assert_eq!(dev.run("observer delete one --wait 20s").0, Some(0));
    let before = ticks(&following.said(), "two");
    following.until("further lines of the other", |said| ticks(said, "two") > before + 3).await;
    assert_eq!(dev.run("observer delete two --wait 20s").0, Some(0));
    let following = Mutex::new(following);
    let ended = wait_for("the end", || {
        let ended = following.lock().unwrap().process.try_wait().unwrap();
        std::future::ready(ended.ok_or_else(|| "it runs".to_owned()))
    })
    .await;
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn times_are_absolute_or_relative() {
    let dev = tickers(&["one"]).await;
    let lines = |words: &str| dev.run(words).1.lines().count();
    assert!(lines("observer logs one --since 10m") > 0);
    assert_eq!(lines("observer logs one --since 2100-01-01T00:00:00Z"), 0);
    assert!(lines("observer logs one --since 2000-01-01T00:00:00Z") > 0);
    let (code, said, _) = dev.run("timeline --since 1m --until 0s");
    let head: Vec<&str> = said.lines().next().unwrap().split_whitespace().collect();
    // To the second, as in other tables.
    assert!(code == Some(0) && head.len() == 2 && head.iter().all(|time| time.len() == 20), "{said}");
    let (code, _, beside) = dev.run("timeline --since 1m --until tomorrow");
    assert!(code == Some(2) && beside.contains("such as 15m"), "{beside}");
}

#[tokio::test]
async fn a_misspelled_name_is_not_only_an_empty_answer() {
    let dev = Dev::start(1, 1).await;
    assert_eq!(dev.run("observer create one --kind ticker --paused").0, Some(0));
    for (words, told) in [
        ("observer list --kind tikcer", "did you mean `ticker`?"),
        ("observer list --kind tikcer -o json", "did you mean `ticker`?"),
        (
            "observer list --pool defualt",
            "no service and no observer names the pool `defualt`; did you mean `default`?",
        ),
        ("observer list --pool zzzzzzzz", "pools: default"),
        ("observer pause --kind tikcer --yes", "did you mean `ticker`?"),
        ("service list --pool defualt", "did you mean `default`?"),
        ("observer list --service servcie-1", "there is no service `servcie-1`; did you mean `service-1`?"),
        ("observer pause --service servcie-1 --yes", "did you mean `service-1`?"),
        ("rebalance plan --pool defualt", "did you mean `default`?"),
        ("rebalance apply --pool defualt", "did you mean `default`?"),
        ("rollout start --kind tikcer --set priority=1", "did you mean `ticker`?"),
        ("timeline --service servcie-1", "did you mean `service-1`?"),
        ("observer delete --pool defualt --dry-run", "did you mean `default`?"),
        ("observer list -n defualt", "there is no namespace `defualt`; did you mean `default`?"),
    ] {
        let (code, _, beside) = dev.run(words);
        assert!(code == Some(3) && beside.contains(told), "{words}: {code:?} {beside}");
    }
    // The answer stays what programs read.
    assert_eq!(dev.run("observer list --kind tikcer -o json").1, "[]\n");
    // The names exist: nothing matches.
    for words in [
        "observer list --kind ticker --status Failed",
        "observer list --kind http --pool default",
        "observer list --service service-1 -n default",
    ] {
        assert_eq!(dev.run(words).2, "no observers\n", "{words}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_names_a_similar_one() {
    let dev = Dev::start(1, 1).await;
    for words in ["observer create prices --kind ticker --paused", "rate set openai --permits 10 --burst 30"]
    {
        assert_eq!(dev.run(words).0, Some(0), "{words}");
    }
    for (words, code, told) in [
        (
            "observer get pirces",
            3,
            "there is no observer `pirces` in namespace default; did you mean `prices`?",
        ),
        ("observer describe pirces", 3, "did you mean `prices`?"),
        (
            "observer get prices pirces",
            3,
            "everwatch: pirces: there is no observer `pirces` in namespace default; did you mean `prices`?",
        ),
        ("service get service-11", 3, "did you mean `service-1`?"),
        ("service describe service-11", 3, "did you mean `service-1`?"),
        ("pool describe defualt", 3, "did you mean `default`?"),
        ("rate describe opneai", 3, "did you mean `openai`?"),
        ("namespace describe defualt", 3, "did you mean `default`?"),
        ("observer pause pirces", 3, "did you mean `prices`?"),
        (
            "observer pause prices pirces",
            3,
            "pirces: there is no observer `pirces` in namespace default; did you mean `prices`?",
        ),
        ("observer delete pirces", 3, "did you mean `prices`?"),
        ("observer delete pirces --dry-run", 3, "did you mean `prices`?"),
        ("observer wait pirces --for status=Paused", 3, "did you mean `prices`?"),
        ("observer logs pirces", 3, "did you mean `prices`?"),
        ("observer logs pirces -f", 3, "did you mean `prices`?"),
        ("observer events pirces", 3, "did you mean `prices`?"),
        ("observer versions pirces", 3, "did you mean `prices`?"),
        ("observer result pirces", 3, "did you mean `prices`?"),
        ("observer schedule pirces", 3, "did you mean `prices`?"),
        ("observer get prices -n defualt", 3, "there is no namespace `defualt`; did you mean `default`?"),
        (
            "observer diff prices --from 7",
            3,
            "observer prices has no version 7: its versions from 1 to 1 are kept",
        ),
        (
            "observer revert prices --to 9",
            3,
            "observer prices has no version 9: its versions from 1 to 1 are kept",
        ),
        ("observer move prices --pool defualt", 3, "did you mean `default`?"),
        ("service drain service-11", 3, "did you mean `service-1`?"),
        ("service capacity service-11 3", 3, "did you mean `service-1`?"),
        ("chaos kill service-11", 3, "service-1"),
        ("events --observer pirces", 3, "did you mean `prices`?"),
        ("events --service service-11", 3, "did you mean `service-1`?"),
        ("timeline --observer pirces", 3, "did you mean `prices`?"),
        ("rate delete opneai", 3, "did you mean `openai`?"),
        ("namespace delete defualt", 3, "did you mean `default`?"),
        ("role delete veiwer", 3, "did you mean `viewer`?"),
        ("observer list --health runing", 2, "did you mean running?"),
    ] {
        let (ended, _, beside) = dev.run(words);
        assert!(ended == Some(code) && beside.contains(told), "{words}: {ended:?} {beside}");
    }
    let (code, _, beside) = dev.run("observer get something-else");
    assert!(code == Some(3) && !beside.contains("did you mean"), "{beside}");
}

#[tokio::test]
async fn a_service_that_is_gone_is_known_to_the_timeline_and_a_running_observer_moves_to_known_services() {
    let dev = Dev::start(2, 9).await;
    assert_eq!(dev.run("observer create one --kind ticker --wait 20s").0, Some(0));
    let (code, _, beside) = dev.run("observer move one --to service-22");
    assert!(code == Some(3) && beside.contains("did you mean `service-2`?"), "{code:?} {beside}");
    assert_eq!(dev.run("chaos kill service-1").0, Some(0));
    assert_eq!(dev.run("timeline --service service-1").0, Some(0));
    // A service on which the observer never ran, but which exists.
    assert_eq!(dev.run("timeline --service service-1 --service service-2 --observer one").0, Some(0));
    let (_, said, _) = dev.run("timeline --no-headers");
    let (_, with, _) = dev.run("timeline");
    assert_eq!(
        said.lines().count() + 1 + usize::from(with.contains("FROM")),
        with.lines().count(),
        "{said} {with}"
    );
}

#[tokio::test]
async fn events_are_selected_by_their_time_and_by_the_labels_of_observers() {
    let dev = Dev::start(1, 9).await;
    for (name, team) in [("one", "x"), ("two", "x"), ("three", "y")] {
        let line = format!("observer create {name} --kind ticker --label team={team} --wait 20s");
        assert_eq!(dev.run(&line).0, Some(0));
    }
    let names = |words: &str| {
        let (code, said, beside) = dev.run(&format!("{words} -o jsonpath={{.observer.name}}"));
        assert_eq!(code, Some(0), "{words}: {beside}");
        said.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(names("events -l team=x"), ["one", "two"].map(str::to_owned).into());
    assert_eq!(names("events -l team=y --type created"), ["three"].map(str::to_owned).into());
    let ids: Vec<i64> =
        dev.run("events -l team=x -o name").1.lines().map(|line| line.parse().unwrap()).collect();
    let times = dev.run("events -l team=x -o jsonpath={.at}").1;
    assert!(times.lines().is_sorted() && ids.len() >= 4, "{times}");
    let newest = ids.iter().max().unwrap();
    assert_eq!(dev.run("events -l team=x --limit 1 -o name").1, format!("{newest}\n"));
    assert_eq!(names("events --since 10m --type created").len(), 3);
    let later = "events --since 2100-01-01T00:00:00Z";
    assert_eq!(dev.run(later), (Some(0), String::new(), "no events\n".to_owned()));
    assert_eq!(dev.run("events -l team=z").2, "no observers\n");
    let (_, _, beside) = dev.run("events --since 10m --limit 1");
    assert!(beside.contains("the newest 1 of "), "{beside}");
    for _ in 0..6 {
        assert_eq!(dev.run("observer pause one --wait 20s").0, Some(0));
        assert_eq!(dev.run("observer resume one --wait 20s").0, Some(0));
    }
    let (_, said, beside) = dev.run("observer events one --no-headers");
    assert!(beside.starts_with("the newest 20 of ") && beside.contains("`--limit` shows more"), "{beside}");
    assert_eq!(said.lines().count(), 20);
    assert_eq!(dev.run("observer events one --limit 5").2, "");

    let following = Going::start(&dev, &["events", "-l", "team=x", "-f", "--since", "0s", "-o", "wide"]);
    assert_eq!(dev.run("observer pause three --wait 20s").0, Some(0));
    assert_eq!(dev.run("observer pause two --wait 20s").0, Some(0));
    following.until("the pause of a selected observer", |said| said.contains("two")).await;
    assert!(!following.said().contains("three"), "{}", following.said());
}

/// Another HTTP server.
fn foreign(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _read = client.read(&mut [0; 4096]);
            let _written = client.write_all(answer.as_bytes());
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_is_no_manager_is_recognized() {
    let dev = Dev::start(1, 1).await;
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 15\r\nconnection: close\r\n\r\n<html>hi</html>";
    let absent = "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot found";
    for answer in [page, absent] {
        let url = foreign(answer);
        for words in ["observer list", "observer get one", "service list"] {
            let (code, _, beside) = dev.run(&format!("--server {url} {words}"));
            let told = format!("the server at {url} did not answer as an Everwatch manager does");
            assert!(code == Some(1) && beside.contains(&told), "{words}: {code:?} {beside}");
        }
    }
    // `health` checks the manager that the command line names.
    let url = dev.api.url.clone();
    assert_eq!(dev.run(&format!("--server {url} health")).0, Some(0));
    assert_eq!(dev.run("--server http://127.0.0.1:9 health").0, Some(1));
}
