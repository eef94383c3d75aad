//! Tests of the printed answers, at narrow and wide widths.

use super::*;
use everwatch_api::{Event, Finding, Listed, Observer, ParkedMessage, Pool, Run, SafeMode, Service};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn ago(secs: i64) -> String {
    Timestamp(NOW.0 - secs * 1000).to_string()
}

/// As a manager sends it.
fn item<T: DeserializeOwned>(sent: Value) -> Item<T> {
    serde_json::from_value(sent).unwrap()
}

fn paper(width: usize) -> (TerminalStyle, Timestamp) {
    (TerminalStyle { width: Some(width), colours: false }, NOW)
}

pub(crate) fn observer(name: &str, status: &str, reason: &str) -> Item<Observer> {
    let service = if status == "Processing" {
        json!({"id": "0198c1de-0000-7000-8000-00000000000a", "name": "amber"})
    } else {
        Value::Null
    };
    let (health, restarts, code) = match (status, reason) {
        ("Processing", "") => (json!("running"), 0, Value::Null),
        ("Processing", _) => (json!("restarting"), 8, json!("backing-off")),
        ("Created", _) => (json!("waiting"), 0, json!("waiting-for-slot")),
        _ => (Value::Null, 9, json!("gave-up")),
    };
    item(json!({
        "id": "0198c1de-4e6b-7c33-9d0a-1f2e3d4c5b6a", "name": name, "kind": "http", "pool": "default",
        "spec": {"url": "https://example.org/feed?a=1", "every": "5s"}, "labels": {"team": "prices", "tier": "1"},
        "desired": "running", "status": status, "health": health, "restarts": restarts, "reason": reason,
        "reason_code": code, "service": service,
        "epoch": (3_u64 << 32) | 2, "generation": 3, "acquisitions": 2, "attempt": 1,
        "last_error": "cannot connect:\n\u{1b}[31mconnection refused", "progress": "in sync",
        "retry": {"kind": "exponential", "first": "1s", "max": "1m", "reset_after": "5m"},
        "overlap": "allow", "grace": "10s", "on_full": "reject",
        "created_at": ago(200_000), "modified_at": ago(250), "started_at": ago(250),
    }))
}

fn observers() -> Vec<Item<Observer>> {
    vec![
        observer("prices-nyse", "Processing", ""),
        observer(
            "prices-frankfurt-with-quite-a-long-name",
            "Processing",
            "its next start is at 12:00:05Z, after an error",
        ),
        observer("news", "Created", "waiting for a slot in pool default"),
        observer(
            "broken",
            "Failed",
            "gave up after 10 starts: cannot connect to the far side: connection refused",
        ),
    ]
}

fn service(name: &str, state: &str) -> Item<Service> {
    item(json!({
        "id": "0198c1de-0000-7000-8000-00000000000a", "name": name, "pool": "default", "capacity": 10, "held": 3, "free": 7,
        "state": state, "kinds": ["exec", "http", "ticker"], "version": "0.1.0", "host": "node-17.example.org",
        "labels": {"zone": "b"}, "created_at": ago(9000), "modified_at": ago(3), "last_heartbeat_at": ago(3),
        "is_deleted": false, "cordoned": state != "active", "capacity_set": if state == "active" { json!(10) } else { Value::Null },
        "drain": if state == "draining" { json!({"of": 9, "moved": 6, "per_second": 100, "until": null, "force": false,
            "waits": "no other service of pool default has a free slot"}) } else { Value::Null },
        "resident_bytes": 48_234_496, "loop_lag_ms": 3,
        "stalled": if state == "active" { json!([]) } else { json!([
            {"id": "0198c1de-4e6b-7c33-9d0a-1f2e3d4c5b6a", "name": "prices-nyse", "stalled_ms": 12_400},
            {"id": "0198c1de-4e6b-7c33-9d0a-1f2e3d4c5b6b", "name": "news", "stalled_ms": 1200}]) },
    }))
}

fn event(id: i64, what: &str, text: &str) -> Item<Event> {
    let gap = if what == "started" { json!(52) } else { Value::Null };
    item(json!({
        "id": id, "at": ago(300 - id), "type": what, "epoch": (3_u64 << 32) | 2, "text": text, "gap_ms": gap, "overlap_ms": null,
        "observer": {"id": "0198c1de-4e6b-7c33-9d0a-1f2e3d4c5b6a", "name": "prices-nyse"},
        "service": {"id": "0198c1de-0000-7000-8000-00000000000a", "name": "amber"},
    }))
}

