use super::*;
use crate::clock::Timestamp;
use crate::id::{Kind, Name, Namespace, Pool};
use serde_json::json;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
fn pool(text: &str) -> Pool {
    Pool::new(text).unwrap()
}
fn kind(text: &str) -> Kind {
    Kind::new(text).unwrap()
}
fn team() -> Namespace {
    Namespace::new("team").unwrap()
}
#[expect(clippy::needless_pass_by_value, reason = "written in place as a literal")]
fn role(grants: serde_json::Value) -> Role {
    Role::parse(name("r"), json!({ "grants": grants })).unwrap()
}
fn wrong(body: serde_json::Value) -> Vec<String> {
    let errors = Role::parse(name("r"), body).unwrap_err();
    errors.into_iter().map(|it| format!("{} {}", it.pointer, it.detail)).collect()
}

fn token(id: u64, role: &str, secret: &Secret) -> Token {
    Token {
        id: secret.id.clone(),
        name: name(&format!("t{id}")),
        role: name(role),
        namespace: None,
        origin: Origin::Created,
        created_at: Timestamp(0),
        created_by: "test".to_owned(),
        expires_at: Timestamp(1000),
        digest: secret.digest(),
        previous: None,
        revoked_at: None,
    }
}

fn secret(id: u64) -> Secret {
    Secret::new(id, [u8::try_from(id).unwrap(); 32])
}

fn presented(secret: &Secret) -> Presented {
    Presented::parse(&secret.text).unwrap()
}

#[test]
fn a_token_is_required_beyond_loopback_and_once_there_is_one() {
    let cases = [
        (Mode::Auto, true, false, false),
        (Mode::Auto, true, true, true),
        (Mode::Auto, false, false, true),
        (Mode::Required, true, false, true),
        (Mode::Off, true, true, false),
    ];
    for (mode, is_loopback, has_tokens, required) in cases {
        assert_eq!(
            mode.requires_token(is_loopback, has_tokens),
            required,
            "{mode:?} {is_loopback} {has_tokens}"
        );
    }
}

#[test]
fn a_token_that_is_typed_wrong_is_known_as_such() {
    let secret = Secret::new(u64::MAX, [255; 32]);
    assert_eq!(secret.text.len(), "ewt_".len() + 10 + 1 + 43 + 1 + 6);
    assert_eq!(presented(&secret).id, secret.id);
    for place in 0..secret.text.len() {
        let mut other = secret.text.clone().into_bytes();
        other[place] = if other[place] == b'x' { b'y' } else { b'x' };
        assert_eq!(Presented::parse(std::str::from_utf8(&other).unwrap()), Err(Mistyped), "at {place}");
    }
    for text in [
        "",
        "ewt",
        "ewt_",
        "a password of thirty-two letters!",
        &secret.text[1..],
        &format!("{}_1", secret.text),
    ] {
        assert_eq!(Presented::parse(text), Err(Mistyped), "{text}");
    }
    assert!(!format!("{secret:?} {:?}", secret.digest()).contains(&secret.text[15..]), "a secret is printed");
}

#[test]
fn different_secrets_give_different_texts() {
    let mut texts: Vec<String> = (0..=255).map(|byte| Secret::new(7, [byte; 32]).text).collect();
    texts.dedup();
    assert_eq!(texts.len(), 256);
    assert!(texts.iter().all(|text| Presented::parse(text).is_ok()));
}

#[test]
fn a_token_is_accepted_until_it_expires_or_is_revoked() {
    let (first, second) = (secret(1), secret(2));
    let accounts = Accounts::new(vec![token(1, "viewer", &first)], Vec::new());
    let who = accounts.authenticate(&first.text, Timestamp(999)).unwrap();
    assert_eq!((who.name.as_str(), who.role.as_str()), ("t1", "viewer"));
    let at = |accounts: &Accounts, secret: &Secret, now| accounts.authenticate(&secret.text, Timestamp(now));
    assert_eq!(at(&accounts, &first, 1000), Err(Unauthenticated::Expired(Timestamp(1000))));
    assert_eq!(at(&accounts, &second, 0), Err(Unauthenticated::Unknown));
    let revoked = token(1, "viewer", &first).revoked(Timestamp(5)).revoked(Timestamp(6));
    let accounts = Accounts::new(vec![revoked], Vec::new());
    assert_eq!(at(&accounts, &first, 7), Err(Unauthenticated::Revoked(Timestamp(5))));
    assert!(!accounts.accepts_any(Timestamp(7)));
    // The id alone is public: another secret with it learns nothing.
    let other = Secret::of(first.id.clone(), [9; 32]);
    assert_eq!(at(&accounts, &other, 7), Err(Unauthenticated::Unknown));
}

