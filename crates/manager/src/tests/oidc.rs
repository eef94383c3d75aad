//! Tokens of an identity provider, and logins at one.

mod login;
mod provider;

use self::provider::{AUDIENCE, CLIENT, Provider, SECRET, Signer, encoded, issuer_at, seconds, unsigned};
use super::*;
use crate::{AuthSettings, OidcSettings};
use everwatch_api::Whoami;
use everwatch_core::access::Oidc;
use everwatch_door::tls::Files;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use tokio::net::TcpListener;

fn settings(issuer: &str, dir: &Path) -> Settings {
    let _set_before = rustls::crypto::ring::default_provider().install_default();
    let secret = dir.join("client-secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let role = |group: &str, role: &str| (group.to_owned(), Name::new(role).unwrap());
    let policy = Oidc {
        issuer: issuer.to_owned(),
        client_id: CLIENT.to_owned(),
        audience: AUDIENCE.to_owned(),
        roles_claim: "groups".to_owned(),
        roles: BTreeMap::from([role("sre", "admin"), role("support", "viewer"), role("later", "team")]),
    };
    let oidc = OidcSettings {
        policy,
        scopes: vec!["profile".to_owned()],
        client_secret_file: Some(secret),
        ca_file: None,
    };
    Settings { auth: AuthSettings { oidc: Some(oidc), ..AuthSettings::default() }, ..Settings::default() }
}

impl Stage {
    async fn with_provider(issuer: &str, dir: &Path) -> Self {
        Self::prepared(settings(issuer, dir), None).await
    }

    async fn shown(&self, jwt: &str, path: &str) -> Answer {
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, format!("Bearer {jwt}"));
        self.ask(request.body(Body::empty()).unwrap()).await
    }

    /// Waits until the manager accepts this token.
    async fn until_known(&self, jwt: &str) {
        let looking = async {
            while self.shown(jwt, "/v1/whoami").await.status != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, looking).await.expect("the token is accepted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_provider_has_the_role_of_its_group() {
    let (dir, ed, ec) = (tempfile::tempdir().unwrap(), Signer::ed(), Signer::ec());
    let provider = Provider::start(vec![ed.public("ed"), ec.public("ec")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir.path()).await;
    // An identity provider alone makes credentials necessary.
    let anonymous = stage.get("/v1/observers").await;
    anonymous.refused(401, "no-valid-token");
    assert_eq!(anonymous.headers[header::WWW_AUTHENTICATE], "Bearer realm=\"everwatch\"");
    let token = ed.sign(json!({ "kid": "ed", "typ": "JWT" }), &provider.claims(json!({})));
    let who = stage.shown(&token, "/v1/whoami").await.read::<Whoami>(200);
    assert_eq!((who.name.as_deref(), who.role.as_deref()), (Some("oidc:jane"), Some("admin")));
    assert_eq!((who.credential.as_deref(), who.session, who.token), (Some("oidc"), false, None));
    let claims = provider.claims(json!({ "groups": "support", "aud": ["x", AUDIENCE] }));
    let viewer = ec.sign(json!({ "kid": "ec", "typ": "application/at+jwt" }), &claims);
    assert_eq!(stage.shown(&viewer, "/v1/observers").await.status, StatusCode::OK);
    stage.shown(&viewer, "/v1/tokens").await.refused(403, "not-permitted");
    // A role that is applied later counts at once.
    let later = ed.sign(json!({ "kid": "ed" }), &provider.claims(json!({ "groups": ["later"] })));
    let refused = stage.shown(&later, "/v1/observers").await.refused(401, "no-valid-token");
    assert!(
        refused.detail.contains("the role team") && refused.detail.contains("does not exist"),
        "{refused:?}"
    );
    let body = json!({ "grants": [{ "verbs": ["observers:read"] }] }).to_string();
    let put = Request::builder()
        .method("PUT")
        .uri("/v1/roles/team")
        .header(header::CONTENT_TYPE, "application/json");
    let put = put.header(header::AUTHORIZATION, format!("Bearer {token}")).body(Body::from(body)).unwrap();
    assert_eq!(stage.ask(put).await.status, StatusCode::CREATED);
    assert_eq!(stage.shown(&later, "/v1/observers").await.status, StatusCode::OK);
    // The audit log names the user.
    let audit = stage.shown(&token, "/v1/audit?principal=oidc%3Ajane").await;
    assert_eq!(audit.body["items"][0]["path"], "/v1/roles/team", "{}", audit.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_breaks_a_rule_is_refused_with_the_reason() {
    let (dir, key, other) = (tempfile::tempdir().unwrap(), Signer::ec(), Signer::ec());
    let provider = Provider::start(vec![key.public("k")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir.path()).await;
    let header = json!({ "kid": "k" });
    let signed = |changes: Value| key.sign(header.clone(), &provider.claims(changes));
    stage.until_known(&signed(json!({}))).await;
    let none = unsigned(&json!({ "alg": "none", "kid": "k" }), &provider.claims(json!({})));
    // The public key as the secret of an HMAC.
    let hmac = unsigned(&json!({ "alg": "HS256", "kid": "k" }), &provider.claims(json!({})));
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.public("k").to_string().as_bytes());
    let tag = encoded(ring::hmac::sign(&secret, hmac.as_bytes()).as_ref());
    let mut changed: Vec<String> = signed(json!({})).split('.').map(str::to_owned).collect();
    changed[1] = encoded(provider.claims(json!({ "sub": "2" })).to_string().as_bytes());
    for (token, told) in [
        (format!("{none}."), "signed with `none`"),
        (format!("{hmac}.{tag}"), "signed with `HS256`"),
        (changed.join("."), "the signature of the token is not valid"),
        (other.sign(header.clone(), &provider.claims(json!({}))), "the signature of the token is not valid"),
        (signed(json!({ "exp": seconds(-60) })), "the token expired at"),
        (signed(json!({ "nbf": seconds(90) })), "the token is not valid before"),
        (signed(json!({ "aud": CLIENT })), "its `aud` must contain"),
        (signed(json!({ "iss": "https://other.example.org" })), "issued by `https://other.example.org`"),
        (signed(json!({ "groups": ["none"] })), "`oidc:jane` has no role"),
        (signed(json!({ "pad": "x".repeat(16 * 1024) })), "a manager reads at most 16384"),
        (
            key.sign(json!({ "kid": "k", "typ": "logout+jwt" }), &provider.claims(json!({}))),
            "of the type `logout+jwt`",
        ),
        (key.sign(json!({ "kid": "k", "crit": ["exp"] }), &provider.claims(json!({}))), "`crit`"),
        (key.sign(json!({ "kid": "unknown" }), &provider.claims(json!({}))), "has no key `unknown`"),
        ("ey.ey.ey".to_owned(), "not a signed JWT"),
        ("eyJ.x".to_owned(), "mistyped"),
    ] {
        let refused = stage.shown(&token, "/v1/whoami").await.refused(401, "no-valid-token");
        assert!(refused.detail.contains(told), "{told}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_is_fetched_when_a_token_names_it_and_invented_ones_cause_few_fetches() {
    let (dir, old, new) = (tempfile::tempdir().unwrap(), Signer::ed(), Signer::ed());
    let provider = Provider::start(vec![old.public("old")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir.path()).await;
    let signed = |key: &Signer, id: &str| key.sign(json!({ "kid": id }), &provider.claims(json!({})));
    stage.until_known(&signed(&old, "old")).await;
    assert_eq!(provider.fetches(), 1);
    for number in 0..100 {
        let token = signed(&new, &format!("invented-{number}"));
        stage.shown(&token, "/v1/whoami").await.refused(401, "no-valid-token");
    }
    assert_eq!(provider.fetches(), 1, "less than 10 s have passed");
    provider.set_keys(vec![new.public("new")]);
    stage.until_known(&signed(&new, "new")).await;
    assert_eq!(provider.fetches(), 2);
    // The provider has withdrawn the other key.
    stage.shown(&signed(&old, "old"), "/v1/whoami").await.refused(401, "no-valid-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_keys_stay_valid_while_the_provider_is_down() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Signer::ed());
    let provider = Provider::start(vec![key.public("k")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir.path()).await;
    let signed = |id: &str| key.sign(json!({ "kid": id }), &provider.claims(json!({})));
    stage.until_known(&signed("k")).await;
    provider.set_down(true);
    let unknown = signed("unknown");
    let looking = async {
        loop {
            let answer = stage.shown(&unknown, "/v1/whoami").await;
            if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let refused = tokio::time::timeout(SOON, looking).await.expect("the manager notices");
    assert!(refused.headers.contains_key(header::RETRY_AFTER));
    let detail = refused.refused(503, "identity-provider-unavailable").detail;
    assert!(detail.contains(provider.issuer()) && detail.contains("502"), "{detail}");
    assert_eq!(stage.shown(&signed("k"), "/v1/whoami").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_starts_without_its_provider_and_finds_it_later() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Signer::ed());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let stage = Stage::with_provider(&issuer_at(addr), dir.path()).await;
    let claims =
        json!({ "iss": issuer_at(addr), "aud": AUDIENCE, "sub": "1", "exp": seconds(300), "groups": "sre" });
    let token = key.sign(json!({ "kid": "k" }), &claims);
    stage.shown(&token, "/v1/whoami").await.refused(503, "identity-provider-unavailable");
    stage.navigate("/v1/session/oidc", "").await.refused(503, "identity-provider-unavailable");
    let listener = TcpListener::bind(addr).await.unwrap();
    let _provider = Provider::listening(listener, vec![key.public("k")]);
    stage.until_known(&token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_with_a_private_ca_is_trusted_with_the_ca_file_only() {
    let (dir, key, authority) = (tempfile::tempdir().unwrap(), Signer::ed(), tls::authority());
    let _set_before = rustls::crypto::ring::default_provider().install_default();
    let files = Files { clients: None, ..tls::files(dir.path(), &authority) };
    let provider = Provider::secure(files, vec![key.public("k")]).await;
    let token = key.sign(json!({ "kid": "k" }), &provider.claims(json!({})));
    let with = async |ca_file: Option<&str>| {
        let mut settings = settings(provider.issuer(), dir.path());
        let oidc = settings.auth.oidc.as_mut().unwrap();
        oidc.ca_file = ca_file.map(|name| dir.path().join(name));
        Stage::prepared(settings, None).await
    };
    for (ca_file, told) in
        [(None, "certificate"), (Some("missing"), "auth.oidc.ca_file"), (Some("tls.key"), "no certificate")]
    {
        let refused = with(ca_file).await.shown(&token, "/v1/whoami").await;
        let detail = refused.refused(503, "identity-provider-unavailable").detail;
        assert!(detail.contains(told), "{told}: {detail}");
    }
    with(Some("ca.crt")).await.until_known(&token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_waits_end_within_5_s_after_the_token_expires() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Signer::ed());
    let provider = Provider::start(vec![key.public("k")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir.path()).await;
    let lasting = key.sign(json!({ "kid": "k" }), &provider.claims(json!({})));
    stage.until_known(&lasting).await;
    // Accepted for 3 to 4 s longer, because of the leeway.
    let end = seconds(-56);
    let token = key.sign(json!({ "kid": "k" }), &provider.claims(json!({ "exp": end })));
    let request = |path: &str| {
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, format!("Bearer {token}"));
        request.header(header::ACCEPT, "text/event-stream").body(Body::empty()).unwrap()
    };
    let stream = stage.app.clone().oneshot(request("/v1/events")).await.unwrap();
    assert_eq!(stream.headers()[header::CONTENT_TYPE], "text/event-stream");
    let remaining = Duration::from_secs(u64::try_from(end + 60 - seconds(0)).unwrap());
    let ended =
        tokio::time::timeout(remaining + Duration::from_secs(5), to_bytes(stream.into_body(), usize::MAX));
    ended.await.expect("the stream ends").unwrap();
    assert!(seconds(0) >= end + 60, "the stream ended too early");
    stage.shown(&token, "/v1/whoami").await.refused(401, "no-valid-token");
    assert_eq!(stage.shown(&lasting, "/v1/whoami").await.status, StatusCode::OK);
}
