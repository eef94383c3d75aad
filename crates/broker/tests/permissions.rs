//! Broker users with the permissions of [`Permissions`], on the RabbitMQ at EVERWATCH_TEST_AMQP_URL, whose HTTP API is at
//! EVERWATCH_TEST_MANAGEMENT_URL: what managers and services need, and what the broker refuses to the services of a pool.
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use everwatch_broker::{
    Broker, BrokerError, Consume, Declared, Message, Permissions, QueueKind, RabbitBroker, Session, Target,
    Topology,
};
use everwatch_core::id::{Pool, RepliesId, ServiceId};
use futures::FutureExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use serde_json::json;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const PREFIX: &str = "p.";
const KEPT: QueueKind = QueueKind::Durable { max_length: None };

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with ./tests/run"))
}

/// A vhost of its own, with a user of the managers and one of the services of each pool.
struct Vhost {
    name: String,
    client: reqwest::Client,
}

impl Vhost {
    async fn with_users() -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let it = Self { name: Uuid::new_v4().simple().to_string(), client: reqwest::Client::new() };
        it.put(&format!("vhosts/{}", it.name), json!({})).await;
        it.user("manager", Permissions::of_managers(PREFIX)).await;
        for name in ["a", "b"] {
            it.user(name, Permissions::of_services(PREFIX, &pool(name))).await;
        }
        it
    }

    async fn user(&self, role: &str, permissions: Permissions) {
        let (vhost, user) = (&self.name, self.name_of(role));
        self.put(&format!("users/{user}"), json!({"password": "secret", "tags": ""})).await;
        let Permissions { configure, write, read, topic } = permissions;
        let body = json!({"configure": configure, "write": write, "read": read});
        self.put(&format!("permissions/{vhost}/{user}"), body).await;
        if let Some((exchange, keys)) = topic {
            // RabbitMQ 4.3 refuses the permissions of an exchange that does not exist.
            self.put(&format!("exchanges/{vhost}/{exchange}"), json!({"type": "topic", "durable": true}))
                .await;
            let body = json!({"exchange": exchange, "write": keys, "read": "^$"});
            self.put(&format!("topic-permissions/{vhost}/{user}"), body).await;
        }
    }

    fn name_of(&self, role: &str) -> String {
        format!("{}-{role}", self.name)
    }

    async fn put(&self, path: &str, body: serde_json::Value) {
        let url = format!("{}/api/{path}", variable("EVERWATCH_TEST_MANAGEMENT_URL"));
        let request = self.client.put(url).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }

    async fn delete(&self) {
        let users = ["manager", "a", "b"].map(|role| format!("users/{}", self.name_of(role)));
        for path in users.into_iter().chain([format!("vhosts/{}", self.name)]) {
            let url = format!("{}/api/{path}", variable("EVERWATCH_TEST_MANAGEMENT_URL"));
            self.client.delete(url).send().await.unwrap();
        }
    }

    fn url(&self, role: &str) -> String {
        let mut url: AMQPUri = variable("EVERWATCH_TEST_AMQP_URL").parse().unwrap();
        url.authority.userinfo.username = self.name_of(role);
        url.authority.userinfo.password = "secret".to_owned();
        url.vhost.clone_from(&self.name);
        url.to_string()
    }

    async fn session(&self, role: &str) -> Arc<dyn Session> {
        let broker = RabbitBroker::new(&self.url(role), PREFIX, Duration::from_secs(5)).unwrap();
        broker.connect(role).await.unwrap()
    }
}

/// Runs a test in a vhost of its own, and deletes the vhost afterwards.
async fn in_a_vhost(test: impl AsyncFnOnce(&Vhost)) {
    let vhost = Vhost::with_users().await;
    let run = AssertUnwindSafe(test(&vhost)).catch_unwind().await;
    vhost.delete().await;
    if let Err(broken) = run {
        resume_unwind(broken);
    }
}

fn pool(name: &str) -> Pool {
    Pool::new(name).unwrap()
}

fn message() -> Message {
    Message { body: "x".into(), headers: Vec::new() }
}

fn to(queue: String) -> Target {
    Target::Queue(queue)
}

/// What a manager declares when it connects.
async fn manager(vhost: &Vhost, names: &Topology) -> Arc<dyn Session> {
    let manager = vhost.session("manager").await;
    for (queue, kind) in names.durable_queues() {
        manager.declare(&queue, &kind).await.unwrap();
    }
    for exchange in names.exchanges() {
        manager.declare_exchange(&exchange).await.unwrap();
    }
    manager.declare(&names.store(), &QueueKind::Durable { max_length: Some(1) }).await.unwrap();
    for name in ["a", "b"] {
        manager.declare(&names.work(&pool(name)), &KEPT).await.unwrap();
    }
    manager
}

/// A service of a pool: its session and its command queue.
async fn service(vhost: &Vhost, names: &Topology, of: &str) -> (Arc<dyn Session>, String) {
    let session = vhost.session(of).await;
    for (queue, kind) in names.durable_queues() {
        assert_eq!(session.ensure(&queue, &kind).await.unwrap(), Declared::Existed);
    }
    for exchange in names.exchanges() {
        session.declare_exchange(&exchange).await.unwrap();
    }
    let commands = names.commands_of(&pool(of), ServiceId(Uuid::new_v4()));
    session.declare(&commands, &QueueKind::Exclusive).await.unwrap();
    session.bind(&commands, &[names.commands(), names.commands_to(&pool(of))]).await.unwrap();
    session.ensure(&names.work(&pool(of)), &KEPT).await.unwrap();
    (session, commands)
}