#[test]
fn after_a_rotation_both_secrets_are_accepted_for_a_while() {
    let first = secret(1);
    let second = Secret::of(first.id.clone(), [8; 32]);
    let rotated = token(1, "admin", &first).rotated(second.digest(), Timestamp(100), Timestamp(2000));
    let accounts = Accounts::new(vec![rotated], Vec::new());
    let at = |secret: &Secret, now| accounts.authenticate(&secret.text, Timestamp(now)).is_ok();
    assert!(at(&first, 99) && at(&second, 99) && at(&second, 1999));
    assert!(!at(&first, 100) && !at(&second, 2000));
}

#[test]
fn a_session_ends_with_the_token_that_opened_it() {
    let (parent, session) = (secret(1), secret(2));
    let opened = Token {
        origin: Origin::Session { of: Login::Token(parent.id.clone()) },
        expires_at: Timestamp(5000),
        ..token(2, "viewer", &session)
    };
    let accounts = Accounts::new(vec![token(1, "viewer", &parent), opened.clone()], Vec::new());
    let who = accounts.authenticate(&session.text, Timestamp(999)).unwrap();
    assert_eq!(who.credential, Credential::Session(session.id.clone()));
    assert_eq!(
        accounts.authenticate(&session.text, Timestamp(1000)),
        Err(Unauthenticated::Expired(Timestamp(1000)))
    );
    let accounts = Accounts::new(vec![opened], Vec::new());
    assert_eq!(accounts.authenticate(&session.text, Timestamp(1)), Err(Unauthenticated::Unknown));
    assert!(!accounts.accepts_any(Timestamp(1)), "a session alone is not a credential");
}

#[test]
fn a_token_whose_role_is_gone_is_refused() {
    let own = secret(1);
    let accounts = Accounts::new(vec![token(1, "team", &own)], Vec::new());
    let refused = accounts.authenticate(&own.text, Timestamp(1));
    assert_eq!(refused, Err(Unauthenticated::RoleMissing(name("team"))));
    let team = Role { name: name("team"), ..role(json!([{ "verbs": ["observers:read"] }])) };
    let accounts = Accounts::new(vec![token(1, "team", &own)], vec![team]);
    assert!(accounts.authenticate(&own.text, Timestamp(1)).is_ok());
}

#[test]
fn built_in_roles_permit_what_their_names_say() {
    let [viewer, operator, admin] = BuiltIn::ALL.map(|it| it.role().rights());
    let may = |rights: &Rights, verb| rights.permits(verb, Target::Deployment);
    for verb in Verb::ALL.iter().copied() {
        assert!(may(&admin, verb), "{verb}");
        assert!(!may(&viewer, verb) || may(&operator, verb), "{verb}");
        assert!(!may(&viewer, verb) || verb.as_str().ends_with(":read"), "{verb}");
        assert_eq!(verb.as_str().parse::<Verb>(), Ok(verb));
    }
    let secret = [Verb::SpecsRead, Verb::LogsRead, Verb::ParkedRead, Verb::TokensRead, Verb::AuditRead];
    assert!(secret.into_iter().all(|verb| !may(&viewer, verb)));
    assert!(!may(&operator, Verb::TokensWrite) && !may(&operator, Verb::RolesWrite));
    assert!(admin.cover(&operator) && operator.cover(&viewer) && !viewer.cover(&operator));
}

