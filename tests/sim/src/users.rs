//! The simulated users. They send requests to a manager through its HTTP router, repeat them if no answer
//! comes, and remember what the managers have confirmed to them.

use crate::actors;
use crate::code::Code;
use crate::database::trace_of;
use crate::history::{Ask, ObserverSetup, Order, Setup, WindowSetup};
use crate::machine::EPOCH_MS;
use crate::promises::{Answered, PromisedOrders};
use crate::record::number;
use crate::world::World;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use everwatch_core::clock::Timestamp;
use everwatch_core::observer::schedule::IfRunning;
use everwatch_core::record::row::{Desired, Row};
use everwatch_store::Backup;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tower::ServiceExt as _;

/// How long a user waits for an answer before asking another manager, in ms.
const PATIENCE: u64 = 5000;
/// The pause after a response that asks for a retry, in ms.
const RETRY: u64 = 1000;
/// The longest answer, in bytes.
const BODY_MAX: usize = 1 << 24;

/// What users have requested for one observer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Intent {
    /// Whether a create was sent, answered or not.
    pub(crate) asked_create: bool,
    pub(crate) asked_delete: bool,
    /// Whether a manager has confirmed the create.
    pub(crate) created: bool,
    pub(crate) deleted: bool,
    /// The generation at the last confirmed restart: a later generation must follow. 0 if there was none.
    pub(crate) restarted_after: u32,
    /// The newest edition that was sent. `edition`: the edition of the last commit.
    pub(crate) sent_edition: u32,
    pub(crate) edition: u32,
    /// Whether the observer is paused according to the last commit.
    pub(crate) paused: bool,
    /// Requests without an answer.
    pub(crate) open: u32,
}

/// The subject of a request.
#[derive(Debug, Clone)]
enum Subject {
    Observer(usize, Ask),
    Batch(Vec<usize>),
    Operator(Order),
}

#[derive(Debug, Clone)]
struct Request {
    subject: Subject,
    method: &'static str,
    path: String,
    body: Option<Value>,
    /// The manager that currently executes the request.
    at: Option<usize>,
    attempts: u32,
}

#[derive(Default)]
pub(crate) struct Users {
    pub(crate) intents: Vec<Intent>,
    pub(crate) backup: Option<(Backup, Vec<Intent>)>,
    pub(crate) orders: Vec<PromisedOrders>,
    requests: BTreeMap<u64, Request>,
    /// What each request asks for. Kept after the answer, because a manager may execute the second copy of a
    /// repeated request later.
    asked: BTreeMap<u64, Ask>,
    batch: Vec<usize>,
    ended_safe_mode: bool,
    pub(crate) answers: BTreeMap<(&'static str, u16), u64>,
}

thread_local! {
    static ANSWERS: RefCell<Vec<(u64, u16, Value)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn observer_name(observer: usize) -> String {
    format!("observer-{}", observer + 1)
}

/// Observers have this many priorities.
const PRIORITIES: usize = 3;

/// Histories begin at 22:13:20, and end before the next evening.
fn windows(setup: WindowSetup) -> Value {
    let open = match setup {
        WindowSetup::Interrupted => {
            json!([{"from": "22:10", "to": "22:14"}, {"from": "22:15", "to": "22:00"}])
        }
        WindowSetup::Late => json!([{"from": "22:14", "to": "22:00"}]),
    };
    json!({"time_zone": "UTC", "open": open})
}

/// Every 5 s in the first 40 s of a history, and then not until the next evening.
fn schedule(if_running: IfRunning) -> Value {
    json!({"cron": "*/5 13 22 * * *", "if_running": if_running, "jitter": "4s"})
}

fn definition(observer: usize, setup: &ObserverSetup, edition: u32) -> Value {
    let code = Code { edition, ..setup.code };
    let priority = observer % PRIORITIES;
    let moment = |ms: Option<i64>| ms.map(|ms| Timestamp(EPOCH_MS + ms));
    json!({
        "windows": setup.windows.map(windows), "schedule": setup.schedule.map(schedule),
        "start_at": moment(setup.start_ms), "finish_at": moment(setup.finish_ms),
        "name": observer_name(observer), "kind": if setup.is_rare { "rare" } else { "common" },
        "pool": setup.pool, "spec": code, "overlap": setup.overlap, "grace": "3s", "on_full": "queue",
        "priority": priority, "limits": setup.limits, "weight": setup.weight,
        "retry": {"kind": "fixed", "every": "1s", "attempts": setup.attempts},
        "desired": if setup.paused { "paused" } else { "running" },
    })
}

/// Which edition of its spec a row wants.
pub(crate) fn edition(row: &Row) -> u32 {
    Code::of(&row.definition.spec.to_string()).edition
}

impl Users {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            intents: vec![Intent::default(); setup.observers.len()],
            orders: vec![PromisedOrders::default(); setup.services.len()],
            ..Self::default()
        }
    }

