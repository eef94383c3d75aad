//! Observers with a schedule: each time starts one execution, also while managers and services are killed.

use everwatch_api::{Observer, ScheduleTimes};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How late an execution may start while a manager lives, in ms.
const LATE: i64 = 2000;
const OBSERVERS: usize = 10;

/// A short execution that writes for which time it was started, and when.
fn job(name: &str, folder: &Path, schedule: &Value) -> Value {
    let script = r#"echo "$EVERWATCH_SCHEDULED_FOR $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME""#;
    let argv = json!(["/bin/sh", "-c", script, folder.display().to_string()]);
    json!({"name": name, "kind": "exec", "spec": {"argv": argv}, "schedule": schedule, "on_full": "queue"})
}

/// When the executions of each observer started, by the time for which they did.
fn starts(folder: &Path) -> BTreeMap<String, Vec<(Timestamp, i64)>> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let read = |line: &str| {
        let (scheduled_for, at) = line.split_once(' ').unwrap();
        let scheduled_for = serde_json::from_value(json!(scheduled_for)).unwrap();
        (scheduled_for, at.parse().unwrap())
    };
    let text = |path| std::fs::read_to_string(path).unwrap();
    let runs = |path| text(path).lines().map(read).collect();
    files.map(|file| (file.file_name().into_string().unwrap(), runs(file.path()))).collect()
}

/// The expression of a schedule with one time a day, in UTC.
fn daily_at(time: Timestamp) -> String {
    let text = time.to_string();
    let (hour, minute, second) = (&text[11..13], &text[14..16], &text[17..19]);
    format!("{second} {minute} {hour} * * *")
}

