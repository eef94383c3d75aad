//! Reports spread over several state queues.

use everwatch_broker::{Broker as _, RabbitBroker, Topology};
use everwatch_core::doctor::Severity;
use everwatch_core::id::ObserverId;
use everwatch_tests::cluster::{As, Cluster, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::time::Duration;

const OBSERVERS: usize = 200;

fn set(cluster: &mut Cluster, state_queues: u16) {
    cluster.extra.push(("EVERWATCH_BROKER__STATE_QUEUES".to_owned(), state_queues.to_string()));
}

async fn until_all_run_on(cluster: &Cluster, services: &[&str]) {
    wait_for(&format!("{OBSERVERS} observers to run on {services:?}"), || async {
        let all = cluster.api.processing().await;
        let there = all.iter().filter(|it| holder(it).is_some_and(|name| services.contains(&name))).count();
        if there == OBSERVERS { Ok(()) } else { Err(format!("{there} of {}", all.len())) }
    })
    .await;
}

#[tokio::test]
async fn reports_are_spread_over_four_state_queues() {
    let mut cluster = Cluster::new("spread");
    set(&mut cluster, 4);
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let topology = Topology::new(&cluster.prefix).with_state_queues(4);
    cluster.spawn_service("early", 0);
    wait_for("a service to wait for the managers", || async {
        let log = cluster.full_log("early");
        let says =
            log.contains("may not declare what is missing on the broker") && log.contains("start a manager");
        if says && !log.contains("registered") { Ok(()) } else { Err(log) }
    })
    .await;
    cluster.manager().await;
    cluster.until_active("early").await;
    for name in ["a", "b"] {
        cluster.service(name, OBSERVERS as u32).await;
    }
    let mut shares = [0; 4];
    for number in 0..OBSERVERS {
        let made = cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
        shares[usize::from(topology.state_of(ObserverId(made.id)))] += 1;
    }
    assert!(shares.iter().all(|share| *share > OBSERVERS / 10), "{shares:?}");
    until_all_run_on(&cluster, &["a", "b"]).await;

    // Without a manager, the reports of a failover wait in all queues.
    assert_eq!(cluster.terminate("manager"), Some(0));
    cluster.kill("a");
    for index in 0..4 {
        let path = format!("/api/queues/%2f/{}", topology.state_queue(index));
        wait_for(&format!("state queue {index} to have messages"), || async {
            let queue = management.get(&path).await;
            if queue["messages"].as_u64() > Some(0) { Ok(()) } else { Err(queue.to_string()) }
        })
        .await;
    }
    cluster.spawn_manager();
    cluster.api.until_ready().await;
    until_all_run_on(&cluster, &["b"]).await;

    let queue = topology.state_queue(3);
    management.publish(&queue, "?!", "string").await;
    cluster.api.until_total("/v1/parked", 1).await;
    let parked = cluster.api.parked().await;
    assert_eq!(parked[0].queue, queue);
}

/// Managers first use fewer queues than services, and then more than they did.
#[tokio::test]
async fn a_manager_with_a_smaller_number_reads_what_services_still_use() {
    let mut cluster = Cluster::new("shrink");
    set(&mut cluster, 3);
    cluster.manager().await;
    cluster.service("a", 50).await;
    assert_eq!(cluster.terminate("manager"), Some(0));
    set(&mut cluster, 1);
    cluster.manager().await;
    for number in 0..20 {
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
    }
    wait_for("the reports of all observers to be read", || async {
        let all = cluster.api.processing().await;
        if all.len() == 20 { Ok(()) } else { Err(format!("{} run", all.len())) }
    })
    .await;
    let found = cluster.api.findings().await;
    let surplus: Vec<_> = found.iter().filter(|it| it.code == "state-queue-surplus").collect();
    assert_eq!(surplus.len(), 2, "{found:?}");
    assert!(surplus.iter().all(|it| it.severity == Severity::Info), "{surplus:?}");

    // A service with a larger number than was ever declared takes nothing.
    let environment = [("EVERWATCH_BROKER__STATE_QUEUES", "5")];
    let url = cluster.broker_url.clone();
    cluster.spawn_service_as("b", 50, As { broker_url: &url, environment: &environment, ..As::default() });
    wait_for("the service to name the setting", || async {
        let log = cluster.full_log("b");
        if log.contains("set broker.state_queues of all managers to at least 5") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(cluster.terminate("b"), Some(0), "it can be stopped while it waits");

    // Once no service uses the queues, they are deleted as the doctor says.
    assert_eq!(cluster.terminate("a"), Some(0));
    let broker = RabbitBroker::new(&cluster.broker_url, "", Duration::from_secs(10)).unwrap();
    let names: Vec<String> = (1..3).map(|index| format!("{}state.{index}", cluster.prefix)).collect();
    assert_eq!(cluster.terminate("manager"), Some(0));
    broker.remove(&names, &[]).await.unwrap();
    cluster.manager().await;
    let found = cluster.api.findings().await;
    assert!(found.iter().all(|it| it.code != "state-queue-surplus"), "{found:?}");
    let session = broker.connect("onlooker").await.unwrap();
    assert!(session.depth(&names[0]).await.is_err(), "no process has created the queue again");
    session.close().await;
}
