//! Clients that never finish their requests, and a full disk.

use everwatch_api::{Observer, ProblemBody};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::disk::SmallDisk;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde::Deserialize as _;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

#[tokio::test]
async fn two_hundred_clients_that_never_finish_their_request_do_not_stop_the_api() {
    let mut cluster = Cluster::new("slow");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let address = cluster.api.url.trim_start_matches("http://").to_owned();
    let mut held = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let begun = if number % 2 == 0 {
            "GET /v1/observers HTTP/1.1\r\nHost: x\r\nX-Slow: "
        } else {
            "POST /v1/observers HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        };
        stream.write_all(begun.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let begun = Instant::now();
    cluster.api.create(json!({"name": "o", "kind": "ticker"})).await;
    cluster.api.until_status("o", "Processing").await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(held.len(), 200);
}

#[tokio::test]
async fn a_full_disk_under_sqlite_is_told_and_survived() {
    let mut cluster = Cluster::new("disk").with_test_kinds();
    let disk = SmallDisk::mount(&cluster.folder("disk"), 4);
    let database = format!("sqlite://{}", disk.path.join("everwatch.db").display());
    cluster.extra.push(("EVERWATCH_STORE__URL".to_owned(), database));
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 20).await;
    }
    let folder = cluster.folder("beacons");
    for number in 0..6 {
        let spec = json!({ "folder": folder });
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec})).await;
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    disk.fill();
    let filling = json!({"kind": "ticker", "labels": {"long": "x".repeat(60)}, "on_full": "queue"});
    let (status, problem) = wait_for("a create to be refused because the disk is full", || async {
        match cluster.api.call("POST", "/v1/observers", Some(filling.clone())).await {
            (201, _) => Err("there was room still".to_owned()),
            (status, answer) => Ok((status, ProblemBody::deserialize(&answer).unwrap())),
        }
    })
    .await;
    assert_eq!((status, problem.code.as_str()), (503, "database-unavailable"), "{problem:?}");
    // Failover needs no database.
    cluster.kill("a");
    wait_for("all six to run on b", || async {
        let now = jiff::Timestamp::now().as_millisecond();
        let runs = everwatch_tests::beacons::read(&folder);
        let fresh = runs.values().filter(|runs| runs.iter().any(|run| now - run.last < 500)).count();
        if fresh == 6 { Ok(()) } else { Err(format!("{fresh} run")) }
    })
    .await;
    disk.make_room();
    wait_for("the books to come true once there is room", || async {
        let all: Vec<Observer> = cluster.api.list("/v1/observers?status=Processing&kind=beacon").await;
        let on_b = all.iter().filter(|it| holder(it) == Some("b")).count();
        if on_b == 6 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    cluster.api.create(json!({"name": "after", "kind": "ticker"})).await;
    cluster.api.until_status("after", "Processing").await;
}
