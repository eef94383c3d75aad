//! Serves HTTP connections. Limits their number, the time in which a client must send a request, and the time
//! for which a client may stop reading the response.

use crate::quota::{Exceeded, Limit, Quota};
use crate::tls::{ClientCertificate, Tls};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, warn};

/// The largest size of a request's head, in bytes.
const HEAD_MAX: usize = 64 * 1024;
/// The response to a client that has reached its limit of connections; then the connection is closed.
const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: text/plain\r\nretry-after: 5\r\n\
    connection: close\r\ncontent-length: 44\r\n\r\ntoo many connections of this client are open";
/// The response to a request without TLS where TLS is spoken.
const NO_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 55\r\n\r\nthis port requires TLS: use https:// instead of http://";
/// How often the files of a certificate are read.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a request's head may take to arrive, from the moment the connection is free for it. An idle
    /// connection ends after this time too; clients open another one.
    pub headers_within: Duration,
    /// How long the TLS handshake may take.
    pub handshake_within: Duration,
    /// How long a client may stop reading a response before its connection is closed.
    pub writes_within: Duration,
    /// Beyond the limit of all clients, a connection waits until another one ends; beyond the limit of one
    /// client, it is answered 429 and closed.
    pub connections: Limit,
}

impl Default for Limits {
    /// 60 s, 10 s, 30 s, 10,000 connections of which a client has at most 2,000.
    fn default() -> Self {
        Self {
            headers_within: Duration::from_secs(60),
            handshake_within: Duration::from_secs(10),
            writes_within: Duration::from_secs(30),
            connections: Limit { total: 10_000, per_client: 2_000 },
        }
    }
}

/// Open files that a program needs besides its clients' connections: its database, its broker, its logs.
const OTHER_FILES: usize = 256;
/// The highest limit of open files that is requested.
const FILES_MAX: u64 = 65_536;

impl Limits {
    /// Raises the limit of open files as far as the system allows. Lowers the limit of connections if
    /// necessary, so that a flood of connections does not use up the files that the database needs.
    #[must_use]
    pub fn with_files(mut self) -> Self {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let Some(current) = current else { return self };
        let wanted = maximum.unwrap_or(FILES_MAX).min(FILES_MAX).max(current);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        let files = if raised.is_ok() { wanted } else { current };
        let most = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES).max(OTHER_FILES);
        if most < self.connections.total {
            warn!(
                files,
                connections = most,
                "the limit of open files allows only few client connections; raise `ulimit -n`"
            );
            self.connections.total = most;
            self.connections.per_client = self.connections.per_client.min(most / 2);
        }
        self
    }
}

