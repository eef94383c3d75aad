//! Errors as RFC 9457 problems. A handler answers a [`Problem`]; [`render`] writes its body, and that of
//! every error which the web framework answered itself.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use everwatch_api::ProblemBody;
use everwatch_core::observer::definition::FieldError;
use everwatch_door::quota::Exceeded;
use everwatch_store::StoreError;
use std::borrow::Cow;
use tracing::error;

pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// The kind of an error: a stable word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    MalformedJson,
    BadQuery,
    BadHeader,
    BadRequest,
    ForeignPage,
    NotFound,
    NoSuchRoute,
    MethodNotAllowed,
    NameExists,
    NoSuchQueue,
    NotActive,
    CountDiffers,
    NotFailed,
    Deleted,
    Paused,
    FinishAtPassed,
    NoSchedule,
    Active,
    Changed,
    Contended,
    EventsGone,
    SlowBody,
    UnknownHost,
    TooManyRequests,
    TooManyStreams,
    TooManyWaits,
    TooManyBodies,
    ServiceSilent,
    TooLarge,
    NotJson,
    Invalid,
    KeyReused,
    NoServiceForKind,
    NoCapacity,
    PoolPaused,
    NameEnding,
    RebalanceRunning,
    BrokerUnavailable,
    DatabaseUnavailable,
    NotReady,
    Stopping,
    Internal,
    Other(StatusCode),
}

impl Code {
    /// All but that of an answer for which the web framework alone has a word.
    const NAMED: [Self; 42] = [
        Self::MalformedJson,
        Self::BadQuery,
        Self::BadHeader,
        Self::BadRequest,
        Self::ForeignPage,
        Self::NotFound,
        Self::NoSuchRoute,
        Self::MethodNotAllowed,
        Self::NameExists,
        Self::NoSuchQueue,
        Self::NotActive,
        Self::CountDiffers,
        Self::NotFailed,
        Self::Deleted,
        Self::Paused,
        Self::FinishAtPassed,
        Self::NoSchedule,
        Self::Active,
        Self::Changed,
        Self::Contended,
        Self::EventsGone,
        Self::SlowBody,
        Self::UnknownHost,
        Self::TooManyRequests,
        Self::TooManyStreams,
        Self::TooManyWaits,
        Self::TooManyBodies,
        Self::ServiceSilent,
        Self::TooLarge,
        Self::NotJson,
        Self::Invalid,
        Self::KeyReused,
        Self::NoServiceForKind,
        Self::NoCapacity,
        Self::PoolPaused,
        Self::NameEnding,
        Self::RebalanceRunning,
        Self::BrokerUnavailable,
        Self::DatabaseUnavailable,
        Self::NotReady,
        Self::Stopping,
        Self::Internal,
    ];

