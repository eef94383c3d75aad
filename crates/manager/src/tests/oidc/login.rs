//! Logins to the console by an authorization code.

use super::*;
use crate::ManagerSection;
use everwatch_api::LoginMethods;
use everwatch_core::access::Mode;
use reqwest::Url;

/// What a browser has after `GET /v1/session/oidc`.
struct Started {
    cookie: String,
    /// The parameters with which the provider is called.
    asked: BTreeMap<String, String>,
}

impl Stage {
    pub(super) async fn navigate(&self, path: &str, cookie: &str) -> Answer {
        let request = Request::builder()
            .uri(path)
            .header(header::COOKIE, cookie)
            .header(header::HOST, "127.0.0.1:7700");
        // From a page of the provider.
        let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "navigate");
        self.ask(request.body(Body::empty()).unwrap()).await
    }

    async fn start_login(&self) -> Started {
        let answer = self.navigate("/v1/session/oidc", "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{answer:?}");
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        let url: Url = answer.headers[header::LOCATION].to_str().unwrap().parse().unwrap();
        assert_eq!(url.path(), "/authorize");
        Started { cookie: set_cookies(&answer)[0].clone(), asked: url.query_pairs().into_owned().collect() }
    }

    async fn return_from(&self, started: &Started, parameters: &[(&str, &str)]) -> Answer {
        let url = Url::parse_with_params("http://h/v1/session/oidc/callback", parameters).unwrap();
        self.navigate(&format!("{}?{}", url.path(), url.query().unwrap()), &name_and_value(&started.cookie))
            .await
    }
}

fn set_cookies(answer: &Answer) -> Vec<String> {
    answer.headers.get_all(header::SET_COOKIE).iter().map(|it| it.to_str().unwrap().to_owned()).collect()
}

fn name_and_value(cookie: &str) -> String {
    cookie.split(';').next().unwrap().to_owned()
}

