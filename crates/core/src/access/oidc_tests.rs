use super::*;
use crate::clock::Timestamp;
use crate::id::Name;
use serde_json::{Map, Value, json};

const ISSUER: &str = "https://login.example.org";
/// In milliseconds.
const NOW: Timestamp = Timestamp(1_000_000_000);
/// In seconds.
const NOW_S: i64 = 1_000_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn oidc(roles: &[(&str, &str)]) -> Oidc {
    Oidc {
        issuer: ISSUER.to_owned(),
        client_id: "console".to_owned(),
        audience: "everwatch".to_owned(),
        roles_claim: "groups".to_owned(),
        roles: roles.iter().map(|(group, role)| ((*group).to_owned(), name(role))).collect(),
    }
}

fn sre() -> Oidc {
    oidc(&[("sre", "admin"), ("dev", "operator")])
}

/// The claims of a valid token, with these changes; null removes a claim.
#[expect(clippy::needless_pass_by_value, reason = "written in place as a literal")]
fn claims(changes: Value) -> Map<String, Value> {
    let valid = json!({
        "iss": ISSUER, "aud": "everwatch", "sub": "248289", "exp": NOW_S + 300, "preferred_username": "jane",
        "groups": ["dev", "all"],
    });
    let mut claims = valid.as_object().unwrap().clone();
    for (claim, value) in changes.as_object().unwrap() {
        claims.insert(claim.clone(), value.clone());
    }
    claims.retain(|_, value| !value.is_null());
    claims
}

fn judged(changes: Value) -> Result<(Identity, Timestamp), OidcRefusal> {
    sre().identify(&claims(changes), Purpose::Request, NOW)
}

fn named(changes: Value) -> String {
    judged(changes).unwrap().0.name
}

#[test]
fn valid_claims_identify_a_principal_with_its_role() {
    let (identity, expires_at) = judged(json!({})).unwrap();
    assert_eq!((identity.name.as_str(), &identity.groups), ("oidc:jane", &vec!["dev".to_owned()]));
    assert_eq!(expires_at, Timestamp((NOW_S + 300) * 1000));
    let accounts = Accounts::default().with_oidc(Some(sre()));
    let who = accounts.identified(&identity, expires_at, NOW).unwrap();
    assert_eq!((who.name.as_str(), who.role.as_str(), who.token()), ("oidc:jane", "operator", None));
    assert_eq!((who.expires_at, who.account()), (Some(expires_at), "subject 248289".to_owned()));
    assert!(accounts.accepts_any(NOW) && accounts.still_accepts(&who, NOW));
}

#[test]
fn times_are_compared_with_a_leeway_of_a_minute() {
    let at = |exp: i64| judged(json!({ "exp": NOW_S + exp }));
    assert!(at(-59).is_ok());
    assert_eq!(at(-60), Err(OidcRefusal::Expired(Timestamp((NOW_S - 60) * 1000))));
    let from = |nbf: i64| judged(json!({ "nbf": NOW_S + nbf }));
    assert!(from(-1).is_ok() && from(60).is_ok());
    assert_eq!(from(61), Err(OidcRefusal::NotYetValid(Timestamp((NOW_S + 61) * 1000))));
    assert_eq!(judged(json!({ "exp": 1_000_300.5 })).unwrap().1, Timestamp(1_000_300_500));
}

#[test]
fn claims_of_the_wrong_type_are_refused_and_not_ignored() {
    for (claim, value) in [
        ("exp", json!("1000300")),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("exp", json!([1_000_300])),
        ("nbf", json!("0")),
        ("iss", json!([ISSUER])),
        ("aud", json!({ "everwatch": true })),
        ("sub", json!(7)),
    ] {
        let refused = judged(json!({ claim: value })).unwrap_err();
        let OidcRefusal::ClaimInvalid(named) = refused else { panic!("{claim} {value}: {refused}") };
        assert_eq!(named, claim);
    }
    for claim in ["exp", "iss", "aud", "sub"] {
        let refused = judged(json!({ claim: null })).unwrap_err();
        assert!(
            matches!(&refused, OidcRefusal::ClaimMissing(named) if *named == claim),
            "{claim}: {refused}"
        );
    }
}

#[test]
fn issuer_and_audience_must_be_the_configured_ones() {
    for issuer in ["https://login.example.org/", "https://login.example.com", ""] {
        assert_eq!(judged(json!({ "iss": issuer })), Err(OidcRefusal::Issuer(issuer.to_owned())));
    }
    assert!(judged(json!({ "aud": ["other", "everwatch"] })).is_ok());
    for audience in [json!("other"), json!("console"), json!([]), json!(["other", 1]), json!("")] {
        let refused = judged(json!({ "aud": audience }));
        assert_eq!(refused, Err(OidcRefusal::Audience("everwatch".to_owned())));
    }
}

