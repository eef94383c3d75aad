//! A paused pool: nothing is admitted to it, and what has a slot goes on, also through a failover.

use everwatch_api::{Event, Listed, Observer, Pool};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;

#[tokio::test]
async fn nothing_is_admitted_to_a_paused_pool_and_what_runs_moves_on() {
    let mut cluster = Cluster::new("paused-pool").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    let queued = |name: &str| json!({"name": name, "kind": "ticker", "on_full": "queue"});
    for name in ["one", "two"] {
        api.create(queued(name)).await;
        api.until_status(name, "Processing").await;
    }
    let paused: Pool = api.done("PUT", "/v1/pools/default", Some(json!({"paused": true})), 200).await;
    assert!(paused.paused && paused.capacity == 5, "{paused:?}");
    // The manager that answered knows it immediately, another one within a second.
    let waits = api.create(queued("three")).await;
    assert_eq!((waits.status, waits.generation), (Status::Created, 0));
    assert!(waits.reason.ends_with("pool default is paused"), "{}", waits.reason);
    let taken = api.refused("POST", "/v1/observers", Some(json!({"name": "two", "kind": "ticker"}))).await;
    assert_eq!((taken.status, taken.code.as_str()), (409, "name-exists"), "{taken:?}");
    let refused = api.refused("POST", "/v1/observers", Some(json!({"kind": "ticker"}))).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "pool-paused"), "{refused:?}");
    let elsewhere = wait_for("the other manager to know it", || async {
        let made = second.create(json!({"kind": "ticker", "on_full": "queue", "start_within": "2s"})).await;
        if made.generation == 0 { Ok(made) } else { Err("it admitted one".to_owned()) }
    })
    .await;
    // A wait may still end.
    let failed = second.until_status(&elsewhere.name, "Failed").await;
    assert_eq!(failed.reason, "did not start within 2s (start_within)");
    // A slot that becomes free stays free.
    let (status, _) = api.call("DELETE", "/v1/observers/one?wait=10s", None).await;
    assert_eq!(status, 200);
    // Failover needs no admission.
    cluster.service("b", 5).await;
    cluster.kill("a");
    api.until_observer("two", |it| holder(it) == Some("b") && it.status == Status::Processing).await;
    let still = api.observer("three").await;
    assert_eq!((still.status, still.generation), (Status::Created, 0), "{still:?}");
    let listed: Vec<Observer> = api.list("/v1/observers?q=three").await;
    assert!(listed[0].reason.ends_with("pool default is paused"), "{listed:?}");
    let (code, said) = cluster.command(&["doctor"]);
    assert!(code == Some(8) && said.contains("`everwatch pool resume default`"), "{said}");
    // A restart keeps the slot.
    api.done::<Observer>("POST", "/v1/observers/two/restart", None, 202).await;
    api.until_observer("two", |it| it.generation == 2 && it.status == Status::Processing).await;

    let (code, said) = cluster.command(&["pool", "pause", "defualt"]);
    assert!(code == Some(3) && said.contains("did you mean `default`?"), "{said}");
    let (code, said) = cluster.command(&["pool", "list"]);
    assert!(code == Some(0) && said.contains("paused"), "{said}");
    let (code, said) = cluster.command(&["pool", "resume", "default"]);
    assert!(code == Some(0) && said.contains("default is open; 1 observer waits"), "{said}");
    api.until_status("three", "Processing").await;
    let events: Listed<Event> = api.read("/v1/events?type=pool_paused,pool_resumed").await;
    let told: Vec<(EventKind, &str)> = events.items.iter().map(|it| (it.kind, it.text.as_str())).collect();
    let (paused, resumed) = (EventKind::PoolPaused, EventKind::PoolResumed);
    assert_eq!(told, [(resumed, "pool default"), (paused, "pool default")]);
    assert!(events.items.iter().all(|it| it.by.is_some()), "{events:?}");
    let refused = api.refused("PUT", "/v1/pools/default", Some(json!({"pause": true}))).await;
    assert_eq!(refused.status, 422, "{refused:?}");
}
