//! Single sign-on and tokens of an OpenID Connect provider, with a real provider and two managers.

use everwatch_api::{LoginMethods, Whoami};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::identity_provider::{IdentityProvider, SECRET, Visitor};
use everwatch_tests::wait::wait_for;
use serde_json::json;

/// Two managers that give the groups `sre` and `deploy` a role.
async fn prepared(name: &str) -> (Cluster, Api, IdentityProvider) {
    let mut cluster = Cluster::new(name).with_postgres();
    let provider = IdentityProvider::start(&[format!("{}/v1/session/oidc/callback", cluster.api.url)]);
    let secret = cluster.scratch.path().join("client-secret");
    std::fs::write(&secret, SECRET).unwrap();
    let roles = [("sre", "admin"), ("deploy", "operator")];
    cluster.extra.extend(provider.environment(&secret.display().to_string(), &roles));
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    for name in ["manager", "second"] {
        wait_for("the keys of the provider", || async {
            let log = cluster.full_log(name);
            if log.contains("read the keys of the identity provider") { Ok(()) } else { Err(log) }
        })
        .await;
    }
    (cluster, second, provider)
}

#[tokio::test]
async fn a_user_logs_in_at_the_provider_through_any_manager() {
    let (cluster, second, _provider) = prepared("single-sign-on").await;
    let (first, second) = (cluster.api.url.clone(), second.url);
    // An identity provider alone makes credentials necessary.
    assert_eq!(cluster.api.refused("GET", "/v1/observers", None).await.code, "no-valid-token");
    assert!(cluster.api.read::<LoginMethods>("/v1/session").await.single_sign_on);
    let mut jane = Visitor::new();
    let ended = jane.log_in(&first, &second, "jane+sre").await;
    assert_eq!((ended.status().as_u16(), &ended.headers()["location"]), (303, &"/".parse().unwrap()));
    let (status, who) = jane.get(&format!("{first}/v1/whoami")).await;
    let who: Whoami = serde_json::from_value(who).unwrap();
    assert_eq!((status, who.name.as_deref(), who.role.as_deref()), (200, Some("oidc:jane"), Some("admin")));
    assert_eq!((who.session, who.credential.as_deref()), (true, Some("session")));
    // The session permits what the role permits, on both managers.
    let cookie = [("cookie", jane.session(&first))];
    for (api, name) in [(&cluster.api, "one"), (&Api::new(second.clone()), "two")] {
        let body = json!({ "name": name, "kind": "ticker", "on_full": "queue" });
        let (status, answer) = api.call_with("POST", "/v1/observers", &cookie, Some(body)).await;
        assert_eq!(status, 201, "{answer}");
    }
    let (_, audit) = jane.get(&format!("{first}/v1/audit?principal=oidc%3Ajane")).await;
    let paths: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/v1/observers", "/v1/observers", "/v1/session/oidc/callback"]);
    // A user whose groups have no role gets no session.
    let mut joe = Visitor::new();
    let refused = joe.log_in(&first, &first, "joe+guests").await;
    assert_eq!(refused.status(), 403);
    let problem = refused.text().await.unwrap();
    assert!(problem.contains("login-failed") && problem.contains("`oidc:joe` has no role"), "{problem}");
    assert_eq!(joe.get(&format!("{first}/v1/whoami")).await.0, 401);
    // A logout ends the session on both managers.
    assert_eq!(cluster.api.call_with("DELETE", "/v1/session", &cookie, None).await.0, 204);
    wait_for("the other manager to refuse the session", || async {
        let (status, answer) = Api::new(second.clone()).call_with("GET", "/v1/whoami", &cookie, None).await;
        if status == 401 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn programs_send_tokens_of_the_provider_through_rotations_and_outages() {
    let (mut cluster, second, mut provider) = prepared("bearer").await;
    let old = provider.token().await;
    for api in [&cluster.api, &second] {
        let who: Whoami = api.with_token(&old).read("/v1/whoami").await;
        assert_eq!((who.name.as_deref(), who.role.as_deref()), (Some("oidc:ci"), Some("operator")));
        assert_eq!((who.credential.as_deref(), who.session), (Some("oidc"), false));
    }
    let ci = cluster.api.with_token(&old);
    assert_eq!(ci.refused("GET", "/v1/tokens", None).await.code, "not-permitted");
    let stream = ci.follow("/v1/events").await;
    let (mut head, mut tail) = (old.clone(), old.clone());
    head.replace_range(40..41, if &head[40..41] == "A" { "B" } else { "A" });
    let last = tail.pop().unwrap();
    tail.insert(tail.len() - 1, last);
    for forged in [&head, &tail] {
        assert_eq!(cluster.api.with_token(forged).refused("GET", "/v1/observers", None).await.status, 401);
    }
    provider.rotate().await;
    let new = provider.token().await;
    for api in [&cluster.api, &second] {
        api.with_token(&new).until("/v1/whoami", |status, _| status == 200).await;
        assert_eq!(api.with_token(&old).refused("GET", "/v1/whoami", None).await.code, "no-valid-token");
    }
    drop(stream);
    // Known keys stay valid without the provider; a manager that starts cannot tell.
    provider.kill();
    assert_eq!(
        cluster.api.with_token(&new).read::<Whoami>("/v1/whoami").await.name.as_deref(),
        Some("oidc:ci")
    );
    let third = cluster.another_manager("third").await;
    let refused = third.with_token(&new).refused("GET", "/v1/whoami", None).await;
    assert_eq!(refused.code, "identity-provider-unavailable");
    assert!(refused.detail.contains(&provider.issuer), "{}", refused.detail);
}