#[test]
fn a_login_needs_its_own_nonce_and_client() {
    let login = |changes: Value| {
        sre()
            .identify(&claims(changes), Purpose::Login { nonce: "n-1" }, NOW)
            .map(|(identity, _)| identity.name)
    };
    assert_eq!(login(json!({ "aud": "console", "nonce": "n-1" })), Ok("oidc:jane".to_owned()));
    assert_eq!(login(json!({ "aud": "console", "nonce": "n-2" })), Err(OidcRefusal::Nonce));
    assert_eq!(login(json!({ "aud": "console" })), Err(OidcRefusal::Nonce));
    assert_eq!(login(json!({ "nonce": "n-1" })), Err(OidcRefusal::Audience("console".to_owned())));
    let both = |azp: Value| login(json!({ "aud": ["console", "everwatch"], "nonce": "n-1", "azp": azp }));
    assert!(both(json!("console")).is_ok());
    assert_eq!(both(Value::Null), Err(OidcRefusal::ClaimMissing("azp")));
    assert_eq!(both(json!("other")), Err(OidcRefusal::AuthorizedParty("other".to_owned())));
}

#[test]
fn a_name_is_the_one_that_users_recognize() {
    assert_eq!(named(json!({ "preferred_username": null, "email": "j@example.org" })), "oidc:j@example.org");
    assert_eq!(named(json!({ "preferred_username": null })), "oidc:248289");
    let unverified = json!({ "preferred_username": null, "email": "j@example.org", "email_verified": false });
    assert_eq!(named(unverified), "oidc:248289");
    for unusable in
        [json!(""), json!("a b"), json!("a\nb"), json!("a\u{202e}b"), json!("x".repeat(201)), json!(7)]
    {
        assert_eq!(named(json!({ "preferred_username": unusable })), "oidc:248289");
    }
    let nameless = judged(json!({ "preferred_username": null, "sub": "a b" }));
    assert_eq!(nameless, Err(OidcRefusal::ClaimInvalid("sub")));
    // No token can have such a name.
    assert!(Name::new("oidc:jane").is_err());
}

#[test]
fn providers_are_reached_by_https_or_on_the_same_machine() {
    let is_safe = |text: &str| is_safe_url(&text.parse().unwrap());
    for safe in [
        "https://e.org",
        "https://e.org:8443/realms/a",
        "http://localhost:1",
        "http://127.9.9.9",
        "http://[::1]",
    ] {
        assert!(is_safe(safe), "{safe}");
    }
    for unsafe_one in [
        "http://e.org",
        "http://10.0.0.1",
        "http://localhost.e.org",
        "ftp://localhost",
        "https://u:p@e.org",
        "file:///x",
    ] {
        assert!(!is_safe(unsafe_one), "{unsafe_one}");
    }
}

#[test]
fn groups_are_read_from_a_text_a_list_or_a_path() {
    let groups = |claim: &str, changes: Value| {
        let oidc = Oidc { roles_claim: claim.to_owned(), ..sre() };
        oidc.identify(&claims(changes), Purpose::Request, NOW).unwrap().0.groups
    };
    assert_eq!(groups("groups", json!({ "groups": "sre" })), ["sre"]);
    assert_eq!(groups("groups", json!({ "groups": ["sre", 7, "dev", "sre"] })), ["dev", "sre"]);
    assert_eq!(groups("realm_access.roles", json!({ "realm_access": { "roles": ["sre"] } })), ["sre"]);
    assert_eq!(groups("https://e.org/groups", json!({ "https://e.org/groups": ["sre"] })), ["sre"]);
    let none: [&str; 0] = [];
    for other in [json!(null), json!({}), json!(7), json!([["sre"]])] {
        assert_eq!(groups("groups", json!({ "groups": other })), none);
    }
    assert_eq!(groups("realm_access.roles", json!({ "realm_access": ["roles"] })), none);
    let many: Vec<String> = (0..1000).map(|number| format!("g{number}")).chain(["sre".to_owned()]).collect();
    assert_eq!(groups("groups", json!({ "groups": many })), none);
}