#[test]
fn a_grant_reaches_only_its_pools_and_kinds() {
    let rights = role(json!([
        { "verbs": ["observers:*"], "pools": ["a"], "kinds": ["http"] },
        { "verbs": ["observers:read", "services:read"], "pools": ["b"] },
        { "verbs": ["events:read"] },
    ]))
    .rights();
    let on = |verb, at: &str, of: &str| rights.permits(verb, Target::Observer(&team(), &pool(at), &kind(of)));
    assert!(on(Verb::ObserversDelete, "a", "http"));
    assert!(!on(Verb::ObserversDelete, "a", "exec") && !on(Verb::ObserversDelete, "b", "http"));
    assert!(on(Verb::ObserversRead, "b", "exec") && !on(Verb::ObserversRead, "c", "http"));
    assert!(rights.permits(Verb::ServicesRead, Target::Pool(&pool("b"))));
    assert!(!rights.permits(Verb::ServicesRead, Target::Pool(&pool("a"))));
    assert!(rights.permits(Verb::EventsRead, Target::Deployment));
    assert!(!rights.permits(Verb::ServicesRead, Target::Deployment));
    let parts = rights.scope(Verb::ObserversRead).unwrap();
    assert_eq!(parts.len(), 2);
    assert!(
        parts[0].has(&team(), &pool("a"), &kind("http")) && !parts[0].has(&team(), &pool("a"), &kind("exec"))
    );
    assert_eq!(rights.scope(Verb::EventsRead), None);
    assert_eq!(rights.scope(Verb::TokensRead), Some(Vec::new()));
}

#[test]
fn a_star_in_a_restricted_grant_leaves_out_what_cannot_be_restricted() {
    let rights = role(json!([{ "verbs": ["*"], "pools": ["a"] }])).rights();
    assert!(rights.permits_some(Verb::ObserversCreate) && rights.permits_some(Verb::ServicesOperate));
    assert!(!rights.permits_some(Verb::TokensWrite) && !rights.permits_some(Verb::EventsRead));
    let rights = role(json!([{ "verbs": ["*:read"], "kinds": ["http"] }])).rights();
    assert!(rights.permits_some(Verb::SpecsRead) && !rights.permits_some(Verb::ServicesRead));
}

#[test]
fn a_role_that_makes_no_sense_is_refused_by_member() {
    let verbs = wrong(
        json!({ "grants": [{ "verbs": ["fly", "tokens:read", "observers:raed"], "pools": ["a"] }, { "verbs": [] }] }),
    );
    assert!(
        verbs[0].starts_with("/grants/0/verbs/0 `fly` is not a verb; verbs: observers:read, "),
        "{verbs:?}"
    );
    let misspelled = "/grants/0/verbs/2 `observers:raed` is not a verb; did you mean `observers:read`?";
    assert_eq!(verbs[2], misspelled);
    assert_eq!(
        verbs[1],
        "/grants/0/verbs/1 `tokens:read` concerns the whole deployment: move it to a grant without `pools` and `kinds`"
    );
    assert_eq!(verbs[3], "/grants/1/verbs must have 1 to 100 items");
    assert_eq!(wrong(json!({ "grants": [] })), ["/grants must have 1 to 100 items"]);
    let member = wrong(json!({ "grants": [{ "verbs": ["*"], "pool": "a" }] }));
    assert_eq!(member, ["/grants/0 has the unknown field pool: write verbs, namespaces, pools or kinds"]);
    let text = wrong(json!({ "grants": [{ "verbs": ["*"] }, { "verbs": "observers:read" }] }));
    assert_eq!(text, ["/grants/1/verbs is \"observers:read\": write a list"]);
    assert_eq!(wrong(json!({})), [" the role lacks the field grants"]);
    assert_eq!(wrong(json!([])), [" the role must be a JSON object"]);
    let built_in = Role::parse(name("admin"), json!({ "grants": [{ "verbs": ["*"] }] })).unwrap_err();
    assert_eq!(built_in[0].detail, "admin is built in and cannot be changed: choose another name");
}

#[test]
fn nobody_can_give_rights_that_they_lack() {
    let narrow = role(json!([{ "verbs": ["observers:read"], "pools": ["a"], "kinds": ["http"] }])).rights();
    let wide = role(json!([{ "verbs": ["observers:read", "specs:read"], "pools": ["a", "b"] }])).rights();
    let all = BuiltIn::Admin.role().rights();
    assert!(wide.cover(&narrow) && !narrow.cover(&wide) && all.cover(&wide) && !wide.cover(&all));
    let other = role(json!([{ "verbs": ["observers:read"], "kinds": ["http"] }])).rights();
    assert!(!wide.cover(&other), "every pool is more than two");
    assert!(wide.cover(&Rights::default()) && Rights::default().cover(&Rights::default()));
}

