//! What a manager makes of a database that goes away and comes back.

use crate::service::Service;
use crate::stage::Stage;
use everwatch_store::conformance::{count, execute};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a cable does to a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cable {
    Whole,
    /// Connections are refused and ended.
    Cut,
}

/// A TCP relay in front of the database.
struct Relay {
    address: std::net::SocketAddr,
    cable: watch::Sender<Cable>,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cable = watch::Sender::new(Cable::Whole);
        let changes = Arc::new(cable.subscribe());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut links = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (server, mut changes) = (server.clone(), changes.as_ref().clone());
                if *changes.borrow() == Cable::Whole {
                    links.spawn(async move {
                        let mut database = TcpStream::connect(server).await.unwrap();
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut client, &mut database) => {}
                            _ = changes.wait_for(|cable| *cable == Cable::Cut) => {}
                        }
                    });
                }
            }
        });
        Self { address, cable, _tasks: tasks }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_database_is_away() {
    let mut stage = Stage::new().on_postgres().await;
    let (head, tail) = stage.store_url.split_once('@').unwrap();
    let (server, path) = tail.split_once('/').unwrap();
    let relay = Relay::to(server.to_owned()).await;
    stage.store_url = format!("{head}@{}/{path}", relay.address);
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 50).await;
    for number in 0..10 {
        let body = json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue"});
        manager.api.create(body).await;
    }
    manager.api.until_total("/v1/observers?status=Processing", 10).await;

    relay.cable.send_replace(Cable::Cut);
    let problem = manager.api.until_not_ready().await;
    assert!(problem.detail.contains("database"), "{problem:?}");
    assert_eq!(manager.api.call("GET", "/readyz?for=api", None).await.0, 503);
    let problem = manager.api.refused("GET", "/v1/observers/o1", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (503, "database-unavailable"));
    let body = json!({"name": "refused", "kind": "ticker", "on_full": "queue"});
    assert_eq!(manager.api.call("POST", "/v1/observers", Some(body)).await.0, 503);
    // Reports wait in their queue meanwhile.
    let late = Service::new(&stage, "late", 1).await;

    relay.cable.send_replace(Cable::Whole);
    manager.api.until_ready().await;
    manager.api.until(&format!("/v1/services/{}", late.id), |status, _| status == 200).await;
    manager.api.create(json!({"name": "after", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("after", "Processing").await;
    wait_for("each to run once", || async {
        let runs = service.history.lock().unwrap().len() + late.history.lock().unwrap().len();
        if runs == 11 { Ok(()) } else { Err(format!("{runs} runs")) }
    })
    .await;
}

/// A service that starts and dies all day long leaves a row each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_have_ended_are_not_read_again_and_again() {
    const ENDED: i64 = 20_000;
    let stage = Stage::new().on_postgres().await;
    let manager = stage.ready_manager().await;
    let _service = Service::new(&stage, "s", 5).await;
    manager.api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("a", "Processing").await;
    let flapping = format!(
        "INSERT INTO services SELECT gen_random_uuid(), 1, 'flapping', pool, 1, 'lost', registered_at, registered_at, document
        FROM services, generate_series(1, {ENDED}) WHERE ended_at IS NULL"
    );
    execute(&stage.store_url, &flapping).await;
    execute(&stage.store_url, "ANALYZE services").await;
    // Longer than the queue of the pool must be quiet before what is missing is looked for.
    let read = async || count(&stage.store_url, READ).await;
    tokio::time::sleep(stage.settings.orphan_after * 2).await;
    let before = read().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let rows = read().await - before;
    assert!(rows < ENDED, "{rows} rows of services were read within 4 s");
}

/// Rows of services that this database has read, by all of its connections.
const READ: &str = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
    WHERE schemaname = current_schema() AND relname = 'services'";