fn form(output: Output) -> OutputArgs {
    OutputArgs { output, no_headers: false }
}

fn written<T>(view: &View<T>, items: &[Item<T>], output: Output, width: usize) -> String {
    many(view, items, &form(output), paper(width)).unwrap()
}

/// One view at both widths, narrow and with all columns.
fn shapes<T>(view: &View<T>, items: &[Item<T>]) -> String {
    let shapes = [(80, Output::Table), (140, Output::Table), (140, Output::Wide), (240, Output::Wide)];
    let told = shapes.map(|(width, output)| {
        format!("{width} {output:?}\n{}", written(view, items, output.clone(), width))
    });
    told.join("\n\n")
}

#[test]
fn observers_as_tables() {
    insta::assert_snapshot!(shapes(&OBSERVERS, &observers()));
}

#[test]
fn services_as_tables() {
    let all = [service("amber", "active"), service("basalt", "draining"), service("chalk", "cordoned")];
    insta::assert_snapshot!(shapes(&SERVICES, &all));
}

#[test]
fn an_observer_of_another_namespace_is_named_with_it() {
    let mut it = event(1, "started", "");
    let mut sent = it.sent().clone();
    for (namespace, shown) in [("default", " prices-nyse "), ("team", " team/prices-nyse ")] {
        sent["observer"]["namespace"] = json!(namespace);
        it = item(sent.clone());
        let told = many(&EVENTS, std::slice::from_ref(&it), &form(Output::Table), paper(120)).unwrap();
        assert!(told.contains(shown), "{told}");
    }
}

#[test]
fn events_as_tables() {
    let all = [
        event(1, "created", ""),
        event(2, "started", ""),
        event(3, "errored", "cannot connect: connection refused; again at 12:00:05Z"),
        item(
            json!({"id": 4, "at": ago(1), "type": "safe_mode", "observer": null, "service": null, "epoch": null,
            "text": "off", "by": {"who": "ada@laptop", "from": "10.0.0.7", "with": "everwatch/0.1.0"}}),
        ),
        item(json!({"id": 5, "at": ago(1), "type": "service_lost", "observer": null, "epoch": null,
            "service": {"id": "0198c1de-0000-7000-8000-00000000000a", "name": "amber"}, "gap_ms": 464, "gap_is_bound": true,
            "overlap_ms": null, "text": "its connection to the broker has ended", "by": null})),
    ];
    insta::assert_snapshot!(shapes(&EVENTS, &all));
}

