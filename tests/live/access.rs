//! Access to the API: tokens on several managers, the audit log when a manager is killed, and the commands.

use everwatch_api::{AuditEntry, CreatedToken, Event, Listed};
use everwatch_tests::cluster::{BOOTSTRAP, Cluster, everwatch};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A revoked token is refused everywhere after this time.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

async fn token(api: &Api, name: &str, role: &str) -> CreatedToken {
    api.done("POST", "/v1/tokens", Some(json!({ "name": name, "role": role })), 201).await
}

#[tokio::test]
async fn a_token_works_on_every_manager_and_ends_on_all_within_5_s() {
    let mut cluster = Cluster::new("tokens").with_postgres().guarded();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    cluster.service("a", 5).await;
    let bare = Api::new(cluster.api.url.clone());
    assert_eq!(bare.refused("GET", "/v1/observers", None).await.code, "no-valid-token");
    assert_eq!(bare.call("GET", "/readyz", None).await.0, 200);
    let made = token(&cluster.api, "jane", "operator").await;
    // The other manager knows it at once.
    let (here, there) = (cluster.api.with_token(&made.token), second.with_token(&made.token));
    there.create(json!({ "name": "one", "kind": "ticker" })).await;
    here.until_status("one", "Processing").await;
    let mut stream = there.follow("/v1/events").await;
    let revoked_at = Instant::now();
    let (status, _) = cluster.api.call("DELETE", "/v1/tokens/jane", None).await;
    assert_eq!(status, 204);
    assert_eq!(here.refused("GET", "/v1/observers", None).await.code, "no-valid-token");
    while stream.next().await.is_some() {}
    let ended = revoked_at.elapsed();
    assert!(ended < REVOKED_WITHIN, "the stream ended after {ended:?}");
    assert_eq!(there.refused("GET", "/v1/observers", None).await.code, "no-valid-token");
    // The events name the principal.
    let named = |events: &[Event]| {
        let who = events.iter().filter_map(|it| it.by.as_ref()).find_map(|by| by.who.as_deref());
        who.is_some_and(|who| who.starts_with("jane"))
    };
    cluster.api.until_events_of("one", named).await;
}

#[tokio::test]
async fn the_audit_log_has_what_a_killed_manager_was_asked_for() {
    let mut cluster = Cluster::new("audit").with_postgres().guarded();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    cluster.service("a", 100).await;
    let api = cluster.api.clone();
    let mut creating = JoinSet::new();
    creating.spawn(async move {
        let mut created = Vec::new();
        for number in 0.. {
            let name = format!("o{number}");
            let body = json!({ "name": name, "kind": "ticker", "on_full": "queue" });
            match api.try_call("POST", "/v1/observers", Some(body)).await {
                Ok((201, _)) => created.push(name),
                Ok(other) => panic!("{other:?}"),
                Err(_) => break,
            }
        }
        created
    });
    wait_for("some observers", || async {
        let total = second.observers().await.len();
        if total >= 20 { Ok(()) } else { Err(format!("{total}")) }
    })
    .await;
    cluster.kill("manager");
    let created = creating.join_next().await.unwrap().unwrap();
    let stored = second.observers().await;
    let log: Listed<AuditEntry> = second.read("/v1/audit?limit=1000&principal=bootstrap").await;
    let creates = log.items.iter().filter(|it| it.path == "/v1/observers" && it.method == "POST").count();
    assert!(
        creates >= stored.len() && stored.len() >= created.len(),
        "{creates} {} {}",
        stored.len(),
        created.len()
    );
    // Each observer that the log names exists, and all but the last ones are named.
    let named: Vec<&str> =
        log.items.iter().filter_map(|it| it.created.as_deref()?.strip_prefix("/v1/observers/")).collect();
    assert!(named.iter().all(|id| stored.iter().any(|it| it.id.to_string() == *id)), "{named:?}");
    assert!(named.len() + 10 >= stored.len(), "{} of {}", named.len(), stored.len());
}

/// Runs a command with a home of its own, without the environment of the cluster.
fn run(
    cluster: &Cluster,
    arguments: &[&str],
    (input, extra): (&str, &[(&str, &str)]),
) -> (Option<i32>, String) {
    let mut command = Command::new(everwatch());
    command.args(arguments).env("XDG_CONFIG_HOME", cluster.scratch.path().join("home"));
    command.env_remove("EVERWATCH_TOKEN").env_remove("EVERWATCH_TOKEN_FILE").env_remove("EVERWATCH_SERVER");
    command.envs(extra.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _closed_early = child.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned())
}