#[test]
fn a_certificate_has_the_role_that_its_name_is_given() {
    let ci = "spiffe://example.org/ci";
    let given = |role: &str, roles| {
        Accounts::new(Vec::new(), roles).with_certificates([(ci.to_owned(), name(role))].into())
    };
    let of = |name: Option<&str>| Certificate { name: name.map(str::to_owned), expires_at: Timestamp(1000) };
    let operators = given("operator", Vec::new());
    let who = operators.certified(&of(Some(ci)), Timestamp(999)).unwrap();
    assert_eq!((who.name.as_str(), who.role.as_str(), who.token()), (ci, "operator", None));
    assert_eq!((who.expires_at, &who.credential), (Some(Timestamp(1000)), &Credential::Certificate));
    assert!(operators.still_accepts(&who, Timestamp(999)) && !operators.still_accepts(&who, Timestamp(1000)));
    assert!(!given("viewer", Vec::new()).still_accepts(&who, Timestamp(999)), "it has another role now");
    let refused = |accounts: &Accounts, name, now| accounts.certified(&of(name), Timestamp(now)).unwrap_err();
    assert_eq!(refused(&operators, None, 1), Unauthenticated::CertificateUnnamed);
    assert_eq!(refused(&operators, Some(ci), 1000), Unauthenticated::CertificateExpired(Timestamp(1000)));
    let other = "spiffe://example.org/ci2";
    assert_eq!(refused(&operators, Some(other), 1), Unauthenticated::CertificateUnmapped(other.to_owned()));
    let missing = refused(&given("team", Vec::new()), Some(ci), 1);
    assert_eq!(missing, Unauthenticated::CertificateRoleMissing(ci.to_owned(), name("team")));
    // A role that is applied later counts at once.
    let team = Role { name: name("team"), ..role(json!([{ "verbs": ["observers:read"] }])) };
    assert!(given("team", vec![team]).certified(&of(Some(ci)), Timestamp(1)).is_ok());
}

#[test]
fn the_bootstrap_token_and_its_sessions_end_when_it_is_replaced() {
    let (session, secret_text) = (secret(2), "a secret of thirty-two characters");
    let of = Login::Bootstrap(Digest::of(secret_text));
    let opened = Token { origin: Origin::Session { of }, ..token(2, "admin", &session) };
    let with = |bootstrap: Option<&str>| {
        Accounts::new(vec![opened.clone()], Vec::new()).with_bootstrap(bootstrap.map(Digest::of))
    };
    let accounts = with(Some(secret_text));
    let who = accounts.authenticate(secret_text, Timestamp(1)).unwrap();
    assert_eq!((who.name.as_str(), who.role.as_str(), who.expires_at), ("bootstrap", "admin", None));
    let in_session = accounts.authenticate(&session.text, Timestamp(1)).unwrap();
    for replaced in [Some("another secret of more than 32 characters"), None] {
        let later = with(replaced);
        assert!(!later.still_accepts(&who, Timestamp(1)) && !later.still_accepts(&in_session, Timestamp(1)));
        assert_eq!(later.authenticate(secret_text, Timestamp(1)), Err(Unauthenticated::Mistyped));
        assert_eq!(later.authenticate(&session.text, Timestamp(1)), Err(Unauthenticated::Unknown));
    }
    assert!(accounts.still_accepts(&who, Timestamp(1)) && accounts.still_accepts(&in_session, Timestamp(1)));
}

#[test]
fn a_principal_with_other_rights_is_not_accepted_any_more() {
    let own = secret(1);
    let team = |verb: &str| Role { name: name("team"), ..role(json!([{ "verbs": [verb] }])) };
    let with = |verb| Accounts::new(vec![token(1, "team", &own)], vec![team(verb)]);
    let who = with("observers:read").authenticate(&own.text, Timestamp(1)).unwrap();
    assert!(with("observers:read").still_accepts(&who, Timestamp(1)));
    assert!(!with("observers:*").still_accepts(&who, Timestamp(1)));
}