#[test]
fn pools_and_parked_messages_and_changes_as_tables() {
    let pools: [Item<Pool>; 1] =
        [item(json!({"name": "default", "services": 3, "capacity": 30, "held": 12, "free": 18,
        "pending": 0, "needed": 12, "observers": {"Processing": 12, "Failed": 1, "Paused": 2, "Scheduled": 4},
        "health": {"running": 10, "restarting": 2, "waiting": 5}}))];
    let parked: [Item<ParkedMessage>; 1] = [item(json!({"id": 7, "queue": "everwatch.work.default",
        "reason": "neither JSON nor anything else known", "size": 11, "text": "hello\nworld",
        "body": "aGVsbG8Kd29ybGQ=", "at": ago(4000)}))];
    let amber =
        item(json!({"id": "0198c1de-0000-7000-8000-00000000000a", "name": "amber", "held": 10, "target": 5,
        "capacity": 10, "reason": "gives 5"}));
    let service: &everwatch_api::ServiceBalance = &amber;
    let changes = [Item::new(Change { pool: "default".to_owned(), service: service.clone() }).unwrap()];
    let all = [shapes(&POOLS, &pools), shapes(&PARKED, &parked), shapes(&REBALANCE, &changes)];
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn everything_about_an_observer() {
    let run = |generation: u64, ended: Value| -> Item<Run> {
        item(json!({"epoch": generation << 32, "generation": generation, "acquisitions": 0,
            "service": {"id": "0198c1de-0000-7000-8000-00000000000a", "name": "amber"}, "attempts": 2,
            "started_at": ago(500), "ended_at": ended, "ended": if ended.is_null() { Value::Null } else { json!("handed_over") },
            "gap_ms": 1300}))
    };
    let runs = [run(3, Value::Null), run(2, json!(ago(260)))];
    let events = [event(2, "started", ""), event(1, "handed_over", "drain")];
    let it = observer("prices-nyse", "Processing", "its service is suspect");
    insta::assert_snapshot!(describe_observer(&it, &runs, &events, paper(80)));
    let bare = observer("bare", "Created", "to be published");
    insta::assert_snapshot!(
        "an_observer_that_nothing_happened_to",
        describe_observer(&bare, &[], &[], paper(80))
    );
}

#[test]
fn everything_about_a_service() {
    let held = Listed { items: observers(), next_cursor: None, total: 9 };
    let events = [event(2, "started", ""), event(1, "service_draining", "by hand")];
    insta::assert_snapshot!(describe_service(&service("basalt", "draining"), &held, &events, paper(80)));
}

fn condition() -> Condition {
    let pool = |name: &str, tolerance: u32, waiting: u64| {
        item(
            json!({"name": name, "services": 3, "capacity": 200, "held": 103, "free": 97, "pending": 0, "waiting": waiting,
            "needed": 104, "failure_tolerance": tolerance, "observers": {"Processing": 103}}),
        )
    };
    let operation = |kind: &str, name: &str, done: Value, of: u32| {
        item(
            json!({"type": kind, "name": name, "namespace": null, "path": format!("/v1/x/{name}"), "state": "Running",
            "done": done, "of": of, "since": ago(90), "by": null, "reason": ""}),
        )
    };
    Condition {
        version: "0.1.0".to_owned(),
        stats: serde_json::from_value(json!({"observers": {"Processing": 103, "Created": 1, "Paused": 3, "Failed": 1},
            "health": {"running": 102, "restarting": 1, "waiting": 1, "moving": 0}, "services": {"active": 5, "draining": 1},
            "capacity": 400, "held": 103, "broker": true}))
        .unwrap(),
        pools: vec![pool("default", 2, 0), pool("gpu", 0, 1)],
        restarting: vec![observer("loops", "Processing", "backing off")],
        operations: vec![
            operation("drain", "service-1", json!(40), 62),
            operation("rebalance", "default", Value::Null, 7),
        ],
        findings: vec![item(json!({"code": "too-big-to-lose", "severity": "warning", "subject": "service s3",
            "what": "it holds 62 observers, the others have room for 60", "why": "if it dies, 2 observers wait",
            "cure": "add a service to the pool gpu"}))],
        safe_mode: SafeMode { on: true, reason: "switches".to_owned() },
    }
}

#[test]
fn the_status_of_a_deployment() {
    insta::assert_snapshot!(status(&condition(), paper(80)));
    let calm = Condition {
        operations: Vec::new(),
        findings: Vec::new(),
        safe_mode: SafeMode::default(),
        ..condition()
    };
    let one = Condition { pools: calm.pools[..1].to_vec(), ..calm };
    insta::assert_snapshot!("the_status_of_one_pool", status(&one, paper(80)));
    let spare = item(json!({"code": "headroom", "severity": "info", "subject": "pool default",
        "what": "pool default survives the loss of any one service, but not of two", "why": "", "cure": "start another one"}));
    let found = Condition { findings: vec![condition().findings.remove(0), spare], ..one.clone() };
    let told = status(&found, paper(80));
    let [problems, notes] =
        ["\nProblems:\n  warning", "\nNotes:\n  info"].map(|it| told.find(it).expect(&told));
    assert!(problems < notes);
    let mut several = one.clone();
    several.stats.health.insert("restarting".to_owned(), 5);
    assert!(status(&several, paper(80)).contains("\nRestarting:         loops and 4 more\n"));
    let mut sent = one.pools[0].sent().clone();
    sent["paused"] = json!(true);
    sent["waiting"] = json!(2);
    let paused = Condition { pools: vec![item(sent)], ..one };
    assert!(status(&paused, paper(80)).contains("Paused pools:       default (2 observers wait)"));
}

#[test]
fn the_first_sentence_of_the_status_names_what_is_worst() {
    let first = |change: &dyn Fn(&mut Condition)| -> String {
        let mut it = Condition { findings: Vec::new(), ..condition() };
        it.stats = serde_json::from_value(
            json!({"observers": {}, "health": {"running": 3}, "services": {}, "capacity": 9, "held": 3,
            "broker": true}),
        )
        .unwrap();
        change(&mut it);
        status(&it, paper(80)).lines().next().unwrap().to_owned()
    };
    let [warning, critical]: [Item<Finding>; 2] = ["warning", "critical"].map(|severity| {
        item(json!({"code": "c", "severity": severity, "subject": "s", "what": "w", "why": "y", "cure": "c"}))
    });
    assert_eq!(first(&|_| {}), "All observers run.");
    assert_eq!(first(&|it| it.findings.push(warning.clone())), "All observers run, but there are warnings.");
    let with = |health: &str| first(&|it| it.stats.health.extend([(health.to_owned(), 1)]));
    let frozen: Item<Finding> = item(
        json!({"code": "service-frozen", "severity": "warning", "subject": "s", "what": "w", "why": "y", "cure": "c"}),
    );
    let told = "All observers run, as far as managers can tell.";
    assert_eq!(first(&|it| it.findings.push(frozen.clone())), told);
    let both = first(&|it| {
        it.findings.push(frozen.clone());
        it.stats.health.extend([("moving".to_owned(), 1)]);
    });
    assert_eq!(both, "3 of 4 observers run, as far as managers can tell.");
    assert_eq!(with("moving"), "3 of 4 observers run.");
    assert_eq!(with("restarting"), "3 of 4 observers run.");
    assert_eq!(
        first(&|it| it.stats.observers.extend([("Failed".to_owned(), 1)])),
        "3 of 4 observers run; 1 has failed."
    );
    assert_eq!(first(&|it| it.stats.health = [("waiting".to_owned(), 2)].into()), "No observer runs.");
    assert_eq!(first(&|it| it.stats.health.clear()), "No observer is meant to run now.");
    let limited = |it: &mut Condition| {
        it.stats.health.extend([("waiting".to_owned(), 2)]);
        it.stats.behind_limits = 2;
    };
    assert_eq!(first(&limited), "3 of 5 observers run; 2 wait for a limit.");
    let all = status(&Condition { findings: Vec::new(), ..condition() }, paper(80));
    assert!(!all.contains("for a limit"), "{all}");
    assert_eq!(
        first(&|it| it.findings = vec![warning.clone(), critical.clone()]),
        "All observers run. Something is critical: see the problems."
    );
    let told = first(&|it| it.stats.broker = false);
    assert_eq!(told, "The broker is not connected: observers keep running, none starts.");
}

#[test]
fn yaml_says_what_json_says() {
    let all = observers();
    let written = written(&OBSERVERS, &all[..1], Output::Yaml, 80);
    let read: Vec<Item<Observer>> = serde_saphyr::from_str(&written).unwrap();
    assert_eq!(read, all[..1]);
    insta::assert_snapshot!(written);
    assert_eq!(super::tests::written(&OBSERVERS, &[], Output::Json, 80), "[]");
}

#[test]
fn a_status_is_coloured_only_where_colours_are_wanted() {
    let on = |colours| (TerminalStyle { width: Some(80), colours }, NOW);
    let told = |colours| many(&OBSERVERS, &observers(), &form(Output::Table), on(colours)).unwrap();
    assert!(told(true).contains("\u{1b}[31mFailed\u{1b}[0m "), "{}", told(true));
    assert!(!told(false).contains('\u{1b}'));
}

/// As `-o` gives it.
fn asked(words: &[&str]) -> OutputArgs {
    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        shown: OutputArgs,
    }
    let words = ["x"].iter().chain(words);
    <Asked as clap::Parser>::try_parse_from(words).unwrap().shown
}

