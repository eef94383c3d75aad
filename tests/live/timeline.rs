//! The timeline of real processes: a kill, a drain, and a restart of the manager.

use everwatch_api::{Incident, Service, Timeline, TimelineLane};
use everwatch_core::record::events::EventKind;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::time::Duration;

const OBSERVERS: u64 = 12;
const SECOND: Duration = Duration::from_secs(1);

async fn timeline(cluster: &Cluster) -> Timeline {
    cluster.api.read("/v1/timeline?since=15m&columns=900").await
}

fn lane<'a>(it: &'a Timeline, name: &str) -> &'a TimelineLane {
    it.lanes.iter().find(|lane| lane.service == name).expect("a lane of this name")
}

/// What a lane ends with, if it reaches the end.
fn held_now(it: &Timeline, name: &str) -> u64 {
    let last = lane(it, name).segments.last();
    last.filter(|part| part.until >= it.until.minus(2 * SECOND)).map_or(0, |part| part.held_max)
}

async fn until_incident(cluster: &Cluster, is_it: impl Fn(&Incident) -> bool) -> Timeline {
    wait_for("the incident", || async {
        let it = timeline(cluster).await;
        if it.incidents.iter().any(&is_it) { Ok(it) } else { Err(format!("{:?}", it.incidents)) }
    })
    .await
}

/// The column of now covers a second, so it shows the most that a service held within it.
async fn until_held(cluster: &Cluster, expected: [(&str, u64); 2]) -> Timeline {
    wait_for("what the services hold now", || async {
        let it = timeline(cluster).await;
        let held = expected.map(|(service, _)| (service, held_now(&it, service)));
        if held == expected { Ok(it) } else { Err(format!("{:?}", it.lanes)) }
    })
    .await
}

#[tokio::test]
async fn a_kill_and_a_drain_are_seen_as_they_happened() {
    let mut cluster = Cluster::new("timeline");
    cluster.manager().await;
    cluster.service("a", 20).await;
    for number in 0..OBSERVERS {
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
    }
    cluster.api.until_total("/v1/observers?health=running", OBSERVERS).await;
    cluster.service("b", 20).await;
    let held = until_held(&cluster, [("a", OBSERVERS), ("b", 0)]).await;
    // Gaps begin with the last sign of life. It must be in a later second than the last start, because the timeline shows whole
    // seconds.
    wait_for("a later sign of life", || async {
        let it: Service = cluster.api.read("/v1/services/a").await;
        if it.last_heartbeat_at > held.until.plus(SECOND) { Ok(()) } else { Err(format!("{it:?}")) }
    })
    .await;
    cluster.kill("a");
    let it =
        until_incident(&cluster, |it| it.from == "a" && it.cause == "lost" && it.moved == OBSERVERS).await;
    let incident = it.incidents.iter().find(|it| it.from == "a").unwrap();
    assert_eq!(incident.to, [("b".to_owned(), OBSERVERS)].into());
    assert!(incident.gap_ms_median <= incident.gap_ms_p99 && incident.gap_ms_p99 <= incident.gap_ms_max);
    assert!(incident.gap_ms_max > 0 && incident.overlap_ms_max == 0, "{incident:?}");
    assert_eq!(lane(&it, "a").segments.iter().map(|part| part.held_max).max(), Some(OBSERVERS));
    assert!(lane(&it, "a").segments.iter().any(|part| part.gap > 0), "{:?}", lane(&it, "a"));
    assert!(!lane(&it, "a").lives && lane(&it, "b").lives);
    until_held(&cluster, [("a", 0), ("b", OBSERVERS)]).await;
    let lost = it.marks.iter().filter(|mark| mark.kind == EventKind::ServiceLost);
    assert_eq!(lost.map(|mark| mark.service.as_deref()).collect::<Vec<_>>(), [Some("a")]);
    // A drain moves them on; another manager tells the same story.
    cluster.service("c", 20).await;
    cluster.api.done::<Service>("POST", "/v1/services/b/drain", None, 202).await;
    let is_drain = |it: &Incident| it.from == "b" && it.cause == "handed_over" && it.moved == OBSERVERS;
    until_incident(&cluster, is_drain).await;
    cluster.kill("manager");
    cluster.manager().await;
    let again = until_incident(&cluster, is_drain).await;
    assert_eq!(again.incidents.len(), 2, "{:?}", again.incidents);
    until_held(&cluster, [("b", 0), ("c", OBSERVERS)]).await;
    let (code, text) = cluster.command(&["timeline", "--since", "10m"]);
    assert!(code == Some(0) && text.contains(" drain ") && text.contains("✕"), "{code:?} {text}");
    // Only the lanes that are asked for.
    let only: Timeline = cluster.api.read("/v1/timeline?service=c").await;
    assert_eq!(only.lanes.iter().map(|lane| lane.service.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(only.incidents.len(), 1, "{:?}", only.incidents);
    // Nobody takes over: the incident is open until another service starts.
    cluster.kill("c");
    let is_open = |it: &Incident| it.from == "c" && it.waiting == OBSERVERS && it.until.is_none();
    let open = until_incident(&cluster, is_open).await;
    let last = lane(&open, "c").segments.last().unwrap();
    // Columns are whole seconds, so the last one ends after the timeline.
    assert!(last.gap == OBSERVERS && last.until >= open.until, "{:?}", lane(&open, "c"));
    cluster.service("d", 20).await;
    let is_over = |it: &Incident| it.from == "c" && it.moved == OBSERVERS && it.waiting == 0;
    let over = until_incident(&cluster, is_over).await;
    let incident = over.incidents.iter().find(|it| it.from == "c").unwrap();
    assert!(incident.cause == "lost" && incident.until.is_some() && incident.gap_ms_max > 0, "{incident:?}");
    // One observer has run everywhere.
    let one: Timeline = cluster.api.read("/v1/timeline?observer=o0").await;
    let lanes = one.lanes.iter();
    let most = lanes.map(|it| (it.service.as_str(), it.segments.iter().map(|part| part.held_max).max()));
    assert_eq!(most.collect::<Vec<_>>(), ["a", "b", "c", "d"].map(|name| (name, Some(1))));
    assert_eq!(one.incidents.iter().map(|it| it.moved).collect::<Vec<_>>(), [1, 1, 1], "{:?}", one.incidents);
    let (code, text) = cluster.command(&["timeline", "--observer", "o0"]);
    assert!(code == Some(0) && text.contains("✕"), "{code:?} {text}");
    let refused = cluster.api.refused("GET", "/v1/timeline?since=2d", None).await;
    assert!(refused.detail.contains("at most 24h"), "{}", refused.detail);
}
