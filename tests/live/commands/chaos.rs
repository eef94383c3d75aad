//! `everwatch chaos freeze` and `thaw`: a frozen service loses its observers and does not continue them after
//! the thaw.

use everwatch_api::{Event, Run, Service};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::record::health::Health;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{everwatch, free_address};
use everwatch_tests::dev::Dev;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Writes its process id and goes on for ever.
fn program(file: &Path) -> Value {
    let script = format!("echo $$ >{}; exec sleep 1000", file.display());
    json!({"argv": ["/bin/sh", "-c", script]})
}

async fn until_on(dev: &Dev, name: &str, service: &str) {
    dev.api.until_observer(name, |it| holder(it) == Some(service)).await;
}

#[tokio::test]
async fn a_frozen_service_loses_its_work_and_thawed_ends_what_it_ran() {
    let dev = Dev::start(2, 10).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    dev.api.create(json!({"name": "child", "kind": "exec", "spec": program(&file)})).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    for name in ["child", "tick"] {
        dev.api.until_status(name, "Processing").await;
    }
    let child = dev.api.observer("child").await;
    let frozen = holder(&child).unwrap();
    let other = if frozen == "service-1" { "service-2" } else { "service-1" };
    let before = dev.api.service(frozen).await.id;
    let read = || std::fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
    let pid = wait_for("the child", || {
        std::future::ready(Some(read()).filter(|it| !it.is_empty()).ok_or_else(String::new))
    })
    .await;

    let (code, said, beside) = dev.run(&format!("chaos freeze {frozen}"));
    assert!(code == Some(0) && said.contains("frozen; after"), "{said} {beside}");
    let (key, frozen_at) = (before.to_string(), clock::now());
    for name in ["child", "tick"] {
        until_on(&dev, name, other).await;
    }
    let heartbeat = dev.api.service(&key).await.last_heartbeat_at;
    // The child processes end because the service sends them no signs of life; no process on the frozen
    // service could stop them.
    wait_for("the child of the frozen one to be gone", || {
        let there = Path::new("/proc").join(&pid).exists();
        std::future::ready(if there { Err(pid.clone()) } else { Ok(()) })
    })
    .await;
    let lost = dev.api.until_service(&key, |it| it.state == ServiceState::Lost).await;
    assert_eq!(lost.last_heartbeat_at, heartbeat, "it said nothing meanwhile");
    // A heartbeat that was sent just before the freeze may be stored a moment later.
    let last_heard = heartbeat.since(frozen_at);
    assert!(last_heard < Duration::from_secs(1), "heard {last_heard:?} after the freeze");

    let (code, said, beside) = dev.run(&format!("chaos thaw {frozen}"));
    assert!(code == Some(0) && said.contains("has registered again"), "{said} {beside}");
    let back = dev.api.service(frozen).await;
    assert!(back.state == ServiceState::Active && back.id != before, "{back:?}");
    assert_eq!(dev.api.list::<Run>("/v1/observers/child/runs").await.len(), 2);
    for name in ["child", "tick"] {
        let starts: Vec<Event> = dev.api.list(&format!("/v1/observers/{name}/events?type=started")).await;
        assert_eq!(holder(&dev.api.observer(name).await), Some(other));
        assert!(starts.iter().all(|it| it.overlap_ms.unwrap_or(0) == 0), "{starts:?}");
    }
}

#[tokio::test]
async fn a_short_freeze_loses_nothing() {
    let dev = Dev::start(1, 10).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    dev.api.until_status("tick", "Processing").await;
    let before = dev.api.service("service-1").await;
    assert_eq!(dev.run("chaos freeze service-1").0, Some(0));
    // The broker has not noticed yet that it stands still; the program that froze it knows.
    let noted = |word: &str| {
        let listed = dev.run("service list").1;
        listed.lines().any(|it| it.starts_with("service-1 ") && it.contains(word))
    };
    assert!(noted("suspect") && noted("frozen on purpose"), "{}", dev.run("service list").1);
    assert!(
        dev.run("status")
            .1
            .contains("service service-1 is frozen on purpose, and the broker has not noticed yet")
    );
    let (code, _, said) = dev.run("chaos freeze service-1");
    assert!(code == Some(4) && said.contains("frozen already"), "{said}");
    let (code, said, _) = dev.run("chaos thaw service-1");
    assert!(code == Some(0) && said.contains("is thawed, and continues"), "{said}");
    assert!(!noted("frozen on purpose"), "it lives on");
    let other = format!("/dev/chaos/service-1/kill?id={}", uuid::Uuid::nil());
    let refused: serde_json::Value = dev.api.done("POST", &other, None, 409).await;
    assert_eq!(refused["detail"], "that process of service-1 has ended meanwhile: look again");
    let (code, _, said) = dev.run("chaos kill service-9");
    assert!(code == Some(3) && said.contains("no service `service-9`: choose one of service-1"), "{said}");
    let (code, _, said) = dev.run("chaos thaw service-1");
    assert!(code == Some(4) && said.contains("not frozen"), "{said}");
    let goes_on = |it: &Service| it.id == before.id && it.last_heartbeat_at != before.last_heartbeat_at;
    dev.api.until_service("service-1", goes_on).await;
    let it = dev.api.observer("tick").await;
    assert_eq!((it.status, it.epoch), (Status::Processing, 1 << 32), "{it:?}");
}

