//! Several pools, and several versions of a service in one pool: work waits for, and finds, who can do it.

use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, everwatch, test_service};
use everwatch_tests::http::wait_for;
use serde_json::json;

#[tokio::test]
async fn a_kind_that_only_the_new_version_knows_finds_the_service_that_knows_it() {
    let mut cluster = Cluster::new("kinds");
    cluster.manager().await;
    cluster.service_program = everwatch();
    for name in ["old1", "old2"] {
        cluster.service(name, 20).await;
    }
    let folder = cluster.folder("beacons");
    let body = |name: &str| json!({"name": name, "kind": "beacon", "spec": {"folder": folder}});
    let (status, refused) = cluster.api.call("POST", "/v1/observers", Some(body("early"))).await;
    assert_eq!((status, &refused["code"]), (422, &json!("no-service-for-kind")), "{refused}");

    cluster.service_program = test_service();
    cluster.service("new", 6).await;
    for number in 0..6 {
        cluster.api.create(body(&format!("o{number}"))).await;
    }
    wait_for("all to run on the one that knows them", || async {
        let all = cluster.api.items("/v1/observers?status=Processing&service=new").await;
        if all.len() == 6 { Ok(()) } else { Err(format!("{:?}", all.len())) }
    })
    .await;
    assert_eq!(cluster.api.get("/v1/parked").await["total"], 0);

    // Gone for a moment, its observers wait: the old ones pass them on and say so, and nobody gives up.
    assert_eq!(cluster.terminate("new"), Some(0));
    wait_for("one to say why it waits", || async {
        let all = cluster.api.items("/v1/observers?kind=beacon").await;
        let told =
            all.iter().filter(|it| it["reason"].as_str().unwrap_or_default().contains("beacon")).count();
        if told > 0 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    cluster.service("new", 6).await;
    wait_for("all to run again", || async {
        let runs = beacons::read(&folder).values().filter(|runs| runs.len() == 2).count();
        if runs == 6 { Ok(()) } else { Err(format!("{runs} run")) }
    })
    .await;
    assert_eq!(cluster.api.get("/v1/parked").await["total"], 0);
    let failed = cluster.api.get("/v1/observers?status=Failed").await;
    assert_eq!(failed["total"], 0, "{failed}");
    beacons::judge("a kind of the new version", &folder, |_| 0);
}

#[tokio::test]
async fn a_pool_without_a_service_refuses_or_lets_wait_and_says_so() {
    let mut cluster = Cluster::new("pools");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let body = |name: &str, on_full: &str| json!({"name": name, "kind": "ticker", "pool": "gpu", "on_full": on_full});
    let (status, refused) = cluster.api.call("POST", "/v1/observers", Some(body("now", "reject"))).await;
    assert_eq!((status, &refused["code"]), (503, &json!("no-capacity")), "{refused}");
    cluster.api.create(body("later", "queue")).await;
    wait_for("it to say why it waits", || async {
        let it = cluster.api.get("/v1/observers/later").await;
        let told = it["status"] == "Created" && it["reason"] == "no service in pool gpu";
        if told { Ok(()) } else { Err(it.to_string()) }
    })
    .await;
    assert_eq!(cluster.api.get("/v1/pools/gpu").await["needed"], 1);

    cluster.extra.push(("EVERWATCH_SERVICE__POOL".to_owned(), "gpu".to_owned()));
    cluster.service("g", 5).await;
    let it = cluster.api.until_status("later", "Processing").await;
    assert_eq!(it["service"]["name"], "g");
    let (status, moved) =
        cluster.api.call("POST", "/v1/observers/later/move", Some(json!({"pool": "default"}))).await;
    assert_eq!(status, 202, "{moved}");
    wait_for("it to run in the other pool", || async {
        let it = cluster.api.get("/v1/observers/later").await;
        if it["service"]["name"] == "a" && it["status"] == "Processing" {
            Ok(())
        } else {
            Err(it.to_string())
        }
    })
    .await;
}
