//! The command line against a real manager: all output formats, commands that follow changes, and exit codes.

mod bulk;
mod chaos;
mod completion;
mod edit;
mod examples;
mod forms;
mod new;
mod reading;
mod top;
mod top_views;
mod waiting;
mod walk;

use everwatch_api::{Event, Observer};
use everwatch_core::observer::definition::Overlap;
use everwatch_tests::dev::Dev;
use everwatch_tests::said_by;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

/// A command that runs until it is killed; dropping it kills the command.
struct Going {
    process: Child,
    said: Arc<Mutex<String>>,
}

impl Going {
    fn start(dev: &Dev, arguments: &[&str]) -> Self {
        let mut process = dev.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let said = said_by(process.stdout.take().unwrap());
        Self { process, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    async fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        wait_for(what, || async { if is_there(&self.said()) { Ok(()) } else { Err(self.said()) } }).await;
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[tokio::test]
async fn every_form_of_an_answer_says_the_same() {
    let dev = Dev::start(1, 5).await;
    for name in ["one", "two"] {
        dev.api.create(json!({"name": name, "kind": "ticker", "labels": {"app": "x"}})).await;
        dev.api.until_status(name, "Processing").await;
    }
    let (code, table, _) = dev.run("observer list");
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("NAME  KIND"), "{table}");
    assert!(
        lines[1].contains("one") && lines[1].contains("service-1") && !table.contains('\u{1b}'),
        "{table}"
    );
    let (_, wide, _) = dev.run("observer list -o wide");
    assert!(wide.contains("app=x") && wide.contains("RUNS FOR"), "{wide}");
    assert_eq!(dev.run("observer list -o name").1, "one\ntwo\n");
    let one: Observer = serde_json::from_str(&dev.run("observer get one -o json").1).unwrap();
    assert_eq!(one.name, "one");
    let (_, yaml, _) = dev.run("observer get one -o yaml");
    assert!(yaml.contains("name: one\n") && yaml.contains("spec: {}") && yaml.contains("app: x"), "{yaml}");
    let (_, told, _) = dev.run("observer describe one");
    for part in ["Name:", "Status:", "Retry:", "Spec:", "Runs:", "started", "service-1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // The next heartbeat counts them.
    dev.api.until_service("service-1", |it| it.held == 2).await;
    let (_, told, _) = dev.run("service describe service-1");
    for part in ["2 of 5 held, 3 free", "Last heartbeat:", "two", "service_registered"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // An empty result is no failure; the notice goes to standard error.
    assert_eq!(dev.run("observer list -q absent"), (Some(0), String::new(), "no observers\n".to_owned()));
    assert_eq!(dev.run("observer list -q absent -o json").1, "[]\n");
    assert_eq!(dev.run("observer list --sort -name --limit 1 -o name").1, "two\n");
    for words in [
        "service list -o wide",
        "pool list -o yaml",
        "parked list",
        "events -o name",
        "service get service-1",
    ] {
        let (code, _, said) = dev.run(words);
        assert_eq!(code, Some(0), "{words}: {said}");
    }
}

#[tokio::test]
async fn the_manager_is_found_by_the_configuration_file() {
    let dev = Dev::start(1, 1).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let address = dev.api.url.trim_start_matches("http://");
    std::fs::write(file.path(), format!("[manager]\nlisten = \"{address}\"\n")).unwrap();
    let config = file.path().to_str().unwrap();
    let asked = |more: &[&str]| {
        let mut command =
            dev.command(&[&["service", "list", "-o", "name", "--config", config], more].concat());
        command.env_remove("EVERWATCH_SERVER").output().unwrap()
    };
    let found = asked(&[]);
    assert_eq!(String::from_utf8_lossy(&found.stdout), "service-1\n", "{found:?}");
    assert_eq!(asked(&["--server", "http://127.0.0.1:9"]).status.code(), Some(6), "what is given counts");
}

#[tokio::test]
async fn mistakes_end_at_once_and_name_what_is_missing() {
    let dev = Dev::start(1, 5).await;
    // The environment names the manager here.
    let (code, _, beside) = dev.run("observer create x");
    assert!(code == Some(2) && beside.contains("--kind") && !beside.contains("--server"), "{beside}");
    assert_eq!(dev.run("observer create gone --kind ticker --paused").0, Some(0));
    assert_eq!(dev.run("observer delete gone --wait 20s").0, Some(0));
    let (code, _, beside) = dev.run("observer wait gone --for status=Processing --timeout 10m");
    assert!(
        code == Some(4) && beside.contains("gone is deleted, so it never becomes Processing"),
        "{beside}"
    );
}

#[tokio::test]
async fn several_names_are_worked_on_and_the_first_failure_decides() {
    let dev = Dev::start(1, 5).await;
    let (code, said, _) =
        dev.run("observer create one --kind ticker --label app=x --overlap forbid --grace 3s --wait 20s");
    assert_eq!((code, said.as_str()), (Some(0), "observer one is Processing (running)\n"));
    let it = dev.api.observer("one").await;
    assert_eq!((it.overlap, it.grace.as_str()), (Overlap::Forbid, "3s"));
    assert_eq!(
        dev.run("observer create two --kind ticker --paused").1,
        "observer two is created (Paused); see `everwatch observer get two`\n"
    );
    let (code, said, beside) = dev.run("observer pause one none two");
    assert_eq!(code, Some(3), "{said} {beside}");
    assert!(said.contains("observer one pauses") && said.contains("observer two is paused"), "{said}");
    assert!(
        beside.contains("none: there is no observer `none` in namespace default")
            && beside.contains("2 of 3 done, 1 failed"),
        "{beside}"
    );
    dev.api.until_status("one", "Paused").await;
    assert!(
        dev.run("observer delete one two --dry-run")
            .1
            .contains("two would be deleted; current status: Paused")
    );
    dev.api.until_status("two", "Paused").await;
    let (code, said, _) = dev.run("observer delete one two --wait 20s");
    assert_eq!((code, said.as_str()), (Some(0), "observer one is deleted\nobserver two is deleted\n"));
}

#[tokio::test]
async fn a_watch_tells_each_change_in_a_line_of_its_own() {
    let dev = Dev::start(1, 5).await;
    dev.api.create(json!({"name": "one", "kind": "ticker"})).await;
    dev.api.until_status("one", "Processing").await;
    let table = Going::start(&dev, &["observer", "list", "--watch"]);
    let names = Going::start(&dev, &["observer", "list", "--watch", "-o", "name"]);
    table.until("the first table", |said| said.contains("Processing")).await;
    names.until("the first name", |said| said == "one\n").await;
    assert_eq!(dev.run("observer pause one").0, Some(0));
    table.until("the pause", |said| said.contains("Paused")).await;
    dev.api.create(json!({"name": "two", "kind": "ticker"})).await;
    table.until("the second", |said| said.contains("two ")).await;
    names.until("the second name", |said| said.contains("two\n")).await;
    let said = table.said();
    assert_eq!(said.matches("NAME").count(), 1, "{said}");
}

#[tokio::test]
async fn followed_events_go_on_after_the_history_and_none_is_told_twice() {
    let dev = Dev::start(1, 5).await;
    dev.api.create(json!({"name": "one", "kind": "ticker"})).await;
    dev.api.until_status("one", "Processing").await;
    let all = Going::start(&dev, &["events", "-f", "-o", "json"]);
    let one = Going::start(&dev, &["observer", "events", "one", "-f", "--type", "started,pause_requested"]);
    all.until("the history", |said| said.contains("service_registered")).await;
    one.until("its start", |said| said.contains("started")).await;
    dev.api.create(json!({"name": "two", "kind": "ticker"})).await;
    assert_eq!(dev.run("observer pause one").0, Some(0));
    one.until("the pause", |said| said.contains("pause_requested")).await;
    all.until("the stop", |said| said.contains("\"stopped\"")).await;
    assert!(!one.said().contains("two") && !one.said().contains("stopped"), "{}", one.said());
    let told = all.said();
    // The history is in the order of the times, so two events that were recorded in another order may change places.
    let mut ids: Vec<i64> =
        told.lines().map(|line| serde_json::from_str::<Event>(line).unwrap().id).collect();
    ids.sort_unstable();
    assert_eq!(ids, Vec::from_iter(1..=ids.len() as i64), "each event once, and none is left out");
}

#[tokio::test]
async fn manual_pages_and_completion_come_out_of_the_program() {
    let dev = Dev::start(1, 1).await;
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = dev.run(&format!("man {}", folder.path().display()));
    assert_eq!(code, Some(0), "{said}");
    let page = std::fs::read_to_string(folder.path().join("everwatch-observer-create.1")).unwrap();
    assert!(page.contains(".SH OPTIONS") && page.contains("on\\-full"), "{page}");
    let (code, _, said) = dev.run("man /nowhere/at/all");
    assert!(code == Some(2) && said.contains("not a folder"), "{said}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = dev.run(&format!("completion {shell}"));
        assert!(code == Some(0) && script.contains("EVERWATCH_COMPLETE"), "{shell}");
    }
    // A reader that closes the pipe early causes no failure.
    let mut process = dev.command(&["completion", "zsh"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}