#[tokio::test]
async fn the_commands_log_in_create_tokens_and_show_the_audit_log() {
    let mut cluster = Cluster::new("login").guarded();
    cluster.manager().await;
    let url = cluster.api.url.clone();
    let run = |arguments: &[&str], input: &str| run(&cluster, arguments, (input, &[]));
    let said = |(code, said): (Option<i32>, String), expected: i32, text: &str| {
        assert!(code == Some(expected) && said.contains(text), "{code:?}: {said}");
        said
    };
    let server = ["--server", &url];
    let at = |arguments: &[&str]| {
        [&server[..], arguments].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let at = |arguments: &[&str], input: &str| {
        let all = at(arguments);
        run(&all.iter().map(String::as_str).collect::<Vec<_>>(), input)
    };
    said(at(&["observer", "list"], ""), 7, "everwatch login");
    said(at(&["login"], "ewt_wrong"), 7, "mistyped");
    said(at(&["login"], ""), 2, "no token was given");
    said(at(&["login", "--context", "test"], BOOTSTRAP), 0, "as bootstrap; the context is test");
    // From now on without --server.
    said(run(&["whoami"], ""), 0, "bootstrap, role admin");
    said(run(&["context", "list"], ""), 0, &format!("* test  {url}"));
    let file = cluster.scratch.path().join("home/everwatch/config.toml");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "only its user can read it");
    let role = "grants:\n  - verbs: [\"observers:*\"]\n    pools: [team-a]\n  - verbs: [\"kinds:read\"]\n";
    said(run(&["role", "apply", "team-a", "-f", "-"], role), 0, "role team-a is applied: 2 grants");
    said(run(&["role", "apply", "team-b", "-f", "-"], "grants: [{verbs: [fly]}]"), 2, "`fly` is not a verb");
    said(run(&["role", "list"], ""), 0, "team-a");
    said(run(&["role", "get", "team-a"], ""), 0, "- team-a");
    let created = run(&["token", "create", "jane", "--role", "team-a", "--expires-in", "1h"], "");
    let printed = said(created, 0, "role team-a, valid until");
    let token = printed.lines().find(|line| line.starts_with("ewt_")).unwrap().to_owned();
    said(run(&["token", "create", "jane", "--role", "team-a"], ""), 4, "rotate or revoke it");
    said(run(&["token", "create", "x", "--role", "none"], ""), 2, "there is no role none");
    let jane = |arguments: &[&str]| self::run(&cluster, arguments, ("", &[("EVERWATCH_TOKEN", &token)]));
    said(jane(&["whoami"]), 0, "jane, role team-a");
    said(jane(&["observer", "list"]), 0, "no observers");
    let create = ["observer", "create", "own", "--kind", "ticker", "--pool", "team-a", "--on-full", "queue"];
    said(jane(&create), 0, "own");
    said(jane(&["observer", "events", "own"]), 0, "created");
    said(jane(&["events"]), 7, "does not permit events:read");
    said(jane(&["service", "drain", "x"]), 7, "does not permit services:operate");
    said(jane(&["token", "list"]), 7, "does not permit tokens:read");
    said(run(&["audit", "list", "--principal", "jane"], ""), 0, "services:operate");
    said(run(&["token", "rotate", "jane", "--overlap", "0s"], ""), 0, "ewt_");
    said(jane(&["whoami"]), 7, "no token is known");
    said(run(&["token", "revoke", "jane"], ""), 0, "token jane is revoked");
    said(run(&["token", "list"], ""), 0, "revoked");
    said(run(&["role", "delete", "team-a"], ""), 0, "deleted");
    said(run(&["context", "use", "none"], ""), 3, "contexts: test");
    said(run(&["logout"], ""), 0, "logged out");
    said(run(&["whoami"], ""), 7, "everwatch login");
    said(run(&["context", "delete", "test"], ""), 0, "deleted");
    // What is refused at the start.
    let environment: Vec<(String, String)> = cluster.environment();
    let mut open: Vec<(&str, &str)> =
        environment.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    open.extend([("EVERWATCH_AUTH__MODE", "off"), ("EVERWATCH_MANAGER__LISTEN", "0.0.0.0:0")]);
    said(
        self::run(&cluster, &["run", "manager"], ("", &open)),
        2,
        "auth.mode: \"off\" is for loopback addresses only",
    );
}