    fn describe(self) -> (StatusCode, &'static str, Cow<'static, str>) {
        use StatusCode as S;
        let (status, code, title) = match self {
            Self::MalformedJson => (S::BAD_REQUEST, "malformed-json", "the body is not JSON"),
            Self::BadQuery => (S::BAD_REQUEST, "bad-query", "a query parameter is wrong"),
            Self::BadHeader => (S::BAD_REQUEST, "bad-header", "a header is wrong"),
            Self::BadRequest => (S::BAD_REQUEST, "bad-request", "the request cannot be read"),
            Self::ForeignPage => (S::FORBIDDEN, "foreign-page", "a page of another site sent this"),
            Self::NotFound => (S::NOT_FOUND, "not-found", "not found"),
            Self::NoSuchRoute => (S::NOT_FOUND, "no-such-route", "there is nothing at this path"),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "method-not-allowed", "not with this method"),
            Self::NameExists => (S::CONFLICT, "name-exists", "the name is taken"),
            Self::NoSuchQueue => (S::CONFLICT, "no-such-queue", "there is no queue for this message"),
            Self::NotActive => (S::CONFLICT, "observer-not-active", "the observer is not active"),
            Self::CountDiffers => (S::CONFLICT, "count-differs", "not as many as expected"),
            Self::NotFailed => (S::CONFLICT, "observer-not-failed", "the observer has not failed"),
            Self::Deleted => (S::CONFLICT, "observer-deleted", "the observer is deleted"),
            Self::Paused => (S::CONFLICT, "observer-paused", "the observer is paused"),
            Self::FinishAtPassed => {
                (S::CONFLICT, "finish-at-passed", "the finish_at of the observer has passed")
            }
            Self::NoSchedule => (S::CONFLICT, "no-schedule", "the observer has no schedule"),
            Self::Active => (S::CONFLICT, "observer-active", "the observer waits for a slot or runs"),
            Self::Changed => (S::PRECONDITION_FAILED, "observer-changed", "the observer was changed"),
            Self::Contended => (S::CONFLICT, "changed-too-often", "others keep changing it"),
            Self::EventsGone => (S::GONE, "events-gone", "these events are not kept any more"),
            Self::SlowBody => (S::REQUEST_TIMEOUT, "slow-body", "the body takes too long"),
            Self::UnknownHost => {
                (S::MISDIRECTED_REQUEST, "unknown-host", "the host name is not one of the manager's")
            }
            Self::TooManyWaits => {
                (S::TOO_MANY_REQUESTS, "too-many-waits", "too many requests wait on this manager")
            }
            Self::TooManyBodies => {
                (S::SERVICE_UNAVAILABLE, "too-many-bodies", "too much is being sent to this manager")
            }
            Self::TooManyRequests => {
                (S::TOO_MANY_REQUESTS, "too-many-requests", "this client sends too many requests")
            }
            Self::TooManyStreams => {
                (S::TOO_MANY_REQUESTS, "too-many-streams", "too many open streams on this manager")
            }
            Self::ServiceSilent => (S::SERVICE_UNAVAILABLE, "service-silent", "the service does not answer"),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "too-large", "the body is too large"),
            Self::NotJson => (S::UNSUPPORTED_MEDIA_TYPE, "not-json", "the body must be application/json"),
            Self::Invalid => (S::UNPROCESSABLE_ENTITY, "invalid", "the body is not valid"),
            Self::KeyReused => (S::UNPROCESSABLE_ENTITY, "idempotency-key-reused", "the key was used before"),
            Self::NoServiceForKind => {
                (S::UNPROCESSABLE_ENTITY, "no-service-for-kind", "no service can run this kind")
            }
            Self::NoCapacity => (S::SERVICE_UNAVAILABLE, "no-capacity", "the pool has no free slot"),
            Self::PoolPaused => (S::SERVICE_UNAVAILABLE, "pool-paused", "the pool is paused"),
            Self::NameEnding => (S::SERVICE_UNAVAILABLE, "name-ending", "the name is about to become free"),
            Self::RebalanceRunning => {
                (S::SERVICE_UNAVAILABLE, "rebalance-running", "a rebalance has not settled yet")
            }
            Self::BrokerUnavailable => {
                (S::SERVICE_UNAVAILABLE, "broker-unavailable", "the broker does not answer")
            }
            Self::DatabaseUnavailable => {
                (S::SERVICE_UNAVAILABLE, "database-unavailable", "the database does not answer")
            }
            Self::NotReady => (S::SERVICE_UNAVAILABLE, "not-ready", "the manager is not ready"),
            Self::Stopping => (S::SERVICE_UNAVAILABLE, "stopping", "the manager is stopping"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "the manager failed"),
            Self::Other(status) => {
                let title = status.canonical_reason().unwrap_or("error").to_lowercase();
                return (status, "error", Cow::Owned(title));
            }
        };
        (status, code, Cow::Borrowed(title))
    }

    fn retry_after(self) -> Option<u32> {
        match self {
            Self::NoCapacity
            | Self::PoolPaused
            | Self::NotReady
            | Self::TooManyStreams
            | Self::TooManyWaits
            | Self::ServiceSilent
            | Self::RebalanceRunning => Some(5),
            Self::NameEnding
            | Self::Contended
            | Self::TooManyRequests
            | Self::TooManyBodies
            | Self::BrokerUnavailable
            | Self::DatabaseUnavailable
            | Self::Stopping => Some(1),
            Self::MalformedJson
            | Self::BadQuery
            | Self::BadHeader
            | Self::BadRequest
            | Self::ForeignPage
            | Self::SlowBody
            | Self::UnknownHost
            | Self::NoSuchQueue
            | Self::KeyReused
            | Self::NotFound
            | Self::NoSuchRoute
            | Self::MethodNotAllowed
            | Self::NameExists
            | Self::NotActive
            | Self::CountDiffers
            | Self::NotFailed
            | Self::Deleted
            | Self::Paused
            | Self::FinishAtPassed
            | Self::NoSchedule
            | Self::Active
            | Self::Changed
            | Self::EventsGone
            | Self::TooLarge
            | Self::NotJson
            | Self::Invalid
            | Self::NoServiceForKind
            | Self::Internal
            | Self::Other(_) => None,
        }
    }

    /// Those whose words stand in a text.
    pub(crate) fn told_in(text: &str) -> Vec<Self> {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '-');
        words.filter_map(|word| Self::NAMED.into_iter().find(|code| code.word() == word)).collect()
    }

    /// Its HTTP status.
    pub(crate) fn status(self) -> StatusCode {
        self.describe().0
    }
    /// The stable word.
    pub(crate) fn word(self) -> &'static str {
        self.describe().1
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::BadRequest,
            StatusCode::NOT_FOUND => Self::NoSuchRoute,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::NotJson,
            StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid,
            other => Self::Other(other),
        }
    }
}

