//! The pages for operators: doctor, safe mode, pools, kinds, one service, tokens, roles, namespaces, the audit log.

use crate::browser::Browser;
use everwatch_api::{CreatedToken, Role, SafeMode};
use everwatch_tests::cluster::Cluster;
use fantoccini::Locator;
use serde_json::json;

#[tokio::test]
async fn findings_are_cured_and_safe_mode_is_switched() {
    let mut cluster = Cluster::new("cures");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&format!("{}/#/safe-mode", cluster.api.url)).await;
    page.press("Switch safe mode on").await;
    page.write("#dialog input", "network").await;
    page.confirm().await;
    page.until_text("main", "Reason: network").await;
    assert!(cluster.api.read::<SafeMode>("/v1/safe-mode").await.on);
    page.view("#/doctor").await;
    page.until_text("main", "safe-mode-on").await;
    page.until(
        "the same count in the navigation",
        "document.querySelector('#nav a[href=\"#/doctor\"] b')?.textContent === document.querySelector('.head .total').textContent.split(' ')[0]",
    )
    .await;
    page.press("Switch safe mode off").await;
    page.confirm().await;
    cluster.api.until_read("/v1/safe-mode", |it: &SafeMode| !it.on).await;
    page.until(
        "the finding to be gone",
        "!document.querySelector('main').innerText.includes('safe-mode-on')",
    )
    .await;
}

#[tokio::test]
async fn pools_kinds_and_one_service_have_pages() {
    let mut cluster = Cluster::new("configured");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    cluster.api.until_status("one", "Processing").await;
    let page = Browser::open(&format!("{}/#/pools", cluster.api.url)).await;
    page.until_text("tbody", "default").await;
    page.press("Pause").await;
    page.confirm().await;
    page.until_text("tbody", "paused").await;
    page.press("Resume").await;
    page.until_text("tbody", "open").await;
    page.press("New pool").await;
    page.write("#dialog[open] input[name=name]", "no pool").await;
    page.confirm().await;
    // The complaint stands at the field until the user changes it.
    page.until_text("#asked-name-hint", "is not valid").await;
    page.fill("#asked-name", "feeds").await;
    page.until("no complaint", "!document.querySelector('#asked-name-hint').innerText").await;
    page.run("document.querySelector('#asked-type').value = 'single'").await;
    page.confirm().await;
    page.until_text("tbody", "feeds").await;
    page.until_text("tbody", "single").await;
    page.press("Delete").await;
    page.confirm().await;
    page.until("the pool to be gone", "!document.querySelector('tbody').innerText.includes('feeds')").await;
    page.view("#/kinds").await;
    page.until_text("tbody", "ticker").await;
    page.view("#/kinds/ticker").await;
    page.until_text("tbody", "duration").await;
    page.view("#/kinds/http").await;
    page.until_text("main", "Polls a URL").await;
    page.until_text("tbody", "url").await;
    page.press("New observer of this kind").await;
    page.until("its form", "document.querySelector('#spec-url')").await;
    page.view("#/services/a").await;
    page.until_text("h1", "a").await;
    page.until_text("main", "one").await;
    page.until("its lane", "document.querySelectorAll('.chart .lane-name').length === 1").await;
    page.press("Cordon").await;
    page.until_text(".head .status", "cordoned").await;
    page.press("Uncordon").await;
    page.until_text(".head .status", "active").await;
}

#[tokio::test]
async fn the_last_token_that_may_create_tokens_cannot_be_revoked() {
    let mut cluster = Cluster::new("last-token");
    cluster.manager().await;
    let body = json!({ "name": "boss", "role": "admin" });
    let boss: CreatedToken = cluster.api.done("POST", "/v1/tokens", Some(body), 201).await;
    let page = Browser::open(&format!("{}/#/tokens", cluster.api.url)).await;
    page.until_text("main h1", "Log in").await;
    page.write("#token", &boss.token).await;
    page.press("Log in").await;
    page.until("the button", "document.querySelector(\"button[aria-label='Revoke boss']\")?.disabled").await;
    page.until_text("main", "Token boss is the last one that may create tokens").await;
    page.click(Locator::Css("#replace-last")).await;
    page.until("the role", "document.querySelector('#dialog select[name=role]').value === 'admin'").await;
    page.write("#dialog input[name=name]", "deputy").await;
    page.confirm().await;
    page.until_text("#secret", "ewt_").await;
    page.press("Done").await;
    page.until_text("tbody", "deputy").await;
    page.until("no reason", "!document.querySelector('#replace-last')").await;
    page.click(Locator::Css("button[aria-label='Revoke boss']")).await;
    page.until_text("#dialog", "logged in with this token").await;
    page.press("Cancel").await;
}

#[tokio::test]
async fn access_is_managed_and_what_a_session_may_not_read_is_hidden() {
    let mut cluster = Cluster::new("access-pages").guarded();
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({ "name": "one", "kind": "ticker" })).await;
    let made = async |name: &str, role: &str| -> CreatedToken {
        let body = json!({ "name": name, "role": role });
        cluster.api.done("POST", "/v1/tokens", Some(body), 201).await
    };
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("main h1", "Log in").await;
    page.write("#token", &made("ada", "admin").await.token).await;
    page.press("Log in").await;
    page.until_text("#user", "ada").await;
    page.view("#/roles").await;
    page.press("New role").await;
    page.write("#dialog input[name=name]", "on-call").await;
    page.confirm().await;
    page.until_text("main", "on-call").await;
    let role: Role = cluster.api.read("/v1/roles/on-call").await;
    assert_eq!(role.grants[0].verbs, ["observers:read", "observers:operate"]);
    page.view("#/namespaces").await;
    page.press("New namespace").await;
    page.write("#dialog input[name=name]", "team-a").await;
    page.write("#dialog input[name=observers]", "5").await;
    page.confirm().await;
    page.until_text("main", "team-a").await;
    page.until_text("tbody", "0 of 5").await;
    page.view("#/tokens").await;
    page.press("New token").await;
    page.write("#dialog input[name=name]", "jane").await;
    page.confirm().await;
    // The secret is shown once.
    page.until_text("#secret", "ewt_").await;
    page.press("Done").await;
    page.until("the secret to be gone", "!document.querySelector('#secret')").await;
    page.until_text("tbody", "jane").await;
    page.click(Locator::Css("button[aria-label='Revoke ada']")).await;
    page.until_text("#dialog", "logged in with this token").await;
    page.press("Cancel").await;
    page.view("#/audit").await;
    page.until_text("tbody", "/v1/tokens").await;
    page.until_text("tbody", "ada").await;
    page.press("Log out").await;
    page.until_text("main h1", "Log in").await;

    page.write("#token", &made("joe", "viewer").await.token).await;
    page.press("Log in").await;
    page.until_text("#user", "joe").await;
    page.view("#/observers/one").await;
    page.until_text("main h1", "one").await;
    page.until(
        "no page that a viewer may not read",
        "!['Tokens', 'Audit', 'Roles'].some((it) => document.querySelector('#nav').innerText.includes(it))",
    )
    .await;
    page.until(
        "no button that a viewer may not use",
        "document.querySelector('#new').hidden && !/Edit|Pause|Delete/.test(document.querySelector('.head').innerText)",
    )
    .await;
    page.view("#/").await;
    page.until_text("h1", "1 observer runs").await;
}
