//! Compares the API document with the command line. The test runs every command against a real manager; the
//! document must describe each request and response. Operations that no command uses are listed here with the
//! reason.

#[path = "../../../crates/manager/src/tests/contract.rs"]
mod contract;
mod recorder;

use self::contract::Contract;
use self::recorder::{Exchange, Recorder};
use super::Going;
use everwatch_tests::dev::Dev;
use everwatch_tests::http::Api;
use everwatch_tests::terminal::Terminal;
use serde_json::Value;
use std::collections::BTreeSet;

/// Operations that no command calls.
const NO_COMMAND: [(&str, &str); 12] = [
    ("get-v1-session", "the console learns how users log in"),
    ("get-v1-session-oidc", "the console sends users to the identity provider"),
    ("get-v1-session-oidc-callback", "the identity provider sends users back"),
    ("post-v1-session", "the console logs in; commands send their token"),
    ("delete-v1-session", "the console logs out"),
    ("get-livez", "orchestrators of containers ask it"),
    ("get-metrics", "Prometheus reads it"),
    ("get-openapi-json", "it is the document itself"),
    ("post-v1-kinds-kind-validate", "the console checks a form as it is filled in; a create checks anyway"),
    ("get-v1-observers-counts", "the console counts beside its filters; lists of commands show the total"),
    ("post-v1-observers-batch", "for programs; commands do one thing to many by a filter"),
    ("patch-v1-observers-key", "apply says the whole of an observer"),
];

/// Commands that send no request to a manager.
const NO_MANAGER: [&str; 16] = [
    "context list",
    "context use",
    "context delete",
    "login",
    "demo",
    "dev",
    "new",
    "run manager",
    "run service",
    "config print",
    "broker permissions",
    "migrate",
    "bench",
    "conformance",
    "completion",
    "man",
];

