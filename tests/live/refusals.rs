//! Faults that exist from the start: the error names the cause and the remedy, and the exit code is the
//! documented one.

use everwatch_tests::cluster::{Cluster, everwatch, free_address, from_environment};
use everwatch_tests::rabbitmq::{Management, Node};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::net::TcpListener;
use std::process::Command;

/// Runs a role to its end with this environment; answers the exit code and what it said.
async fn ends(arguments: &[&str], environment: Vec<(String, String)>) -> (i32, String) {
    let mut command = Command::new(everwatch());
    command.args(arguments).envs(environment);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

fn with(cluster: &Cluster, key: &str, value: &str) -> Vec<(String, String)> {
    let mut all = cluster.environment();
    all.push((key.to_owned(), value.to_owned()));
    all
}

#[tokio::test]
async fn each_wrong_setting_is_named_with_its_cure() {
    let cluster = Cluster::new("refused");
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = occupied.local_addr().unwrap().to_string();
    let (server, _) = cluster.broker_url.rsplit_once('/').unwrap();
    let nowhere = format!("{server}/nowhere");
    let wrong_password = cluster.broker_url.replace("guest:guest", "guest:secret");
    let postgres = from_environment("EVERWATCH_TEST_POSTGRES_URL");
    let (postgres_server, _) = postgres.rsplit_once('/').unwrap();
    let no_database = format!("{postgres_server}/nowhere");
    let cases: [(&str, &str, &str, i32, &[&str]); 15] = [
        ("manager", "EVERWATCH_BROKER__URL", "http://x", 2, &["broker.url", "amqp://user:password@host"]),
        ("service", "EVERWATCH_BROKER__URL", "amqp:/x", 2, &["broker.url", "amqp://user:password@host"]),
        ("manager", "EVERWATCH_BROKER__URI", "amqp://x", 2, &["uri", "EVERWATCH_SECTION__KEY"]),
        ("service", "EVERWATCH_BROKER__HEARTBEAT", "1s", 2, &["broker.heartbeat", "3s to 14s"]),
        ("service", "EVERWATCH_BROKER__HEARTBEAT", "soon", 2, &["heartbeat", "soon"]),
        ("service", "EVERWATCH_SERVICE__CAPACITY", "many", 2, &["capacity", "many", "auto"]),
        ("service", "EVERWATCH_SERVICE__NAME", "no/name", 2, &["service.name"]),
        ("service", "EVERWATCH_SERVICE__LISTEN", &occupied, 1, &["service.listen", &occupied]),
        ("manager", "EVERWATCH_MANAGER__LISTEN", "7700", 2, &["manager.listen", "127.0.0.1:7700"]),
        ("manager", "EVERWATCH_MANAGER__LISTEN", &occupied, 1, &[&occupied]),
        ("manager", "EVERWATCH_STORE__URL", "mysql://x", 2, &["store.url", "sqlite://", "postgres://"]),
        ("manager", "EVERWATCH_STORE__URL", "sqlite:///proc/x.db", 1, &["store.url", "/proc/x.db"]),
        ("manager", "EVERWATCH_STORE__URL", &no_database, 1, &["store.url", "nowhere"]),
        ("service", "EVERWATCH_BROKER__URL", &nowhere, 1, &["vhost", "nowhere", "rabbitmqctl add_vhost"]),
        ("manager", "EVERWATCH_BROKER__URL", &wrong_password, 1, &["guest", "check user and password"]),
    ];
    for (role, key, value, code, words) in cases {
        let (ended, said) = ends(&["run", role], with(&cluster, key, value)).await;
        assert_eq!(ended, code, "{role} with {key}={value}: {said}");
        for word in words {
            assert!(said.contains(word), "{role} with {key}={value} does not say {word}: {said}");
        }
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn a_broker_user_without_rights_is_refused_by_name() {
    let cluster = Cluster::new("rights");
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let user = format!("{}user", cluster.prefix);
    management.expect("PUT", &format!("/api/users/{user}"), json!({"password": "p", "tags": ""})).await;
    let url = cluster.broker_url.replace("guest:guest", &format!("{user}:p"));
    // First the user has no access to the vhost; then it has access, but no permissions there.
    for role in ["manager", "service"] {
        let (code, said) = ends(&["run", role], with(&cluster, "EVERWATCH_BROKER__URL", &url)).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&user) && said.contains("`everwatch broker permissions"), "{said}");
    }
    let nothing = json!({"configure": "^$", "write": "^$", "read": "^$"});
    management.expect("PUT", &format!("/api/permissions/%2f/{user}"), nothing).await;
    for role in ["manager", "service"] {
        let (code, said) = ends(&["run", role], with(&cluster, "EVERWATCH_BROKER__URL", &url)).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&user) && said.contains("`everwatch broker permissions"), "{said}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_tried_until_it_can() {
    let mut cluster = Cluster::new("unreachable");
    let address = free_address();
    let broker_url = std::mem::replace(&mut cluster.broker_url, format!("amqp://guest:guest@{address}/%2f"));
    cluster.spawn_service("a", 2);
    wait_for("the service to say that it keeps trying", || async {
        let log = cluster.full_log("a");
        let tries = log.matches("the broker cannot be reached, trying again").count();
        if tries >= 2 && log.contains(&address) { Ok(()) } else { Err(log) }
    })
    .await;
    // Starts a real broker at the address that was unreachable before.
    let (host_and_port, _) = broker_url.rsplit_once('/').unwrap();
    let (_, real) = host_and_port.rsplit_once('@').unwrap();
    let _proxy = everwatch_tests::proxy::Proxy::listen(&address, real).await;
    cluster.broker_url = broker_url;
    cluster.manager().await;
    cluster.until_active("a").await;
    assert_eq!(cluster.terminate("a"), Some(0));
}

#[tokio::test]
async fn client_commands_end_with_the_documented_codes() {
    let mut cluster = Cluster::new("client");
    let server = cluster.api.url.clone();
    let run = |words: &str| {
        let words: Vec<String> =
            ["--server", &server].into_iter().chain(words.split(' ')).map(str::to_owned).collect();
        async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            ends(&words, Vec::new()).await
        }
    };
    let (code, said) = run("observer list").await;
    assert_eq!(code, 6, "{said}");
    assert!(said.contains(&server) && said.contains("EVERWATCH_SERVER"), "{said}");
    cluster.manager().await;
    cluster.service("a", 1).await;
    for (words, code, told) in [
        ("observer create o --kind ticker", 0, ""),
        ("observer create o --kind ticker", 4, "o"),
        ("observer create p --kind nothing", 3, "nothing"),
        ("observer create p --kind ticker --spec {", 2, "--spec"),
        ("observer create p --kind ticker --spec @/no/file", 2, "/no/file"),
        ("observer create p --kind ticker --label x", 2, "key=value"),
        ("observer create p --kind ticker", 1, "no free slot"),
        ("observer get none", 3, "none"),
        ("observer delete none", 3, "none"),
        ("observer retry o", 4, "o"),
        ("observer wait o --for status=Processing", 0, ""),
        ("observer wait o --for status=Deleted --timeout 1s", 5, "Processing"),
        ("observer wait o --for x", 2, "status="),
        ("observer frobnicate", 2, "frobnicate"),
        ("observer list --service a", 0, ""),
        ("observer pause o", 0, ""),
        ("observer wait o --for status=Paused", 0, ""),
        ("observer resume o", 0, ""),
        ("observer wait o --for status=Processing", 0, ""),
        ("observer restart o", 0, ""),
        ("observer events o", 0, ""),
        ("events --limit 5", 0, ""),
        ("events --limit 0", 2, "1..=1000"),
        ("pool list", 0, ""),
        ("parked list", 0, ""),
        ("parked retry 7", 3, "7"),
        ("safe-mode on --reason storm", 0, ""),
        ("safe-mode off", 0, ""),
        ("observer delete o --wait 20s", 0, ""),
    ] {
        let (ended, said) = run(words).await;
        assert_eq!(ended, code, "{words}: {said}");
        assert!(said.contains(told), "{words} does not say {told}: {said}");
    }
    let (code, said) = ends(&["--server", "localhost:7700", "observer", "list"], Vec::new()).await;
    assert_eq!(code, 2, "{said}");
}