/// An error to be sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new() }
    }
    /// Adds one error for each member.
    pub(crate) fn with(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }
    /// The clients have reached a limit.
    pub(crate) fn too_many(code: Code, exceeded: Exceeded, act: &str) -> Self {
        let who = match exceeded {
            Exceeded::Total => "clients",
            Exceeded::PerClient => "requests of this client",
        };
        Self::new(code, format!("too many {who} {act} on this manager; use another one or retry later"))
    }
    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = errors
            .iter()
            .map(|error| format!("{} {}", error.pointer, error.detail).trim().to_owned())
            .collect::<Vec<_>>()
            .join("; ");
        Self { code: Code::Invalid, detail, errors }
    }

    /// The body of the response.
    pub(crate) fn body(&self, instance: &str) -> ProblemBody {
        let (status, code, title) = self.code.describe();
        ProblemBody {
            kind: format!("urn:everwatch:problem:{code}"),
            title: title.into_owned(),
            status: status.as_u16(),
            detail: self.detail.clone(),
            instance: instance.to_owned(),
            code: code.to_owned(),
            errors: self.errors.clone(),
        }
    }

    fn write(&self, instance: &str) -> Response {
        let mut response = (self.code.status(), axum::Json(self.body(instance))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(seconds) = self.code.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.code.describe().0.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(store: StoreError) -> Self {
        Self::from(&store)
    }
}
impl From<&StoreError> for Problem {
    fn from(store: &StoreError) -> Self {
        match store {
            StoreError::Unavailable(_) => Self::new(Code::DatabaseUnavailable, store.to_string()),
            StoreError::Contended(_) => Self::new(Code::Contended, store.to_string()),
            StoreError::Refused(_) | StoreError::Corrupt(_) => {
                error!(error = %store, "a request failed in the database");
                Self::new(Code::Internal, store.to_string())
            }
        }
    }
}

/// Gives every error its problem body.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let instance = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return problem.write(&instance);
    }
    let status = response.status();
    // A route beside the API's own says itself what is wrong.
    let is_told = response.headers().get(header::CONTENT_TYPE).is_some_and(|it| it == MEDIA_TYPE);
    if is_told || (!status.is_client_error() && !status.is_server_error()) {
        return response;
    }
    let code = Code::of_status(status);
    let allow = response.headers_mut().remove(header::ALLOW);
    let mut response = Problem::new(code, code.describe().2).write(&instance);
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}