    /// Records what a request has changed when it is committed.
    pub(crate) fn on_saved(&mut self, request: Option<u64>, before: Option<&Row>, row: &Row) {
        let name = row.definition.name.as_str();
        let number = name.strip_prefix("observer-").and_then(|it| it.parse::<usize>().ok());
        let Some(observer) = number.and_then(|it| it.checked_sub(1)) else { return };
        let Some(before) = before else {
            let intent = &mut self.intents[observer];
            (intent.deleted, intent.restarted_after) = (false, 0);
            (intent.paused, intent.edition) = (row.desired == Desired::Paused, edition(row));
            return;
        };
        let Some(ask) = request.and_then(|number| self.asked.get(&number)) else { return };
        let intent = &mut self.intents[observer];
        if row.desired != before.desired && row.desired != Desired::Deleted {
            intent.paused = row.desired == Desired::Paused;
        }
        if matches!(ask, Ask::Restart) {
            intent.restarted_after = before.generation;
        }
        intent.edition = edition(row);
    }

    /// Makes the requests of a dead manager wait for the next attempt.
    pub(crate) fn manager_died(&mut self, host: usize) {
        actors::forget_app(host);
        for request in self.requests.values_mut().filter(|it| it.at == Some(host)) {
            request.at = None;
        }
    }

    /// Resets the expectations of users to the time of the backup that was restored.
    pub(crate) fn on_restored(&mut self) {
        for orders in &mut self.orders {
            orders.forget();
        }
        if let Some((_, intents)) = &self.backup {
            let open: Vec<u32> = self.intents.iter().map(|it| it.open).collect();
            self.intents.clone_from(intents);
            for (intent, open) in self.intents.iter_mut().zip(open) {
                intent.open = open;
            }
        }
    }

    pub(crate) fn has_open_requests(&self) -> bool {
        !self.requests.is_empty()
    }
}

impl World {
    pub(crate) fn user_asks(&mut self, observer: usize, ask: Ask) {
        let intent = &mut self.users.intents[observer];
        match ask {
            Ask::CreateInBatch => {
                intent.asked_create = true;
                if self.users.batch.is_empty() {
                    self.later(1, Self::send_batch);
                }
                return self.users.batch.push(observer);
            }
            Ask::Create => intent.asked_create = true,
            // Users change an observer only after its create was confirmed.
            _ if !intent.created => {
                if intent.asked_create {
                    self.later(500, move |world| world.user_asks(observer, ask));
                }
                return;
            }
            Ask::Delete => intent.asked_delete = true,
            _ => {}
        }
        self.tell(|_| format!("a user asks: {ask:?} {}", observer_name(observer)));
        let intent = &mut self.users.intents[observer];
        intent.open += 1;
        let setup = &self.setup.observers[observer];
        let path = format!("/v1/observers/{}", observer_name(observer));
        let (method, path, body) = match ask {
            Ask::Create => ("POST", "/v1/observers".to_owned(), Some(definition(observer, setup, 0))),
            Ask::Update | Ask::Put { .. } => {
                intent.sent_edition += 1;
                let mut body = definition(observer, setup, intent.sent_edition);
                match ask {
                    Ask::Put { paused } => {
                        body["desired"] = json!(if paused { "paused" } else { "running" });
                    }
                    _ => drop(body.as_object_mut().and_then(|body| body.remove("desired"))),
                }
                ("PUT", path, Some(body))
            }
            Ask::Delete => ("DELETE", path, None),
            Ask::Retry => ("POST", path + "/retry", None),
            Ask::Pause => ("POST", path + "/pause", None),
            Ask::Resume => ("POST", path + "/resume", None),
            Ask::Restart => ("POST", path + "/restart", None),
            // Also where it may come back.
            Ask::Move => ("POST", path + "/move", Some(json!({"force": true}))),
            Ask::CreateInBatch => unreachable!("sent with its batch"),
        };
        self.request((method, path, body), Subject::Observer(observer, ask));
    }

    fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.users.batch);
        self.tell(|_| format!("a user creates {} in one batch", batch.len()));
        let create = |observer: &usize| {
            let setup = &self.setup.observers[*observer];
            json!({"op": "create", "observer": definition(*observer, setup, 0)})
        };
        let body = batch.iter().map(create).collect();
        for observer in &batch {
            self.users.intents[*observer].open += 1;
        }
        self.request(("POST", "/v1/observers:batch".to_owned(), Some(body)), Subject::Batch(batch));
    }

    pub(crate) fn operator_asks(&mut self, order: Order) {
        self.tell(|_| format!("an operator asks: {order:?}"));
        self.judge.on_order(self.now);
        if let Some((service, order)) = order.of_service() {
            self.users.orders[service].on_sent(order);
        }
        let of = |service: usize| format!("/v1/services/{}", self.setup.services[service].name);
        let asked = match order {
            Order::Cordon(service) => ("POST", of(service) + "/cordon", None),
            Order::Uncordon(service) => ("POST", of(service) + "/uncordon", None),
            Order::Drain { service, per_second, within_ms, force } => {
                let within = within_ms.map(|ms| format!("{ms}ms"));
                let body = json!({"per_second": per_second, "within": within, "force": force});
                ("POST", of(service) + "/drain", Some(body))
            }
            Order::Resize { service, capacity } => {
                ("PATCH", of(service), Some(json!({"capacity": capacity})))
            }
            Order::Rebalance => ("POST", "/v1/rebalance:apply".to_owned(), Some(json!({}))),
            Order::SafeMode { on } => {
                self.users.ended_safe_mode = !on;
                ("PUT", "/v1/safe-mode".to_owned(), Some(json!({"on": on, "reason": "an operator"})))
            }
        };
        self.request(asked, Subject::Operator(order));
    }

    fn request(&mut self, (method, path, body): (&'static str, String, Option<Value>), subject: Subject) {
        let number = number();
        if let Subject::Observer(_, ask) = subject {
            self.users.asked.insert(number, ask);
        }
        let request = Request { subject, method, path, body, at: None, attempts: 0 };
        self.users.requests.insert(number, request);
        self.attempt(number, 0);
    }

    /// Sends a request to a running manager; sends it to another one if no answer arrives in time.
    fn attempt(&mut self, number: u64, attempts: u32) {
        let Some(request) = self.users.requests.get_mut(&number).filter(|it| it.attempts == attempts) else {
            return;
        };
        request.attempts += 1;
        let next = request.attempts;
        self.later(PATIENCE, move |world| world.attempt(number, next));
        let serving: Vec<(usize, axum::Router)> = self
            .managers()
            .filter(|host| self.hosts[*host].runs())
            .filter_map(|host| Some((host, actors::app(host)?)))
            .collect();
        if serving.is_empty() {
            return;
        }
        let chosen = self.roll(0, serving.len() as u64 - 1);
        let Some((host, app)) = serving.into_iter().nth(usize::try_from(chosen).unwrap()) else { return };
        let Some(request) = self.users.requests.get_mut(&number) else { return };
        request.at = Some(host);
        let body = request.body.as_ref().map(Value::to_string).unwrap_or_default();
        let http = HttpRequest::builder()
            .method(request.method)
            .uri(&request.path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("traceparent", trace_of(number).to_string())
            .header("idempotency-key", format!("request-{number}"))
            .body(Body::from(body));
        let http = http.unwrap();
        let latency = std::time::Duration::from_millis(self.roll(1, 20));
        self.spawn(host, async move {
            tokio::time::sleep(latency).await;
            let answer = app.oneshot(http).await.unwrap();
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), BODY_MAX).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            ANSWERS.with_borrow_mut(|answers| answers.push((number, status, body)));
        });
    }

    /// Processes the answers of managers.
    pub(crate) fn take_answers(&mut self) {
        for (number, status, body) in ANSWERS.take() {
            let Some(request) = self.users.requests.get(&number).cloned() else { continue };
            *self.users.answers.entry((request.method, status)).or_default() += 1;
            self.tell(|_| format!("answered {status}: {} {}", request.method, request.path));
            self.judge.on_answer(&request.path, status, &body);
            let again = match status {
                503 => true,
                // No service has reported its kinds yet.
                422 => matches!(request.subject, Subject::Observer(_, Ask::Create)),
                404 => matches!(request.subject, Subject::Operator(_)),
                _ => false,
            };
            if again && !self.judge.is_calm_for(self.now, 60_000) {
                let attempts = request.attempts;
                self.later(RETRY, move |world| world.attempt(number, attempts));
                continue;
            }
            self.users.requests.remove(&number);
            self.on_answer(&request, status, &body);
        }
    }

    fn on_answer(&mut self, request: &Request, status: u16, body: &Value) {
        let done = (200..300).contains(&status);
        match request.subject.clone() {
            Subject::Observer(observer, ask) => {
                let intent = &mut self.users.intents[observer];
                intent.open -= 1;
                match ask {
                    Ask::Create => intent.created |= done || status == 409,
                    // Another create of the same name may have been committed in the meantime.
                    Ask::Delete if done => {
                        let newest = self.judge.knowledge.newest(&observer_name(observer));
                        let deleted = newest.is_none_or(|row| row.desired == Desired::Deleted);
                        self.users.intents[observer].deleted = deleted;
                    }
                    _ => {}
                }
            }
            Subject::Batch(observers) => {
                let items = body["items"].as_array().cloned().unwrap_or_default();
                for (index, observer) in observers.into_iter().enumerate() {
                    let status = items.get(index).and_then(|item| item["status"].as_u64()).unwrap_or(0);
                    self.users.intents[observer].open -= 1;
                    if (200..300).contains(&status) || status == 409 {
                        self.users.intents[observer].created = true;
                    } else {
                        // The users send the failed creates of a batch one by one.
                        self.later(RETRY, move |world| world.user_asks(observer, Ask::Create));
                    }
                }
            }
            Subject::Operator(order) => {
                if let Some((service, order)) = order.of_service() {
                    let answered = Answered { done, sent_once: request.attempts == 1 };
                    self.users.orders[service].on_answered(order, answered);
                }
                // The answer to an earlier request may arrive after that to a later one.
                if done && matches!(order, Order::SafeMode { on: true }) && self.users.ended_safe_mode {
                    self.operator_asks(Order::SafeMode { on: false });
                }
            }
        }
    }

    /// Cancels all orders, so that every service can be used in full.
    pub(crate) fn clear_orders(&mut self) {
        self.tell(|_| "all orders are taken back".to_owned());
        for service in 0..self.setup.services.len() {
            self.operator_asks(Order::Uncordon(service));
            self.later(1000, move |world| {
                world.operator_asks(Order::Resize { service, capacity: None });
            });
        }
    }
}
