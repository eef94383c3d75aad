//! Fault injection for `dev`: kills or freezes a service.
//!
//! RabbitMQ closes the connections of a process that sends nothing for two heartbeats. In `dev`,
//! freezing a service does not freeze its connections: they run in this process, or on threads that the
//! services share. Therefore this code closes the session of a frozen service after two heartbeats, unless
//! the service was thawed before.

use crate::handle::Handle;
use async_trait::async_trait;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::post;
use axum::{Json, Router};
use everwatch_broker::{Broker, ConnectError, QueueKind, Session};
use everwatch_core::doctor::Server;
use everwatch_core::id::ServiceId;
use everwatch_manager::{ByHand, Excused};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(super) type Services = Arc<BTreeMap<String, Handle>>;

/// A broker that records the session of each service.
pub(super) struct Listening {
    broker: Arc<dyn Broker>,
    /// The open sessions, by connection name.
    sessions: Mutex<Vec<(String, Weak<dyn Session>)>>,
}

impl Listening {
    pub(super) fn to(broker: Arc<dyn Broker>) -> Self {
        Self { broker, sessions: Mutex::default() }
    }

    fn session_of(&self, service: &str) -> Option<Arc<dyn Session>> {
        let prefix = format!("everwatch service {service} ");
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().filter(|(name, _)| name.starts_with(&prefix)).find_map(|(_, it)| it.upgrade())
    }
}

#[async_trait]
impl Broker for Listening {
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError> {
        let session = self.broker.connect(name).await?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|(_, it)| it.strong_count() > 0);
        sessions.push((name.to_owned(), Arc::downgrade(&session)));
        Ok(session)
    }
    async fn version(&self) -> Option<String> {
        self.broker.version().await
    }
    async fn inspect(&self, queues: &[(String, QueueKind)]) -> Option<Server> {
        self.broker.inspect(queues).await
    }
}

#[derive(Clone)]
pub(super) struct Chaos {
    services: Services,
    broker: Arc<Listening>,
    excused: Excused,
    /// How long the broker waits for a silent client before it closes the connection.
    patience: Duration,
    tasks: TaskTracker,
}

type Answer = (StatusCode, Json<Value>);
type Refusal = (StatusCode, [(HeaderName, &'static str); 1], Json<Value>);

impl Chaos {
    pub(super) fn new(
        services: Services,
        (broker, heartbeat): (Arc<Listening>, Duration),
        excused: Excused,
    ) -> Self {
        Self { services, broker, excused, patience: heartbeat * 2, tasks: TaskTracker::new() }
    }

    pub(super) fn routes(self) -> Router {
        Router::new()
            .route("/dev/chaos/{service}/kill", post(kill))
            .route("/dev/chaos/{service}/freeze", post(freeze))
            .route("/dev/chaos/{service}/thaw", post(thaw))
            .with_state(self)
    }

    fn find(&self, name: &str) -> Result<&Handle, Refusal> {
        self.services.get(name).ok_or_else(|| {
            let known = self.services.keys().cloned().collect::<Vec<_>>().join(", ");
            let detail = format!("no service `{name}`: choose one of {known}");
            refused(StatusCode::NOT_FOUND, &detail)
        })
    }
}

fn refused(status: StatusCode, detail: &str) -> Refusal {
    let title = status.canonical_reason().unwrap_or_default();
    let code = title.to_lowercase().replace(' ', "-");
    let body = json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail, "instance": "/dev/chaos",
        "code": code,
    });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(body))
}

/// The incarnation to kill; by default, the one that lives.
#[derive(Deserialize)]
struct Which {
    id: Option<Uuid>,
}

async fn kill(
    State(chaos): State<Chaos>,
    Path(name): Path<String>,
    Query(which): Query<Which>,
) -> Result<Answer, Refusal> {
    let handle = chaos.find(&name)?;
    if which.id.is_some_and(|id| handle.incarnation() != Some(ServiceId(id))) {
        let detail = format!("that process of {name} has ended meanwhile: look again");
        return Err(refused(StatusCode::CONFLICT, &detail));
    }
    // A user who tries out failover says nothing about the observers of the service.
    if !handle.kill_after(|incarnation| chaos.excused.add(incarnation, ByHand::Killed)) {
        let detail = format!("{name} does not run now: wait a few seconds until it has started again");
        return Err(refused(StatusCode::CONFLICT, &detail));
    }
    handle.frost.thaw();
    Ok((StatusCode::ACCEPTED, Json(json!({ "killed": name }))))
}

async fn freeze(State(chaos): State<Chaos>, Path(name): Path<String>) -> Result<Answer, Refusal> {
    let handle = chaos.find(&name)?;
    let (frost, frozen) = (handle.frost.clone(), handle.incarnation());
    let Some(freeze) = frost.freeze() else {
        return Err(refused(StatusCode::CONFLICT, &format!("{name} is frozen already: thaw it first")));
    };
    // As after a kill: the loss says nothing about the observers. A service that is thawed earlier keeps its runs.
    if let Some(incarnation) = frozen {
        chaos.excused.add(incarnation, ByHand::Frozen);
    }
    let (broker, patience) = (chaos.broker.clone(), chaos.patience);
    let answer = json!({ "frozen": name, "given_up_after_ms": u64::try_from(patience.as_millis()).ok() });
    chaos.tasks.spawn(async move {
        tokio::time::sleep(patience).await;
        if frost.lasts(freeze)
            && let Some(session) = broker.session_of(&name)
        {
            session.close().await;
        }
    });
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

async fn thaw(State(chaos): State<Chaos>, Path(name): Path<String>) -> Result<Answer, Refusal> {
    let handle = chaos.find(&name)?;
    let (incarnation, lives_on) = (handle.incarnation(), chaos.broker.session_of(&name).is_some());
    if !handle.frost.thaw() {
        return Err(refused(StatusCode::CONFLICT, &format!("{name} is not frozen")));
    }
    if let Some(incarnation) = incarnation.filter(|_| lives_on) {
        chaos.excused.add(incarnation, ByHand::Thawed);
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "thawed": name }))))
}
