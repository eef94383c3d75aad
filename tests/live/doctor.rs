//! The doctor finds deliberate faults of brokers and deployments, and the remedy that it names works.

use everwatch_api::Finding;
use everwatch_core::doctor::Severity;
use everwatch_tests::cluster::{Cluster, brokers, everwatch, free_address, from_environment};
use everwatch_tests::rabbitmq::{Management, Node};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::process::Command;

/// A cluster on a private node whose management API the manager queries.
fn on(node: &Node, name: &str) -> Cluster {
    let mut cluster = Cluster::new(name).on_node(node);
    cluster.extra.push(("EVERWATCH_BROKER__MANAGEMENT_URL".to_owned(), node.management_url.clone()));
    cluster
}

fn is(finding: &Finding, code: &str, words: &str) -> bool {
    finding.code == code && format!("{finding:?}").contains(words)
}

/// Waits for a finding with these words in it, and answers it.
async fn until_found(cluster: &Cluster, code: &str, words: &str) -> Finding {
    wait_for(&format!("the doctor to find {code} ({words})"), || async {
        let all = cluster.api.findings().await;
        all.iter().find(|it| is(it, code, words)).cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await
}

async fn until_cured(cluster: &Cluster, code: &str, words: &str) {
    wait_for(&format!("{code} ({words}) to be cured"), || async {
        let all = cluster.api.findings().await;
        if all.iter().any(|it| is(it, code, words)) { Err(format!("{all:?}")) } else { Ok(()) }
    })
    .await;
}

/// Executes the first `rabbitmqctl …` command of a finding's remedy.
fn apply(node: &Node, finding: &Finding) {
    let (_, command) = finding.cure.split_once("`rabbitmqctl ").unwrap();
    let (arguments, _) = command.split_once('`').unwrap();
    node.ctl(&arguments.split(' ').collect::<Vec<_>>());
}

/// The exit code of `everwatch doctor`, and what it prints.
async fn cli(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(everwatch());
    command.args(["--server", &cluster.api.url, "doctor"]).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

async fn create(cluster: &Cluster, count: usize) {
    for number in 0..count {
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue"})).await;
    }
}

#[tokio::test]
async fn a_healthy_deployment_yields_no_warning() {
    for (version, url) in brokers() {
        let mut cluster = Cluster::new("healthy").on(&url);
        if version == "default" {
            let management = from_environment("EVERWATCH_TEST_MANAGEMENT_URL");
            cluster.extra.push(("EVERWATCH_BROKER__MANAGEMENT_URL".to_owned(), management));
        }
        cluster.manager().await;
        for name in ["a", "b", "c"] {
            cluster.service(name, 10).await;
        }
        create(&cluster, 6).await;
        for number in 0..6 {
            cluster.api.until_status(&format!("o{number}"), "Processing").await;
        }
        let found = cluster.api.findings().await;
        assert!(found.iter().all(|it| it.severity == Severity::Info), "on {version}: {found:?}");
        let unset = found.iter().any(|it| it.code == "management-unset");
        assert_eq!(unset, version != "default", "it says what it could not see, on {version}: {found:?}");
        let (code, said) = cli(&cluster, &["-o", "json"]).await;
        assert_eq!((code, serde_json::from_str(&said).unwrap()), (0, json!(found)));
    }
}

#[tokio::test]
async fn policies_arguments_alarms_and_a_dead_broker_are_found_and_their_cures_work() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["consumer_timeout=315360000000"]);
    let management = Management::new(node.management_url.clone());
    let mut cluster = on(&node, "doctor");
    // A work queue that another program created.
    let queue = format!("{}work.default", cluster.prefix);
    let classic = json!({"durable": true, "arguments": {"x-queue-type": "classic"}});
    management.expect("PUT", &format!("/api/queues/%2f/{queue}"), classic).await;
    cluster.manager().await;
    let found = until_found(&cluster, "queue-arguments", "x-delivery-limit").await;
    assert_eq!((found.severity, &found.subject), (Severity::Critical, &format!("queue {queue}")));
    let (code, said) = cli(&cluster, &[]).await;
    assert_eq!(code, 9, "{said}");
    assert!(said.contains(&format!("CRITICAL  queue-arguments  queue {queue}")), "{said}");
    apply(&node, &found);
    cluster.service("a", 10).await;
    cluster.service("b", 10).await;
    create(&cluster, 3).await;
    cluster.api.until_status("o2", "Processing").await;
    until_cured(&cluster, "queue-arguments", "").await;

    let pattern = format!("^{}", cluster.prefix.replace('.', "\\."));
    let definition = json!({"delivery-limit": 20, "max-length": 50});
    let policy = json!({"pattern": pattern, "definition": definition, "apply-to": "queues"});
    management.expect("PUT", "/api/policies/%2f/strict", policy).await;
    let found = until_found(&cluster, "policy", "delivery limit of 20").await;
    assert_eq!(found.severity, Severity::Critical);
    let length = until_found(&cluster, "policy", "max-length of 50").await;
    assert_eq!(length.severity, Severity::Warning, "nothing is dropped: {length:?}");
    apply(&node, &found);
    until_cured(&cluster, "policy", "").await;

    node.ctl(&["set_vm_memory_high_watermark", "0.0001"]);
    let found = until_found(&cluster, "broker-alarm", "memory alarm").await;
    assert_eq!(found.severity, Severity::Critical);
    apply(&node, &found);
    until_cured(&cluster, "broker-alarm", "").await;
    let left = cluster.api.findings().await;
    assert!(left.iter().all(|it| it.severity == Severity::Info), "{left:?}");

    node.kill();
    until_found(&cluster, "broker-unreachable", "cannot be reached").await;
    until_found(&cluster, "management-silent", "").await;
    node.start_again();
    until_cured(&cluster, "broker-unreachable", "").await;
    cluster.api.until_status("o2", "Processing").await;
}

#[tokio::test]
async fn an_acknowledgement_time_out_that_fires_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["consumer_timeout=1000"]);
    // RabbitMQ checks held messages once a minute; with this setting, new channels check each second.
    node.ctl(&["eval", "application:set_env(rabbit, channel_tick_interval, 1000)."]);
    let mut cluster = on(&node, "doctor-ack");
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 10).await;
    }
    create(&cluster, 2).await;
    // The services themselves warn if a queue argument cannot disable the time-out on this version.
    if !cluster.full_log("a").contains("consumer_timeout") {
        return;
    }
    let found = until_found(&cluster, "ack-timeout-fired", "consumer_timeout = 315360000000").await;
    assert_eq!(found.severity, Severity::Critical);
}

