//! The output of observers, over HTTP and on the command line, while a service is killed.

use everwatch_api::Logs;
use everwatch_tests::cluster::{Cluster, brokers, everwatch};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A program that counts on both streams, with its epoch in every line.
fn counts() -> Value {
    let script = "echo begun >&2; n=0; while :; do n=$((n+1)); echo $EVERWATCH_EPOCH $n; sleep 0.1; done";
    json!({"argv": ["/bin/sh", "-c", script]})
}

fn texts(logs: &Logs) -> Vec<&str> {
    logs.items.iter().map(|line| line.text.as_str()).collect()
}

/// A command that runs on, and what it has said; killed on drop.
struct Following {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Following {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut command = Command::new(everwatch());
        command.args(arguments).envs(cluster.environment()).env("EVERWATCH_SERVER", &cluster.api.url);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let errors = writer.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, said }
    }

    /// Waits until the output satisfies a condition.
    async fn until(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        wait_for(what, || async {
            let said = self.said.lock().unwrap().clone();
            if is_right(&said) { Ok(said) } else { Err(said) }
        })
        .await
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Services that keep lines in files: each has a folder of its own.
fn keeps_lines(cluster: &mut Cluster, service: &str) {
    let folder = cluster.folder(&format!("lines-{service}"));
    cluster.extra.push(("EVERWATCH_SERVICE__LOG_DIR".to_owned(), folder.display().to_string()));
}

#[tokio::test]
async fn the_next_process_of_a_killed_service_has_its_lines() {
    let mut cluster = Cluster::new("kept-lines");
    cluster.manager().await;
    keeps_lines(&mut cluster, "a");
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "counts", "kind": "exec", "spec": counts()})).await;
    let script = "echo last words; exit 7";
    let ends = json!({"argv": ["/bin/sh", "-c", script], "exit_codes": {"7": "failed"}});
    api.create(json!({"name": "ends", "kind": "exec", "spec": ends})).await;
    api.until_status("ends", "Failed").await;
    let before = until_lines(&api, "/v1/observers/counts/logs", |lines| lines.len() > 5).await;
    cluster.kill("a");
    let of_a = cluster.extra.pop().unwrap();
    keeps_lines(&mut cluster, "b");
    cluster.service("b", 10).await;
    until_lines(&api, "/v1/observers/counts/logs", |lines| lines.len() > 5).await;
    let previous = ["observer", "logs", "counts", "--previous", "--tail", "1000"];
    let (code, said) = cluster.command(&previous);
    assert!(code == Some(0) && said.contains("no lines of run 1.0 on service a are left"), "{said}");

    cluster.extra.pop();
    cluster.extra.push(of_a);
    cluster.service("a", 10).await;
    let kept =
        until_lines(&api, "/v1/observers/counts/logs?run=previous&tail=1000", |it| !it.is_empty()).await;
    let ids = |logs: &Logs| logs.items.iter().map(|line| line.id.clone()).collect::<Vec<_>>();
    let (kept_ids, known) = (ids(&kept), ids(&before));
    assert!(known.iter().all(|id| kept_ids.contains(id)), "{known:?} of {kept_ids:?}");
    assert!(kept_ids.iter().all(|id| id.starts_with("1.0.")), "{kept_ids:?}");
    assert_eq!(kept.service.as_ref().map(|it| it.name.as_str()), Some("a"));
    let (code, said) = cluster.command(&previous);
    assert!(code == Some(0) && said.contains("begun") && said.contains(" 3\n"), "{said}");
    // The service that has seen its end is dead, and nobody runs it any more.
    let last = until_lines(&api, "/v1/observers/ends/logs", |lines| !lines.is_empty()).await;
    assert!(texts(&last).contains(&"last words"), "{last:?}");
    for (arguments, code, told) in [
        (["ends", "--previous"], 3, "no run of observer ends before the newest one is known"),
        (["counts", "--run=9.9"], 3, "no run 9.9 of observer counts is known"),
        (["counts", "--run=last"], 2, "the epoch of a run, such as 3.1, or `previous`"),
    ] {
        let (ended, said) = cluster.command(&["observer", "logs", arguments[0], arguments[1]]);
        assert!(ended == Some(code) && said.contains(told), "{ended:?} {said}");
    }
}

#[tokio::test]
async fn a_folder_for_lines_that_cannot_be_written_ends_the_service_with_the_cure() {
    for (folder, told) in [
        ("lines", "service.log_dir: `lines` is not an absolute path"),
        ("/no/such", "service.log_dir: cannot write to `/no/such`: No such file or directory"),
    ] {
        let mut cluster = Cluster::new("no-lines");
        cluster.extra.push(("EVERWATCH_SERVICE__LOG_DIR".to_owned(), folder.to_owned()));
        let (code, said) = cluster.command(&["run", "service"]);
        assert!(code == Some(2) && said.contains(told), "{code:?} {said}");
    }
}

async fn until_lines(api: &Api, path: &str, is_right: impl Fn(&[&str]) -> bool) -> Logs {
    api.until_read(path, |logs| is_right(&texts(logs))).await
}

