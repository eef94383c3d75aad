//! The request that opens a connection: its URL, headers and TLS settings, and what its failure means.

use super::WebSocket;
use crate::kinds::network::{self, HttpSettings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_core::redact::{redacted, without_credentials};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, http::StatusCode};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Bytes that are read at once: small, because a service may hold thousands of connections.
const READ_BUFFER: usize = 8 * 1024;
/// Headers that the handshake sets itself.
const RESERVED: [&str; 7] = [
    "host",
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
];

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NotConnected {
    /// The server answered with a status that does not pass by itself: its operator or the spec must change.
    Refused(String),
    /// Anything else.
    Unreachable(String),
}

/// The checked request.
pub(super) struct Prepared {
    request: Request,
    host: String,
    port: u16,
    hosts: Arc<HttpSettings>,
    /// The URL without its secrets.
    pub(super) shown: String,
}

impl Prepared {
    /// # Errors
    /// Names the member of the spec and the cure.
    pub(super) fn new(spec: &WebSocket, hosts: Arc<HttpSettings>) -> Result<Self, String> {
        let url = spec.url.parse::<Url>().map_err(|error| {
            format!("`url`: `{}` is not a URL ({error}); write ws://host/path", redacted(&spec.url))
        })?;
        if !matches!(url.scheme(), "ws" | "wss") {
            return Err(format!("`url`: `{}` does not begin with ws:// or wss://", redacted(&spec.url)));
        }
        hosts.ensure_allowed(&url).map_err(|refused| network::refusal(&spec.url, &url, &refused))?;
        let shown = without_credentials(url.as_str());
        let host = network::host(&url).to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let authorization = basic(&url);
        let mut plain = url;
        plain.set_fragment(None);
        let _has_a_host = plain.set_username("").and_then(|()| plain.set_password(None));
        let mut request = plain
            .as_str()
            .into_client_request()
            .map_err(|error| format!("`url`: `{shown}` is not a WebSocket URL: {error}"))?;
        let headers = request.headers_mut();
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        for (name, value) in &spec.headers {
            let (name, value) = header(name, value)?;
            headers.insert(name, value);
        }
        if !spec.subprotocols.is_empty() {
            headers.insert("Sec-WebSocket-Protocol", subprotocols(&spec.subprotocols)?);
        }
        Ok(Self { request, host, port, hosts, shown })
    }

    /// # Errors
    /// If the server is not reached within the time limit, or refuses.
    pub(super) async fn connect(&self, spec: &WebSocket) -> Result<Socket, NotConnected> {
        let limit = spec.max_message.size();
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(16 << 20)
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        let secure = self.request.uri().scheme_str() == Some("wss");
        let connector = if secure { tls().await? } else { Connector::Plain };
        let connecting = async {
            let stream = self.stream().await?;
            client_async_tls_with_config(self.request.clone(), stream, Some(config), Some(connector)).await
        };
        let timeout = spec.connect_timeout.get();
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok((socket, _response))) => Ok(socket),
            Ok(Err(error)) => Err(meaning(&error)),
            Err(_elapsed) => Err(NotConnected::Unreachable(format!("no connection within {timeout:?}"))),
        }
    }

    async fn stream(&self) -> io::Result<TcpStream> {
        let addresses = self.hosts.resolve(&self.host, self.port).await?;
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// The TLS settings of all connections of this process: its certificates are read once.
pub(super) static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();

async fn tls() -> Result<Connector, NotConnected> {
    if let Some(config) = CONFIG.get() {
        return Ok(Connector::Rustls(config.clone()));
    }
    let read = tokio::task::spawn_blocking(|| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    // A machine without certificates may get some later: nothing is kept then.
    let roots = read.await.map_err(|error| NotConnected::Unreachable(error.to_string()))?;
    if roots.is_empty() {
        return Err(NotConnected::Unreachable(
            "this machine has no CA certificates; install them".to_owned(),
        ));
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Connector::Rustls(CONFIG.get_or_init(|| Arc::new(config)).clone()))
}

fn meaning(error: &tungstenite::Error) -> NotConnected {
    let tungstenite::Error::Http(response) = error else {
        return NotConnected::Unreachable(format!("no connection: {error}"));
    };
    let status = response.status();
    let told = format!("the server answered {status} instead of opening a WebSocket");
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_server_error() || passes.contains(&status) {
        return NotConnected::Unreachable(told);
    }
    NotConnected::Refused(match response.headers().get("location").and_then(|it| it.to_str().ok()) {
        Some(location) if status.is_redirection() => {
            format!("{told}; it redirects to {}: write that in `url`", without_credentials(location))
        }
        _ => format!("{told}; check `url`, `headers` and `subprotocols`"),
    })
}

fn basic(url: &Url) -> Option<HeaderValue> {
    let part = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let (user, password) = (url.username(), url.password());
    if user.is_empty() && password.is_none() {
        return None;
    }
    let pair = [part(user), b":".to_vec(), part(password.unwrap_or_default())].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The value stays out of the error: it may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed: HeaderName =
        name.parse().map_err(|_| format!("`headers`: `{name}` is not the name of a header"))?;
    if RESERVED.contains(&parsed.as_str()) {
        return Err(format!("`headers`: `{name}` is set by the handshake; remove it"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("`headers`: the value of `{name}` has characters that a header cannot have"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn subprotocols(names: &[String]) -> Result<HeaderValue, String> {
    if let Some(name) = names.iter().find(|it| it.parse::<HeaderName>().is_err()) {
        return Err(format!("`subprotocols`: `{name}` is not the name of a subprotocol"));
    }
    HeaderValue::from_str(&names.join(", ")).map_err(|error| format!("`subprotocols`: {error}"))
}

/// How long the closing handshake may take.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
