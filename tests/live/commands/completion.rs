//! The completion of names in a real shell.

use everwatch_tests::cluster::everwatch;
use everwatch_tests::dev::Dev;
use everwatch_tests::terminal::Terminal;
use serde_json::json;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The candidates for the last of these words, as bash receives them.
fn candidates(dev: &Dev, environment: &[(&str, &str)], words: &[&str]) -> Vec<String> {
    let mut command = dev.command(&[]);
    command.args(["--", "everwatch"]).args(words).env("EVERWATCH_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let ended = command.envs(environment.iter().copied()).output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{words:?}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn names_of_the_manager_are_completed() {
    let dev = Dev::start(2, 5).await;
    for name in ["prices-nyse", "prices-xetra", "news"] {
        dev.api.create(json!({"name": name, "kind": "ticker", "labels": {"app": "prices"}})).await;
    }
    let of = |words: &[&str]| candidates(&dev, &[], words);
    assert_eq!(of(&["observer", "get", "pri"]), ["prices-nyse", "prices-xetra"]);
    assert_eq!(of(&["observer", "get", ""]), ["news", "prices-nyse", "prices-xetra"]);
    assert_eq!(of(&["observer", "get", "news", "prices-x"]), ["prices-xetra"]);
    assert_eq!(of(&["observer", "logs", "n"]), ["news"]);
    assert_eq!(of(&["observer", "create", "n"]), [""; 0]);
    assert_eq!(of(&["service", "drain", "service"]), ["service-1", "service-2"]);
    assert_eq!(of(&["observer", "list", "--kind", "ti"]), ["ticker"]);
    assert_eq!(of(&["observer", "list", "--pool", "d"]), ["default"]);
    assert_eq!(of(&["observer", "list", "--service=service-1"]), ["--service=service-1"]);
    assert_eq!(of(&["-n", "def"]), ["default"]);
    assert_eq!(of(&["pool", "describe", "d"]), ["default"]);
    assert_eq!(of(&["kind", "describe", "web"]), ["websocket"]);
    assert_eq!(of(&["observer", "list", "-o", "js"]), ["json", "jsonpath="]);
    assert_eq!(of(&["observer", "list", "--health", "waiting,m"]), ["waiting,moving"]);
    assert_eq!(of(&["observer", "list", "--reason", "pool"]), ["pool-is-full"]);
    assert_eq!(of(&["observer", "list", "-l", "app"]), ["app=prices"]);
    assert_eq!(of(&["observer", "desc"]), ["describe"]);
    // What the line names counts: this namespace has no observers, and nothing listens there.
    assert_eq!(of(&["-n", "other", "observer", "get", "pri"]), [""; 0]);
    assert_eq!(of(&["--server", "http://127.0.0.1:9", "observer", "get", "pri"]), [""; 0]);
    assert_eq!(candidates(&dev, &[("EVERWATCH_SERVER", "wrong")], &["observer", "get", "pri"]), [""; 0]);
    assert_eq!(
        candidates(
            &dev,
            &[("EVERWATCH_SERVER", "wrong")],
            &["--server", &dev.api.url, "observer", "get", "ne"]
        ),
        ["news"]
    );
}

#[tokio::test]
async fn the_context_is_used_and_completed() {
    let dev = Dev::start(1, 5).await;
    dev.api.create(json!({"name": "news", "kind": "ticker"})).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("everwatch")).unwrap();
    let text = format!("current = \"here\"\n[contexts.here]\nserver = \"{}\"\n", dev.api.url);
    std::fs::write(folder.path().join("everwatch/config.toml"), text).unwrap();
    let environment = [("EVERWATCH_SERVER", ""), ("XDG_CONFIG_HOME", folder.path().to_str().unwrap())];
    assert_eq!(candidates(&dev, &environment, &["observer", "describe", "n"]), ["news"]);
    assert_eq!(candidates(&dev, &environment, &["context", "use", "h"]), ["here"]);
}

#[tokio::test]
async fn a_manager_that_does_not_answer_delays_the_shell_for_a_second() {
    let dev = Dev::start(1, 1).await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    assert_eq!(candidates(&dev, &[("EVERWATCH_SERVER", &server)], &["observer", "get", "x"]), [""; 0]);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test]
async fn bash_completes_a_name() {
    let dev = Dev::start(1, 5).await;
    dev.api.create(json!({"name": "prices-nyse", "kind": "ticker"})).await;
    dev.api.until_status("prices-nyse", "Processing").await;
    let shell = Terminal::open(&dev.api.url, (100, 30)).await;
    shell.runs("PS1='bash> ' bash --norc --noprofile");
    shell.until("bash", |screen| screen.contains("bash> ")).await;
    shell.runs("eval \"$(everwatch completion bash)\"; echo loa''ded");
    shell.until("the script", |screen| screen.contains("loaded")).await;
    shell.types("everwatch observer get pri");
    shell.presses(&["Tab"]);
    shell.until("the name", |screen| screen.contains("get prices-nyse")).await;
    shell.runs(" -o jsonpath={.kind}");
    shell.until("the answer", |screen| screen.lines().any(|line| line == "ticker")).await;
}

#[test]
fn each_shell_has_a_script() {
    for (shell, part) in [
        ("bash", "complete -o nospace"),
        ("zsh", "_clap_dynamic_completer_everwatch \"$@\""),
        ("fish", "complete --keep-order"),
        ("elvish", "arg-completer[everwatch]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let ended =
            Command::new(everwatch()).args(["completion", shell]).stdin(Stdio::null()).output().unwrap();
        let script = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success() && script.contains(part), "{shell}: {script}");
        assert!(script.contains("EVERWATCH_COMPLETE"), "{shell}: {script}");
    }
}
