//! Managers and the services of each pool with broker users of their own, whose permissions `everwatch broker permissions`
//! prints. What the broker refuses to them is tested in `crates/broker/tests/permissions.rs`.

use everwatch_api::{Logs, Observer};
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{As, Cluster, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::json;

/// A vhost with the users that the command prints. Names of users contain the prefix, which is unique.
struct Users {
    management: Management,
    vhost: String,
    names: Vec<String>,
    /// The topic permissions, which need an exchange that managers declare.
    later: Vec<(String, serde_json::Value)>,
}

impl Users {
    async fn create(cluster: &Cluster, vhost: &str) -> Self {
        let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
        management.expect("PUT", &format!("/api/vhosts/{vhost}"), json!({})).await;
        let arguments = [
            "broker",
            "permissions",
            "--pool",
            "default",
            "--pool",
            "team-b",
            "--pool",
            "team-c",
            "--vhost",
            vhost,
        ];
        let (code, printed) = cluster.command(&arguments);
        assert_eq!(code, Some(0), "{printed}");
        let (mut names, mut later) = (Vec::new(), Vec::new());
        for command in printed.lines().filter(|line| line.starts_with("rabbitmqctl ")) {
            let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
            match words[1..] {
                ["add_user", user] => {
                    let body = json!({"password": "secret", "tags": ""});
                    management.expect("PUT", &format!("/api/users/{user}"), body).await;
                    names.push(user.to_owned());
                }
                ["set_permissions", "-p", of, user, configure, write, read] => {
                    assert_eq!(of, vhost);
                    let body = json!({"configure": configure, "write": write, "read": read});
                    management.expect("PUT", &format!("/api/permissions/{vhost}/{user}"), body).await;
                }
                ["set_topic_permissions", "-p", of, user, exchange, write, read] => {
                    assert_eq!(of, vhost);
                    let body = json!({"exchange": exchange, "write": write, "read": read});
                    later.push((format!("/api/topic-permissions/{vhost}/{user}"), body));
                }
                _ => unreachable!("an unknown command: {command}"),
            }
        }
        Self { management, vhost: vhost.to_owned(), names, later }
    }

    async fn set_topic_permissions(&self) {
        for (path, body) in &self.later {
            self.management.expect("PUT", path, body.clone()).await;
        }
    }

    fn url(&self, role: &str) -> String {
        let user = self.names.iter().find(|name| name.ends_with(role)).unwrap();
        let url = from_environment("EVERWATCH_TEST_AMQP_URL");
        let (_, place) = url.rsplit_once('@').unwrap();
        let (host, _) = place.split_once('/').unwrap();
        format!("amqp://{user}:secret@{host}/{}", self.vhost)
    }

    async fn delete(self) {
        for name in &self.names {
            self.management.call("DELETE", &format!("/api/users/{name}")).await;
        }
        self.management.call("DELETE", &format!("/api/vhosts/{}", self.vhost)).await;
    }
}

#[tokio::test]
async fn everything_works_with_a_broker_user_for_managers_and_one_for_each_pool() {
    let mut cluster = Cluster::new("users");
    let vhost = format!("vhost-{}", cluster.prefix.trim_end_matches('.'));
    let users = Users::create(&cluster, &vhost).await;
    cluster.extra.push(("EVERWATCH_MANAGER__POOLS".to_owned(), "default,team-b".to_owned()));

    // Services that start before the first manager wait for it.
    let a = users.url("service-default");
    cluster.spawn_service_at("a1", 5, &a);
    wait_for("the service to say what is missing", || async {
        let log = cluster.full_log("a1");
        let told =
            log.contains("may not declare") && log.contains("everwatch broker permissions --pool default");
        if told { Ok(()) } else { Err(log) }
    })
    .await;
    cluster = cluster.on(&users.url("manager"));
    cluster.manager().await;
    users.set_topic_permissions().await;
    cluster.until_active("a1").await;
    cluster.spawn_service_at("a2", 5, &a);
    let b = users.url("service-team-b");
    let environment = [("EVERWATCH_SERVICE__POOL", "team-b")];
    cluster.spawn_service_as("b1", 5, As { broker_url: &b, environment: &environment, ..As::default() });
    for name in ["a2", "b1"] {
        cluster.until_active(name).await;
    }

    let spec = json!({"argv": ["sh", "-c", "echo begun; exec sleep 600"]});
    for (name, pool) in [("oa", "default"), ("ob", "team-b")] {
        cluster.api.create(json!({"name": name, "kind": "exec", "pool": pool, "spec": spec})).await;
        cluster.api.until_status(name, "Processing").await;
        let has_begun = |logs: &Logs| logs.items.iter().any(|line| line.text == "begun");
        cluster.api.until_read(&format!("/v1/observers/{name}/logs"), has_begun).await;
    }
    assert_eq!(holder(&cluster.api.observer("ob").await), Some("b1"));

    let before = cluster.api.observer("oa").await;
    cluster.kill(holder(&before).unwrap());
    let moved = |it: &Observer| it.status == Status::Processing && it.epoch > before.epoch;
    cluster.api.until_observer("oa", moved).await;
    let (status, answer) =
        cluster.api.call("POST", "/v1/observers/oa/move", Some(json!({"pool": "team-b"}))).await;
    assert!(status < 300, "{status} {answer}");
    let on_b = |it: &Observer| it.status == Status::Processing && holder(it) == Some("b1");
    cluster.api.until_observer("oa", on_b).await;
    // Managers declare a deleted queue again, because the services of its pool may not.
    let before = cluster.api.observer("ob").await;
    let queue = format!("/api/queues/{vhost}/{}work.team-b", cluster.prefix);
    assert_eq!(users.management.call("DELETE", &queue).await.0, 204);
    let again = |it: &Observer| it.status == Status::Processing && it.epoch > before.epoch;
    cluster.api.until_observer("ob", again).await;
    for name in ["oa", "ob"] {
        cluster.api.call("DELETE", &format!("/v1/observers/{name}?wait=20s"), None).await;
        cluster.api.until_status(name, "Deleted").await;
    }

    // A pool that managers do not know yet.
    let c = users.url("service-team-c");
    let environment = [("EVERWATCH_SERVICE__POOL", "team-c")];
    cluster.spawn_service_as("c1", 5, As { broker_url: &c, environment: &environment, ..As::default() });
    wait_for("the service to name the command that creates its queue", || async {
        let log = cluster.full_log("c1");
        if log.contains("`everwatch pool create team-c`") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(cluster.command(&["pool", "create", "team-c"]).0, Some(0));
    cluster.until_active("c1").await;
    for process in ["manager", "a1", "a2", "b1", "c1"] {
        let log = cluster.full_log(process);
        let refusals = log.lines().filter(|line| line.contains("ACCESS_REFUSED"));
        let unexpected: Vec<&str> = refusals.filter(|line| !line.contains("may not declare")).collect();
        assert_eq!(unexpected, Vec::<&str>::new(), "{process}");
    }
    cluster.kill_all();
    users.delete().await;
}