#[tokio::test]
async fn two_services_of_one_name_are_found() {
    let mut cluster = Cluster::new("twins");
    let mut elsewhere = Cluster::new("twins");
    elsewhere.prefix.clone_from(&cluster.prefix);
    cluster.manager().await;
    cluster.service("a", 10).await;
    elsewhere.spawn_service("a", 10);
    let found = until_found(&cluster, "same-name", "service a").await;
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(cli(&cluster, &[]).await.0, 8);
    assert_eq!(elsewhere.terminate("a"), Some(0));
    until_cured(&cluster, "same-name", "").await;
}

#[tokio::test]
async fn a_service_that_is_too_big_to_lose_is_found_and_another_one_cures_it() {
    let mut cluster = Cluster::new("headroom");
    cluster.manager().await;
    cluster.service("big", 20).await;
    cluster.service("small", 5).await;
    create(&cluster, 15).await;
    let found = until_found(&cluster, "too-big-to-lose", "service big").await;
    assert!(found.what.contains("10 slots short of the 15"), "{found:?}");
    assert!(found.cure.contains("at least 10 slots"), "{found:?}");
    cluster.service("more", 10).await;
    until_cured(&cluster, "too-big-to-lose", "").await;
    // An observer without a service, and a switch that an operator forgot.
    let camera = json!({"name": "c", "kind": "ticker", "pool": "cellar", "on_full": "queue"});
    cluster.api.create(camera).await;
    until_found(&cluster, "no-service", "pool cellar").await;
    let (status, _) =
        cluster.api.call("PUT", "/v1/safe-mode", Some(json!({"on": true, "reason": "storm"}))).await;
    assert_eq!(status, 200);
    let hold = until_found(&cluster, "safe-mode-on", "storm").await;
    assert_eq!(hold.cure, "`everwatch safe-mode off`");
}

#[tokio::test]
async fn tables_of_another_version_are_found() {
    let mut cluster = Cluster::new("schema").with_postgres();
    cluster.manager().await;
    let newest = "version = (select max(version) from _sqlx_migrations)";
    cluster.sql(&format!(
        "insert into _sqlx_migrations select 9999, 'of tomorrow', installed_on, success, checksum, execution_time \
         from _sqlx_migrations where {newest}"
    ));
    let found = until_found(&cluster, "schema-newer", "version 9999").await;
    assert_eq!(found.severity, Severity::Warning);
    assert!(cli(&cluster, &[]).await.1.contains("cure  upgrade this manager to the version"), "{found:?}");
    // As the finding says, it could not start again.
    let mut command = Command::new(everwatch());
    command
        .args(["run", "manager"])
        .envs(cluster.environment())
        .env("EVERWATCH_MANAGER__LISTEN", free_address());
    let refused = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("unknown schema version 9999"), "{said}");
    cluster.sql("delete from _sqlx_migrations where version = 9999");
    until_cured(&cluster, "schema-newer", "").await;
    cluster.sql(&format!("delete from _sqlx_migrations where {newest}"));
    let found = until_found(&cluster, "schema-older", "this manager requires version").await;
    assert_eq!(found.severity, Severity::Critical);
}