async fn until(time: Timestamp) {
    wait_for("a time", || async {
        if clock::now() >= time { Ok(()) } else { Err("it has not come".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn each_time_starts_one_run_while_managers_and_services_are_killed() {
    let mut cluster = Cluster::new("schedule").with_postgres();
    cluster.manager().await;
    cluster.another_manager("second").await;
    cluster.service("a", 20).await;
    cluster.service("b", 20).await;
    let folder = cluster.folder("runs");
    let schedule = json!({"cron": "*/2 * * * * *", "catch_up": "10s"});
    for number in 0..OBSERVERS {
        let made = cluster.api.create(job(&format!("o{number}"), &folder, &schedule)).await;
        assert_eq!(made.status, Status::Scheduled);
    }
    let begin = clock::now().plus(Duration::from_secs(2));
    let after = |secs| begin.plus(Duration::from_secs(secs));
    let (missed, missed_folder) = (Timestamp(after(13).0 / 1000 * 1000), cluster.folder("missed"));
    let daily = json!({"cron": daily_at(missed), "catch_up": "1m"});
    cluster.api.create(job("daily", &missed_folder, &daily)).await;
    until(after(4)).await;
    cluster.kill("second");
    until(after(8)).await;
    let service_killed = clock::now();
    cluster.kill("a");
    // No manager lives for two of the times, and for the time of `daily`.
    until(after(11)).await;
    let away = clock::now();
    cluster.kill("manager");
    until(after(15)).await;
    let restarting = clock::now();
    cluster.manager().await;
    // It acts once it has read its queues.
    let back = clock::now().plus(Duration::from_secs(2));
    until(after(22)).await;
    let end = clock::now();
    let all = starts(&folder);
    assert_eq!(all.len(), OBSERVERS, "{all:?}");
    for (name, runs) in all {
        // The killed service could not acknowledge the messages of runs that had just ended.
        let near_kill =
            |at: Timestamp| at.since(service_killed).max(service_killed.since(at)) < Duration::from_secs(3);
        for pair in runs.windows(2) {
            assert!(pair[0].0 < pair[1].0 || near_kill(pair[1].0), "{name}: {pair:?} of {runs:?}");
        }
        for (scheduled_for, at) in &runs {
            let is_caught_up = away < scheduled_for.plus(Duration::from_secs(1)) && *scheduled_for < back;
            let late = at - scheduled_for.0;
            let allowed = if is_caught_up || near_kill(*scheduled_for) { 12_000 } else { LATE };
            assert!((0..=allowed).contains(&late), "{name}: {late} ms late for {scheduled_for} in {runs:?}");
        }
        let expected = (begin.0 / 2000 + 1..=(end.0 - LATE) / 2000).map(|two| Timestamp(two * 2000));
        let is_away = |at: &Timestamp| away < at.plus(Duration::from_secs(1)) && *at < back;
        for time in expected.filter(|at| !is_away(at) && !near_kill(*at)) {
            // A late execution may still be active at the next time, which is then skipped.
            let is_busy =
                |(scheduled_for, at): &(Timestamp, i64)| *scheduled_for < time && at + 1500 > time.0;
            let done = |(scheduled_for, _): &(Timestamp, i64)| *scheduled_for == time;
            assert!(
                runs.iter().any(|run| done(run) || is_busy(run)),
                "{name}: no run for {time} of {runs:?}"
            );
        }
        // Of the times without a manager, at most the latest is caught up. If a later time comes before the manager
        // acts, that one counts instead.
        let of_missed = runs.iter().filter(|(time, _)| away < *time && *time <= restarting);
        assert!(of_missed.count() <= 1, "{name}: {runs:?}, {away} to {back}");
    }
    wait_for("the missed execution", || async {
        let times: Vec<_> = starts(&missed_folder).into_values().flatten().map(|(time, _)| time).collect();
        if times == [missed] { Ok(()) } else { Err(format!("{times:?}, not {missed}")) }
    })
    .await;
}

#[tokio::test]
async fn a_run_is_requested_previewed_and_remembered() {
    let mut cluster = Cluster::new("trigger");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    let yearly = json!({"cron": "0 3 1 1 *", "time_zone": "Europe/Berlin"});
    let spec = json!({"argv": ["/bin/sh", "-c", "test -e \"$0\"", cluster.scratch.path().join("marker")]});
    let retry = json!({"kind": "fixed", "every": "1s", "attempts": 1});
    let body = json!({"name": "report", "kind": "exec", "spec": spec, "retry": retry, "schedule": yearly});
    let made = api.create(body).await;
    let times: ScheduleTimes = api.read("/v1/observers/report/schedule?next=3").await;
    assert_eq!((times.description.as_str(), times.next.len()), ("At 03:00, on day 1, in January.", 3));
    assert_eq!((made.status, made.next_start_at), (Status::Scheduled, Some(times.next[0])));
    assert!(times.next[0].to_string().contains("-01-01T02:00:00"), "{times:?}");

    // An execution that a request starts fails, and the observer goes on.
    api.done::<Observer>("POST", "/v1/observers/report/trigger", None, 202).await;
    let failed = api.until_observer("report", |it| it.last_execution.is_some()).await;
    let run = failed.last_execution.clone().unwrap();
    assert!(run.error.as_deref().is_some_and(|error| error.contains("exit")), "{run:?}");
    assert_eq!(
        (run.scheduled_for, failed.status, failed.next_start_at),
        (None, Status::Scheduled, made.next_start_at)
    );
    std::fs::write(cluster.scratch.path().join("marker"), "").unwrap();
    let (code, said) = cluster.command(&["observer", "trigger", "report"]);
    assert_eq!(code, Some(0), "{said}");
    api.until_observer("report", |it| it.last_execution.as_ref().is_some_and(|run| run.error.is_none()))
        .await;
    let events = wait_for("the events", || async {
        let events = api.events_of("report").await;
        let count = |kind| events.iter().filter(|it| it.kind == kind).count();
        let counts = [EventKind::TriggerRequested, EventKind::Failed, EventKind::Completed].map(count);
        if counts == [2, 1, 1] { Ok(events) } else { Err(format!("{counts:?} in {events:?}")) }
    })
    .await;
    assert!(events.iter().any(|it| it.kind == EventKind::TriggerRequested && it.by.is_some()), "{events:?}");
    let (code, said) = cluster.command(&["observer", "schedule", "report", "--next", "2"]);
    assert!(code == Some(0) && said.contains("At 03:00") && said.lines().count() == 3, "{said}");
    let (code, said) = cluster.command(&["observer", "describe", "report"]);
    assert!(
        code == Some(0) && said.contains("0 3 1 1 * in Europe/Berlin") && said.contains("completed"),
        "{said}"
    );

    // While an execution is active, the schedule decides.
    let long = json!({"name": "long", "kind": "ticker", "schedule": {"cron": "0 3 1 1 *"}});
    api.create(long).await;
    api.done::<Observer>("POST", "/v1/observers/long/trigger", None, 202).await;
    api.until_status("long", "Processing").await;
    let problem = api.refused("POST", "/v1/observers/long/trigger", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (409, "observer-active"), "{problem:?}");
    let restarts = json!({"schedule": {"if_running": "restart"}});
    let changed: Observer = api.done("PATCH", "/v1/observers/long", Some(restarts), 200).await;
    assert_eq!((changed.generation, changed.status), (1, Status::Processing));
    api.done::<Observer>("POST", "/v1/observers/long/trigger", None, 202).await;
    api.until_observer("long", |it| it.generation == 2 && it.status == Status::Processing).await;
    api.create(json!({"name": "plain", "kind": "ticker"})).await;
    let problem = api.refused("POST", "/v1/observers/plain/trigger", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (409, "no-schedule"), "{problem:?}");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused() {
    let mut cluster = Cluster::new("schedule-refused");
    cluster.manager().await;
    cluster.service("a", 5).await;
    for (schedule, pointer, says) in [
        (json!({"cron": "0 0 30 2 *"}), "/schedule/cron", "never execute"),
        (json!({"cron": "every day"}), "/schedule/cron", "has 2 fields"),
        (json!({"cron": "0 3 * * *", "time_zone": "Berlin"}), "/schedule/time_zone", "Europe/Berlin"),
        (json!({"cron": "0 3 * * *", "if_running": "stop"}), "/schedule/if_running", "restart"),
        (json!({"cron": "0 3 * * *", "jitter": "200h"}), "/schedule/jitter", "at most 168h"),
    ] {
        let body = json!({"kind": "ticker", "schedule": schedule});
        let problem = cluster.api.refused("POST", "/v1/observers", Some(body)).await;
        let error = &problem.errors[0];
        assert_eq!((problem.status, error.pointer.as_str()), (422, pointer), "{problem:?}");
        assert!(error.detail.contains(says), "{problem:?}");
    }
    let soon = clock::now().plus(Duration::from_secs(60)).to_string();
    let body = json!({"kind": "ticker", "schedule": {"cron": "0 3 1 1 *"}, "finish_at": soon});
    let problem = cluster.api.refused("POST", "/v1/observers", Some(body)).await;
    assert_eq!(problem.errors[0].pointer, "/schedule/cron", "{problem:?}");
    for (arguments, says) in [
        (vec!["--schedule", "0 3 * *"], "has 4 fields"),
        (
            vec!["--schedule", "0 3 * * *", "--window", "mon 09:00-10:00", "--time-zone", "UTC"],
            "cannot be used with",
        ),
        (vec!["--jitter", "5m"], "--schedule"),
        (vec!["--time-zone", "UTC"], "--schedule"),
    ] {
        let given = ["observer", "create", "x", "--kind", "ticker"].into_iter().chain(arguments.clone());
        let (code, said) = cluster.command(&given.collect::<Vec<_>>());
        assert!(code != Some(0) && said.contains(says), "{arguments:?}: {said}");
    }
}
