//! Managers that sign work and commands, services that verify them, and what happens to messages of others.

use everwatch_api::{AuditEntry, Event, Listed, Observer, ParkedMessage};
use everwatch_broker::{Broker, Consume, HeaderValue, Message, RabbitBroker, Session, Target, Topology};
use everwatch_core::clock::now;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, ObserverId, Pool, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_core::wire::command::{Command, Revocation};
use everwatch_core::wire::message::encode;
use everwatch_core::wire::report::{
    HeldMessages, HeldWork, RefusedMessages, Report, Reports, RunEvent, RunReport, SequencedReport,
    StateMessage,
};
use everwatch_core::wire::signature::HEADER;
use everwatch_core::wire::work::Work;
use everwatch_tests::cluster::{As, Cluster, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The files with the keys of a deployment.
struct Keys(PathBuf);

impl Keys {
    fn new(cluster: &Cluster) -> Self {
        let keys = Self(cluster.folder("keys"));
        keys.create("first");
        std::fs::copy(keys.path("first"), keys.path("sign")).unwrap();
        std::fs::copy(keys.path("first.pub"), keys.path("verify")).unwrap();
        keys
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn create(&self, name: &str) {
        let (key, public) = (self.path(name), self.path(&format!("{name}.pub")));
        let openssl = |arguments: &[&str]| {
            let done = Process::new("openssl").args(arguments).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        openssl(&["genpkey", "-algorithm", "ed25519", "-out", key.to_str().unwrap()]);
        openssl(&["pkey", "-in", key.to_str().unwrap(), "-pubout", "-out", public.to_str().unwrap()]);
    }
    fn signing(&self) -> (String, String) {
        ("EVERWATCH_BROKER__SIGN_KEY_FILE".to_owned(), self.path("sign").display().to_string())
    }
    fn verifying(&self) -> (String, String) {
        ("EVERWATCH_BROKER__VERIFY_KEYS_FILE".to_owned(), self.path("verify").display().to_string())
    }
}

/// Somebody with all permissions of the broker, but without the key.
struct Stranger {
    session: Arc<dyn Session>,
    topology: Topology,
}

impl Stranger {
    async fn new(cluster: &Cluster) -> Self {
        let url = from_environment("EVERWATCH_TEST_AMQP_URL");
        let broker = RabbitBroker::new(&url, &cluster.prefix, Duration::from_secs(5)).unwrap();
        let session = broker.connect("a stranger").await.unwrap();
        Self { session, topology: Topology::new(&cluster.prefix) }
    }
    async fn publish(&self, target: &Target, body: &[u8], signature: Option<&str>) {
        let headers = signature.map(|it| (HEADER.to_owned(), HeaderValue::Text(it.to_owned())));
        let message = Message { body: body.to_vec().into(), headers: headers.into_iter().collect() };
        self.session.publish(target, message).await.unwrap();
    }
    fn work(&self) -> Target {
        Target::Queue(self.topology.work(&Pool::default()))
    }
    /// Gets the next message of the work queue before any service, while `publish` is carried out, and then gives it back.
    async fn intercept(&self, publish: impl Future<Output = ()>) -> (Vec<u8>, String) {
        let consume = Consume { queue: self.topology.work(&Pool::default()), prefetch: 1, priority: 100 };
        let mut consumer = self.session.consume(&consume).await.unwrap();
        publish.await;
        let delivery = consumer.next().await.unwrap();
        consumer.cancel().await.unwrap();
        let signature = delivery.text(HEADER).unwrap().to_owned();
        self.session.requeue(delivery.receipt).await;
        (delivery.body.to_vec(), signature)
    }
}

async fn cluster(name: &str) -> (Cluster, Keys) {
    let mut cluster = Cluster::new(name);
    let keys = Keys::new(&cluster);
    cluster.extra.extend([keys.signing(), keys.verifying()]);
    cluster.manager().await;
    (cluster, keys)
}

fn sleeper(name: &str) -> Value {
    json!({"name": name, "kind": "exec", "spec": {"argv": ["sleep", "600"]}})
}

async fn audited(cluster: &Cluster, queue: &str, reason: &str) {
    let entry = format!("{queue}?refused={reason}&");
    let told = |list: &Listed<AuditEntry>| {
        list.items.iter().any(|it| it.method == "MESSAGE" && it.path.contains(&entry))
    };
    cluster.api.until_read("/v1/audit", told).await;
}

#[tokio::test]
async fn forged_altered_and_misdirected_messages_are_refused_counted_and_audited() {
    let (mut cluster, _keys) = cluster("signed").await;
    let stranger = Stranger::new(&cluster).await;
    cluster.service("a", 10).await;
    let create = async { drop(cluster.api.create(sleeper("real")).await) };
    let (body, signature) = stranger.intercept(create).await;
    let real = cluster.api.until_status("real", "Processing").await;

    let text = String::from_utf8(body.clone()).unwrap();
    let altered = text.replace("600", "601");
    assert_ne!(altered, text);
    let later = text.replace(r#""generation":1"#, r#""generation":9"#);
    assert_ne!(later, text);
    stranger.publish(&stranger.work(), body.as_slice(), None).await;
    stranger.publish(&stranger.work(), body.as_slice(), Some("nonsense")).await;
    stranger.publish(&stranger.work(), altered.as_bytes(), Some(&signature)).await;
    stranger.publish(&stranger.work(), later.as_bytes(), Some(&signature)).await;
    let all = stranger.topology.commands_to(&Pool::default());
    let below = Epoch::after_generation(1);
    let revocation = Revocation { id: ObserverId(real.id), below, cause: None };
    let command = encode(&Command::Revoke(vec![revocation])).unwrap();
    stranger.publish(&all, &command, None).await;
    stranger.publish(&all, &command, Some("nonsense")).await;
    let service = ServiceId(cluster.api.service("a").await.id);
    let commands = stranger.topology.commands_of(&Pool::default(), service);
    for (queue, reason) in [
        ("work.default", "unsigned"),
        ("work.default", "malformed"),
        ("work.default", "altered"),
        (&*commands, "unsigned"),
        (&*commands, "malformed"),
    ] {
        audited(&cluster, queue, reason).await;
    }
    let parked = |list: &Listed<ParkedMessage>| list.items.len() == 4;
    let list: Listed<ParkedMessage> = cluster.api.until_read("/v1/parked", parked).await;
    assert!(list.items.iter().all(|it| it.reason.starts_with("not from a manager: ")), "{:?}", list.items);
    let id = list.items[0].id;
    let problem = cluster.api.refused("POST", &format!("/v1/parked/{id}/retry"), None).await;
    assert_eq!((problem.status, problem.code.as_str()), (409, "not-from-a-manager"), "{problem:?}");
    let refused = |events: &[Event]| events.iter().any(|it| it.kind == EventKind::MessagesRefused);
    cluster.api.until_events("/v1/events", refused).await;
    let metrics = metrics(&cluster, "a").await;
    for (message, reason, count) in [
        ("work", "altered", 2),
        ("work", "unsigned", 1),
        ("command", "unsigned", 1),
        ("command", "malformed", 1),
    ] {
        let line = format!(
            r#"everwatch_service_refused_messages_total{{message="{message}",reason="{reason}"}} {count}"#
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    // None of them touched the observer.
    let now = cluster.api.observer("real").await;
    assert_eq!((now.status, now.epoch, now.generation), (Status::Processing, real.epoch, 1));
    // Genuine commands pass: a pause reaches the service.
    let (status, answer) = cluster.api.call("POST", "/v1/observers/real/pause", None).await;
    assert!(status < 300, "{answer}");
    cluster.api.until_status("real", "Paused").await;
}

#[tokio::test]
async fn genuine_work_is_refused_in_the_queue_of_another_pool() {
    let (mut cluster, _keys) = cluster("detour").await;
    let stranger = Stranger::new(&cluster).await;
    cluster.service("a", 10).await;
    let environment = [("EVERWATCH_SERVICE__POOL", "gpu")];
    let url = cluster.broker_url.clone();
    assert_eq!(cluster.command(&["pool", "create", "gpu"]).0, Some(0));
    cluster.spawn_service_as("b", 10, As { broker_url: &url, environment: &environment, ..As::default() });
    cluster.until_active("b").await;
    let gpu = stranger.topology.work(&Pool::new("gpu").unwrap());
    let key = stranger.topology.work(&Pool::default());
    let detour = Target::Direct { exchange: stranger.topology.work_exchange(), key };
    stranger.session.bind(&gpu, &[detour]).await.unwrap();
    cluster.api.create(sleeper("one")).await;
    audited(&cluster, "work.gpu", "altered").await;
    let one = cluster.api.until_status("one", "Processing").await;
    assert_eq!((holder(&one), one.generation), (Some("a"), 1));
}

#[tokio::test]
async fn a_stranger_who_describes_an_observer_gets_no_signature_for_it() {
    let (mut cluster, _keys) = cluster("described").await;
    let stranger = Stranger::new(&cluster).await;
    cluster.service("a", 10).await;
    let (id, service) = (ObserverId(Uuid::now_v7()), ServiceId(Uuid::now_v7()));
    let definition = ObserverDefinition::parse(sleeper("forged"), &Name::new("forged").unwrap()).unwrap();
    let work = serde_json::to_string(&Work::of(id, 1, &definition).unwrap()).unwrap();
    let event = RunEvent::Started { attempt: 1, started_at: now() };
    let run = RunReport { id, epoch: Epoch::new(1, 0), event };
    let held = HeldMessages { pool: Pool::default(), held: vec![HeldWork { run, work }] };
    let last = RefusedMessages {
        queue: "the end".to_owned(),
        reason: "unsigned".to_owned(),
        count: 1,
        detail: String::new(),
        observer: None,
    };
    let reports = [Report::HeldMessages(held), Report::MessagesRefused(last)];
    for (seq, report) in (1..).zip(reports) {
        let entries = vec![SequencedReport::new(seq, now(), report)];
        let message = StateMessage::Reports(Reports { service, entries });
        stranger.publish(&Target::Queue(stranger.topology.state()), &encode(&message).unwrap(), None).await;
    }
    audited(&cluster, "the end", "unsigned").await;
    assert_eq!(cluster.api.observers().await.len(), 0);
}

async fn metrics(cluster: &Cluster, service: &str) -> String {
    let address = cluster.health_address(service);
    reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_copied_work_message_runs_its_observer_once() {
    let (mut cluster, _keys) = cluster("copied").await;
    let stranger = Stranger::new(&cluster).await;
    cluster.service("a", 1).await;
    let create = async { drop(cluster.api.create(sleeper("copied")).await) };
    let (body, signature) = stranger.intercept(create).await;
    let first = cluster.api.until_status("copied", "Processing").await;
    cluster.service("b", 1).await;
    // An older copy: the manager ends its run.
    stranger.publish(&stranger.work(), &body, Some(&signature)).await;
    wait_for("the copy to be started", || async {
        let metrics = metrics(&cluster, "b").await;
        let starts = metrics.lines().find_map(|line| line.strip_prefix("everwatch_service_starts_total "));
        if starts == Some("1") { Ok(()) } else { Err(format!("{starts:?}")) }
    })
    .await;
    cluster.api.until_service("b", |it| it.held == 0).await;
    assert_eq!(cluster.api.observer("copied").await.epoch, first.epoch);
    // One that was delivered as often as the original.
    let work = stranger.work();
    let copy = stranger.publish(&work, &body, Some(&signature));
    stranger.intercept(copy).await;
    // Its run and that of the copy end, and the next generation runs.
    let follows = |it: &Observer| it.status == Status::Processing && it.generation == 2;
    let after = cluster.api.until_observer("copied", follows).await;
    let duplicated = |events: &[Event]| events.iter().any(|it| it.kind == EventKind::Duplicated);
    cluster.api.until_events_of("copied", duplicated).await;
    let service = holder(&after).unwrap().to_owned();
    let other = if service == "a" { "b" } else { "a" };
    cluster.api.until_service(other, |it| it.held == 0).await;
    cluster.api.until_service(&service, |it| it.held == 1).await;
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    let (mut cluster, keys) = cluster("rotated").await;
    cluster.service("a", 10).await;
    cluster.api.create(sleeper("old")).await;
    cluster.api.until_status("old", "Processing").await;

    // First the services, which then accept both keys.
    keys.create("second");
    let public = |name: &str| std::fs::read_to_string(keys.path(&format!("{name}.pub"))).unwrap();
    std::fs::write(keys.path("verify"), format!("{}{}", public("first"), public("second"))).unwrap();
    std::fs::copy(keys.path("second"), keys.path("sign")).unwrap();
    let started = std::time::Instant::now();
    // Managers read their key every 5 s: observers that are created meanwhile run, whichever key signs them.
    let mut number = 0;
    while started.elapsed() < Duration::from_secs(12) {
        let name = format!("o{number}");
        cluster.api.create(sleeper(&name)).await;
        cluster.api.until_status(&name, "Processing").await;
        let (status, answer) =
            cluster.api.call("DELETE", &format!("/v1/observers/{name}?wait=20s"), None).await;
        assert!(status < 300, "{answer}");
        number += 1;
    }
    assert!(number > 2, "{number}");
    // The first key goes too early: a service that starts now returns the message of the first observer to the queue, and
    // runs it when the key is back.
    let both = std::fs::read_to_string(keys.path("verify")).unwrap();
    std::fs::write(keys.path("verify"), public("second")).unwrap();
    cluster.service("b", 10).await;
    cluster.kill("a");
    audited(&cluster, "work.default", "unknown-key").await;
    std::fs::write(keys.path("verify"), both).unwrap();
    let on = |service, generation| {
        move |it: &Observer| {
            let runs = it.status == Status::Processing && holder(it) == Some(service);
            runs && it.generation == generation
        }
    };
    cluster.api.until_observer("old", on("b", 1)).await;
    // Its next message is signed with the second key: now the first one can go.
    let (status, answer) = cluster.api.call("POST", "/v1/observers/old/restart", None).await;
    assert!(status < 300, "{answer}");
    cluster.api.until_observer("old", on("b", 2)).await;
    std::fs::write(keys.path("verify"), public("second")).unwrap();
    cluster.service("c", 10).await;
    cluster.kill("b");
    cluster.api.until_observer("old", on("c", 2)).await;
    let parked: Vec<ParkedMessage> = cluster.api.parked().await;
    assert!(parked.is_empty(), "nothing genuine is parked: {parked:?}");
}

#[test]
fn a_process_refuses_to_start_with_an_unusable_key_and_says_how_to_make_one() {
    let mut cluster = Cluster::new("nokey");
    let keys = Keys::new(&cluster);
    std::fs::write(keys.path("sign"), "nothing").unwrap();
    cluster.extra.push(keys.signing());
    let (code, printed) = cluster.command(&["run", "manager"]);
    assert_ne!(code, Some(0));
    for word in ["broker.sign_key_file", "no private key", "openssl genpkey -algorithm ed25519"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    std::fs::copy(keys.path("first"), keys.path("verify")).unwrap();
    cluster.extra.push(keys.verifying());
    let (code, printed) = cluster.command(&["run", "service"]);
    assert_ne!(code, Some(0));
    assert!(printed.contains("broker.verify_keys_file") && printed.contains("private key"), "{printed}");
}
