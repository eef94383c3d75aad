//! The list of what takes time and is not over.

use super::*;
use everwatch_api::{Batch, Operation, OperationType, Rollout};

impl Stage {
    /// The operations of this type.
    async fn operations(&self, kind: OperationType) -> Vec<Operation> {
        let all: Listed<Operation> = self.get("/v1/operations").await.read(200);
        assert_eq!(all.total, all.items.len() as u64);
        all.items.into_iter().filter(|it| it.kind == kind).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_listed_until_they_are_over() {
    let stage = Stage::new().await;
    let _service = stage.named_service("s1", 9).await;
    assert_eq!(stage.get("/v1/operations").await.read::<Listed<Operation>>(200).total, 0);
    stage.create(json!({ "kind": "ticker", "name": "a", "labels": { "app": "x" } })).await;
    stage.get("/v1/operations?state=Running").await.refused(400, "bad-query");

    let body =
        json!({ "name": "faster", "selector": { "labels": { "app": "x" } }, "patch": { "priority": 1 } });
    let rollout: Rollout = stage.send("POST", "/v1/rollouts", Some(&body.to_string())).await.read(201);
    let paused: Rollout = stage.send("POST", "/v1/rollouts/faster/pause", None).await.read(200);
    let [told] = &stage.operations(OperationType::Rollout).await[..] else { panic!("one rollout") };
    assert_eq!((told.name.as_str(), told.state.as_str(), told.of), ("faster", "Paused", Some(1)));
    assert_eq!((told.since, told.reason.as_str()), (Some(rollout.created_at), paused.reason.as_str()));
    let same: Rollout = stage.get(&told.path).await.read(200);
    assert_eq!(same.id, rollout.id, "the path leads to it");

    let body = json!({ "name": "reports", "defaults": { "kind": "ticker" }, "observers": [{}, {}] });
    let batch: Batch = stage.send("POST", "/v1/batches", Some(&body.to_string())).await.read(201);
    let [told] = &stage.operations(OperationType::Batch).await[..] else { panic!("one batch") };
    assert_eq!((told.done, told.of, told.namespace.as_deref()), (Some(0), Some(2), Some("default")));
    assert_eq!(stage.get(&told.path).await.read::<Batch>(200).id, batch.id);

    let drained: ServiceView = stage.send("POST", "/v1/services/s1/drain", None).await.read(202);
    let [told] = &stage.operations(OperationType::Drain).await[..] else { panic!("one drain") };
    let drain = drained.drain.unwrap();
    assert_eq!((told.name.as_str(), told.since), ("s1", drain.asked_at));
    assert_eq!((told.done, told.of), (Some(drain.moved.into()), Some(drain.of.into())));

    // What is over is not listed.
    stage.send("POST", "/v1/rollouts/faster/cancel", None).await.read::<Rollout>(200);
    stage.send("POST", "/v1/services/s1/uncordon", None).await.read::<ServiceView>(202);
    assert_eq!(stage.operations(OperationType::Rollout).await, []);
    assert_eq!(stage.operations(OperationType::Drain).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_is_listed_with_the_number_of_its_moves() {
    let stage = Stage::new().await;
    let mut full = stage.named_service("full", 9).await;
    for number in 0..4 {
        stage.create(json!({ "kind": "ticker", "name": format!("o{number}") })).await;
    }
    for _ in 0..4 {
        let (_, work, epoch) = full.take().await;
        full.run_event(&work, epoch, started()).await;
        stage.until_observer(work.name.as_str(), |it| it.status == Status::Processing).await;
    }
    full.heartbeat(&stage, 1, (Intent::Active, 9, 4)).await;
    let _empty = stage.named_service("empty", 9).await;
    // A rebalance counts with heartbeats.
    let deadline = tokio::time::Instant::now() + SOON;
    let heard = async || {
        let services = stage.manager.records.services(Duration::ZERO).await.unwrap();
        services.iter().any(|it| it.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.held == 4))
    };
    while !heard().await {
        assert!(tokio::time::Instant::now() < deadline, "no heartbeat");
        tokio::task::yield_now().await;
    }
    let started = stage.send("POST", "/v1/rebalance:apply", None).await;
    let moves: everwatch_api::Rebalance = started.read(202);
    let [told] = &stage.operations(OperationType::Rebalance).await[..] else { panic!("one rebalance") };
    assert_eq!((told.name.as_str(), told.of), ("default", Some(moves.pools[0].moves.into())));
    assert_eq!(told.done, Some(0), "by the reports of runs");
    assert_eq!(stage.get(&told.path).await.read::<everwatch_api::Pool>(200).name, "default");
}
