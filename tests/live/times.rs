//! Observers start at their `start_at`, end at their `finish_at`, and attempts end after their `attempt_timeout`, also while
//! services and managers are killed. They also run only within their windows.

use everwatch_api::{Event, Observer};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const OBSERVERS: usize = 20;
/// How late an observer may end, in ms.
const LATE: i64 = 2000;

fn from_now(secs: u64) -> Timestamp {
    clock::now().plus(Duration::from_secs(secs))
}

/// Of each kind of observer: in the process of the service, and as a child process.
fn finite(number: usize, folder: &Path, finish: Timestamp) -> Value {
    let (kind, spec) = if number.is_multiple_of(2) {
        ("beacon", json!({ "folder": folder }))
    } else {
        ("exec", beacons::exec_spec(folder))
    };
    json!({"name": format!("o{number}"), "kind": kind, "spec": spec, "finish_at": finish.to_string()})
}

fn hours(time_zone: &str, open: &Value) -> Value {
    json!({"windows": {"time_zone": time_zone, "open": open}})
}

/// Every beacon falls silent at most `LATE` after `finish`, and none long before it.
fn judge(what: &str, folder: &Path, finish: Timestamp) {
    let found = beacons::read(folder);
    assert_eq!(found.len(), OBSERVERS, "{what}: not all of them ran");
    let ends = found.iter().map(|(name, runs)| (runs.iter().map(|run| run.last).max().unwrap_or(0), name));
    for (last, name) in ends {
        let late = last - finish.0;
        assert!((-1500..=LATE).contains(&late), "{what}: {name} ended {late} ms after its finish_at");
    }
}

async fn until_all_completed(cluster: &Cluster) -> Vec<Observer> {
    wait_for("all to be completed", || async {
        let all = cluster.api.observers().await;
        let completed = all.iter().filter(|it| it.status == Status::Completed).count();
        if completed == OBSERVERS { Ok(all) } else { Err(format!("{completed} are completed")) }
    })
    .await
}

