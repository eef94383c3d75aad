//! The implementations of a service, in Rust and in Python, against the rules of the protocol.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, example, from_environment};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The interpreter of an environment with the package and its development tools.
fn python() -> PathBuf {
    from_environment("EVERWATCH_TEST_PYTHON").into()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn check(worker: &str, rules: &[&str]) -> Output {
    let mut command = Command::new(from_environment("EVERWATCH_BIN"));
    command.args([
        "conformance",
        "--broker",
        &from_environment("EVERWATCH_TEST_AMQP_URL"),
        "--command",
        worker,
    ]);
    if !rules.is_empty() {
        command.args(["--rule", &rules.join(",")]);
    }
    run(&mut command)
}

fn follows_every_rule(worker: &str) {
    let output = check(worker, &[]);
    let said = said(&output);
    assert!(output.status.success() && said.contains(" 0 broken"), "{said}");
}

fn python_worker() -> String {
    let example = repository().join("sdk/python/examples/conformance_worker.py");
    format!("{} {}", python().display(), example.display())
}

#[test]
fn the_service_in_rust_follows_every_rule() {
    follows_every_rule(&example("conformance_worker").display().to_string());
}

#[test]
fn the_service_in_python_follows_every_rule() {
    follows_every_rule(&python_worker());
}

/// Each variable removes one precaution of the worker; the checker must name the rule.
#[test]
fn a_worker_that_breaks_rules_is_found_out() {
    let worker =
        format!("{} {}", python().display(), repository().join("tests/live/conformance/broken.py").display());
    for (mistake, rule) in [
        ("acks_before_the_confirm", "confirm-before-ack"),
        ("ignores_revocations", "revoked-never-starts"),
        ("reports_the_same_epoch", "epoch"),
        ("drops_unknown_kinds", "unknown-kind"),
        ("has_no_fence", "silent-broker"),
        ("misses_closed_channels", "closed-channel"),
        ("keeps_its_id", "closed-connection"),
    ] {
        let output = check(&format!("env MISTAKE={mistake} {worker}"), &[rule]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{mistake}: {said}");
        assert!(said.contains(&format!("BROKEN  {rule}")), "{mistake}: {said}");
    }
}

#[test]
fn the_python_package_passes_its_own_checks() {
    let package = repository().join("sdk/python");
    for arguments in [
        &["-m", "ruff", "check", "--no-cache", "."][..],
        &["-m", "ruff", "format", "--no-cache", "--check", "."],
        &["-m", "mypy", "--cache-dir", "/dev/null"],
        &["-m", "pytest", "-q", "-p", "no:cacheprovider"],
    ] {
        let output = run(Command::new(python()).args(arguments).current_dir(&package));
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    for (arguments, word) in [
        (&["--command", "true", "--broker", "amqps://host"][..], "--broker: give an amqp:// URL"),
        (&["--command", "true", "--rule", "epoh"], "--rule: `epoh` is not a rule"),
        (&[], "--command"),
    ] {
        let mut command = Command::new(from_environment("EVERWATCH_BIN"));
        let output = run(command.arg("conformance").args(arguments));
        assert_eq!(
            (output.status.code(), said(&output).contains(word)),
            (Some(2), true),
            "{}",
            said(&output)
        );
    }
}

/// An observer whose kind services in both languages offer survives the death of each of them.
#[tokio::test]
async fn an_observer_moves_between_services_in_python_and_in_rust() {
    let mut cluster = Cluster::new("languages");
    cluster.manager().await;
    let rust = cluster.service_program.clone();
    let python = program(cluster.scratch.path(), "tests/live/conformance/ticker.py");
    cluster.service_program = python.clone();
    cluster.service("python-1", 10).await;
    for number in 0..5 {
        cluster
            .api
            .create(json!({"name": format!("o{number}"), "kind": "ticker", "spec": {"every": "1s"}}))
            .await;
    }
    until_all_on(&cluster, "python-1").await;
    cluster.service("python-2", 10).await;
    cluster.kill("python-1");
    until_all_on(&cluster, "python-2").await;
    cluster.service_program = rust;
    cluster.service("rust", 10).await;
    cluster.kill("python-2");
    until_all_on(&cluster, "rust").await;
    cluster.service_program = python;
    cluster.service("python-3", 10).await;
    cluster.kill("rust");
    until_all_on(&cluster, "python-3").await;
}

/// An executable, in this folder, that runs a file of this repository with Python.
pub(crate) fn program(folder: &Path, file: &str) -> PathBuf {
    let script = folder.join("python-service");
    let text = format!("#!/bin/sh\nexec {} {}\n", python().display(), repository().join(file).display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

async fn until_all_on(cluster: &Cluster, service: &str) {
    for number in 0..5 {
        let is_there = |it: &Observer| {
            it.status == Status::Processing && it.service.as_ref().is_some_and(|it| it.name == service)
        };
        cluster.api.until_observer(&format!("o{number}"), is_there).await;
    }
}
