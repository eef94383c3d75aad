//! The requests of one observer, and the clients that all observers of a service share.

use super::{Emit, Http, Method};
use crate::Error;
use crate::kinds::network::{self, HttpSettings, refusal};
use crate::tasks::task::chain;
use everwatch_core::redact::{redacted, without_credentials};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response, StatusCode, Url};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// Redirects in a row.
const REDIRECTS_MAX: usize = 10;
/// Connections to one server that are kept open while they are idle.
const IDLE_MAX: usize = 8;

/// Shared by all observers of a service: each client takes hundreds of kilobytes for its certificates.
#[derive(Debug, Default)]
pub(crate) struct HttpClients {
    targets: Arc<Targets>,
    with_redirects: OnceLock<Client>,
    without_redirects: OnceLock<Client>,
}

impl HttpClients {
    pub(crate) fn new(settings: HttpSettings) -> Self {
        Self { targets: Arc::new(Targets { settings, proxies: proxies() }), ..Self::default() }
    }

    fn client(&self, redirects: bool) -> Result<Client, reqwest::Error> {
        let (kept, policy) = match redirects {
            true => (&self.with_redirects, following(self.targets.clone())),
            false => (&self.without_redirects, Policy::none()),
        };
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let resolver = Resolver(self.targets.clone());
        let client = Client::builder()
            .redirect(policy)
            .pool_max_idle_per_host(IDLE_MAX)
            .dns_resolver(resolver)
            .build()?;
        Ok(kept.get_or_init(|| client).clone())
    }
}

/// What requests may reach.
#[derive(Debug, Default)]
struct Targets {
    settings: HttpSettings,
    /// Hosts of proxies. Their addresses are not checked, because the operator configures them.
    proxies: Vec<String>,
}

impl Targets {
    fn is_proxy(&self, host: &str) -> bool {
        self.proxies.iter().any(|it| network::names(it, host))
    }

    /// A request for the host of a proxy may go there directly, past the check of its addresses.
    fn ensure_allowed(&self, url: &Url) -> Result<(), String> {
        self.settings.ensure_allowed(url)?;
        let host = network::host(url);
        if self.is_proxy(host) && !self.settings.is_private_host(host) {
            return Err(format!(
                "host `{host}` is a proxy of this service; add it to [service.http] allow_private_hosts of this service"
            ));
        }
        Ok(())
    }
}

/// Follows redirects to hosts that observers may connect to.
fn following(targets: Arc<Targets>) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(format!("more than {REDIRECTS_MAX} redirects"));
        }
        match targets.ensure_allowed(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refused) => attempt.error(refused),
        }
    })
}

/// Resolves the names of hosts to the addresses that observers may connect to. A proxy resolves the names of the requests
/// that go through it.
struct Resolver(Arc<Targets>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (targets, host) = (self.0.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let found: Vec<SocketAddr> = match targets.is_proxy(&host) {
                true => tokio::net::lookup_host((host.as_str(), 0)).await?.collect(),
                false => targets.settings.resolve(&host, 0).await?,
            };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The hosts of the proxies that the environment names.
fn proxies() -> Vec<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let values = names.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]).map(std::env::var);
    values.filter_map(|value| proxy_host(&value.ok()?)).collect()
}

fn proxy_host(value: &str) -> Option<String> {
    let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    Some(url.parse::<Url>().ok()?.host_str()?.to_owned())
}

/// An expected answer with its whole body.
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// The checked request, and what the server said of the latest body.
pub(super) struct Prepared<'a> {
    client: Client,
    request: Request,
    spec: &'a Http,
    /// The URL without its secrets.
    pub(super) shown: String,
    /// Headers that ask for the body only if it has changed.
    conditions: HeaderMap,
}

