//! Authenticates requests, checks that the role permits the verb of the route, and writes each change to the audit log before
//! it is carried out.
//!
//! A route declares its verbs in its `security` in the OpenAPI document, and this middleware reads them there: the document
//! states what managers enforce. A route that declares nothing refuses every request.

mod session;

pub(super) use session::{cookie, login_cookie, no_cookie, no_login_cookie, started_login};

use super::caller::{self, Caller};
use super::problem::{Code, Problem};
use crate::context::Manager;
use crate::context::accounts::Denied;
use crate::context::oidc::Unverified;
use crate::events::actor;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use everwatch_core::access::{AuditEntry, Certificate, Outcome, Principal, Unauthenticated, Verb};
use everwatch_core::clock::Timestamp;
use everwatch_door::tls::ClientCertificate;
use everwatch_store::StoreError;
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval_at};
use tracing::{info, warn};
use utoipa::openapi::OpenApi;

/// How often an open stream checks whether its principal still has its rights.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The longest path of a request that the audit log keeps, in characters.
const PATH_MAX: usize = 1000;

/// What a request needs for a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A valid token and, if there are verbs, a role that permits one of them.
    Token(Vec<Verb>),
}

/// The needs of every route, by method and path.
#[derive(Debug, Default)]
pub(super) struct Routes {
    declared: HashMap<(Method, String), Option<Needs>>,
    /// What all other routes need.
    others: Option<Needs>,
}

impl Routes {
    /// Reads the `security` of every operation.
    pub(super) fn of(document: &OpenApi) -> Self {
        let mut routes = HashMap::new();
        for (path, item) in &document.paths.paths {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in methods {
                let Some(operation) = operation else { continue };
                let needs = operation.security.as_ref().and_then(|it| needs(&serde_json::json!(it)));
                routes.insert((method, path.clone()), needs);
            }
        }
        Self { declared: routes, others: None }
    }

    /// For routes that the document does not have: one of these verbs.
    pub(super) fn of_others(verbs: Vec<Verb>) -> Self {
        Self { declared: HashMap::new(), others: Some(Needs::Token(verbs)) }
    }

    /// What a route needs: `Some(None)` if it does not declare it, `None` if there is no such route.
    fn needs(&self, method: &Method, path: &str) -> Option<Option<&Needs>> {
        let method = if *method == Method::HEAD { Method::GET } else { method.clone() };
        let declared = self.declared.get(&(method, path.to_owned())).map(Option::as_ref);
        declared.or_else(|| self.others.as_ref().map(Some))
    }
}

/// `[{}]` needs nothing; `[{"token": [verb]}, …]` one of the verbs; `[{"token": []}]` a token.
fn needs(security: &serde_json::Value) -> Option<Needs> {
    let mut verbs = Vec::new();
    for requirement in security.as_array()? {
        let Some(of_token) = requirement.get("token") else { return Some(Needs::Nothing) };
        for verb in of_token.as_array()? {
            verbs.push(verb.as_str()?.parse().ok()?);
        }
    }
    Some(Needs::Token(verbs))
}

/// The token that a request presents: as a header, or as the cookie of a session.
fn presented(headers: &HeaderMap) -> Option<String> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    session::presented(headers)
}

/// The client certificate of the connection, which this manager has verified itself. Headers that a proxy sets about
/// certificates are ignored.
fn certificate(request: &Request) -> Option<Certificate> {
    let ClientCertificate { name, expires_at } = request.extensions().get().cloned()?;
    Some(Certificate { name, expires_at: Timestamp(expires_at.saturating_mul(1000)) })
}

/// Authenticates a request, and lets it in if its route permits it.
pub(super) async fn admit(
    State((manager, routes)): State<(Arc<Manager>, Arc<Routes>)>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let needs = path.as_deref().and_then(|path| routes.needs(request.method(), path));
    let verbs = match needs {
        Some(Some(Needs::Nothing)) => return next.run(request).await,
        Some(Some(Needs::Token(verbs))) => verbs.clone(),
        Some(None) => {
            return Problem::new(Code::Internal, "a bug in the manager: this route declares no verb")
                .into_response();
        }
        // Whether the path takes this method is for the router to say.
        None => return next.run(request).await,
    };
    let entry = entry(&manager, &request, verbs.first().copied());
    match manager.accounts.check_open(manager.records.store.as_ref()).await {
        Ok(true) => return caller::calling(Caller { principal: None, verbs }, next.run(request)).await,
        Ok(false) => {}
        Err(denied) => return refused(&manager, entry, denied).await,
    }
    let token = presented(request.headers());
    let certificate = certificate(&request);
    let store = manager.records.store.as_ref();
    let principal = manager.accounts.authenticate(store, token.as_deref(), certificate.as_ref()).await;
    let principal = match principal {
        Ok(principal) => Arc::new(principal),
        Err(denied) => return refused(&manager, entry, denied).await,
    };
    if !manager.accounts.admits(&principal) {
        // Not in the audit log: a flood of requests must not become a flood of writes.
        let (name, most) = (&principal.name, manager.accounts.requests_per_second());
        let detail = format!(
            "{name} sends more than {most} requests per second (auth.requests_per_second); send fewer, or use batches and the \
             event stream"
        );
        return Problem::new(Code::TooManyRequests, detail).into_response();
    }
    let token = principal.token().map(ToString::to_string);
    let entry = AuditEntry { principal: Some(principal.name.clone()), token, ..entry };
    let has_right = verbs.is_empty() || verbs.iter().any(|verb| principal.rights.permits_some(*verb));
    if !has_right {
        let caller = Caller { principal: Some(principal), verbs: verbs.clone() };
        let problem = caller::calling(caller, async { caller::forbidden(&verbs, "") }).await;
        return match record(&manager, entry).await {
            Ok(entry) => told(&manager, Some(entry), problem.into_response()).await,
            Err(problem) => problem.into_response(),
        };
    }
    let is_read = request.method().is_safe();
    // Before the change, so that no change is missing in the log.
    let noted = match if is_read { Ok(None) } else { record(&manager, entry.clone()).await.map(Some) } {
        Ok(noted) => noted,
        Err(problem) => return problem.into_response(),
    };
    let caller = Caller { principal: Some(Arc::clone(&principal)), verbs };
    let handled =
        actor::known_as((&principal.name, principal.account()), caller::calling(caller, next.run(request)));
    let response = if is_read {
        tokio::select! {
            response = handled => response,
            // A long poll ends with the rights of its sender.
            () = until_lost(&manager, &principal) => return lost(&principal),
        }
    } else {
        handled.await
    };
    let noted = if response.status() == StatusCode::FORBIDDEN && noted.is_none() {
        record(&manager, entry).await.ok()
    } else {
        noted
    };
    watched(&manager, principal, told(&manager, noted, response).await)
}

