//! Tests of `exec` with real programs under real helpers: this binary is also the helper, so it has a `main`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

use everwatch::Exit;
use everwatch::kinds::exec::run_helper_if_asked;
use everwatch::kinds::{Exec, ExecSettings};
use everwatch::testing::Trial;
use libtest_mimic::{Arguments, Failed, Trial as Test};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    run_helper_if_asked();
    let arguments = Arguments::from_args();
    let tests = vec![
        test("a_line_of_output_tells_readiness", a_line_of_output_tells_readiness),
        test("a_command_tells_readiness", a_command_tells_readiness),
        test(
            "a_program_that_is_not_ready_in_time_is_stopped",
            a_program_that_is_not_ready_in_time_is_stopped,
        ),
        test("a_program_that_fails_its_checks_is_stopped", a_program_that_fails_its_checks_is_stopped),
        test("a_silent_program_is_stopped", a_silent_program_is_stopped),
        test("a_program_speaks_on_its_channel", a_program_speaks_on_its_channel),
        test("a_checkpoint_comes_back_at_the_next_start", a_checkpoint_comes_back_at_the_next_start),
        test("wrong_lines_on_the_channel_are_answered", wrong_lines_on_the_channel_are_answered),
        test("only_the_program_itself_gets_the_channel", only_the_program_itself_gets_the_channel),
        test("exit_codes_mean_what_the_spec_says", exit_codes_mean_what_the_spec_says),
        test("restarts_within_a_minute_are_limited", restarts_within_a_minute_are_limited),
        test("lines_within_a_second_are_limited", lines_within_a_second_are_limited),
        test("a_wrong_spec_names_its_member", a_wrong_spec_names_its_member),
    ];
    libtest_mimic::run(&arguments, tests).exit_code()
}

fn test<F: Future<Output = ()> + 'static>(name: &str, code: fn() -> F) -> Test {
    Test::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(code());
        Ok::<(), Failed>(())
    })
}