#[tokio::test]
async fn logs_are_followed_from_a_killed_service_to_the_next() {
    for (version, url) in brokers() {
        kill_and_follow(&version, Cluster::new("logs").on(&url)).await;
    }
}

async fn kill_and_follow(what: &str, mut cluster: Cluster) {
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "counts", "kind": "exec", "spec": counts()})).await;
    let path = "/v1/observers/counts/logs";
    let logs = until_lines(&api, path, |lines| lines.len() > 5).await;
    let epoch = 1_u64 << 32;
    let has = |stream: &str, text: &str| logs.items.iter().any(|it| it.stream == stream && it.text == text);
    assert!(has("stderr", "begun") && has("stdout", &format!("{epoch} 3")), "{logs:?}");
    let (code, said) = cluster.command(&["observer", "logs", "counts", "--tail", "2", "-o", "raw"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    assert!(said.lines().all(|line| line.starts_with(&epoch.to_string())), "{said}");

    let following = Following::start(&cluster, &["observer", "logs", "counts", "-f", "--tail", "1"]);
    following.until("a line of a", |said| said.contains(&format!(" {epoch} "))).await;
    cluster.service("b", 10).await;
    cluster.kill("a");
    let of_b = |said: &str| {
        let moved = said.split_once("— moved to b (epoch 1.");
        moved.is_some_and(|(_, after)| after.lines().count() > 12)
    };
    let said = following.until("lines of b", of_b).await;
    let (before, after) = said.split_once("— moved to b").unwrap();
    let lines = (before.matches(" stdout ").count(), before.matches(&format!(" {epoch} ")).count());
    assert!(lines.0 == lines.1 && !after.contains(&format!(" {epoch} ")), "{what}: {said}");
    assert_whole(what, after);

    // The manager restarts: the command continues after the last line.
    cluster.kill("manager");
    following.until("the end of the stream", |said| said.contains("connection lost")).await;
    cluster.manager().await;
    let goes_on = |said: &str| {
        let Some((_, after)) = said.split_once("connection lost") else { return false };
        after.lines().filter(|line| line.contains(" stdout ")).count() > 5
    };
    let said = following.until("lines after the manager's return", goes_on).await;
    let (_, after) = said.split_once("— moved to b").unwrap();
    assert_whole(what, after);

    api.call("DELETE", "/v1/observers/counts?wait=20s", None).await;
    following.until("the end", |said| said.ends_with("— the observer is deleted and does not run —\n")).await;
}

/// Checks that every line of the run appears exactly once, starting with the first.
fn assert_whole(what: &str, said: &str) {
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    let numbers: Vec<u32> = said.lines().filter(|line| line.contains(" stdout ")).map(number).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.last().copied().unwrap()), "{what}: {said}");
}

#[tokio::test]
async fn logs_tell_of_errors_of_ends_and_of_what_does_not_run() {
    let mut cluster = Cluster::new("log-ends");
    cluster.extra.push(("EVERWATCH_SERVICE__LOG_LINES".to_owned(), "20".to_owned()));
    cluster.manager().await;
    let api = cluster.api.clone();
    api.create(json!({"name": "waits", "kind": "ticker", "on_full": "queue"})).await;
    let waits: Logs = api.read("/v1/observers/waits/logs").await;
    assert!(waits.items.is_empty() && waits.service.is_none(), "{waits:?}");
    assert!(waits.reason.starts_with("the observer does not run: waiting for a slot"), "{waits:?}");
    cluster.service("a", 10).await;
    until_lines(&api, "/v1/observers/waits/logs", |lines| lines.contains(&"tick 1")).await;

    let script = "printf 'without an end'; exit 3";
    let retry = json!({"kind": "fixed", "every": "100ms", "attempts": 2});
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    api.create(json!({"name": "fails", "kind": "exec", "spec": spec, "retry": retry})).await;
    api.until_status("fails", "Failed").await;
    let logs: Logs = api.read("/v1/observers/fails/logs").await;
    let ended = |start: u32| format!("attempt {start} ended with an error: exited with code 3");
    assert_eq!(texts(&logs), ["without an end", &ended(1), "without an end", &ended(2)]);
    assert!(logs.reason.starts_with("the observer does not run: "), "{logs:?}");
    let (code, said) = cluster.command(&["observer", "logs", "fails", "-f"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("log    attempt 2 ended") && said.ends_with("attempts: exited with code 3 —\n"),
        "{said}"
    );

    let spec = json!({"argv": ["/bin/sh", "-c", "seq 1 5000; exec sleep 1000"]});
    api.create(json!({"name": "floods", "kind": "exec", "spec": spec})).await;
    let flood = until_lines(&api, "/v1/observers/floods/logs?after=1.0.1&tail=1000", |lines| {
        lines.last().is_some_and(|line| *line == "5000")
    })
    .await;
    assert_eq!((flood.items.len(), flood.missed), (20, 4979));

    cluster.kill("a");
    let session_is_over =
        |logs: &Logs| logs.reason.contains("service a has ended, and its lines are not kept");
    api.until_read("/v1/observers/fails/logs", session_is_over).await;
    let (code, said) = cluster.command(&["observer", "logs", "unknown"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(3), "everwatch: there is no observer `unknown` in namespace default\n")
    );
}
