//! Everything over TLS: `amqps://`, with a certificate that the machine trusts.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, free_address};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::path::Path;

/// Writes a certificate for `localhost` and its key. Returns the lines of `rabbitmq.conf` that use them.
fn certified(folder: &Path, address: &str) -> Vec<String> {
    std::fs::create_dir_all(folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    vec![
        format!("listeners.ssl.default={address}"),
        format!("ssl_options.cacertfile={}", certificate.display()),
        format!("ssl_options.certfile={}", certificate.display()),
        format!("ssl_options.keyfile={}", key.display()),
        "ssl_options.verify=verify_none".to_owned(),
        "ssl_options.fail_if_no_peer_cert=false".to_owned(),
    ]
}

#[tokio::test]
async fn manager_and_service_work_over_tls_and_refuse_a_broker_they_cannot_trust() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, address) = (scratch.path().join("node"), free_address());
    let lines = certified(&folder, &address);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let _node = Node::start(&folder, &lines);
    let (_, port) = address.split_once(':').unwrap();
    let mut cluster = Cluster::new("tls").on(&format!("amqps://guest:guest@localhost:{port}/%2f"));

    cluster.spawn_service("stranger", 1);
    wait_for("the service to say whom it does not trust", || async {
        let log = cluster.full_log("stranger");
        let told = log.contains(port) && log.to_lowercase().contains("certificate");
        if told { Ok(()) } else { Err(log) }
    })
    .await;
    cluster.kill("stranger");

    let trusted = folder.join("certificate.pem").display().to_string();
    cluster.extra.push(("SSL_CERT_FILE".to_owned(), trusted));
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 5).await;
    }
    cluster.api.create(json!({"name": "o", "kind": "ticker"})).await;
    let before = cluster.api.until_status("o", "Processing").await;
    let owner = holder(&before).unwrap();
    cluster.kill(owner);
    let moved = |it: &Observer| it.status == Status::Processing && it.epoch > before.epoch;
    cluster.api.until_observer("o", |it| moved(it) && holder(it) != Some(owner)).await;
}