#[test]
fn a_user_chooses_columns_values_and_whether_there_are_heads() {
    let told = |words: &[&str]| many(&OBSERVERS, &observers(), &asked(words), paper(30)).unwrap();
    let columns = "-ocustom-columns=NAME:.name,SERVICE:.service.name,TEAM:{.labels.team}";
    insta::assert_snapshot!("columns_of_the_user", told(&[columns]));
    assert_eq!(told(&[columns, "--no-headers"]).lines().count(), 4);
    assert!(!told(&["--no-headers"]).contains("NAME"), "{}", told(&["--no-headers"]));
    let names = "prices-nyse\nprices-frankfurt-with-quite-a-long-name\nnews\nbroken";
    for path in ["-ojsonpath={.items[*].name}", "--output=jsonpath=$.items[*].name"] {
        assert_eq!(told(&[path]), names);
    }
    assert_eq!(told(&["-ojsonpath={.items[?(@.status=='Failed')].restarts}"]), "9");
}

#[test]
fn a_column_of_the_user_shows_no_control_characters() {
    let told = many(&OBSERVERS, &observers()[..1], &asked(&["-ocustom-columns=E:.last_error"]), paper(9));
    assert_eq!(told.unwrap(), "E\ncannot connect: [31mconnection refused".replace(": [", ":  ["));
}
