//! The HTTP client of a manager.

use crate::contexts::Contexts;
pub(crate) use crate::failure::Failure;
use crate::failure::start;
use crate::output::{line, note};
use crate::trust::{explain, innermost, trusting};
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, RequestBuilder};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The manager of commands that name none: that of `everwatch dev`.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7700";
/// How long a connection stays open without a request.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A client of one manager.
pub(crate) struct Client {
    server: String,
    token: Option<String>,
    /// The namespace of names in requests; `None`: what the manager assumes.
    namespace: Option<String>,
    http: reqwest::Client,
}

impl Client {
    /// Sends the token that the environment or the contexts have for this manager.
    ///
    /// # Errors
    /// If the URL or the file of the token is not usable.
    pub(crate) fn new(server: &str) -> anyhow::Result<Self> {
        Self::with_token(server, token_for(server)?)
    }

    /// Sends this token.
    ///
    /// # Errors
    /// If the URL is not usable.
    pub(crate) fn with_token(server: &str, token: Option<String>) -> anyhow::Result<Self> {
        if !server.starts_with("http://") && !server.starts_with("https://") {
            let text = format!("--server `{server}` is not a URL like http://127.0.0.1:7700");
            return Err(Failure::Usage(text).into());
        }
        let http = trusting(builder(token.as_deref())?)
            .map_err(Failure::Usage)?
            .timeout(Duration::from_secs(90))
            .build()?;
        let namespace = namespace_for(server)?;
        Ok(Self { server: server.trim_end_matches('/').to_owned(), token, namespace, http })
    }

    /// The namespace that the command line, the environment or the context names.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The URL of this path, with the namespace if the path concerns observers or batches and names none.
    fn url(&self, path: &str) -> String {
        let concerns = path.starts_with("/v1/observers") || path.starts_with("/v1/batches");
        let named = path.contains("?namespace=") || path.contains("&namespace=");
        match self.namespace.as_deref().filter(|_| concerns && !named) {
            Some(namespace) => {
                let separator = if path.contains('?') { '&' } else { '?' };
                format!("{}{path}{separator}namespace={}", self.server, Self::part(namespace))
            }
            None => format!("{}{path}", self.server),
        }
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

    /// Reads what is at `path`, with its entity tag.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn read_tagged<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<(T, String)> {
        let request = self.http.request(Method::GET, self.url(path));
        let (text, headers) = self.sent(request).await?;
        let tag = headers.get(ETAG).and_then(|it| it.to_str().ok()).unwrap_or("*").to_owned();
        Ok((self.answer(&format!("GET {path}"), &text)?, tag))
    }

    /// Sends a request that the manager refuses if the entity tag has changed.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn send_if<T: DeserializeOwned>(
        &self,
        (method, path): (Method, &str),
        tag: &str,
        body: &Value,
    ) -> anyhow::Result<T> {
        let asked = format!("{method} {path}");
        let request = self.http.request(method, self.url(path)).header(IF_MATCH, tag).json(body);
        let (text, _) = self.sent(request).await?;
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
            if serde_json::from_str::<IgnoredAny>(text).is_err() {
                return Failure::no_manager(&self.server, &format!("{asked}: {}", start(text)));
            }
            Failure::Failed(format!(
                "the manager at {} answered {asked} with what this version ({}) cannot read: {error}; \
                 check that --server names a manager, and use the `everwatch` of its version",
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
        let mut request = self.http.request(method, self.url(path));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        Ok(self.sent(request).await?.0)
    }

    async fn sent(&self, request: RequestBuilder) -> anyhow::Result<(String, HeaderMap)> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if let Some(text) = response.headers().get("everwatch-deprecated").and_then(|it| it.to_str().ok()) {
            note(&format!("the manager says that this version uses a deprecated route: {}", line(text)));
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        if (200..300).contains(&status) {
            Ok((text, headers))
        } else {
            Err(Failure::of_answer(&self.server, status, &text).into())
        }
    }
}

impl Client {
    /// Streams live events after event `after`, or from now on.
    pub(crate) async fn follow(&self, path: &str, after: Option<i64>) -> anyhow::Result<reqwest::Response> {
        let http = trusting(builder(self.token.as_deref())?).map_err(Failure::Usage)?;
        let http = http.connect_timeout(Duration::from_secs(10)).build()?;
        let mut request = http.get(self.url(path)).header("accept", "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        match status {
            200 => Ok(response),
            _ => {
                let text = response.text().await.map_err(|error| self.unreachable(&error))?;
                Err(Failure::of_answer(&self.server, status, &text).into())
            }
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if let Some(why) = explain(error) {
            return Failure::Unreachable(format!("no trusted manager answers at {}: {why}", self.server));
        }
        let start = if self.server == DEFAULT_SERVER { ", start one with `everwatch dev`" } else { "" };
        Failure::Unreachable(format!(
            "no manager answers at {} ({}): check that it runs{start}, or set --server or EVERWATCH_SERVER",
            self.server,
            innermost(error)
        ))
    }
}

/// The file that the command line names.
static TOKEN_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Reads the token from this file.
pub(crate) fn use_token_file(file: PathBuf) {
    let _already_set = TOKEN_FILE.set(file);
}

/// The namespace that the command line names.
static NAMESPACE: OnceLock<Option<String>> = OnceLock::new();

/// Uses this namespace instead of that of the context; `None`: no namespace.
pub(crate) fn use_namespace(namespace: Option<String>) {
    let _already_set = NAMESPACE.set(namespace);
}

fn namespace_for(server: &str) -> anyhow::Result<Option<String>> {
    match NAMESPACE.get() {
        Some(namespace) => Ok(namespace.clone()),
        None => Ok(Contexts::load()?.namespace_for(server.trim_end_matches('/'))),
    }
}

/// The token for this manager, if there is one: of the environment, of a file, or of the contexts.
fn token_for(server: &str) -> anyhow::Result<Option<String>> {
    if let Some(token) = std::env::var("EVERWATCH_TOKEN").ok().filter(|token| !token.is_empty()) {
        return Ok(Some(token));
    }
    if let Some(file) = TOKEN_FILE.get() {
        let token = std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("the token file {}: {error}", file.display())))?;
        return Ok(Some(token.trim().to_owned()));
    }
    Ok(Contexts::load()?.token_for(server.trim_end_matches('/')))
}

/// Every request names the user and the program, and has the token if there is one.
fn builder(token: Option<&str>) -> anyhow::Result<reqwest::ClientBuilder> {
    let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = nix::unistd::getuid();
    let known = || nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = read("USER").or_else(|| read("LOGNAME")).or_else(known).unwrap_or_else(|| uid.to_string());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let who = format!("{user}@{}", host.to_string_lossy());
    let who = HeaderValue::try_from(who).unwrap_or_else(|_| HeaderValue::from_static("unprintable"));
    let mut headers: HeaderMap =
        [(HeaderName::from_static("everwatch-actor"), who)].into_iter().chain(trace()).collect();
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Failure::Usage("the token has characters that no token has".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let program = concat!("everwatch/", env!("CARGO_PKG_VERSION"));
    let builder = reqwest::Client::builder().user_agent(program).default_headers(headers);
    // Managers close a connection that is idle for a minute; a request on it at that moment would fail.
    Ok(builder.pool_idle_timeout(IDLE_MAX))
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
