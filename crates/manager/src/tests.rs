//! A whole manager on an in-process broker and a SQLite file, with a service played by hand.

mod access;
mod answer;
mod anything;
mod api;
mod batches;
mod bulk;
mod contract;
mod document;
mod editing;
mod events;
mod headers;
mod health;
mod idempotency;
mod oidc;
mod operations;
mod rates;
mod rollouts;
mod timeline;
mod tls;

use self::answer::Answer;
use self::contract::Contract;
use crate::context::{Inboxes, Manager};
use crate::loops::{
    accounts, admission, audit, confirms, create_batcher, event_feed, event_writer, identity_provider, link,
    reconcile, revoker, save_batcher,
};
use crate::{RunError, Settings, http};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode, header};
use everwatch_api::{Desired, Listed, Observer, Service as ServiceView};
use everwatch_broker::{
    Broker, Consume, Consumer, Delivery, HeaderValue, MemoryBroker, Message, QueueKind, Session, Target,
};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Kind, Name, Pool, ServiceId};
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Intent};
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::report::{
    KindInfo, Registration, Report, Reports, RunEvent, RunReport, SequencedReport, StateMessage,
};
use everwatch_core::wire::work::{DecodedWork, Work};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(20);

struct Stage {
    app: Router,
    manager: Arc<Manager>,
    broker: Arc<MemoryBroker>,
    _loops: JoinSet<Result<(), RunError>>,
    _dir: TempDir,
    token: Option<&'static str>,
}

impl Stage {
    async fn new() -> Self {
        Self::configured(Settings::default()).await
    }
    async fn configured(settings: Settings) -> Self {
        Self::prepared(settings, None).await
    }
    /// With the token of requests that bring none of their own.
    async fn prepared(settings: Settings, token: Option<&'static str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", dir.path().join("test.db").display());
        let store = everwatch_store::open(&url, settings.row.clone()).await.unwrap();
        let broker = Arc::new(MemoryBroker::new());
        let (manager, Inboxes { creates, saves, published, events, revocations, audit: notes }) =
            Manager::new(settings, store, Arc::new((*broker).clone()), CancellationToken::new());
        manager.check_store().await.unwrap();
        let mut loops = JoinSet::new();
        manager.accounts.refresh(manager.records.store.as_ref()).await.unwrap();
        loops.spawn(accounts::run(Arc::clone(&manager)));
        loops.spawn(audit::run(Arc::clone(&manager), notes));
        loops.spawn(link::run(Arc::clone(&manager)));
        loops.spawn(create_batcher::run(Arc::clone(&manager), creates));
        loops.spawn(save_batcher::run(Arc::clone(&manager), saves));
        loops.spawn(admission::run(Arc::clone(&manager)));
        loops.spawn(revoker::run(Arc::clone(&manager), revocations));
        loops.spawn(confirms::run(Arc::clone(&manager), published));
        loops.spawn(event_writer::run(Arc::clone(&manager), events));
        loops.spawn(event_feed::run(Arc::clone(&manager)));
        loops.spawn(reconcile::run(Arc::clone(&manager)));
        loops.spawn(crate::loops::rollouts::run(Arc::clone(&manager)));
        if let Some(provider) = manager.accounts.provider().cloned() {
            loops.spawn(identity_provider::run(provider, manager.stop.clone()));
        }
        http::metrics::install(&manager);
        let app = http::app(Arc::clone(&manager), Router::new());
        let stage = Self { app, manager, broker, _loops: loops, _dir: dir, token };
        stage.until("/readyz", |answer| answer.status == StatusCode::OK).await;
        stage
    }