async fn until_all_run(cluster: &Cluster) {
    wait_for("all to run", || async {
        let running = cluster.api.processing().await.len();
        if running == OBSERVERS { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await;
}

/// Waits until no observer may run any more that had to end at this time.
async fn until_late(end: Timestamp) {
    let late = end.plus(Duration::from_millis(LATE.unsigned_abs()));
    wait_for("the time to be over", || async {
        if clock::now() > late { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn an_observer_starts_and_ends_at_its_times() {
    let mut cluster = Cluster::new("times");
    cluster.manager().await;
    cluster.service("a", 1).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "first", "kind": "ticker"})).await;
    // Its create needs no free slot.
    let (start, finish) = (from_now(3), from_now(7));
    let (start_at, finish_at) = (start.to_string(), finish.to_string());
    let later = json!({"name": "later", "kind": "ticker", "start_at": start_at, "finish_at": finish_at});
    let made = api.create(later).await;
    assert_eq!((made.status, made.start_at, made.finish_at), (Status::Scheduled, Some(start), Some(finish)));
    assert_eq!(made.reason, format!("starts at {start}"));
    let (status, _) = api.call("DELETE", "/v1/observers/first?wait=10s", None).await;
    assert_eq!(status, 200);
    let runs = api.until_status("later", "Processing").await;
    let began = runs.started_at.unwrap();
    assert!(
        began >= start && began.since(start) < Duration::from_millis(LATE.unsigned_abs()),
        "{began} {start}"
    );
    let ended = api.until_status("later", "Completed").await;
    assert_eq!(ended.reason, format!("ended at its finish_at, {finish}"));
    let end = wait_for("the event of its end", || async {
        let events = api.events_of("later").await;
        let end = events.iter().find(|it| it.kind == EventKind::Completed).cloned();
        end.ok_or_else(|| format!("{events:?}"))
    })
    .await;
    assert!(end.at >= finish && end.at.since(finish) < Duration::from_millis(LATE.unsigned_abs()), "{end:?}");
    for action in ["restart", "resume"] {
        let problem = api.refused("POST", &format!("/v1/observers/later/{action}"), None).await;
        assert_eq!((problem.status, problem.code.as_str()), (409, "finish-at-passed"), "{problem:?}");
    }
    // Without the end, it runs again.
    api.done::<Observer>(
        "PATCH",
        "/v1/observers/later",
        Some(json!({"finish_at": null, "start_at": null})),
        200,
    )
    .await;
    api.until_status("later", "Processing").await;
}

#[tokio::test]
async fn times_that_cannot_be_are_refused() {
    let mut cluster = Cluster::new("times-refused");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let later = from_now(60).to_string();
    for (times, pointer, says) in [
        (json!({"finish_at": "2020-01-01T00:00:00Z"}), "/finish_at", "has passed"),
        (json!({"start_at": later, "finish_at": later}), "/finish_at", "must be later than start_at"),
        (json!({"start_at": "tomorrow"}), "/start_at", "RFC 3339"),
        (json!({"start_at": "2030-01-31T09:30:00"}), "/start_at", "RFC 3339"),
        (json!({"attempt_timeout": "0s"}), "/attempt_timeout", "write at least 1s"),
        (json!({"attempt_timeout": "soon"}), "/attempt_timeout", "is not a duration"),
        (hours("Berlin", &json!([{"from": "09:00", "to": "10:00"}])), "/windows/time_zone", "Europe/Berlin"),
        (hours("UTC", &json!([])), "/windows/open", "never run"),
        (hours("UTC", &json!([{"from": "09:00", "to": "09:00"}])), "/windows/open/0/to", "24:00"),
        (hours("UTC", &json!([{"from": "9 am", "to": "10:00"}])), "/windows/open/0/from", "09:30"),
        (
            hours("UTC", &json!([{"days": "workdays", "from": "09:00", "to": "10:00"}])),
            "/windows/open/0/days",
            "mon-fri",
        ),
    ] {
        let mut body = json!({"kind": "ticker"});
        body.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        let problem = cluster.api.refused("POST", "/v1/observers", Some(body)).await;
        let error = &problem.errors[0];
        assert_eq!((problem.status, error.pointer.as_str()), (422, pointer), "{problem:?}");
        assert!(error.detail.contains(says), "{problem:?}");
    }
    let (code, said) =
        cluster.command(&["observer", "create", "x", "--kind", "ticker", "--start-at", "tomorrow"]);
    assert!(code == Some(2) && said.contains("RFC 3339"), "{said}");
    let windowed = ["observer", "create", "x", "--kind", "ticker", "--window"];
    let (code, said) = cluster.command(&[&windowed[..], &["weekdays 9-5", "--time-zone", "UTC"]].concat());
    assert!(code == Some(2) && said.contains("`weekdays` is not a day"), "{said}");
    let (code, said) = cluster.command(&[&windowed[..], &["mon-fri 09:30-16:00"]].concat());
    assert!(code == Some(2) && said.contains("--time-zone"), "{said}");
}

#[tokio::test]
async fn observers_end_in_time_while_no_manager_lives_and_through_a_failover() {
    for (version, url) in brokers() {
        let mut cluster = Cluster::new("finish").on(&url).with_test_kinds();
        cluster.manager().await;
        cluster.service("a", 20).await;
        cluster.service("b", 20).await;
        let folder = cluster.folder("beacons");
        let finish = from_now(12);
        for number in 0..OBSERVERS {
            cluster.api.create(finite(number, &folder, finish)).await;
        }
        until_all_run(&cluster).await;
        cluster.kill("manager");
        cluster.kill("a");
        until_late(finish).await;
        judge(&version, &folder, finish);
        // What the services reported in the meantime waited in the queue.
        cluster.manager().await;
        let all = until_all_completed(&cluster).await;
        assert!(all.iter().all(|it| it.reason.starts_with("ended at its finish_at")), "{all:?}");
        judge(&version, &folder, finish);
    }
}

/// An opening between these minutes.
fn minutes(from: Timestamp, to: Timestamp) -> Value {
    let of_the_day = |at: Timestamp| at.to_string()[11..16].to_owned();
    json!({"from": of_the_day(from), "to": of_the_day(to)})
}

#[tokio::test]
async fn observers_run_within_their_windows_only_without_managers_and_through_a_failover() {
    let minute = Duration::from_secs(60);
    let mut cluster = Cluster::new("windows").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 20).await;
    cluster.service("b", 20).await;
    let folder = cluster.folder("beacons");
    let soon = from_now(20);
    let closes = Timestamp(soon.0 - soon.0 % 60_000).plus(minute);
    let opens = closes.plus(minute);
    let open = json!([minutes(closes.minus(2 * minute), closes), minutes(opens, opens.plus(10 * minute))]);
    for number in 0..OBSERVERS {
        let mut body = finite(number, &folder, opens.plus(20 * minute));
        body["windows"] = hours("UTC", &open)["windows"].clone();
        let made = cluster.api.create(body).await;
        assert_eq!((made.status, made.closes_at), (Status::Created, Some(closes)));
    }
    until_all_run(&cluster).await;
    wait_within(2 * minute, "the last seconds of the window", || async {
        let left = closes.since(clock::now());
        if left < Duration::from_secs(4) { Ok(()) } else { Err(format!("{left:?} are left")) }
    })
    .await;
    cluster.kill("manager");
    cluster.kill("a");
    until_late(closes).await;
    judge("closed", &folder, closes);
    cluster.manager().await;
    let reason = format!("starts at {opens}");
    wait_for("all to be scheduled", || async {
        let all = cluster.api.observers().await;
        let waits = all.iter().filter(|it| it.status == Status::Scheduled && it.reason == reason).count();
        if waits == OBSERVERS { Ok(()) } else { Err(format!("{waits} are scheduled of {all:?}")) }
    })
    .await;
    judge("scheduled", &folder, closes);
    cluster.service("c", 20).await;
    wait_within(2 * minute, "all to run again", || async {
        let running = cluster.api.processing().await;
        let early = running.iter().find(|it| it.started_at.is_none_or(|started| started < opens));
        assert!(early.is_none(), "{early:?}");
        if running.len() == OBSERVERS { Ok(()) } else { Err(format!("{} run", running.len())) }
    })
    .await;
}

#[tokio::test]
async fn attempts_that_take_too_long_are_stopped_and_counted() {
    let mut cluster = Cluster::new("attempts");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let retry = json!({"kind": "exponential", "first": "200ms", "max": "200ms", "attempts": 3, "reset_after": "500ms"});
    let slow = json!({"name": "slow", "kind": "exec", "spec": {"argv": ["/bin/sleep", "600"]}, "retry": retry,
        "attempt_timeout": "1s"});
    let made = cluster.api.create(slow).await;
    assert_eq!(made.attempt_timeout.as_deref(), Some("1s"));
    let failed = cluster.api.until_status("slow", "Failed").await;
    assert_eq!(failed.reason, "gave up after 3 attempts: timed out after 1s (attempt_timeout)");
    let has_failed = |events: &[Event]| events.iter().any(|it| it.kind == EventKind::Failed);
    let events = cluster.api.until_events_of("slow", has_failed).await;
    let errors = events.iter().filter(|it| it.kind == EventKind::Errored);
    assert_eq!(errors.count(), 2, "{events:?}");
    // Each attempt took its time.
    let starts: Vec<Timestamp> = events
        .iter()
        .filter(|it| matches!(it.kind, EventKind::Started | EventKind::Restarted))
        .map(|it| it.at)
        .collect();
    let pauses: Vec<Duration> =
        starts.windows(2).map(|pair| pair[0].max(pair[1]).since(pair[0].min(pair[1]))).collect();
    assert!(pauses.len() == 2 && pauses.iter().all(|it| *it >= Duration::from_secs(1)), "{pauses:?}");
}