#[test]
fn a_grant_reaches_only_its_namespaces() {
    let rights = role(json!([
        { "verbs": ["observers:*", "batches:*", "namespaces:read"], "namespaces": ["team"] },
        { "verbs": ["observers:read"], "namespaces": ["other"], "pools": ["a"] },
    ]))
    .rights();
    let other = Namespace::new("other").unwrap();
    let on = |verb, namespace: &Namespace, at: &str| {
        rights.permits(verb, Target::Observer(namespace, &pool(at), &kind("http")))
    };
    assert!(on(Verb::ObserversDelete, &team(), "b") && on(Verb::ObserversRead, &other, "a"));
    assert!(!on(Verb::ObserversDelete, &other, "a") && !on(Verb::ObserversRead, &other, "b"));
    assert!(!on(Verb::ObserversRead, &Namespace::default(), "a"));
    assert!(rights.permits(Verb::BatchesWrite, Target::Namespace(&team())));
    assert!(!rights.permits(Verb::BatchesWrite, Target::Namespace(&other)));
    assert!(!rights.permits(Verb::BatchesWrite, Target::Deployment));
    assert_eq!(rights.only_namespace(), None);
    let refused = |grant: serde_json::Value| wrong(json!({ "grants": [grant] })).remove(0);
    let with = |verb: &str| refused(json!({ "verbs": [verb], "namespaces": ["team"] }));
    assert!(with("services:read").ends_with(
        "concerns pools, which namespaces share: move it to a grant without `namespaces` and `kinds`"
    ));
    assert!(with("namespaces:write").ends_with("a grant without `namespaces`, `pools` and `kinds`"));
    let batches = refused(json!({ "verbs": ["batches:read"], "pools": ["a"] }));
    assert!(
        batches.ends_with(
            "can be restricted only to namespaces: move it to a grant without `pools` and `kinds`"
        )
    );
}

#[test]
fn a_token_of_a_namespace_has_only_its_part_of_every_role() {
    let admin = BuiltIn::Admin.role().rights();
    let within = admin.within(&team());
    for verb in Verb::ALL.iter().copied() {
        let expected = matches!(verb.reach(), Reach::Observer | Reach::Namespace) || verb == Verb::KindsRead;
        assert_eq!(within.permits_some(verb), expected, "{verb}");
        assert_eq!(within.permits(verb, Target::Deployment), verb == Verb::KindsRead, "{verb}");
    }
    assert_eq!(within.only_namespace(), Some(&team()));
    assert!(admin.cover(&within) && !within.cover(&admin) && !within.cover(&BuiltIn::Viewer.role().rights()));
    let of_batches = role(json!([{ "verbs": ["batches:*"] }])).rights();
    assert_eq!(
        (of_batches.only_namespace(), of_batches.within(&team()).only_namespace()),
        (None, Some(&team()))
    );
    // Of a role for another namespace, nothing is left.
    assert_eq!(within.within(&Namespace::new("other").unwrap()).scope(Verb::ObserversRead), Some(Vec::new()));
    let pools = role(json!([{ "verbs": ["*"], "pools": ["a"] }])).rights().within(&team());
    let on =
        |at: &str| pools.permits(Verb::ObserversCreate, Target::Observer(&team(), &pool(at), &kind("http")));
    assert!(on("a") && !on("b") && !pools.permits_some(Verb::ServicesRead));
}

#[test]
fn a_session_has_the_namespace_of_its_token() {
    let own = secret(1);
    let of_team = Token { namespace: Some(team()), ..token(1, "operator", &own) };
    let accounts = Accounts::new(vec![of_team], Vec::new());
    let who = accounts.authenticate(&own.text, Timestamp(1)).unwrap();
    assert_eq!((who.namespace(), who.rights.permits_some(Verb::EventsRead)), (Some(&team()), false));
    let everywhere = Accounts::new(vec![token(1, "operator", &own)], Vec::new());
    assert!(!everywhere.still_accepts(&who, Timestamp(1)), "it has other rights now");
}