    async fn send(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |text| Body::from(text.to_owned()));
        self.ask(request.body(body).unwrap()).await
    }
    async fn ask(&self, request: Request<Body>) -> Answer {
        let (mut head, body) = request.into_parts();
        let is_signed =
            [header::AUTHORIZATION, header::COOKIE].iter().any(|it| head.headers.contains_key(it));
        if let Some(token) = self.token.filter(|_| !is_signed) {
            head.headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let asked = to_bytes(body, usize::MAX).await.unwrap();
        let request = Request::from_parts(head.clone(), Body::from(asked.clone()));
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        if head.uri != "/openapi.json" {
            self.judge(&head, &asked, &answer).await;
        }
        answer
    }

    /// Whatever a test asks and gets, the document knows it.
    async fn judge(&self, head: &Parts, asked: &[u8], answer: &Answer) {
        static CONTRACT: OnceCell<Contract> = OnceCell::const_new();
        let load = async || Contract::new(Box::pin(self.get("/openapi.json")).await.body);
        let contract = CONTRACT.get_or_init(load).await;
        let (method, uri) = (head.method.as_str(), head.uri.to_string());
        let media_type = |headers: &HeaderMap| {
            let text = headers.get(header::CONTENT_TYPE).map_or("", |it| it.to_str().unwrap());
            text.split(';').next().unwrap().to_owned()
        };
        if contract.operation(method, &uri).is_none() {
            return;
        }
        let told = format!("{method} {uri}: {answer:?}");
        // A batch is taken with wishes that are not.
        let mut items = answer.body["items"].as_array().into_iter().flatten();
        if answer.status.is_success() && items.all(|it| it.get("problem").is_none()) {
            let body: Option<Value> = serde_json::from_slice(asked).ok();
            let body = body.as_ref().map(|body| (media_type(&head.headers), body));
            let body = body.as_ref().map(|(media_type, body)| (media_type.as_str(), *body));
            contract.check_request(method, &uri, body).unwrap_or_else(|error| panic!("{error}: {told}"));
        }
        let told_as = media_type(&answer.headers);
        if told_as.ends_with("json") {
            let (status, body) = (answer.status.as_u16(), &answer.body);
            let judged = contract.check_answer((method, &uri), (status, &told_as), body);
            judged.unwrap_or_else(|error| panic!("{error}: {told}"));
        }
    }
    async fn create(&self, body: Value) -> Answer {
        self.send("POST", "/v1/observers", Some(&body.to_string())).await
    }
    async fn service(&self, capacity: u32) -> Service {
        self.named_service("s1", capacity).await
    }

    async fn named_service(&self, name: &str, capacity: u32) -> Service {
        self.service_with(name, capacity, &Value::Null).await
    }

    async fn service_with(&self, name: &str, capacity: u32, schema: &Value) -> Service {
        let topology = &self.manager.link.topology;
        let id = ServiceId(Uuid::new_v4());
        let session = self.broker.connect("service").await.unwrap();
        let queue = topology.commands_of(&Pool::default(), id);
        session.declare(&queue, &QueueKind::Exclusive).await.unwrap();
        session.bind(&queue, &[topology.commands(), topology.commands_to(&Pool::default())]).await.unwrap();
        let consume = |queue: String| Consume { queue, prefetch: 10, priority: 0 };
        let commands = session.consume(&consume(queue)).await.unwrap();
        let work = session.consume(&consume(topology.work(&Pool::default()))).await.unwrap();
        let mut service = Service { id, session, commands, work, seq: 0, state: topology.state() };
        let registration = Registration {
            name: Name::new(name).unwrap(),
            pool: Pool::default(),
            capacity,
            kinds: vec![KindInfo { name: Kind::new("ticker").unwrap(), schema: Arc::new(schema.clone()) }],
            version: "1".to_owned(),
            weight_max: 1,
            message_version: everwatch_core::wire::message::VERSION,
            host: "h".to_owned(),
            labels: Default::default(),
            pool_single: false,
            predecessor: None,
        };
        service.report(Report::ServiceRegistered(Box::new(registration))).await;
        self.until(&format!("/v1/services/{id}"), |answer| answer.status == StatusCode::OK).await;
        service
    }
}

struct Service {
    id: ServiceId,
    session: Arc<dyn Session>,
    commands: Box<dyn Consumer>,
    work: Box<dyn Consumer>,
    seq: u64,
    state: String,
}