#[tokio::test]
async fn a_dev_that_kept_no_database_is_told_how_to_keep_one() {
    let cluster = Cluster::new("dev-twice");
    let dev = |more: &[&str]| {
        let mut command = Command::new(everwatch());
        command.args([
            "dev",
            "--services",
            "1",
            "--broker",
            &cluster.broker_url,
            "--prefix",
            &cluster.prefix,
        ]);
        command.args(more).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command
    };
    let address = free_address();
    let mut first = dev(&["--listen", &address]).spawn().unwrap();
    let api = everwatch_tests::http::Api::new(format!("http://{address}"));
    wait_for("the first dev to be ready", || async {
        let answer = api.try_call("GET", "/readyz", None).await;
        if answer.as_ref().is_ok_and(|(status, _)| *status == 200) {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first.id().cast_signed()), nix::sys::signal::SIGTERM)
        .unwrap();
    first.wait().unwrap();
    let again = dev(&["--listen", &free_address()]).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{said}");
    for word in ["--store sqlite://", "another --prefix", "--adopt"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[tokio::test]
async fn a_service_that_worked_waits_out_a_password_that_is_wrong_for_a_while() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &[]);
    node.ctl(&["add_user", "everwatch", "first"]);
    node.ctl(&["set_permissions", "-p", "/", "everwatch", ".*", ".*", ".*"]);
    let url = node.url.replace("guest:guest@", "everwatch:first@");
    let mut cluster = Cluster::new("password").on(&url).with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = cluster.folder("beacons");
    cluster.api.create(json!({"name": "o", "kind": "beacon", "spec": {"folder": folder}})).await;
    cluster.api.until_status("o", "Processing").await;

    node.ctl(&["change_password", "everwatch", "second"]);
    node.ctl(&["close_all_connections", "a test"]);
    wait_for("the service to be refused twice", || async {
        let log = cluster.full_log("a");
        let refused = log.matches("refuses user everwatch").count();
        if refused >= 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!cluster.has_ended("a"), "{}", cluster.log("a"));
    node.ctl(&["change_password", "everwatch", "first"]);
    wait_for("it to run again, in the same process", || async {
        let runs = everwatch_tests::beacons::read(&folder);
        let fresh = runs["o"].len() == 2;
        if fresh { Ok(()) } else { Err(cluster.log("a")) }
    })
    .await;
    assert!(!cluster.has_ended("a"), "{}", cluster.log("a"));
    everwatch_tests::beacons::judge("a password that is changed", &folder, |_| 0);
}
