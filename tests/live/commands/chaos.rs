//! `everwatch chaos freeze` and `thaw`: a frozen service loses its observers and does not continue them after
//! the thaw.

use everwatch_tests::dev::Dev;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::path::Path;

/// Writes its process id and goes on for ever.
fn program(file: &Path) -> Value {
    let script = format!("echo $$ >{}; exec sleep 1000", file.display());
    json!({"argv": ["/bin/sh", "-c", script]})
}

async fn holder(dev: &Dev, name: &str) -> String {
    dev.api.get(&format!("/v1/observers/{name}")).await["service"]["name"].as_str().unwrap_or("").to_owned()
}

async fn until_on(dev: &Dev, name: &str, service: &str) {
    wait_for(&format!("{name} to be on {service}"), || async {
        let on = holder(dev, name).await;
        if on == service { Ok(()) } else { Err(on) }
    })
    .await;
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
    let frozen = holder(&dev, "child").await;
    let other = if frozen == "service-1" { "service-2" } else { "service-1" };
    let before = dev.api.get(&format!("/v1/services/{frozen}")).await["id"].as_str().unwrap().to_owned();
    let read = || std::fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
    let pid = wait_for("the child", || {
        std::future::ready(Some(read()).filter(|it| !it.is_empty()).ok_or_else(String::new))
    })
    .await;

    let (code, said, beside) = dev.run(&format!("chaos freeze {frozen}"));
    assert!(code == Some(0) && said.contains("stands still"), "{said} {beside}");
    let heartbeat = dev.api.get(&format!("/v1/services/{before}")).await["last_heartbeat_at"].clone();
    for name in ["child", "tick"] {
        until_on(&dev, name, other).await;
    }
    // The child processes end because the service sends them no signs of life; no process on the frozen
    // service could stop them.
    wait_for("the child of the frozen one to be gone", || {
        let there = Path::new("/proc").join(&pid).exists();
        std::future::ready(if there { Err(pid.clone()) } else { Ok(()) })
    })
    .await;
    let path = format!("/v1/services/{before}");
    wait_for("the frozen one to be lost", || async {
        let it = dev.api.get(&path).await;
        if it["state"] == "lost" { Ok(()) } else { Err(it.to_string()) }
    })
    .await;
    assert_eq!(dev.api.get(&path).await["last_heartbeat_at"], heartbeat, "it said nothing meanwhile");

    assert_eq!(dev.run(&format!("chaos thaw {frozen}")).0, Some(0));
    wait_for("another incarnation", || async {
        let it = dev.api.get(&format!("/v1/services/{frozen}")).await;
        if it["state"] == "active" && it["id"] != before.as_str() { Ok(()) } else { Err(it.to_string()) }
    })
    .await;
    assert_eq!(dev.api.items("/v1/observers/child/runs").await.len(), 2);
    for name in ["child", "tick"] {
        let overlaps = dev.api.items(&format!("/v1/observers/{name}/events?type=started")).await;
        assert_eq!(holder(&dev, name).await, other);
        assert!(overlaps.iter().all(|it| it["overlap_ms"].as_u64().unwrap_or(0) == 0), "{overlaps:?}");
    }
}

#[tokio::test]
async fn a_short_freeze_loses_nothing() {
    let dev = Dev::start(1, 10).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    dev.api.until_status("tick", "Processing").await;
    let before = dev.api.get("/v1/services/service-1").await;
    assert_eq!(dev.run("chaos freeze service-1").0, Some(0));
    let (code, _, said) = dev.run("chaos freeze service-1");
    assert!(code == Some(4) && said.contains("frozen already"), "{said}");
    assert_eq!(dev.run("chaos thaw service-1").0, Some(0));
    let (code, _, said) = dev.run("chaos kill service-9");
    assert!(code == Some(3) && said.contains("no service `service-9` here; there are service-1"), "{said}");
    let (code, _, said) = dev.run("chaos thaw service-1");
    assert!(code == Some(4) && said.contains("not frozen"), "{said}");
    wait_for("it to heartbeat again", || async {
        let it = dev.api.get("/v1/services/service-1").await;
        let goes_on = it["id"] == before["id"] && it["last_heartbeat_at"] != before["last_heartbeat_at"];
        if goes_on { Ok(()) } else { Err(it.to_string()) }
    })
    .await;
    let it = dev.api.get("/v1/observers/tick").await;
    assert_eq!((&it["status"], &it["epoch"]), (&json!("Processing"), &json!(1_u64 << 32)), "{it}");
}

#[tokio::test]
async fn a_service_that_is_dead_cannot_be_killed_and_its_next_incarnation_lives() {
    let dev = Dev::start(2, 10).await;
    let before = dev.api.get("/v1/services/service-1").await;
    let (code, said, beside) = dev.run("chaos kill service-1");
    assert_eq!(code, Some(0), "{said} {beside}");
    let (code, _, said) = dev.run("chaos kill service-1");
    assert!(code == Some(4) && said.contains("service-1 does not run now"), "{said}");
    let next = wait_for("the next incarnation", || async {
        let it = dev.api.get("/v1/services/service-1").await;
        if it["state"] == "active" && it["id"] != before["id"] { Ok(it) } else { Err(it.to_string()) }
    })
    .await;
    wait_for("it to heartbeat twice", || async {
        let it = dev.api.get("/v1/services/service-1").await;
        assert_eq!(it["id"], next["id"], "the second kill hit the next incarnation");
        let since =
            |it: &Value| it["last_heartbeat_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let heartbeats = since(&it).duration_since(since(&next)).as_secs() >= 5;
        if heartbeats { Ok(()) } else { Err(it.to_string()) }
    })
    .await;
}
