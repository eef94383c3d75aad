//! A program with its own kinds: its subcommand `dev`, and its arguments.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{example, free_address};
use everwatch_tests::dev::Dev;
use everwatch_tests::http::holder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::process::Command;

#[tokio::test]
async fn dev_of_a_program_runs_its_own_kinds_and_shows_a_failover() {
    let watched = tempfile::NamedTempFile::new().unwrap();
    let mut dev = Dev::start_by(Command::new(example("file_watch")), &free_address(), (2, 10)).await;
    let api = &dev.api;
    let kinds: Value = api.read("/v1/kinds").await;
    let names: Vec<&str> =
        kinds["items"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["file-watch"], "{kinds}");
    api.create(json!({"name": "watch", "kind": "file-watch", "spec": {"path": watched.path()}})).await;
    let before = api.until_status("watch", "Processing").await;
    let owner = holder(&before).unwrap();
    let (code, _, said) = dev.run(&format!("chaos kill {owner}"));
    assert_eq!(code, Some(0), "{said}");
    let runs_on_another =
        |it: &Observer| it.status == Status::Processing && holder(it).is_some_and(|service| service != owner);
    api.until_observer("watch", runs_on_another).await;
    kill(Pid::from_raw(i32::try_from(dev.process.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(dev.process.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_arguments_and_a_missing_file_are_named() {
    for (arguments, named) in [
        (&["devv"] as &[&str], "devv"),
        (&["dev", "--servces", "2"], "--servces"),
        (&["dev", "--services", "0"], "1..=100"),
        (&["dev", "--listen", "0.0.0.0:7700"], "--listen 127.0.0.1:7700"),
        (&["--config", "/no/such/file"], "/no/such/file"),
    ] {
        let ended = Command::new(example("file_watch")).args(arguments).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    let help = Command::new(example("file_watch")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("dev") && help.contains("--config"), "{help}");
}
