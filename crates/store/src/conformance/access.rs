//! Checks of tokens, roles and the audit log.

use super::*;
use crate::port::{RoleDeleted, RoleWritten, TokenAdded};
use everwatch_core::access::{AuditEntry, AuditFilter, Login, Origin, Outcome, Role, Secret, Token, Verb};
use std::time::Duration;

fn token(number: u8, called: &str, role: &str) -> Token {
    let secret = Secret::new(number.into(), [number; 32]);
    Token {
        namespace: None,
        id: secret.id.clone(),
        name: name(called),
        role: name(role),
        origin: Origin::Created,
        created_at: NOW,
        created_by: "the check".to_owned(),
        expires_at: NOW.plus(Duration::from_secs(60)),
        digest: secret.digest(),
        previous: None,
        revoked_at: None,
    }
}

fn role(called: &str, verb: &str) -> Role {
    Role::parse(name(called), json!({ "grants": [{ "verbs": [verb], "pools": ["a"] }] })).unwrap()
}

pub async fn tokens_are_stored_changed_and_forgotten(store: &dyn Store) {
    let first = token(1, "ci", "admin");
    let unchanged = store.access_changes().await.unwrap().number;
    assert_eq!(store.add_token(&first, NOW).await.unwrap(), TokenAdded::Done);
    assert_eq!(store.add_token(&token(2, "ci", "viewer"), NOW).await.unwrap(), TokenAdded::NameTaken);
    let session =
        Token { origin: Origin::Session { of: Login::Token(first.id.clone()) }, ..token(3, "ci", "admin") };
    assert_eq!(store.add_token(&session, NOW).await.unwrap(), TokenAdded::Done, "a session needs no name");
    assert_eq!(store.token(&first.id).await.unwrap(), Some(first.clone()));
    let rotated =
        first.rotated(token(9, "x", "x").digest, NOW.plus(Duration::from_secs(5)), first.expires_at);
    assert!(store.change_token(&first, &rotated).await.unwrap());
    assert!(
        !store.change_token(&first, &first.revoked(NOW)).await.unwrap(),
        "it has changed in the meantime"
    );
    let added = store.access_changes().await.unwrap().number;
    assert!(added > unchanged, "managers read the tokens again");
    let revoked = rotated.revoked(NOW);
    assert!(store.change_token(&rotated, &revoked).await.unwrap());
    assert!(store.access_changes().await.unwrap().number > added);
    let all = store.tokens().await.unwrap();
    assert!(all.contains(&revoked) && all.contains(&session) && all.len() == 2);
    // A name is free again once its token is not valid any more.
    assert_eq!(store.add_token(&token(4, "ci", "viewer"), NOW).await.unwrap(), TokenAdded::Done);
    let later = NOW.plus(Duration::from_secs(61));
    assert_eq!(store.add_token(&token(5, "ci", "viewer"), later).await.unwrap(), TokenAdded::Done);
    assert_eq!(store.forget_tokens(NOW).await.unwrap(), 0, "revoked at this very time");
    assert_eq!(store.forget_tokens(NOW.plus(Duration::from_millis(1))).await.unwrap(), 1);
    assert_eq!(store.forget_tokens(later).await.unwrap(), 3);
    assert_eq!(store.tokens().await.unwrap(), []);
}

pub async fn a_store_remembers_that_there_was_a_token(store: &dyn Store) {
    let had_token = async || store.access_changes().await.unwrap().had_token;
    store.put_role(&role("team", "*")).await.unwrap();
    let of = Login::Bootstrap(token(9, "x", "x").digest);
    let session = Token { origin: Origin::Session { of }, ..token(1, "bootstrap", "admin") };
    store.add_token(&session, NOW).await.unwrap();
    assert!(!had_token().await, "a role and a session are no token of a user");
    let first = token(2, "ci", "admin");
    store.add_token(&first, NOW).await.unwrap();
    assert!(had_token().await);
    store.change_token(&first, &first.revoked(NOW)).await.unwrap();
    store.forget_tokens(NOW.plus(Duration::from_secs(3600))).await.unwrap();
    store.put_role(&role("team", "*")).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), []);
    assert!(had_token().await, "it has ended, and is forgotten");
}