/// Runs a script, which is given the folder as `$1`.
#[expect(clippy::needless_pass_by_value, reason = "the calls are shorter")]
fn start(script: &str, folder: &Path, more: Value) -> Trial {
    let mut spec = json!({"argv": ["/bin/sh", "-c", script, "script", folder]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run(spec)
}

fn run(spec: Value) -> Trial {
    let exec: Exec = serde_json::from_value(spec).unwrap();
    // Nothing sends heartbeats here.
    let settings =
        ExecSettings { allow: vec!["*".to_owned()], fence_after: 4 * PATIENCE, ..ExecSettings::default() };
    Trial::builder(exec).share(settings).start()
}

async fn until_logged(trial: &Trial, text: &str) {
    let begun = Instant::now();
    while !has_logged(trial, text) {
        assert!(begun.elapsed() < PATIENCE, "no line `{text}` in {:?}", trial.logged());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_lines(trial: &Trial, count: usize) {
    let begun = Instant::now();
    while trial.logged().len() < count {
        assert!(begun.elapsed() < PATIENCE, "fewer than {count} lines: {:?}", trial.logged());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn has_logged(trial: &Trial, text: &str) -> bool {
    trial.logged().iter().any(|line| line.contains(text))
}

async fn error(mut trial: Trial) -> String {
    trial.ended().await.unwrap().unwrap_err().to_string()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn create(folder: &tempfile::TempDir, name: &str) {
    std::fs::write(folder.path().join(name), "").unwrap();
}

async fn a_line_of_output_tells_readiness() {
    for rule in [json!({"line": r"^listening on port [0-9]+$"}), json!({"contains": "on port"})] {
        let folder = folder();
        let script = r#"echo starting; while [ ! -e "$1/go" ]; do sleep 0.02; done; echo listening on port 80 >&2; exec sleep 1000"#;
        let trial = start(script, folder.path(), json!({ "ready": rule }));
        until_logged(&trial, "starting").await;
        assert!(!trial.logged().contains(&"ready".to_owned()));
        create(&folder, "go");
        until_logged(&trial, "ready").await;
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    }
}

async fn a_command_tells_readiness() {
    let folder = folder();
    let ready = json!({"command": ["/bin/sh", "-c", "test -e \"$0/go\"", folder.path()], "every": "100ms"});
    let trial = start("echo up; exec sleep 1000", folder.path(), json!({ "ready": ready }));
    until_logged(&trial, "up").await;
    assert!(!trial.logged().contains(&"ready".to_owned()));
    create(&folder, "go");
    until_logged(&trial, "ready").await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

async fn a_program_that_is_not_ready_in_time_is_stopped() {
    let folder = folder();
    let ready = json!({"command": ["/bin/sh", "-c", "echo no such table; exit 4"], "every": "100ms", "within": "500ms"});
    let script = r#"trap 'echo told to stop; exit 0' TERM; while :; do sleep 0.05; done"#;
    let mut trial = start(script, folder.path(), json!({ "ready": ready }));
    let told = trial.ended().await.unwrap().unwrap_err().to_string();
    assert_eq!(told, "not ready within 500ms; `ready.command`: exited with code 4: no such table");
    assert!(has_logged(&trial, "told to stop"), "{:?}", trial.logged());
    // A command that does not end is killed with all that it has started.
    let hangs = json!({"command": ["/bin/sh", "-c", "sleep 1000 & echo $! >\"$0/pid\"; wait", folder.path()], "timeout": "200ms", "within": "1s"});
    let told = error(start("exec sleep 1000", folder.path(), json!({ "ready": hangs }))).await;
    assert!(told.contains("not within 200ms"), "{told}");
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} outlives its check");
}

async fn a_program_that_fails_its_checks_is_stopped() {
    let folder = folder();
    create(&folder, "healthy");
    let live = json!({"command": ["/bin/sh", "-c", "test -e \"$0/healthy\"", folder.path()], "every": "100ms", "failures": 2});
    // It ignores SIGTERM, too.
    let script = r#"trap "" TERM; echo $$ >"$1/pid"; while :; do sleep 0.05; echo tick; done"#;
    let trial = start(script, folder.path(), json!({ "live": live }));
    until_logged(&trial, "tick").await;
    std::fs::remove_file(folder.path().join("healthy")).unwrap();
    assert_eq!(error(trial).await, "`live.command` failed 2 times in a row: exited with code 1");
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} still runs");
}

async fn a_silent_program_is_stopped() {
    let folder = folder();
    let script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done; exec sleep 1000";
    let trial = start(script, folder.path(), json!({"live": {"silence": "400ms"}}));
    until_logged(&trial, "6").await;
    assert_eq!(error(trial).await, "no output for 400ms");
    // What it writes to its channel is no silence.
    let script = r#"i=0; while :; do i=$((i+1)); echo "{\"status\": \"$i\"}" >&$EVERWATCH_FD; sleep 0.1; [ -e "$1/go" ] && exec sleep 1000; done"#;
    let trial = start(script, folder.path(), json!({"live": {"silence": "400ms"}, "channel": true}));
    // Ten of them, a tenth of a second apart, take longer than the silence.
    let signs = || trial.status().map_or(0, |status| status.parse::<u32>().unwrap());
    let begun = Instant::now();
    while signs() < 10 {
        assert!(begun.elapsed() < PATIENCE, "{} signs; {:?}", signs(), trial.logged());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(trial.logged().is_empty(), "{:?}", trial.logged());
    create(&folder, "go");
    assert_eq!(error(trial).await, "no output for 400ms");
}

const PYTHON: &str = r#"
import json, os, signal, sys
channel = os.fdopen(int(os.environ["EVERWATCH_FD"]), "r+b", buffering=0)

def tell(**message):
    channel.write(json.dumps(message).encode() + b"\n")

def ask(**message):
    tell(id=1, **message)
    answer = json.loads(channel.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])

tell(status="starting")
tell(emit={"price": 1.5})
tell(progress=[37, 120])
ask(emit="x" * 300000)
ask(checkpoint={"at": 7})
tell(log="about to be ready")
tell(ready=True)
signal.pause()
"#;

async fn a_program_speaks_on_its_channel() {
    let folder = folder();
    let argv = json!(["/usr/bin/env", "python3", "-c", PYTHON]);
    let mut trial = run(json!({"argv": argv, "channel": true, "ready": {"message": true}}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"price": 1.5}));
    assert_eq!(trial.emitted().await.unwrap(), json!("x".repeat(300_000)));
    // Both lines contain the second one.
    until_lines(&trial, 2).await;
    assert_eq!(trial.logged(), ["about to be ready", "ready"]);
    assert_eq!(trial.status().as_deref(), Some("37 of 120"));
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    // The same from a shell.
    let script = r#"echo '{"emit": "from a shell"}' >&$EVERWATCH_FD; exec sleep 1000"#;
    let mut trial = start(script, folder.path(), json!({"channel": true}));
    assert_eq!(trial.emitted().await.unwrap(), json!("from a shell"));
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

async fn a_checkpoint_comes_back_at_the_next_start() {
    let folder = folder();
    let script = r#"
        count=$((${EVERWATCH_CHECKPOINT:-0} + 1))
        echo "count $count"
        [ "$count" -lt 3 ] || exec sleep 1000
        echo "{\"id\": 1, \"checkpoint\": $count}" >&$EVERWATCH_FD
        read -r answer <&$EVERWATCH_FD
        echo "$answer""#;
    let trial = start(script, folder.path(), json!({"channel": true, "restart": "always"}));
    until_logged(&trial, "count 3").await;
    assert!(has_logged(&trial, r#"{"id":1,"ok":true}"#), "{:?}", trial.logged());
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

async fn wrong_lines_on_the_channel_are_answered() {
    let folder = folder();
    let script = r#"
        echo 'no JSON' >&$EVERWATCH_FD
        echo '{"id": "a", "emmit": 1}' >&$EVERWATCH_FD
        read -r answer <&$EVERWATCH_FD
        echo "answer $answer"
        head -c 1100000 /dev/zero | tr '\0' x >&$EVERWATCH_FD
        printf '\n{"emit": "after"}' >&$EVERWATCH_FD
        sleep 1000 &"#;
    // The program ends while a process that it has started still has the descriptor.
    let mut trial = start(script, folder.path(), json!({"channel": true}));
    assert_eq!(trial.emitted().await.unwrap(), json!("after"));
    assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::Done);
    for text in [
        "EVERWATCH_FD: line 1: `no JSON` is not a JSON object",
        r#"answer {"error":"`emmit` is unknown; write exactly one of `emit`"#,
        "EVERWATCH_FD: line 3: longer than 1048576 bytes",
    ] {
        assert!(has_logged(&trial, text), "no `{text}` in {:?}", trial.logged());
    }
}

async fn only_the_program_itself_gets_the_channel() {
    let folder = folder();
    // The only sockets of a program are its channels.
    let script = r#"sockets=$(readlink /proc/$$/fd/* | grep -c '^socket'); echo "has ${EVERWATCH_FD:+one} $sockets"; exec sleep 1000"#;
    let channels: Vec<_> = (0..5).map(|_| start(script, folder.path(), json!({"channel": true}))).collect();
    let plain: Vec<_> = (0..5).map(|_| start(script, folder.path(), json!({}))).collect();
    for (trials, told) in [(&plain, "has  0"), (&channels, "has one 1")] {
        for trial in trials {
            until_logged(trial, "has ").await;
            assert_eq!(trial.logged(), [told]);
        }
    }
    for trial in channels.into_iter().chain(plain) {
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    }
}

async fn exit_codes_mean_what_the_spec_says() {
    let folder = folder();
    let codes = json!({"0": "retry", "3": "failed", "4": "done"});
    for (code, more, expected) in [
        (0, json!({}), Ok(Exit::Done)),
        (3, json!({}), Err("exited with code 3")),
        (3, json!({ "exit_codes": codes }), Ok(Exit::Failed("exited with code 3".to_owned()))),
        (4, json!({ "exit_codes": codes, "restart": "always" }), Ok(Exit::Done)),
        (0, json!({ "exit_codes": codes, "restart": "always" }), Err("exited with code 0")),
        (5, json!({"restart": "always"}), Err("exited with code 5")),
    ] {
        let ended = start(&format!("exit {code}"), folder.path(), more).ended().await.unwrap();
        assert_eq!(ended.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{code}");
    }
}

async fn restarts_within_a_minute_are_limited() {
    let folder = folder();
    let trial = start("echo once", folder.path(), json!({"restart": "always", "restarts_per_minute": 3}));
    until_logged(&trial, "because of 3 restarts within a minute").await;
    let count = |text: &str| trial.logged().iter().filter(|line| *line == text).count();
    assert_eq!((count("once"), count("exited with code 0; starting again")), (4, 3));
    // A stop does not wait for the pause.
    let begun = Instant::now();
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

async fn lines_within_a_second_are_limited() {
    let folder = folder();
    let script = "i=0; while [ $i -lt 500 ]; do echo $i; i=$((i + 1)); done; sleep 1.2; echo later";
    let mut trial = start(script, folder.path(), json!({"lines_per_second": 5}));
    assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::Done);
    let lines = trial.logged();
    assert_eq!(lines[..5], ["0", "1", "2", "3", "4"]);
    let dropped: usize = lines
        .iter()
        .filter_map(|line| {
            line.strip_suffix(" lines dropped: more than `lines_per_second`")?.parse::<usize>().ok()
        })
        .sum();
    let kept = lines.iter().filter(|line| line.parse::<usize>().is_ok()).count();
    // Each second that the output took keeps five.
    assert_eq!(kept + dropped, 500, "{lines:?}");
    assert!(kept <= 20 && lines.last().unwrap() == "later", "{lines:?}");
}

async fn a_wrong_spec_names_its_member() {
    let folder = folder();
    for (more, told) in [
        (json!({"ready": {"line": "("}}), "`ready.line` is not a usable regular expression"),
        (json!({"ready": {"line": "x", "contains": "y"}}), "`ready`: set exactly one of"),
        (json!({"ready": {"message": true}}), "`ready.message` needs a channel; set `channel` to true"),
        (json!({"ready": {"command": []}}), "`ready.command` names no program"),
        (json!({"live": {}}), "`live`: set `command`, `silence` or both"),
        (json!({"exit_codes": {"256": "done"}}), "`exit_codes`: `256` is not an exit code"),
        (json!({"cwd": "tmp"}), "`tmp` is not an absolute path"),
    ] {
        let ended = start("exit 0", folder.path(), more).ended().await.unwrap().unwrap();
        let Exit::Failed(reason) = ended else { panic!("{told}: it ran") };
        assert!(reason.contains(told), "{reason}");
    }
}
