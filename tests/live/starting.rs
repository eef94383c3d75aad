//! A manager that starts while its database is away.

use everwatch_tests::cluster::{Cluster, free_address, from_environment};
use everwatch_tests::proxy::{Proxy, host_and_port};
use everwatch_tests::wait::wait_for;

#[tokio::test]
async fn a_manager_answers_while_it_waits_for_its_database() {
    let server = from_environment("EVERWATCH_TEST_POSTGRES_URL");
    let (real, later) = (host_and_port(&server).to_owned(), free_address());
    let mut cluster = Cluster::new("starting").with_postgres();
    let store = cluster.environment().into_iter().find(|(key, _)| key == "EVERWATCH_STORE__URL").unwrap().1;
    cluster.extra.push(("EVERWATCH_STORE__URL".to_owned(), store.replace(&real, &later)));
    cluster.spawn_manager();
    wait_for("the manager to live", || async {
        match cluster.api.try_call("GET", "/livez", None).await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}; {}", cluster.log("manager"))),
        }
    })
    .await;
    for (path, code) in [
        ("/readyz", "not-ready"),
        ("/readyz?for=api", "not-ready"),
        ("/v1/observers", "database-unavailable"),
        ("/", "database-unavailable"),
    ] {
        let problem = cluster.api.refused("GET", path, None).await;
        assert_eq!((problem.status, problem.code.as_str()), (503, code), "{path}");
        assert!(problem.detail.contains("waits for the database"), "{path}: {}", problem.detail);
    }
    // One that is told to stop meanwhile ends without an error.
    assert_eq!(cluster.terminate("manager"), Some(0), "{}", cluster.log("manager"));

    cluster.spawn_manager();
    wait_for("the manager to wait", || async {
        let told = cluster.log("manager").contains("database unreachable");
        if told { Ok(()) } else { Err(cluster.log("manager")) }
    })
    .await;
    let _database = Proxy::listen(&later, &real).await;
    cluster.api.until_ready().await;
    assert_eq!(cluster.api.observers().await.len(), 0);
}