/// All other commands with their exit codes, in an order in which each finds the objects that it needs. FILE
/// is a manifest.
const COMMANDS: &[(&str, i32)] = &[
    ("health --url SERVER/readyz", 0),
    (
        "observer create one --kind ticker --spec {\"every\":\"2s\"} --label app=x --overlap forbid --grace 3s \
         --on-full queue --pool default --retry {\"kind\":\"fixed\",\"every\":\"5s\",\"attempts\":10} --wait 30s",
        0,
    ),
    ("observer create two --kind ticker --label app=x --paused", 0),
    ("observer create two --kind ticker", 4),
    ("observer create bad --kind ticker --grace soon", 2),
    ("observer create new --kind ticker --dry-run", 0),
    ("observer create one --kind ticker --dry-run", 4),
    ("observer create bad --kind ticker --spec {\"evry\":1} --dry-run", 2),
    ("observer get new", 3),
    ("observer apply -f FILE --dry-run", 0),
    ("observer apply -f FILE --prune -l app=z", 0),
    ("observer apply -f FILE --wait 30s", 0),
    ("observer apply -f FILE --dry-run --wait 30s", 2),
    ("observer get one", 0),
    ("observer get nobody", 3),
    (
        "observer list --status Processing,Paused --kind ticker --pool default -l app=x -q o --sort -name --limit 5",
        0,
    ),
    ("observer list --service service-1 -o json", 0),
    ("observer describe one", 0),
    ("observer result one", 3),
    ("observer wait one --for status=Processing", 0),
    ("observer wait one --for health=running", 0),
    ("observer wait one --for health=fine", 2),
    ("observer logs one --tail 5", 0),
    ("observer events one --type started --limit 5", 0),
    ("observer pause one", 0),
    ("observer wait one --for status=Paused", 0),
    ("observer resume one", 0),
    ("observer restart one", 0),
    ("observer retry one", 4),
    ("observer move one", 0),
    ("observer move one --pool default", 0),
    ("observer move -l app=none --expect 0", 0),
    ("service list --state active --pool default", 0),
    ("service get service-1", 0),
    ("service describe service-1", 0),
    ("service cordon service-1", 0),
    ("service uncordon service-1", 0),
    ("service capacity service-1 7", 0),
    ("service capacity service-1 default", 0),
    ("service drain service-1 --per-second 5 --within 1m --force --wait 30s", 0),
    ("service uncordon service-1", 0),
    ("rebalance plan --pool default --moves 3", 0),
    ("rebalance apply -o json", 0),
    (
        "observer create nightly --kind ticker --schedule @daily --time-zone UTC --catch-up 1h --if-running queue \
      --jitter 5s --on-full queue",
        0,
    ),
    ("observer schedule nightly --next 3", 0),
    ("observer trigger nightly", 0),
    ("observer trigger one", 4),
    ("observer versions one", 0),
    ("observer diff one --from 1 --to 1", 0),
    ("observer clone one copy --paused", 0),
    ("observer clone one copy", 4),
    ("observer clone nobody copy-2", 3),
    ("observer delete copy --wait 30s", 0),
    ("observer edit one", 0),
    ("observer edit nobody", 3),
    ("observer revert one --to 1", 0),
    ("observer revert one --to 7", 3),
    ("observer revert one", 1),
    ("observer delete nightly", 0),
    ("namespace apply team -f NAMESPACE", 0),
    ("namespace apply team", 0),
    ("namespace list -o wide", 0),
    ("namespace describe team", 0),
    ("namespace describe nobody", 3),
    ("namespace delete team", 0),
    ("limit set account-42 --max 3", 0),
    ("limit set account-42 --max 2 --enforce", 0),
    ("limit list -o wide", 0),
    ("limit describe account-42", 0),
    ("limit describe account-7", 3),
    ("limit delete account-42", 0),
    ("rate set openai --permits 600 --per 1m --burst 50", 0),
    ("rate set openai --permits 600 --per 1m --burst 5", 2),
    ("rate list", 0),
    ("rate describe openai", 0),
    ("rate delete openai", 0),
    ("rate describe openai", 3),
    (
        "rollout start faster -l app=x --status Processing,Paused --kind ticker --pool default -q o --set spec.every=1s \
         --max-parallel 2 --healthy-for 1m --timeout 10m --on-failure revert",
        0,
    ),
    ("rollout start faster -l app=x --set priority=1", 4),
    ("rollout start -l app=nobody --set priority=1", 2),
    ("rollout list", 0),
    ("rollout describe faster", 0),
    ("rollout members faster --state pending,changed,done", 0),
    ("rollout pause faster", 0),
    ("rollout resume faster", 0),
    ("rollout revert faster", 0),
    ("rollout cancel faster", 0),
    ("rollout cancel faster", 4),
    ("batch create --file BATCH --key walk --name walk --max-running 2", 0),
    ("batch list", 0),
    ("batch describe walk", 0),
    ("batch observers walk --status Created,Processing", 0),
    ("batch retry-failed walk", 0),
    ("batch delete walk", 4),
    ("batch cancel walk", 0),
    ("batch describe nothing", 3),
    ("rollout describe nothing", 3),
    ("whoami", 0),
    ("logout", 3),
    ("token list --sessions", 0),
    ("token create jane --role viewer --expires-in 1d", 2),
    ("token rotate jane --overlap 1h --expires-in 1d", 3),
    ("token revoke jane", 3),
    ("role apply team -f ROLE", 0),
    ("role list", 0),
    ("role get team", 0),
    ("role delete team", 0),
    ("role delete admin", 4),
    ("audit list --principal jane --limit 5", 0),
    ("pool list", 0),
    ("pool describe default", 0),
    ("pool describe nothing", 3),
    ("kind list", 0),
    ("kind describe ticker", 0),
    ("kind describe nothing", 3),
    ("pool create feeds --single", 0),
    ("pool pause spare", 3),
    ("pool pause feeds", 0),
    ("pool resume feeds", 0),
    ("pool delete feeds", 0),
    ("pool delete spare", 3),
    ("pool delete default", 4),
    ("events --observer one --limit 3", 0),
    ("timeline --since 1h", 0),
    ("timeline --service service-1 -o json", 0),
    ("timeline --observer one", 0),
    ("events --service service-1 --type service_registered", 0),
    ("parked list", 0),
    ("parked retry 7", 3),
    ("parked discard 7", 3),
    ("safe-mode on --reason x", 0),
    ("safe-mode show", 0),
    ("safe-mode off", 0),
    ("doctor", 0),
    ("status", 0),
    ("status -o json", 0),
    ("observer pause -l app=x --expect 2", 0),
    ("observer resume -l app=x --expect 7", 4),
    ("observer resume -l app=x --yes", 0),
    ("observer restart -l app=x --kind ticker --pool default --yes", 0),
    ("observer retry -l app=x --yes", 4),
    ("observer delete -l app=x --dry-run", 0),
    ("observer delete three", 0),
    ("observer delete -l app=x --yes --wait 30s", 0),
    ("chaos kill service-2", 0),
    ("chaos freeze service-1", 0),
    ("chaos freeze service-1", 4),
    ("chaos thaw service-1", 0),
    ("chaos thaw service-1", 4),
];

const MANIFEST: &str = "name: three\nkind: ticker\nlabels: {app: z}\nretry: {kind: intervals, delays: [1s, 5s]}\n\
    overlap: allow\ngrace: 5s\non_full: queue\ndesired: running\nspec: {}\npool: default\n";

const ROLE: &str = "grants:\n  - verbs: [\"observers:*\"]\n    pools: [default]\n    kinds: [ticker]\n";

const NAMESPACE: &str = "quotas:\n  observers: 9\n  running: 3\n  creates_per_minute: 6\npools: [default]\n";

const BATCH: &str = r#"{"defaults": {"kind": "ticker"}, "observers": [{}, {}, {}]}"#;

