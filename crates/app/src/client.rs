//! The HTTP client of a manager. Each kind of failure has its own exit code, on which scripts rely.

use crate::trust::{explain, innermost, trusting};
use everwatch_api::ProblemBody;
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    TimedOut(String),
    #[error("{0}")]
    Unreachable(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Conflict(_) => 4,
            Self::TimedOut(_) => 5,
            Self::Unreachable(_) => 6,
        }
    }

    /// The manager's problem text, with the error of each member on its own line.
    pub(crate) fn of_problem(problem: &ProblemBody) -> Self {
        let told = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
        let errors = problem.errors.iter().map(|error| format!("\n  {}: {}", error.pointer, error.detail));
        Self::of_status(problem.status, std::iter::once(told.clone()).chain(errors).collect())
    }

    /// A failure from any response that is not a success. A proxy may send a response whose body is not a
    /// problem body.
    fn of_answer(status: u16, text: &str) -> Self {
        match serde_json::from_str::<ProblemBody>(text) {
            Ok(problem) => Self::of_problem(&ProblemBody { status, ..problem }),
            Err(_) => Self::of_status(status, text.to_owned()),
        }
    }

    fn of_status(status: u16, told: String) -> Self {
        match status {
            404 => Self::NotFound(told),
            409 | 412 => Self::Conflict(told),
            400 | 422 => Self::Usage(told),
            _ => Self::Failed(format!("{told} (HTTP {status})")),
        }
    }
}

/// A client of one manager.
pub(crate) struct Client {
    server: String,
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn new(server: &str) -> anyhow::Result<Self> {
        if !server.starts_with("http://") && !server.starts_with("https://") {
            let text = format!("--server `{server}` is not a URL like http://127.0.0.1:7700");
            return Err(Failure::Usage(text).into());
        }
        let http = trusting(builder()).map_err(Failure::Usage)?.timeout(Duration::from_secs(90)).build()?;
        Ok(Self { server: server.trim_end_matches('/').to_owned(), http })
    }

    /// Escapes a name for use in a path.
    pub(crate) fn part(name: &str) -> String {
        utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
    }

    /// Reads what is at `path`.
    ///
    /// # Errors
    /// A [`Failure`] if the manager cannot be reached, refuses, or answers what this version cannot read.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.send(Method::GET, path, None).await
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        let asked = format!("{method} {path}");
        let text = self.call((method, path), body, None).await?;
        self.answer(&asked, &text)
    }

    /// Creates something, once for each idempotency key.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> anyhow::Result<T> {
        let text = self.call((Method::POST, path), Some(body), key).await?;
        self.answer(&format!("POST {path}"), &text)
    }

    fn answer<T: DeserializeOwned>(&self, asked: &str, text: &str) -> anyhow::Result<T> {
        Ok(serde_json::from_str(text).map_err(|error| {
            Failure::Failed(format!(
                "the manager at {} answered {asked} with what this version ({}) cannot read: {error}; \
                 use the `everwatch` of its version",
                self.server,
                env!("CARGO_PKG_VERSION")
            ))
        })?)
    }

    /// Sends a request and ignores the body of a successful response.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn order(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        self.call((method, path), body, None).await.map(drop)
    }

    async fn call(
        &self,
        (method, path): (Method, &str),
        body: Option<&Value>,
        key: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut request = self.http.request(method, format!("{}{path}", self.server));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        if (200..300).contains(&status) { Ok(text) } else { Err(Failure::of_answer(status, &text).into()) }
    }
}

impl Client {
    /// Streams live events after event `after`, or from now on.
    pub(crate) async fn follow(&self, path: &str, after: Option<i64>) -> anyhow::Result<reqwest::Response> {
        let http =
            trusting(builder()).map_err(Failure::Usage)?.connect_timeout(Duration::from_secs(10)).build()?;
        let mut request = http.get(format!("{}{path}", self.server)).header("accept", "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        match status {
            200 => Ok(response),
            _ => {
                let text = response.text().await.map_err(|error| self.unreachable(&error))?;
                Err(Failure::of_answer(status, &text).into())
            }
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if let Some(why) = explain(error) {
            return Failure::Unreachable(format!("no trusted manager answers at {}: {why}", self.server));
        }
        Failure::Unreachable(format!(
            "no manager answers at {} ({}): check that it runs, or set --server or EVERWATCH_SERVER",
            self.server,
            innermost(error)
        ))
    }
}

/// Every request names the user and the program.
fn builder() -> reqwest::ClientBuilder {
    let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = nix::unistd::getuid();
    let known = || nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = read("USER").or_else(|| read("LOGNAME")).or_else(known).unwrap_or_else(|| uid.to_string());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let who = format!("{user}@{}", host.to_string_lossy());
    let who = HeaderValue::try_from(who).unwrap_or_else(|_| HeaderValue::from_static("unprintable"));
    reqwest::Client::builder().user_agent(concat!("everwatch/", env!("CARGO_PKG_VERSION"))).default_headers(
        [(HeaderName::from_static("everwatch-actor"), who)].into_iter().chain(trace()).collect(),
    )
}

/// The trace context from the environment variables that correspond to the W3C headers. The command becomes
/// part of that trace.
fn trace() -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let [parent, state] =
        [TRACEPARENT, TRACESTATE].map(|header| std::env::var(header.to_uppercase()).unwrap_or_default());
    let trace = TraceContext::read(Some(&parent), Some(&state));
    let headers = trace.iter().flat_map(TraceContext::headers).collect::<Vec<_>>().into_iter();
    headers.filter_map(|(name, text)| Some((HeaderName::from_static(name), text.try_into().ok()?)))
}