/// The fence trips after 5 s, and the broker notices after 10 s: a service that is thawed between them ends what it runs.
#[tokio::test]
async fn the_gap_of_an_observer_whose_service_was_frozen_contains_the_freeze() {
    let dev = Dev::start(2, 10).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    let first = dev.api.until_observer("tick", |it| it.health == Some(Health::Running)).await;
    let service = holder(&first).unwrap().to_owned();
    assert_eq!(dev.run(&format!("chaos freeze {service}")).0, Some(0));
    let frozen_at = clock::now();
    wait_for("the fence to be due", || {
        let frozen = clock::now().since(frozen_at);
        std::future::ready(if frozen >= Duration::from_secs(7) { Ok(()) } else { Err(format!("{frozen:?}")) })
    })
    .await;
    let thawed_at = clock::now();
    assert_eq!(dev.run(&format!("chaos thaw {service}")).0, Some(0));
    dev.api.until_observer("tick", |it| it.epoch > first.epoch && it.health == Some(Health::Running)).await;
    let starts = "/v1/observers/tick/events?type=started";
    let starts = dev.api.until_events(starts, |all| all.len() == 2).await;
    let gap = starts.iter().find_map(|it| it.gap_ms).unwrap();
    let frozen = thawed_at.since(frozen_at).as_millis();
    assert!(u128::from(gap) >= frozen, "frozen for {frozen} ms: {starts:?}");
}

#[tokio::test]
async fn a_service_that_is_dead_cannot_be_killed_and_its_next_incarnation_lives() {
    let dev = Dev::start(2, 10).await;
    let before = dev.api.service("service-1").await;
    let (code, said, beside) = dev.run("chaos kill service-1");
    assert_eq!(code, Some(0), "{said} {beside}");
    let killed = dev.api.service(&before.id.to_string()).await;
    assert_eq!(
        killed.state,
        ServiceState::Lost,
        "nothing but its session shows the loss: it held no observer"
    );
    let (code, _, said) = dev.run("chaos kill service-1");
    assert!(code == Some(4) && said.contains("service-1 does not run now"), "{said}");
    let is_next = |it: &Service| it.state == ServiceState::Active && it.id != before.id;
    let next = dev.api.until_service("service-1", is_next).await;
    wait_for("the events of both processes", || async {
        let (_, said, _) = dev.run("events --service service-1 --type service_registered,service_lost");
        let count = |event: &str| said.matches(event).count();
        let found = (count("service_registered"), count("service_lost"));
        if found == (2, 1) { Ok(()) } else { Err(said) }
    })
    .await;
    let order = format!("/v1/services/{}/cordon", before.id);
    assert_eq!(dev.api.refused("POST", &order, None).await.code, "service-ended");
    assert_eq!(dev.api.service("service-1").await.state, ServiceState::Active, "the next one is not meant");
    let has_heartbeat_twice = |it: &Service| {
        assert_eq!(it.id, next.id, "the second kill hit the next incarnation");
        it.last_heartbeat_at.since(next.last_heartbeat_at) >= Duration::from_secs(5)
    };
    dev.api.until_service("service-1", has_heartbeat_twice).await;
}

/// Not with the heartbeat before it.
async fn gap_begins_with_the_kill(dev: &Dev, lived: Timestamp) {
    let is_new = |all: &[Event]| all.iter().any(|it| it.at >= lived);
    let starts = dev.api.until_events("/v1/observers/tick/events?type=started", is_new).await;
    let start = starts.iter().max_by_key(|it| it.at).unwrap();
    let most = start.at.since(lived).as_millis();
    assert!(start.gap_ms.is_some_and(|gap| u128::from(gap) <= most), "at most {most} ms: {start:?}");
}

/// A user who tries out failover kills the service of the same observer again and again.
#[tokio::test]
async fn kills_by_hand_count_against_no_observer_and_no_host() {
    let mut program = Command::new(everwatch());
    program.env("EVERWATCH_MANAGER__QUARANTINE_AFTER", "2");
    let dev = Dev::start_by(program, &free_address(), (3, 10)).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    dev.api.until_status("tick", "Processing").await;
    for _ in 0..4 {
        let holder = dev.api.observer("tick").await.service.unwrap().name;
        let lived = clock::now();
        let (code, said, beside) = dev.run(&format!("chaos kill {holder}"));
        assert_eq!(code, Some(0), "{beside}");
        gap_begins_with_the_kill(&dev, lived).await;
        assert!(
            said.contains("its 1 observer runs on service-") && !said.contains(&format!("on {holder} ")),
            "{said}"
        );
        let it = dev.api.observer("tick").await;
        assert_ne!(it.service.unwrap().name, holder, "{said}");
        assert_eq!(it.health, Some(Health::Running), "{said}");
        let found = dev.api.get("/v1/doctor").await;
        let blames = |it: &&Value| it["code"] == "crash-loop" || it["code"] == "service-lost";
        assert_eq!(found["items"].as_array().unwrap().iter().find(blames), None);
        let told = found["items"].as_array().unwrap().iter().find(|it| it["code"] == "service-killed");
        let is_told = told.is_some_and(|it| it["subject"] == format!("service {holder}"));
        assert!(is_told || dev.api.service(&holder).await.state == ServiceState::Active, "{found}");
        let again = |it: &Service| it.state == ServiceState::Active;
        dev.api.until_service(&holder, again).await;
    }
    let it = dev.api.observer("tick").await;
    assert_eq!((it.status, it.last_error), (Status::Processing, None));
}
