//! Logging in to the console with a token.

use crate::browser::Browser;
use everwatch_api::CreatedToken;
use everwatch_tests::cluster::Cluster;
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