#[tokio::test]
async fn managers_and_services_have_the_permissions_that_they_need() {
    in_a_vhost(async |vhost| {
        let names = Topology::new(PREFIX).with_state_queues(2);
        let manager = manager(vhost, &names).await;
        let replies = names.replies(RepliesId(Uuid::new_v4()));
        manager.declare(&replies, &QueueKind::Exclusive).await.unwrap();
        let (service, commands) = service(vhost, &names, "a").await;
        let work = names.work(&pool("a"));
        let all = [names.commands(), names.commands_to(&pool("a")), to(commands.clone()), to(work.clone())];
        for target in all.iter().chain([&to(names.store()), &to(names.state()), &to(names.heartbeats())]) {
            manager.publish(target, message()).await.unwrap_or_else(|error| panic!("{target:?}: {error}"));
        }
        let key = "batch.completed".to_owned();
        manager.publish(&Target::Topic { exchange: names.output(), key }, message()).await.unwrap();
        assert_eq!(service.get(&commands, 9).await.unwrap().len(), 3);
        let consume = Consume { queue: work.clone(), prefetch: 1, priority: 0 };
        let mut consumer = service.consume(&consume).await.unwrap();
        service.requeue(consumer.next().await.unwrap().receipt).await;
        let reports = names.durable_queues().into_iter().map(|(queue, _)| queue).chain([replies.clone()]);
        for queue in reports {
            service.publish(&to(queue.clone()), message()).await.unwrap();
            assert!(!manager.get(&queue, 9).await.unwrap().is_empty(), "{queue}");
        }
        let key = "kind.name".to_owned();
        service.publish(&Target::Topic { exchange: names.output(), key }, message()).await.unwrap();
        service.probe().await.unwrap();
        service.close().await;
        assert_eq!(manager.get(&work, 9).await.unwrap().len(), 1);
        manager.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_services_of_a_pool_reach_no_other_pool() {
    in_a_vhost(async |vhost| {
        let names = Topology::new(PREFIX);
        let manager = manager(vhost, &names).await;
        let (b, commands_of_b) = service(vhost, &names, "b").await;
        let work_of_b = names.work(&pool("b"));
        let work = |queue: &str| Target::Direct { exchange: names.work_exchange(), key: queue.to_owned() };
        let to_managers = Target::Direct { exchange: names.reports_exchange(), key: names.state() };
        for target in
            [to(work_of_b.clone()), work(&work_of_b), names.commands_to(&pool("b")), to(commands_of_b)]
                .into_iter()
                .chain([names.commands(), to(names.work(&pool("a"))), names.commands_to(&pool("a"))])
        {
            let a = vhost.session("a").await;
            refused(&format!("a publish to {target:?}"), a.publish(&target, message()).await);
        }
        let consume = |queue: String| Consume { queue, prefetch: 1, priority: 0 };
        for queue in [work_of_b.clone(), names.state(), names.heartbeats(), names.parked(), names.store()] {
            let (a, what) = (vhost.session("a").await, format!("reading {queue}"));
            refused(&what, a.get(&queue, 1).await.map(drop));
            let a = vhost.session("a").await;
            refused(&what, a.consume(&consume(queue.clone())).await.map(drop));
            refused(&format!("declaring {queue}"), a.declare(&queue, &KEPT).await.map(drop));
        }
        let (a, own) = service(vhost, &names, "a").await;
        for target in
            [work(&names.work(&pool("a"))), work(&work_of_b), to_managers, names.commands_to(&pool("b"))]
        {
            refused(&format!("a binding to {target:?}"), a.bind(&own, std::slice::from_ref(&target)).await);
        }
        let topic = Target::Topic { exchange: names.output(), key: "#".to_owned() };
        refused("a binding to the output", a.bind(&own, &[topic]).await);
        let foreign = names.commands_of(&pool("b"), ServiceId(Uuid::new_v4()));
        refused("a command queue of b", a.declare(&foreign, &QueueKind::Exclusive).await.map(drop));
        default_exchange(vhost, &names.state()).await;
        assert_eq!(manager.get(&work_of_b, 9).await.unwrap().len(), 0, "something was published");
        assert_eq!(manager.get(&names.state(), 9).await.unwrap().len(), 0, "something was published");
        for session in [a, b, manager] {
            session.close().await;
        }
    })
    .await;
}

/// A publish to a queue of the managers through the default exchange.
async fn default_exchange(vhost: &Vhost, queue: &str) {
    let connection = Connection::connect(&vhost.url("a"), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), queue.into(), options, b"x", BasicProperties::default());
    let refusal = sent.await.unwrap().await.unwrap_err().to_string();
    assert!(refusal.contains("ACCESS_REFUSED"), "{refusal}");
}

fn refused(what: &str, done: Result<(), BrokerError>) {
    let refusal = done.expect_err(what).to_string();
    assert!(refusal.contains("ACCESS_REFUSED"), "{what}: {refusal}");
}

#[tokio::test]
async fn a_service_that_may_not_declare_says_what_is_missing() {
    in_a_vhost(async |vhost| {
        let names = Topology::new(PREFIX);
        let session = vhost.session("a").await;
        let refusal = session.ensure(&names.state(), &KEPT).await.unwrap_err();
        assert!(matches!(refusal, BrokerError::Forbidden(_)), "{refusal:?}");
        let text = refusal.to_string();
        assert!(text.contains("configure") && text.contains(&names.state()), "{text}");
        // The same session goes on as soon as a manager has declared the queue.
        let manager = manager(vhost, &names).await;
        assert_eq!(session.ensure(&names.state(), &KEPT).await.unwrap(), Declared::Existed);
        session.publish(&to(names.state()), message()).await.unwrap();
        assert_eq!(manager.get(&names.state(), 9).await.unwrap().len(), 1);
        session.close().await;
        manager.close().await;
    })
    .await;
}
