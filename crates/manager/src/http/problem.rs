//! Errors as RFC 9457 problems. A handler answers a [`Problem`]; [`render`] writes its body, and that of
//! every error which the web framework answered itself.

mod code;

pub(crate) use code::Code;

use super::headers::RequestId;
use crate::context::oidc::Unverified;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use everwatch_api::{ProblemBody, QuotaUse};
use everwatch_core::observer::definition::FieldError;
use everwatch_door::quota::Exceeded;
use everwatch_store::StoreError;
use tracing::error;

pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// An error to be sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    quota: Option<Box<QuotaUse>>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), quota: None }
    }
    /// Adds what to do next.
    pub(crate) fn and(mut self, next: &str) -> Self {
        self.detail = format!("{}; {next}", self.detail);
        self
    }
    /// Adds the quota that refuses the request.
    pub(crate) fn of_quota(mut self, quota: QuotaUse) -> Self {
        self.quota = Some(Box::new(quota));
        self
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
        Self { code: Code::Invalid, detail, errors, quota: None }
    }

    /// What is wrong, by member.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
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
            quota: self.quota.as_deref().cloned(),
            request_id: None,
        }
    }

    fn write(&self, (instance, request): (&str, Option<&RequestId>)) -> Response {
        let request_id = request.map(|RequestId(id)| id.clone());
        let body = ProblemBody { request_id, ..self.body(instance) };
        let mut response = (self.code.status(), axum::Json(body)).into_response();
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

impl From<Unverified> for Problem {
    fn from(unverified: Unverified) -> Self {
        match unverified {
            Unverified::Refused(refusal) => Self::new(Code::LoginFailed, refusal.to_string()),
            Unverified::Unavailable(why) => {
                let detail = format!("the identity provider cannot be asked: {why}");
                Self::new(Code::ProviderUnavailable, detail)
            }
        }
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
    let (instance, id) = (request.uri().path().to_owned(), request.extensions().get::<RequestId>().cloned());
    let of = (instance.as_str(), id.as_ref());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let mut written = problem.write(of);
        for name in [header::WWW_AUTHENTICATE, header::SET_COOKIE] {
            for value in response.headers().get_all(&name) {
                written.headers_mut().append(name.clone(), value.clone());
            }
        }
        return written;
    }
    let status = response.status();
    // A route beside the API's own says itself what is wrong.
    let told_as = response.headers().get(header::CONTENT_TYPE);
    let is_told = told_as.is_some_and(|it| it == MEDIA_TYPE || it.as_bytes().starts_with(b"text/html"));
    if is_told || (!status.is_client_error() && !status.is_server_error()) {
        return response;
    }
    let code = Code::of_status(status);
    let allow = response.headers_mut().remove(header::ALLOW);
    let mut response = Problem::new(code, code.describe().2).write(of);
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}