pub async fn roles_stay_while_tokens_have_them(store: &dyn Store) {
    let team = role("team", "observers:read");
    let unchanged = store.access_changes().await.unwrap().number;
    assert_eq!(store.put_role(&team).await.unwrap(), RoleWritten::Created);
    assert!(store.access_changes().await.unwrap().number > unchanged);
    assert_eq!(store.put_role(&role("other", "*")).await.unwrap(), RoleWritten::Created);
    let wider = role("team", "observers:*");
    assert_eq!(store.put_role(&wider).await.unwrap(), RoleWritten::Replaced);
    assert_eq!(store.roles().await.unwrap(), [role("other", "*"), wider]);
    let mine = token(1, "ci", "team");
    store.add_token(&mine, NOW).await.unwrap();
    assert_eq!(store.delete_role(&name("team"), NOW).await.unwrap(), RoleDeleted::InUse(1));
    store.change_token(&mine, &mine.revoked(NOW)).await.unwrap();
    assert_eq!(store.delete_role(&name("team"), NOW).await.unwrap(), RoleDeleted::Done);
    assert_eq!(store.delete_role(&name("team"), NOW).await.unwrap(), RoleDeleted::Missing);
    assert_eq!(store.roles().await.unwrap(), [role("other", "*")]);
}

fn entry(principal: Option<&str>, path: &str, at: Timestamp) -> AuditEntry {
    AuditEntry {
        id: 0,
        at,
        principal: principal.map(str::to_owned),
        token: None,
        actor: Some("with a NUL \0 in it".to_owned()),
        from: Some("127.0.0.1".to_owned()),
        verb: Some(Verb::ObserversCreate),
        method: "POST".to_owned(),
        path: path.to_owned(),
        outcome: None,
    }
}

pub async fn the_audit_log_keeps_requests_and_what_came_of_them(store: &dyn Store) {
    let later = NOW.plus(Duration::from_secs(1));
    let entries = [entry(Some("a"), "/1", NOW), entry(None, "/2", NOW), entry(Some("a"), "/3", later)];
    let ids = store.add_audit(&entries).await.unwrap();
    assert!(ids.len() == 3 && ids.is_sorted());
    let done = Outcome { status: 201, created: Some("/v1/observers/x".to_owned()) };
    store.set_outcomes(&[(ids[0], done.clone()), (i64::MAX, done.clone())]).await.unwrap();
    let shown =
        |found: Vec<AuditEntry>| found.into_iter().map(|it| (it.id, it.path, it.outcome)).collect::<Vec<_>>();
    let path = |number: usize, outcome: Option<Outcome>| (ids[number], format!("/{}", number + 1), outcome);
    let all = store.audit(&AuditFilter::default(), 10).await.unwrap();
    assert_eq!(all[1].principal, None);
    assert!(all[0].actor.as_ref().unwrap().starts_with("with a NUL"));
    assert_eq!(shown(all), [path(2, None), path(1, None), path(0, Some(done.clone()))]);
    let of_a = AuditFilter { principal: Some("a".to_owned()), before: Some(ids[2]) };
    assert_eq!(shown(store.audit(&of_a, 10).await.unwrap()), [path(0, Some(done))]);
    let newest = store.audit(&AuditFilter::default(), 1).await.unwrap();
    assert_eq!(shown(newest), [path(2, None)]);
    for (principal, number) in [(None, 3), (Some("a"), 2), (Some("b"), 0)] {
        assert_eq!(store.count_audit(principal).await.unwrap(), number, "{principal:?}");
    }
    assert_eq!(store.forget_audit(later).await.unwrap(), 2);
    assert_eq!(store.audit(&AuditFilter::default(), 10).await.unwrap().len(), 1);
}
