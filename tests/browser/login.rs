//! Logging in to the console with a token, and by single sign-on.

use crate::browser::Browser;
use everwatch_api::{CreatedToken, LoginMethods};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::identity_provider::{IdentityProvider, SECRET};
use serde_json::json;

#[tokio::test]
async fn a_user_logs_in_with_a_token_and_out_again() {
    let mut cluster = Cluster::new("login-page").guarded();
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({ "name": "one", "kind": "ticker" })).await;
    let body = json!({ "name": "jane", "role": "viewer" });
    let jane: CreatedToken = cluster.api.done("POST", "/v1/tokens", Some(body), 201).await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("main h1", "Log in").await;
    page.write("#token", "ewt_wrong").await;
    page.press("Log in").await;
    page.until_text("#login-error", "mistyped or incomplete").await;
    page.screenshot("login").await;
    page.run("document.getElementById('token').value = ''").await;
    page.write("#token", &jane.token).await;
    page.press("Log in").await;
    page.until_text("#user", "jane").await;
    page.view("#/observers").await;
    page.until_text("main", "one").await;
    page.screenshot("logged-in").await;
    // The cookie is out of reach for scripts.
    assert_eq!(page.run("return document.cookie").await, "");
    page.until("the stream of events", "document.getElementById('pulse').dataset.state === 'live'").await;
    // A viewer may not delete.
    page.view("#/observers/one").await;
    page.until_text("main h1", "one").await;
    page.press("Log out").await;
    page.until_text("main h1", "Log in").await;
}

#[tokio::test]
async fn a_user_logs_in_by_single_sign_on_at_another_site() {
    let mut cluster = Cluster::new("single-sign-on-page").guarded();
    // The provider is at 127.0.0.1, and thus on another site, whose pages lead the browser to the console.
    let console = cluster.api.url.replace("127.0.0.1", "localhost");
    let provider = IdentityProvider::start(&[format!("{console}/v1/session/oidc/callback")]);
    let secret = cluster.scratch.path().join("client-secret");
    std::fs::write(&secret, SECRET).unwrap();
    cluster.extra.extend(provider.environment(&secret.display().to_string(), &[("sre", "admin")]));
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({ "name": "one", "kind": "ticker" })).await;
    let page = Browser::open(&console).await;
    for (user, is_let_in) in [("joe+guests", false), ("jane+sre", true)] {
        page.until_text("#single-sign-on", "Log in with single sign-on").await;
        page.screenshot("single-sign-on").await;
        page.press("Log in with single sign-on").await;
        page.write("input[name=login]", user).await;
        page.write("input[name=password]", "x").await;
        page.press("Sign-in").await;
        page.press("Continue").await;
        if is_let_in {
            page.until_text("#user", "oidc:jane · admin").await;
            break;
        }
        page.until_text("main h1", "Login failed").await;
        page.until_text("main", "`oidc:joe` has no role").await;
        page.screenshot("login-failed").await;
        provider.forget_users().await;
        page.press("Back to the console").await;
    }
    page.view("#/observers").await;
    page.until_text("main", "one").await;
    page.until("the stream of events", "document.getElementById('pulse').dataset.state === 'live'").await;
    assert_eq!(page.run("return document.cookie").await, "");
    page.press("Log out").await;
    page.until_text("main h1", "Log in").await;
}

#[tokio::test]
async fn without_a_provider_there_is_no_single_sign_on() {
    let mut cluster = Cluster::new("no-single-sign-on").guarded();
    cluster.manager().await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("main h1", "Log in").await;
    let methods: LoginMethods = cluster.api.read("/v1/session").await;
    assert!(!methods.single_sign_on);
    assert_eq!(page.run("return document.getElementById('single-sign-on').hidden").await, true);
}