/// Serves until `stop`, then finishes the requests that are under way. With `tls`, serves HTTPS only.
pub async fn serve(
    mut listener: TcpListener,
    tls: Option<Arc<Tls>>,
    app: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let quota = Quota::new(limits.connections);
    let mut connections = JoinSet::new();
    let mut refreshes = tokio::time::interval(REFRESH_EVERY);
    loop {
        let has_room = quota.held() < limits.connections.total;
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            _ = refreshes.tick(), if tls.is_some() => {
                tls.iter().for_each(|tls| tls.refresh());
                continue;
            }
            // If the process has no free file descriptor, `accept` waits a moment and retries.
            accepted = Listener::accept(&mut listener), if has_room => accepted,
        };
        match quota.acquire(Some(peer.ip())) {
            Ok(permit) => {
                let (tls, app, stop) = (tls.clone(), app.clone(), stop.clone());
                connections.spawn(async move {
                    match tls {
                        None => converse((stream, peer), None, app, limits, stop).await,
                        Some(tls) => converse_over(&tls, (stream, peer), app, limits, stop).await,
                    }
                    drop(permit);
                });
            }
            // A client that expects a TLS handshake could not read the refusal.
            Err(exceeded) => refuse(&stream, peer, exceeded, tls.is_none().then_some(TOO_MANY)),
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Sends the refusal without waiting: a client that does not read does not receive it.
fn refuse(stream: &TcpStream, peer: SocketAddr, exceeded: Exceeded, text: Option<&str>) {
    let told = text.map(|text| stream.try_write(text.as_bytes()));
    debug!(%peer, ?exceeded, ?told, "a connection is refused");
}

/// Serves a client after a TLS handshake.
async fn converse_over(
    tls: &Tls,
    (stream, peer): (TcpStream, SocketAddr),
    app: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let handshake = tokio::time::timeout(limits.handshake_within, handshake(tls, stream));
    let Some(shaken) = stop.run_until_cancelled(handshake).await else { return };
    match shaken {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificate = chain.first().and_then(ClientCertificate::read);
            converse((stream, peer), certificate, app, limits, stop).await;
        }
        Ok(Err(error)) => debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => debug!(%peer, "a TLS handshake took too long"),
    }
}

/// Accepts a TLS connection. A client that speaks HTTP is told to use TLS.
async fn handshake(tls: &Tls, mut stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS handshake begins with the byte 22.
    if first[0].is_ascii_uppercase() {
        stream.write_all(NO_TLS.as_bytes()).await?;
        stream.shutdown().await?;
        // Unread bytes would reset the connection before the client has read the response.
        let mut rest = (&mut stream).take(HEAD_MAX as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        return Err(std::io::Error::other("the client speaks HTTP without TLS"));
    }
    TlsAcceptor::from(tls.config()).accept(stream).await
}

async fn converse<S>(
    (stream, peer): (S, SocketAddr),
    certificate: Option<ClientCertificate>,
    app: Router,
    limits: Limits,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Send,
{
    let answer = hyper::service::service_fn(move |mut request: axum::http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        app.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers_within).max_buf_size(HEAD_MAX);
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(limits.writes_within));
    let stream = TokioIo::new(Box::pin(stream));
    let mut connection = pin!(http.serve_connection(stream, answer));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%peer, %error, "a client's connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;

    struct Server {
        address: SocketAddr,
        stop: CancellationToken,
        serving: JoinSet<()>,
    }

    async fn server(limits: Limits) -> Server {
        let slow = || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "done"
        };
        let long = || async { vec![b'x'; 64 * 1024 * 1024] };
        let app = Router::new().route("/", get(|| async { "well" }));
        let app = app.route("/slow", get(slow)).route("/long", get(long));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
        serving.spawn(serve(listener, None, app, limits, stop.clone()));
        Server { address, stop, serving }
    }

    async fn sent(server: &Server, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Reads until the server closes the connection.
    async fn told(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    const ASK: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    #[tokio::test]
    async fn a_client_that_never_finishes_its_headers_is_let_go() {
        let limits = Limits { headers_within: Duration::from_millis(100), ..Limits::default() };
        let server = server(limits).await;
        let held = sent(&server, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
        assert!(!told(held).await.contains("well"));
        assert!(told(sent(&server, ASK).await).await.ends_with("well"));
    }

    #[tokio::test]
    async fn beyond_the_limit_a_connection_waits_for_another_to_end() {
        let limits = Limits { connections: Limit { total: 1, per_client: 1 }, ..Limits::default() };
        let server = server(limits).await;
        let mut first = sent(&server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = [0; 12];
        first.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut second = sent(&server, ASK).await;
        let early = tokio::time::timeout(Duration::from_millis(200), second.read_exact(&mut answer)).await;
        assert!(early.is_err(), "served beyond the limit: {early:?}");
        drop(first);
        assert!(told(second).await.ends_with("well"));
    }

    #[tokio::test]
    async fn a_client_has_only_its_share_of_the_connections() {
        let limits = Limits { connections: Limit { total: 9, per_client: 1 }, ..Limits::default() };
        let server = server(limits).await;
        let mut first = sent(&server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut answer = [0; 12];
        first.read_exact(&mut answer).await.unwrap();
        let refused = told(TcpStream::connect(server.address).await.unwrap()).await;
        let (head, body) = refused.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{refused}");
        drop(first);
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        while !told(sent(&server, ASK).await).await.ends_with("well") {
            looks.tick().await;
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_let_go() {
        let limits = Limits { writes_within: Duration::from_millis(200), ..Limits::default() };
        let server = server(limits).await;
        let held = sent(&server, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let cut = async {
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            loop {
                looks.tick().await;
                // This loop does not read from the socket: an error of the socket shows that the server has
                // closed it.
                if held.take_error().unwrap().is_some() || held.try_write(b"x").is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), cut).await.expect("the connection is cut");
    }

    #[tokio::test]
    async fn what_is_under_way_at_the_stop_is_answered() {
        let mut server = server(Limits::default()).await;
        let asked = sent(&server, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut begun = tokio::time::interval(Duration::from_millis(100));
        begun.tick().await;
        begun.tick().await;
        server.stop.cancel();
        assert!(told(asked).await.ends_with("done"));
        server.serving.join_next().await.unwrap().unwrap();
    }
}
