//! Everything over TLS: `amqps://`, with a certificate that the machine trusts, or with a CA and client certificates of
//! the deployment's own; and PostgreSQL with TLS.

use everwatch_api::Observer;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, free_address};
use everwatch_tests::http::holder;
use everwatch_tests::postgres::Server;
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

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
    let node = Node::start(&folder, &lines);
    let (_, port) = address.split_once(':').unwrap();
    let mut cluster = Cluster::new("tls").on_node(&node);
    cluster.broker_url = format!("amqps://guest:guest@localhost:{port}/%2f");

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

type Authority = CertifiedIssuer<'static, KeyPair>;

/// An authority that writes certificates into a folder.
fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Issues a certificate. Returns its file and that of its key.
fn issue(authority: &Authority, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let secret = KeyPair::generate().unwrap();
    let issued = params.signed_by(&secret, authority).unwrap();
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, issued.pem()).unwrap();
    std::fs::write(&key, secret.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    (certificate, key)
}

fn written(authority: &Authority, folder: &Path) -> PathBuf {
    let ca = folder.join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    ca
}

#[tokio::test]
async fn a_broker_that_requires_client_certificates_gets_them_and_new_ones_need_no_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, address, own) = (scratch.path().join("node"), free_address(), authority());
    std::fs::create_dir_all(&folder).unwrap();
    let ca = written(&own, &folder);
    let (certificate, key) = issue(&own, &folder, "localhost");
    let lines = [
        format!("listeners.ssl.default={address}"),
        format!("ssl_options.cacertfile={}", ca.display()),
        format!("ssl_options.certfile={}", certificate.display()),
        format!("ssl_options.keyfile={}", key.display()),
        "ssl_options.verify=verify_peer".to_owned(),
        "ssl_options.fail_if_no_peer_cert=true".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let node = Node::start(&folder, &lines);
    let (_, port) = address.split_once(':').unwrap();
    let mut cluster = Cluster::new("mtls").on_node(&node);
    cluster.broker_url = format!("amqps://guest:guest@localhost:{port}/%2f");
    let mine = cluster.folder("mine");
    let key_of = |name: &str| format!("EVERWATCH_BROKER__TLS_{name}_FILE");
    cluster.extra.push((key_of("CA"), written(&own, &mine).display().to_string()));

    let told = async |cluster: &Cluster, service: &str, text: &str| {
        wait_for(&format!("{service} to say: {text}"), || async {
            let log = cluster.full_log(service);
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    };
    cluster.spawn_service("bare", 1);
    told(&cluster, "bare", "broker.tls_cert_file").await;
    cluster.kill("bare");

    // A certificate of an unknown authority, then one of the broker's.
    let (certificate, key) = issue(&authority(), &mine, "client");
    cluster.extra.push((key_of("CERT"), certificate.display().to_string()));
    cluster.extra.push((key_of("KEY"), key.display().to_string()));
    cluster.spawn_service("a", 5);
    told(&cluster, "a", "the broker refuses the client certificate").await;
    issue(&own, &mine, "client");
    cluster.manager().await;
    cluster.until_active("a").await;
    cluster.api.create(json!({"name": "o", "kind": "ticker"})).await;
    let running = cluster.api.until_status("o", "Processing").await;
    assert_eq!(holder(&running), Some("a"));
}

#[tokio::test]
async fn a_database_is_verified_by_its_ca_and_verifies_its_clients() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, own) = (scratch.path().join("server"), authority());
    std::fs::create_dir_all(&folder).unwrap();
    let ca = written(&own, &folder);
    let (certificate, key) = issue(&own, &folder, "localhost");
    let lines = [
        "ssl=on".to_owned(),
        format!("ssl_ca_file='{}'", ca.display()),
        format!("ssl_cert_file='{}'", certificate.display()),
        format!("ssl_key_file='{}'", key.display()),
        // The user is the name in the certificate.
        "hostssl all all 127.0.0.1/32 cert".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let server = Server::configured(&folder, &lines);
    let mine = scratch.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    let ca = written(&own, &mine).display().to_string();
    let (certificate, key) = issue(&own, &mine, "everwatch");
    let identity = format!("&sslcert={}&sslkey={}", certificate.display(), key.display());
    let open = async |host: &str, parameters: &str| {
        let url = format!("{}?{parameters}", server.url.replace("127.0.0.1", host));
        everwatch_store::open(&url, RowPolicy::default()).await.err().map(|error| error.to_string())
    };
    let verified = format!("sslmode=verify-full&sslrootcert={ca}");
    assert_eq!(open("localhost", &format!("{verified}{identity}")).await, None);
    let told = async |host: &str, parameters: &str, cure: &str| {
        let text = open(host, parameters).await.unwrap_or_else(|| panic!("{parameters} is accepted"));
        assert!(text.contains(cure), "{text}");
    };
    told("localhost", &verified, "sslcert and sslkey").await;
    told("localhost", &format!("sslmode=verify-full{identity}"), "sslrootcert").await;
    told("127.0.0.1", &format!("{verified}{identity}"), "host name of the server's certificate").await;
    told("localhost", "sslmode=disable", "sslmode=verify-full").await;
    told("localhost", "sslmode=verify-full&sslrootcert=/no/such/file", "sslrootcert").await;
}