/// A provider, a manager that uses it, and the key with which the provider signs.
async fn prepared(dir: &Path) -> (Provider, Stage, Signer) {
    let key = Signer::ec();
    let provider = Provider::start(vec![key.public("k")]).await;
    let stage = Stage::with_provider(provider.issuer(), dir).await;
    stage.until_known(&key.sign(json!({ "kid": "k" }), &provider.claims(json!({})))).await;
    (provider, stage, key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_logs_in_at_the_provider_and_gets_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, stage, key) = prepared(dir.path()).await;
    assert!(stage.get("/v1/session").await.read::<LoginMethods>(200).single_sign_on);
    let started = stage.start_login().await;
    for part in ["__Host-everwatch-login=", "Secure", "HttpOnly", "SameSite=Lax", "Max-Age=600"] {
        assert!(started.cookie.contains(part), "{}", started.cookie);
    }
    let callback = "http://127.0.0.1:7700/v1/session/oidc/callback";
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", callback),
        ("scope", "openid profile"),
        ("code_challenge_method", "S256"),
        ("theme", "dark"),
    ] {
        assert_eq!(started.asked[name], value, "{name}");
    }
    // The token of the provider is valid for a moment only; the session is not.
    let claims =
        json!({ "aud": CLIENT, "nonce": started.asked["nonce"], "exp": seconds(5), "groups": "support" });
    provider.set_id_token("c-1", key.sign(json!({ "kid": "k" }), &provider.claims(claims)));
    let state = started.asked["state"].as_str();
    let parameters = [("code", "c-1"), ("state", state), ("iss", provider.issuer()), ("session_state", "x")];
    let ended = stage.return_from(&started, &parameters).await;
    assert_eq!(
        (ended.status, ended.headers[header::LOCATION].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/")
    );
    let challenge =
        ring::digest::digest(&ring::digest::SHA256, provider.exchanged("code_verifier").as_bytes());
    assert_eq!(encoded(challenge.as_ref()), started.asked["code_challenge"]);
    assert_eq!(provider.exchanged("redirect_uri"), callback);
    assert_eq!(provider.exchanged("basic"), "console:a%20secret%3A%20of%20the%20client");
    let cookies = set_cookies(&ended);
    assert!(cookies[0].contains("SameSite=Strict") && cookies[0].contains("HttpOnly"), "{cookies:?}");
    assert!(
        cookies[1].starts_with("__Host-everwatch-login=;") && cookies[1].contains("Max-Age=0"),
        "{cookies:?}"
    );
    let session = name_and_value(&cookies[0]);
    let who = stage.navigate("/v1/whoami", &session).await.read::<Whoami>(200);
    assert_eq!((who.name.as_deref(), who.role.as_deref()), (Some("oidc:jane"), Some("viewer")));
    assert_eq!((who.credential.as_deref(), who.session), (Some("session"), true));
    let lives = who.expires_at.unwrap().since(clock::now());
    assert!(lives > Duration::from_secs(11 * 3600) && lives <= Duration::from_secs(12 * 3600), "{lives:?}");

    let admin = key.sign(json!({ "kid": "k" }), &provider.claims(json!({ "preferred_username": "root" })));
    let logged = async {
        loop {
            let audit = stage.shown(&admin, "/v1/audit").await.body;
            if audit["items"][0]["status"] == json!(303) {
                break audit;
            }
        }
    };
    // The outcome is written after the response.
    let audit = tokio::time::timeout(SOON, logged).await.expect("the audit log has the outcome");
    let entry = &audit["items"][0];
    assert_eq!((&entry["principal"], &entry["method"]), (&json!("oidc:jane"), &json!("GET")), "{audit}");
    assert_eq!(entry["path"], "/v1/session/oidc/callback", "without the code");
    assert_eq!(entry["created"], Value::Null, "the address of the console is nothing new");
    let listed = stage.shown(&admin, "/v1/tokens?sessions=true").await;
    assert_eq!(listed.body["items"][0]["name"], "oidc:jane", "{}", listed.body);
    // The code is spent, and the session can be ended.
    let again = stage.return_from(&started, &parameters).await.refused(503, "identity-provider-unavailable");
    assert!(again.detail.contains("invalid_grant the code is not valid"), "{again:?}");
    let out = Request::builder().method("DELETE").uri("/v1/session").header(header::COOKIE, &session);
    assert_eq!(stage.ask(out.body(Body::empty()).unwrap()).await.status, StatusCode::NO_CONTENT);
    stage.navigate("/v1/whoami", &session).await.refused(401, "no-valid-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_not_its_own_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, stage, key) = prepared(dir.path()).await;
    let (started, other) = (stage.start_login().await, stage.start_login().await);
    let state = started.asked["state"].as_str();
    let id_token = |code: &str, changes: Value| {
        let mut claims = provider.claims(json!({ "aud": CLIENT, "nonce": started.asked["nonce"] }));
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        provider.set_id_token(code, key.sign(json!({ "kid": "k" }), &claims));
    };
    id_token("nonce", json!({ "nonce": other.asked["nonce"] }));
    id_token("audience", json!({ "aud": AUDIENCE }));
    id_token("groups", json!({ "groups": [] }));
    let foreign = Started { cookie: "__Host-everwatch-login=1.x".to_owned(), asked: BTreeMap::new() };
    let none = Started { cookie: "a=b".to_owned(), asked: BTreeMap::new() };
    let long = "x".repeat(5000);
    for (browser, parameters, told) in [
        (&other, vec![("code", "c"), ("state", state)], "was not started in this browser"),
        (&foreign, vec![("code", "c"), ("state", state)], "was not started in this browser"),
        (&none, vec![("code", "c"), ("state", state)], "was not started in this browser"),
        (&started, vec![("code", "c")], "was not started in this browser"),
        (
            &started,
            vec![("code", "c"), ("state", state), ("iss", "https://e.org")],
            "another identity provider",
        ),
        (&started, vec![("error", "access_denied"), ("state", state)], "refused the login: access_denied"),
        (&started, vec![("state", state)], "no usable code"),
        (&started, vec![("state", state), ("code", &long)], "no usable code"),
        (&started, vec![("code", "nonce"), ("state", state)], "the token belongs to another login"),
        (&started, vec![("code", "audience"), ("state", state)], "its `aud` must contain `console`"),
        (&started, vec![("code", "groups"), ("state", state)], "`oidc:jane` has no role"),
    ] {
        let answer = stage.return_from(browser, &parameters).await;
        let refused = answer.refused(403, "login-failed");
        assert!(refused.detail.contains(told), "{told}: {refused:?}");
        let cookies = set_cookies(&answer);
        assert_eq!(cookies.len(), 1, "no session has begun: {answer:?}");
        assert!(cookies[0].starts_with("__Host-everwatch-login=;"), "{cookies:?}");
    }
    stage.return_from(&started, &[("state", state), ("state", state)]).await.refused(400, "bad-query");
    // A person gets a page, in which the text of a provider is no markup.
    let path = format!("/v1/session/oidc/callback?state={state}&error=%3Cscript%3E");
    let request = Request::builder().uri(path).header(header::COOKIE, name_and_value(&started.cookie));
    let request = request.header(header::ACCEPT, "text/html,*/*;q=0.8").body(Body::empty()).unwrap();
    let response = stage.app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let page = String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap();
    assert!(page.contains("refused the login: &lt;script&gt;") && !page.contains("<script"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_refused_by_a_manager_without_the_provider() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, stage, key) = prepared(dir.path()).await;
    let token = key.sign(json!({ "kid": "k" }), &provider.claims(json!({})));
    let request = Request::builder().method("POST").uri("/v1/session");
    let request =
        request.header(header::AUTHORIZATION, format!("Bearer {token}")).body(Body::empty()).unwrap();
    let begun = stage.ask(request).await;
    assert_eq!(begun.status, StatusCode::CREATED);
    let session = name_and_value(&set_cookies(&begun)[0]);
    let who = stage.navigate("/v1/whoami", &session).await.read::<Whoami>(200);
    assert!(
        who.expires_at.unwrap() <= Timestamp(seconds(300) * 1000),
        "it ends with the token that began it"
    );
    // Another manager on the same database, whose configuration has no provider.
    let auth = AuthSettings { mode: Mode::Required, ..AuthSettings::default() };
    let settings = Settings { auth, ..Settings::default() };
    let store = Arc::clone(&stage.manager.records.store);
    let (other, _) =
        Manager::new(settings, store, Arc::new((*stage.broker).clone()), CancellationToken::new());
    let app = http::app(other, Router::new());
    let request = Request::builder().uri("/v1/whoami").header(header::COOKIE, &session);
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let body = String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap();
    assert!(body.contains("does not accept tokens of the identity provider any more"), "{body}");
    let request = Request::builder().uri("/v1/session/oidc").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::CONFLICT);
}

#[test]
fn no_certificate_can_be_named_like_a_user_of_the_provider() {
    let auth: crate::AuthSection =
        serde_json::from_value(json!({ "mtls": { "roles": { "oidc:jane": "admin" } } })).unwrap();
    assert!(auth.check().unwrap_err().to_string().contains("`oidc:jane`"));
    let auth: crate::AuthSection =
        serde_json::from_value(json!({ "oidc": { "issuer": "http://login.example.org" } })).unwrap();
    let refused = ManagerSection::default().settings(("p.", 1), &auth, None).unwrap_err().to_string();
    assert!(refused.starts_with("auth.oidc.issuer: "), "{refused}");
}
