//! Health over HTTP: beside the status, as a filter, in totals and metrics, and in what the doctor finds.

use super::*;
use everwatch_api::{Finding, ObserverCounts, Outcomes, Stats};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;

fn errored(attempt: u32) -> RunEvent {
    RunEvent::Errored { attempt, error: "no such file".to_owned(), next_at: clock::now() }
}

fn again(attempt: u32) -> RunEvent {
    RunEvent::Started { attempt, started_at: clock::now() }
}

impl Stage {
    async fn until_health(
        &self,
        name: &str,
        health: impl Into<Option<Health>>,
        code: impl Into<Option<ReasonCode>>,
    ) -> Observer {
        let (health, code) = (health.into(), code.into());
        self.until_observer(name, |it| it.health == health && it.reason_code == code).await
    }
    async fn names(&self, query: &str) -> Vec<String> {
        let page: Listed<Observer> = self.read(&format!("/v1/observers?{query}")).await;
        assert_eq!(page.total, page.items.len() as u64, "{page:?}");
        page.items.into_iter().map(|it| it.name).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loop_is_seen_wherever_one_looks() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "steady"})).await;
    let (_steady, work, epoch) = service.take().await;
    service.run_event(&work, epoch, started()).await;
    stage.create(json!({"kind": "ticker", "name": "loops"})).await;
    let (_loops, work, epoch) = service.take().await;
    service.run_event(&work, epoch, again(1)).await;
    stage.until_health("loops", Health::Running, None).await;
    for attempt in 1..4 {
        service.run_event(&work, epoch, errored(attempt)).await;
        let it = stage.until_health("loops", Health::Restarting, ReasonCode::BackingOff).await;
        assert_eq!((it.status, it.restarts), (Status::Processing, attempt - 1));
        service.run_event(&work, epoch, again(attempt + 1)).await;
        let it = stage.until_health("loops", Health::Restarting, ReasonCode::RecentlyFailed).await;
        assert_eq!(it.restarts, attempt);
    }
    stage.create(json!({"kind": "ticker", "name": "full", "on_full": "queue"})).await;
    stage.create(json!({"kind": "ticker", "name": "nowhere", "pool": "gpu", "on_full": "queue"})).await;
    stage.create(json!({"kind": "ticker", "name": "rests", "desired": "paused"})).await;
    stage.until_health("nowhere", Health::Waiting, ReasonCode::NoServiceInPool).await;
    stage.until_health("rests", None, None).await;

    assert_eq!(stage.names("health=restarting").await, ["loops"]);
    assert_eq!(stage.names("health=running,restarting&kind=ticker").await, ["loops", "steady"]);
    assert_eq!(stage.names("health=waiting&pool=gpu").await, ["nowhere"]);
    assert_eq!(stage.names("health=running&status=Failed").await, [""; 0]);
    assert_eq!(stage.names("reason_code=recently-failed").await, ["loops"]);
    // The filter finds what the answers show.
    let all = stage.read::<Listed<Observer>>("/v1/observers").await.items;
    let all_number = all.len() as u64;
    for code in all.iter().filter_map(|it| it.reason_code) {
        let alike = all.iter().filter(|it| it.reason_code == Some(code));
        let alike: Vec<&str> = alike.map(|it| it.name.as_str()).collect();
        assert_eq!(stage.names(&format!("reason_code={code}")).await, alike, "{code}");
    }
    assert_eq!(stage.names("reason_code=no-service-in-pool&pool=default").await, [""; 0]);
    let refused = stage.get("/v1/observers?reason_code=sad").await.refused(400, "bad-query");
    assert!(refused.detail.contains("pool-is-full"), "{refused:?}");
    let refused = stage.get("/v1/observers?health=green").await.refused(400, "bad-query");
    assert!(refused.detail.contains("restarting"), "{refused:?}");

    let stats: Stats = stage.read("/v1/stats").await;
    let expected = json!({"running": 1, "restarting": 1, "waiting": 2, "moving": 0, "stopping": 0});
    assert_eq!(json!(stats.health), expected);
    let counts: ObserverCounts = stage.read("/v1/observers:counts").await;
    assert_eq!((json!(counts.health), counts.total), (expected, all_number));
    let counts: ObserverCounts = stage.read("/v1/observers:counts?pool=gpu").await;
    assert_eq!((counts.total, counts.health["waiting"], counts.health["running"]), (1, 1, 0));
    assert_eq!(counts.observers["Created"], 1);
    assert!(!counts.observers.contains_key("Deleted"), "{counts:?}");
    let refused = stage.get("/v1/observers:counts?health=running").await.refused(400, "bad-query");
    assert!(refused.detail.contains("health"), "{refused:?}");
    let pool: everwatch_api::Pool = stage.read("/v1/pools/gpu").await;
    assert_eq!(json!(pool.health), json!({"waiting": 1}));

    let findings = stage.read::<Listed<Finding>>("/v1/doctor").await.items;
    let finding = findings.iter().find(|it| it.code == "crash-loop");
    let finding = finding.unwrap_or_else(|| panic!("{findings:?}"));
    assert!(finding.what.contains("loops (3 restarts)"), "{finding:?}");

    // The bulk actions share the filter.
    let paused = stage.send("POST", "/v1/observers:pause?health=restarting&expect=1", None).await;
    let paused = paused.read::<Outcomes>(200).items.remove(0);
    assert_eq!(paused.observer.unwrap().name, "loops");
    stage.until_health("loops", Health::Stopping, ReasonCode::Pausing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_without_its_service() {
    let stage = Stage::new().await;
    let mut older = stage.service(1).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let (_held, work, epoch) = older.take().await;
    older.run_event(&work, epoch, started()).await;
    stage.until_health("a", Health::Running, None).await;
    older.run_event(&work, epoch, RunEvent::HandedOver).await;
    stage.until_observer("a", |it| it.health == Some(Health::Moving)).await;
    older.run_event(&work, epoch, again(1)).await;
    stage.until_health("a", Health::Running, None).await;
    older.session.close().await;
    // A younger one of its name brings to light that it is gone.
    let _younger = stage.service(1).await;
    stage.until_observer("a", |it| it.health == Some(Health::Waiting)).await;
    assert_eq!(stage.names("health=waiting").await, ["a"]);
    assert_eq!(stage.names("health=running").await, [""; 0]);
}