#[test]
fn of_several_roles_the_one_that_takes_precedence_counts() {
    let roles =
        [("v", "viewer"), ("a", "admin"), ("o", "operator"), ("x", "team-b"), ("y", "team-a"), ("z", "gone")];
    let team = |name: &str| {
        Role::parse(Name::new(name).unwrap(), json!({ "grants": [{ "verbs": ["observers:read"] }] })).unwrap()
    };
    let accounts =
        Accounts::new(Vec::new(), vec![team("team-a"), team("team-b")]).with_oidc(Some(oidc(&roles)));
    let role = |groups: &[&str]| {
        let groups = groups.iter().map(ToString::to_string).collect();
        let identity = Identity {
            issuer: ISSUER.to_owned(),
            name: "oidc:jane".to_owned(),
            subject: "248289".to_owned(),
            groups,
        };
        accounts.identified(&identity, NOW, NOW).map(|who| who.role.to_string())
    };
    for (groups, expected) in [
        (&["v", "x", "o", "a"][..], "admin"),
        (&["v", "x", "o"], "operator"),
        (&["v", "x", "y"], "team-a"),
        (&["z", "v"], "viewer"),
    ] {
        assert_eq!(role(groups).as_deref(), Ok(expected), "{groups:?}");
    }
    let missing = OidcRefusal::RoleMissing { name: "oidc:jane".to_owned(), role: name("gone") };
    assert_eq!(role(&["z"]), Err(missing.into()));
    let unmapped = role(&["none"]).unwrap_err();
    assert!(
        unmapped.to_string().contains("`oidc:jane` has no role") && unmapped.to_string().contains("`groups`")
    );
}

#[test]
fn a_principal_is_accepted_until_its_token_expires_or_the_configuration_changes() {
    let (identity, expires_at) = judged(json!({})).unwrap();
    let accounts = Accounts::default().with_oidc(Some(sre()));
    let who = accounts.identified(&identity, expires_at, NOW).unwrap();
    let end = expires_at.plus(LEEWAY);
    assert!(accounts.still_accepts(&who, Timestamp(end.0 - 1)) && !accounts.still_accepts(&who, end));
    let others = [
        None,
        Some(oidc(&[("dev", "viewer")])),
        Some(oidc(&[("sre", "operator")])),
        Some(Oidc { issuer: "https://other.example.org".to_owned(), ..sre() }),
    ];
    for other in others {
        assert!(!Accounts::default().with_oidc(other.clone()).still_accepts(&who, NOW), "{other:?}");
    }
}

#[test]
fn a_session_ends_with_its_time_its_role_or_the_provider() {
    let (identity, _) = judged(json!({})).unwrap();
    let secret = Secret::new(2, [2; 32]);
    let expires_at = NOW.plus(std::time::Duration::from_secs(3600));
    let session = Token {
        id: secret.id.clone(),
        name: name("session"),
        role: name("operator"),
        namespace: None,
        origin: Origin::Session { of: Login::Oidc(identity) },
        created_at: NOW,
        created_by: "oidc:jane".to_owned(),
        expires_at,
        digest: secret.digest(),
        previous: None,
        revoked_at: None,
    };
    let stored: Token = serde_json::from_value(serde_json::to_value(&session).unwrap()).unwrap();
    assert_eq!((&stored, stored.principal()), (&session, "oidc:jane"));
    let with = |oidc| Accounts::new(vec![session.clone()], Vec::new()).with_oidc(oidc);
    let ask = |oidc, now| with(oidc).authenticate(&secret.text, now).map(|who| (who.name, who.role));
    let subject = with(Some(sre())).authenticate(&secret.text, NOW).unwrap().account();
    assert_eq!(subject, "subject 248289");
    // The token of the provider has expired long since.
    let last = Timestamp(expires_at.0 - 1);
    assert_eq!(ask(Some(sre()), last), Ok(("oidc:jane".to_owned(), name("operator"))));
    assert_eq!(ask(Some(sre()), expires_at), Err(Unauthenticated::Expired(expires_at)));
    assert_eq!(ask(None, NOW), Err(OidcRefusal::Off.into()));
    let other = Oidc { issuer: "https://other.example.org".to_owned(), ..sre() };
    assert_eq!(ask(Some(other), NOW), Err(OidcRefusal::Off.into()));
    let changed = OidcRefusal::RoleChanged("oidc:jane".to_owned());
    assert_eq!(ask(Some(oidc(&[("dev", "viewer")])), NOW), Err(changed.into()));
    let unmapped = ask(Some(oidc(&[("sre", "admin")])), NOW).unwrap_err();
    assert!(matches!(unmapped, Unauthenticated::Oidc(OidcRefusal::Unmapped { .. })), "{unmapped:?}");
    assert!(!with(None).accepts_any(NOW), "a session alone is not a credential");
}