/// Runs all of them through the recorder, with these files of an observer, a batch, a role and a namespace.
async fn walk(dev: &Dev, [file, batch, role, namespace]: [&str; 4]) {
    for (line, code) in COMMANDS {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                word.replace("FILE", file)
                    .replace("BATCH", batch)
                    .replace("ROLE", role)
                    .replace("NAMESPACE", namespace)
                    .replace("SERVER", &dev.api.url)
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // An editor that changes nothing.
        let ended = dev.command(&words).env("EDITOR", "true").env_remove("VISUAL").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        // The doctor reports warnings about a deployment on one machine.
        let fine =
            ended.status.code() == Some(*code) || (*line == "doctor" && ended.status.code() == Some(8));
        assert!(fine, "{line}: {:?}: {said}", ended.status.code());
    }
    let events = Going::start(dev, &["events", "-f"]);
    let logs = Going::start(dev, &["observer", "logs", "one", "-f"]);
    let list = Going::start(dev, &["service", "list", "--watch"]);
    events.until("the history", |said| said.contains("service_registered")).await;
    list.until("the table", |said| said.contains("service-1")).await;
    drop((events, logs, list));
    let top = Terminal::open(&dev.api.url, (100, 30)).await;
    top.runs("everwatch top");
    top.until("the first screen", |screen| screen.contains("live  ")).await;
    top.types("q");
    top.until("the shell again", |screen| screen.trim_end().ends_with("ready>")).await;
}

/// The commands without subcommands, as listed in the program's manual pages.
fn commands(dev: &Dev) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(dev.run(&format!("man {}", folder.path().display())).0, Some(0));
    let pages = std::fs::read_dir(folder.path()).unwrap();
    let pages: Vec<String> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let names: Vec<&str> = pages.iter().filter_map(|page| page.strip_suffix(".1")).collect();
    let is_leaf = |name: &&&str| !names.iter().any(|other| other.starts_with(&format!("{name}-")));
    let words = |name: &&str| name.strip_prefix("everwatch-").map(|words| words.replace('-', " "));
    names.iter().filter(is_leaf).filter_map(words).collect()
}

/// Checks an exchange against the document. Returns the operation, or `None` if the request is not part of
/// the API.
fn judge(contract: &Contract, exchange: &Exchange) -> Option<String> {
    let Exchange { method, uri, request, status, answer } = exchange;
    if uri.starts_with("/dev/") {
        return None; // only `everwatch dev` knows these
    }
    let told = format!("{method} {uri}");
    let body = request.as_ref().map(|(media_type, body)| (media_type.as_str(), body));
    let asked = contract.check_request(method, uri, body);
    assert_eq!(asked, Ok(()), "{told} with {request:?}");
    let (media_type, body) = answer;
    let heard = contract.check_answer((method, uri), (*status, media_type), body);
    assert_eq!(heard, Ok(()), "{told}: {status}: {body}");
    let (_, operation) = contract.operation(method, uri).unwrap();
    Some(operation["operationId"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_asks_what_the_document_knows_and_every_operation_has_its_command() {
    let mut dev = Dev::start(2, 10).await;
    let document: Value = dev.api.get("/openapi.json").await;
    let recorder = Recorder::before(&dev.api.url).await;
    dev.api = Api::new(recorder.url.clone());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("three.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    let batch = folder.path().join("batch.json");
    std::fs::write(&batch, BATCH).unwrap();
    let role = folder.path().join("role.yaml");
    std::fs::write(&role, ROLE).unwrap();
    let namespace = folder.path().join("namespace.yaml");
    std::fs::write(&namespace, NAMESPACE).unwrap();
    walk(&dev, [&file, &batch, &role, &namespace].map(|file| file.to_str().unwrap())).await;

    let contract = Contract::new(document);
    let called: BTreeSet<String> =
        recorder.exchanges().iter().filter_map(|it| judge(&contract, it)).collect();
    let spared: BTreeSet<&str> = NO_COMMAND.iter().map(|(operation, _)| *operation).collect();
    for (method, path, operation) in contract.operations() {
        let id = operation["operationId"].as_str().unwrap();
        assert!(
            called.contains(id) != spared.contains(id),
            "{method} {path}: {id} is called by a command, or stands in the list of those that none needs"
        );
    }
    let ids: BTreeSet<&str> =
        contract.operations().filter_map(|(.., it)| it["operationId"].as_str()).collect();
    assert!(spared.is_subset(&ids), "{spared:?}");

    // The name of a manual page has a hyphen between the words of a command, and within `safe-mode`.
    let run = |words: &str| {
        let starts = |line: &str| format!("{} ", line.replace('-', " ")).starts_with(&format!("{words} "));
        COMMANDS.iter().any(|(line, _)| starts(line))
    };
    for words in commands(&dev) {
        let asks_none = NO_MANAGER.contains(&words.as_str());
        assert!(
            run(&words) != asks_none || words == "top",
            "everwatch {words} is run here, or asks no manager"
        );
    }
}