impl Service {
    async fn report(&mut self, report: Report) {
        self.seq += 1;
        let entries = vec![SequencedReport::new(self.seq, clock::now(), report)];
        let body = encode(&StateMessage::Reports(Reports { service: self.id, entries })).unwrap();
        let message = Message { body: body.into(), headers: Vec::new() };
        self.session.publish(&Target::Queue(self.state.clone()), message).await.unwrap();
    }
    async fn take(&mut self) -> (Delivery, Work, Epoch) {
        let delivery = tokio::time::timeout(SOON, self.work.next()).await.unwrap().unwrap();
        let DecodedWork::Ours(work) = Work::read(&delivery.body).unwrap() else { panic!("not ours") };
        let epoch = Epoch::new(work.generation, delivery.acquisitions);
        (delivery, *work, epoch)
    }
    async fn run_event(&mut self, work: &Work, epoch: Epoch, event: RunEvent) {
        self.report(Report::Run(RunReport { id: work.id, epoch, event })).await;
    }
    async fn heartbeat(&self, stage: &Stage, seq: u64, sign: (Intent, u32, u32)) {
        self.heartbeat_to(stage.manager.link.topology.heartbeats(), seq, sign).await;
    }
    async fn heartbeat_to(&self, queue: String, seq: u64, (state, capacity, held): (Intent, u32, u32)) {
        let heartbeat = Heartbeat {
            service: self.id,
            seq,
            state,
            capacity,
            held,
            loop_lag_ms: 0,
            rss_bytes: 0,
            sent_at: Some(clock::now()),
            stalled: Vec::new(),
        };
        let body = encode(&HeartbeatMessage::Heartbeat(heartbeat)).unwrap();
        let message = Message { body: body.into(), headers: Vec::new() };
        self.session.publish(&Target::Queue(queue), message).await.unwrap();
    }
    /// Waits for a revocation over this epoch.
    async fn revocation_over(&mut self, work: &Work, epoch: Epoch) {
        let listening = async {
            loop {
                let delivery = self.commands.next().await.unwrap();
                self.session.ack(delivery.receipt).await;
                if let Command::Revoke(revocations) = decode(&delivery.body).unwrap()
                    && revocations
                        .iter()
                        .any(|revocation| revocation.id == work.id && revocation.below > epoch)
                {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, listening).await.expect("a revocation comes");
    }
}

fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: Timestamp(1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_created_runs_is_deleted_and_stays_deleted() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    let created = stage.create(json!({"kind": "ticker", "name": "a"})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let place = created.headers[header::LOCATION].to_str().unwrap().to_owned();

    let (delivery, work, epoch) = service.take().await;
    assert_eq!((work.name.as_str(), epoch), ("a", Epoch::new(1, 0)));
    service.run_event(&work, epoch, started()).await;
    let running: Observer = stage.read("/v1/observers/a?wait_for=status%3DProcessing&wait=20s").await;
    assert_eq!(running.status, Status::Processing);
    assert_eq!(running.service.unwrap().name, "s1");

    let delete = async || stage.send("DELETE", "/v1/observers/a?only_if=Processing", None).await;
    assert_eq!(delete().await.read::<Observer>(202).status, Status::OnDeleting);
    delete().await.refused(409, "observer-not-active");
    let taken = stage.create(json!({"kind": "ticker", "name": "a"})).await;
    taken.refused(503, "name-ending");
    assert!(taken.headers.contains_key(header::RETRY_AFTER));

    service.revocation_over(&work, epoch).await;
    service.run_event(&work, epoch, RunEvent::Stopped).await;
    service.session.ack(delivery.receipt).await;
    let deleted = stage.send("DELETE", &format!("{place}?wait=20s"), None).await;
    assert_eq!(deleted.read::<Observer>(200).status, Status::Deleted);

    // Whoever says that it runs hears that it may not.
    service.run_event(&work, Epoch::new(1, 1), started()).await;
    service.revocation_over(&work, Epoch::new(1, 1)).await;
    assert_eq!(stage.total("/v1/observers").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_observer_comes_back_as_the_next_generation() {
    let stage = Stage::new().await;
    let mut service = stage.service(1).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let (delivery, work, epoch) = service.take().await;
    let failed = RunEvent::Failed { error: "no".to_owned(), attempts: 3 };
    service.run_event(&work, epoch, failed).await;
    service.session.ack(delivery.receipt).await;
    let it = stage.until_observer("a", |it| it.status == Status::Failed).await;
    assert_eq!((it.desired, it.last_error.as_deref()), (Desired::Ended, Some("no")));
    let retried = stage.send("POST", "/v1/observers/a/retry", None).await;
    assert_eq!(retried.status, StatusCode::ACCEPTED);
    assert_eq!(service.take().await.2, Epoch::new(2, 0));
    stage.send("POST", "/v1/observers/a/retry", None).await.refused(409, "observer-not-failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_session_ends_is_lost_once_a_younger_one_has_its_name() {
    let stage = Stage::new().await;
    let older = stage.service(1).await;
    older.session.close().await;
    let younger = stage.service(1).await;
    let path = |service: &Service| format!("/v1/services/{}", service.id);
    let lost = stage.until_read(&path(&older), |it: &ServiceView| it.state == ServiceState::Lost).await;
    assert!(lost.is_deleted);
    assert_eq!(stage.read::<ServiceView>(&path(&younger)).await.state, ServiceState::Active);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_report_is_parked_and_shown() {
    let stage = Stage::new().await;
    let session = stage.broker.connect("stranger").await.unwrap();
    let message = Message { body: "?!".into(), headers: Vec::new() };
    session.publish(&Target::Queue(stage.manager.link.topology.state()), message).await.unwrap();
    stage.until_parked("?!").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_is_a_limit_unless_the_observer_waits() {
    let stage = Stage::new().await;
    let _service = stage.service(1).await;
    assert_eq!(stage.create(json!({"kind": "ticker", "name": "a"})).await.status, StatusCode::CREATED);
    stage.create(json!({"kind": "ticker", "name": "a"})).await.refused(409, "name-exists");
    stage.create(json!({"kind": "ticker", "name": "b"})).await.refused(503, "no-capacity");
    let waits = stage.create(json!({"kind": "ticker", "name": "b", "on_full": "queue"})).await;
    assert_eq!(waits.status, StatusCode::CREATED);
    let first: Listed<Observer> = stage.read("/v1/observers?limit=1").await;
    assert_eq!((first.items[0].name.as_str(), first.total), ("a", 2));
    let next = format!("/v1/observers?limit=1&cursor={}", first.next_cursor.unwrap());
    let second: Listed<Observer> = stage.read(&next).await;
    assert_eq!((second.items[0].name.as_str(), second.next_cursor), ("b", None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_waits_for_the_state_after_the_one_that_it_knows() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    let known =
        stage.create(json!({"kind": "ticker", "name": "a", "on_full": "queue"})).await.read::<Observer>(201);
    let next = async |query: String| -> Observer {
        stage.read(&format!("/v1/observers/a?wait_for=change{query}")).await
    };
    let after = |known: &Observer, wait: &str| format!("&modified_at={}&wait={wait}", known.modified_at);
    let (_delivery, work, epoch) = service.take().await;
    service.run_event(&work, epoch, started()).await;
    let last = stage.until_observer("a", |it| it.status == Status::Processing).await;
    assert_eq!(next(after(&last, "10ms")).await.modified_at, last.modified_at, "nothing has changed");
    let label = stage.send("PATCH", "/v1/observers/a", Some(r#"{"labels": {"x": "1"}}"#));
    let (changed, patched) = tokio::join!(next(after(&last, "20s")), label);
    assert_eq!(patched.status, StatusCode::OK, "{}", patched.body);
    assert_eq!(changed.labels["x"], "1");
    // It was modified before the request.
    assert_eq!(next(after(&known, "20s")).await.labels["x"], "1");
}