/// Writes a request to the audit log.
pub(super) async fn record(manager: &Manager, entry: AuditEntry) -> Result<i64, Problem> {
    info!(
        target: "audit", principal = entry.principal, verb = entry.verb.map(Verb::as_str), method = entry.method,
        path = entry.path, from = entry.from, "request"
    );
    match manager.audit.request(entry).await {
        Some(Ok(id)) => Ok(id),
        Some(Err(error)) => Err(match error.as_ref() {
            StoreError::Unavailable(_) | StoreError::Contended(_) => Problem::from(error.as_ref()),
            StoreError::Refused(_) | StoreError::Corrupt(_) => {
                Problem::new(Code::Internal, format!("the audit log cannot be written: {error}"))
            }
        }),
        None => Err(Problem::new(Code::Stopping, "ask another manager")),
    }
}

/// Writes the outcome of a request to the audit log.
pub(super) async fn told(manager: &Manager, noted: Option<i64>, response: Response) -> Response {
    if let Some(entry) = noted {
        // Of a redirect, it is where the browser goes next.
        let created = response.headers().get(header::LOCATION).filter(|_| response.status().is_success());
        let created = created.and_then(|it| it.to_str().ok());
        let (status, created) = (response.status().as_u16(), created.map(str::to_owned));
        info!(target: "audit", entry, status, created, "response");
        manager.audit.outcome(entry, Outcome { status, created }).await;
    }
    response
}

/// The entry of a request in the audit log, without its principal.
fn entry(manager: &Manager, request: &Request, verb: Option<Verb>) -> AuditEntry {
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    AuditEntry { verb, ..entry_of(manager, request.method(), path) }
}

/// The entry of a request in the audit log, without its principal and its verb.
pub(super) fn entry_of(manager: &Manager, method: &Method, path: &str) -> AuditEntry {
    let by = actor::by();
    AuditEntry {
        id: 0,
        at: manager.records.clock.now(),
        principal: None,
        token: None,
        actor: by.as_ref().and_then(|by| by.who.clone()),
        from: by.and_then(|by| by.from),
        verb: None,
        method: method.to_string(),
        path: path.chars().take(PATH_MAX).collect(),
        outcome: None,
    }
}

/// Refuses a request without a valid credential. The audit log contains only those with a token, and a limited number of
/// them, because anybody can send such requests.
async fn refused(manager: &Manager, entry: AuditEntry, denied: Denied) -> Response {
    let (detail, is_tried) = match denied {
        Denied::Unknown => {
            let detail = "whether the token is valid is not known: the database does not answer";
            return Problem::new(Code::DatabaseUnavailable, detail).into_response();
        }
        Denied::NoProvider(why) => return Problem::from(Unverified::Unavailable(why)).into_response(),
        Denied::NoCredential => {
            ("this manager needs a token: send it as `Authorization: Bearer TOKEN`".to_owned(), false)
        }
        // Clients present such a certificate without asking for anything by it.
        Denied::Refused(
            why @ (Unauthenticated::CertificateUnmapped(_) | Unauthenticated::CertificateUnnamed),
        ) => (why.to_string(), false),
        Denied::Refused(why) => (why.to_string(), true),
    };
    metrics::counter!(crate::metric::UNAUTHENTICATED).increment(1);
    let noted =
        if is_tried && manager.accounts.notes_refusal() { record(manager, entry).await.ok() } else { None };
    told(manager, noted, unauthenticated(detail)).await
}

fn unauthenticated(detail: impl Into<String>) -> Response {
    let mut response = Problem::new(Code::Unauthenticated, detail).into_response();
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"everwatch\""));
    response
}

fn lost(principal: &Principal) -> Response {
    warn!(
        principal = principal.name,
        "a request ended: its credential was revoked, expired or has other rights"
    );
    unauthenticated("the token or client certificate was revoked, has expired or has other rights now")
}

async fn until_lost(manager: &Manager, principal: &Principal) {
    let mut looks = interval_at(Instant::now() + CHECK_EVERY, CHECK_EVERY);
    while manager.accounts.still_accepts(principal) {
        looks.tick().await;
    }
}

/// Ends an open stream when its reader loses its rights.
fn watched(manager: &Arc<Manager>, principal: Arc<Principal>, response: Response) -> Response {
    let streams = response.headers().get(header::CONTENT_TYPE).is_some_and(|it| it == "text/event-stream");
    if !streams {
        return response;
    }
    let manager = Arc::clone(manager);
    response.map(|body| {
        let over = async move { until_lost(&manager, &principal).await };
        Body::from_stream(body.into_data_stream().take_until(Box::pin(over)))
    })
}
