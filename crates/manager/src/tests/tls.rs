//! A manager that serves HTTPS, and client certificates as credentials.

use super::*;
use crate::{AuthSection, AuthSettings, ManagerSection};
use everwatch_api::{Role, Whoami};
use everwatch_core::access::Mode;
use everwatch_door::tls::{ClientCertificate, Clients, Files};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::net::SocketAddr;
use std::path::Path;

const BOOTSTRAP: &str = "a secret of thirty-two characters";
const CI: &str = "spiffe://example.org/ci";

pub(super) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(super) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate with its key, both PEM.
fn issued(authority: &Authority, name: SanType) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![name];
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

pub(super) fn files(dir: &Path, authority: &Authority) -> Files {
    let (certificate, key) = issued(authority, SanType::DnsName("localhost".try_into().unwrap()));
    let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), clients: None };
    let ca = dir.join("ca.crt");
    std::fs::write(&files.certificate, certificate).unwrap();
    std::fs::write(&files.key, key).unwrap();
    std::fs::write(&ca, authority.pem()).unwrap();
    Files { clients: Some(Clients { ca, required: false }), ..files }
}

fn auth(dir: &Path, role: &str) -> AuthSettings {
    let file = dir.join("bootstrap");
    std::fs::write(&file, BOOTSTRAP).unwrap();
    let mtls_roles = [(CI.to_owned(), Name::new(role).unwrap())].into_iter().collect();
    AuthSettings { mode: Mode::Auto, bootstrap_token_file: Some(file), mtls_roles, ..AuthSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_serves_https_and_knows_clients_by_their_certificates() {
    let _set_before = rustls::crypto::ring::default_provider().install_default();
    let (dir, authority) = (tempfile::tempdir().unwrap(), authority());
    let settings = Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: Some(files(dir.path(), &authority)),
        auth: auth(dir.path(), "operator"),
        ..Settings::default()
    };
    let url = format!("sqlite://{}", dir.path().join("test.db").display());
    let store = everwatch_store::open(&url, settings.row.clone()).await.unwrap();
    let (listens, listening) = tokio::sync::oneshot::channel();
    let (stop, broker) = (CancellationToken::new(), Arc::new(MemoryBroker::new()));
    let mut running = JoinSet::new();
    running.spawn(crate::run(
        settings,
        async { Ok(Some(store)) },
        broker,
        Router::new(),
        stop.clone(),
        |addr| {
            listens.send(addr).unwrap();
        },
    ));
    let port = listening.await.unwrap().port();
    let client = |identity: Option<(String, String)>| {
        let ca = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
        let builder = reqwest::Client::builder().tls_certs_only([ca]);
        match identity {
            None => builder,
            Some((certificate, key)) => {
                builder.identity(reqwest::Identity::from_pem((certificate + &key).as_bytes()).unwrap())
            }
        }
        .build()
        .unwrap()
    };
    let whoami = format!("https://localhost:{port}/v1/whoami");
    let ask = async |identity| {
        let response = client(identity).get(&whoami).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let ready = format!("https://localhost:{port}/readyz");
    while !client(None).get(&ready).send().await.unwrap().status().is_success() {
        tokio::task::yield_now().await;
    }
    let uri = |name: &str| SanType::URI(name.try_into().unwrap());
    let (status, who) = ask(Some(issued(&authority, uri(CI)))).await;
    assert_eq!((status, &who["name"], &who["role"]), (200, &json!(CI), &json!("operator")), "{who}");
    let (status, refused) = ask(Some(issued(&authority, uri("spiffe://example.org/other")))).await;
    assert_eq!(status, 401);
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("spiffe://example.org/other") && detail.contains("[auth.mtls] roles"),
        "{detail}"
    );
    assert_eq!(ask(None).await.0, 401);
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
}

impl Stage {
    async fn sent_over(&self, certificate: Option<ClientCertificate>, method: &str, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        // A name that a proxy claims.
        let mut request =
            request.header("x-client-cert", CI).header("x-forwarded-client-cert", format!("URI={CI}"));
        if let Some(certificate) = certificate {
            request = request.extension(certificate);
        }
        self.ask(request.body(Body::empty()).unwrap()).await
    }
}

fn certificate(name: Option<&str>) -> Option<ClientCertificate> {
    let expires_at = clock::now().0 / 1000 + 3600;
    Some(ClientCertificate { name: name.map(str::to_owned), expires_at })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_may_do_what_its_role_says() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { auth: auth(dir.path(), "team"), ..Settings::default() };
    let stage = Stage::prepared(settings, None).await;
    let list = "/v1/observers";
    stage.sent_over(None, "GET", list).await.refused(401, "no-valid-token");
    stage.sent_over(certificate(None), "GET", list).await.refused(401, "no-valid-token");
    stage
        .sent_over(certificate(Some("spiffe://example.org/x")), "GET", list)
        .await
        .refused(401, "no-valid-token");
    let refused = stage.sent_over(certificate(Some(CI)), "GET", list).await;
    assert!(refused.body["detail"].as_str().unwrap().contains("the role team"), "{}", refused.body);
    refused.refused(401, "no-valid-token");

    let apply = async |status: u16, verbs: Value| {
        let body = json!({ "grants": [{ "verbs": verbs }] });
        let request = Request::builder().method("PUT").uri("/v1/roles/team");
        let request = request
            .header(header::AUTHORIZATION, format!("Bearer {BOOTSTRAP}"))
            .header(header::CONTENT_TYPE, "application/json");
        stage.ask(request.body(Body::from(body.to_string())).unwrap()).await.read::<Role>(status);
    };
    apply(201, json!(["observers:read"])).await;
    assert_eq!(stage.sent_over(certificate(Some(CI)), "GET", list).await.status, StatusCode::OK);
    stage.sent_over(certificate(Some(CI)), "GET", "/v1/tokens").await.refused(403, "not-permitted");
    stage.sent_over(certificate(Some(CI)), "POST", "/v1/session").await.refused(409, "no-session");
    let who = stage.sent_over(certificate(Some(CI)), "GET", "/v1/whoami").await.read::<Whoami>(200);
    assert_eq!((who.name.as_deref(), who.token, who.session), (Some(CI), None, false));
    apply(200, json!(["tokens:read"])).await;
    stage.sent_over(certificate(Some(CI)), "GET", list).await.refused(403, "not-permitted");
    assert_eq!(stage.sent_over(certificate(Some(CI)), "GET", "/v1/tokens").await.status, StatusCode::OK);
    let expired = ClientCertificate { name: Some(CI.to_owned()), expires_at: 1 };
    stage.sent_over(Some(expired), "GET", "/v1/tokens").await.refused(401, "no-valid-token");
}

#[test]
fn half_a_configuration_of_tls_is_refused_with_the_missing_key() {
    let refused = |text: &str| {
        let section: ManagerSection = serde_json::from_value(json!(
            text.split(' ').map(|key| (key, json!("/f"))).collect::<std::collections::BTreeMap<_, _>>()
        ))
        .unwrap();
        section.check().unwrap_err().to_string()
    };
    for (given, missing) in [
        ("tls_cert_file", "set manager.tls_key_file too"),
        ("tls_key_file", "set manager.tls_cert_file too"),
        ("tls_client_ca_file", "set manager.tls_cert_file and manager.tls_key_file too"),
        ("tls_client_ca_file tls_cert_file", "set manager.tls_key_file too"),
    ] {
        let told = refused(given);
        assert!(told.starts_with("manager.tls_") && told.contains(missing), "{told}");
    }
    let required = ManagerSection { tls_client_required: true, ..ManagerSection::default() };
    assert!(required.check().unwrap_err().to_string().contains("set manager.tls_client_ca_file too"));
    let mapped: AuthSection = serde_json::from_value(json!({"mtls": {"roles": {CI: "admin"}}})).unwrap();
    let told = ManagerSection::default().settings(("p.", 1), &mapped, None).unwrap_err().to_string();
    assert!(told.starts_with("auth.mtls.roles: set manager.tls_client_ca_file"), "{told}");
    for name in ["", "CI.example", "a b"] {
        let mapped: AuthSection =
            serde_json::from_value(json!({"mtls": {"roles": {name: "admin"}}})).unwrap();
        assert!(mapped.check().unwrap_err().to_string().contains(&format!("`{name}`")));
    }
}