impl<'a> Prepared<'a> {
    /// # Errors
    /// Names the member of the spec and the cure.
    pub(super) fn new(spec: &'a Http, clients: &HttpClients) -> Result<Self, String> {
        let hidden = redacted(&spec.url);
        let url: Url = spec.url.parse().map_err(|_| format!("`url`: `{hidden}` is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`url`: `{hidden}` does not begin with http:// or https://"));
        }
        clients.targets.ensure_allowed(&url).map_err(|refused| refusal(&spec.url, &url, &refused))?;
        let shown = without_credentials(url.as_str());
        let client =
            clients.client(spec.redirects).map_err(|error| format!("cannot make requests: {error}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &spec.headers {
            let (name, value) = header(name, value)?;
            if name == HOST {
                return Err("`headers`: `host` is the host of `url`; remove it".to_owned());
            }
            headers.insert(name, value);
        }
        let mut request = client.request(method(spec.method), url).timeout(spec.timeout.get());
        if let Some(body) = body(&spec.body) {
            if !spec.body.is_string() && !headers.contains_key(CONTENT_TYPE) {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            request = request.body(body);
        }
        let request = request.headers(headers).build();
        let request =
            request.map_err(|error| format!("`url`: `{shown}`: {}", chain(&error.without_url())))?;
        Ok(Self { client, request, spec, shown, conditions: HeaderMap::new() })
    }

    /// The answer, or `None` if the server says that nothing has changed.
    ///
    /// # Errors
    /// If there is no answer in time, its status is unexpected, or its body is too large.
    pub(super) async fn fetch(&mut self) -> Result<Option<Received>, Error> {
        // A body that is a string or bytes can always be sent again.
        let mut request = self.request.try_clone().ok_or("the request cannot be repeated")?;
        request.headers_mut().extend(self.conditions.clone());
        let sent = self.client.execute(request).await;
        let mut response = sent.map_err(|error| self.named(error))?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && !self.conditions.is_empty() {
            return Ok(None);
        }
        let expected = &self.spec.expect;
        if !expected.iter().any(|it| it.includes(status.as_u16())) {
            let list = expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!("{}: the server answered {status}; `expect` is {list}", self.shown).into());
        }
        let conditions = self.conditions_of(&response);
        let body = self.body_of(&mut response).await?;
        self.conditions = conditions;
        Ok(Some(Received { status: status.as_u16(), body }))
    }

    async fn body_of(&self, response: &mut Response) -> Result<Vec<u8>, Error> {
        let limit = self.spec.max_body.size();
        let too_large = || format!("{}: the body is larger than `max_body`, {limit} bytes", self.shown);
        if self.spec.method != Method::Head && response.content_length().is_some_and(|it| it > limit as u64) {
            return Err(too_large().into());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.named(error))? {
            if body.len() + chunk.len() > limit {
                return Err(too_large().into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn conditions_of(&self, response: &Response) -> HeaderMap {
        let is_asked = self.spec.conditional && self.spec.emit == Emit::Changes;
        let mut conditions = HeaderMap::new();
        if is_asked && matches!(self.spec.method, Method::Get | Method::Head) {
            for (said, asks) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
                if let Some(value) = response.headers().get(said) {
                    conditions.insert(asks, value.clone());
                }
            }
        }
        conditions
    }

    /// The error of a request names its URL, with a query that may hold a secret.
    fn named(&self, error: reqwest::Error) -> Error {
        format!("{}: {}", self.shown, chain(&error.without_url())).into()
    }
}

fn method(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Head => reqwest::Method::HEAD,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
        Method::Options => reqwest::Method::OPTIONS,
    }
}

fn body(body: &Value) -> Option<String> {
    match body {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The value stays out of the error: it may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = name.parse().map_err(|_| format!("`headers`: `{name}` is not the name of a header"))?;
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("`headers`: the value of `{name}` has characters that a header cannot have"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_known_in_each_notation_and_is_no_target() {
        for value in ["http://me:p@proxy.corp:3128/", "proxy.corp:3128", "PROXY.corp", "socks5://proxy.corp"]
        {
            let targets = Targets { proxies: proxy_host(value).into_iter().collect(), ..Targets::default() };
            assert!(targets.is_proxy("Proxy.corp") && !targets.is_proxy("other"), "{value}");
            let told = targets.ensure_allowed(&"http://proxy.corp:81/".parse().unwrap()).unwrap_err();
            assert!(told.contains("host `proxy.corp` is a proxy"), "{told}");
        }
        assert_eq!(proxy_host(""), None);
    }
}
