//! Connections of HTTP clients: how many there may be, and how long one may take to say what it wants.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of a request, from the moment its connection is free for it. A connection that idles ends with it too;
    /// clients open another one.
    pub(crate) headers_within: Duration,
    /// More wait until one of these ends.
    pub(crate) connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { headers_within: Duration::from_secs(60), connections: 10_000 }
    }
}

/// Serves until `stop`, then finishes the requests that are under way.
pub(crate) async fn serve(mut listener: TcpListener, app: Router, limits: Limits, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            // Where no file is left to open, it waits a moment and tries again.
            (slot, Listener::accept(&mut listener).await)
        };
        let (slot, (stream, peer)) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            next = next => next,
        };
        let (app, stop) = (app.clone(), stop.clone());
        connections.spawn(async move {
            converse((stream, peer), app, limits, stop).await;
            drop(slot);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn converse(
    (stream, peer): (TcpStream, SocketAddr),
    app: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let answer = hyper::service::service_fn(move |mut request: axum::http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        app.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers_within);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    struct Server {
        address: SocketAddr,
        stop: CancellationToken,
        serving: JoinSet<()>,
    }

    async fn server(limits: Limits) -> Server {
        let slow = || async {
            let mut ticks = tokio::time::interval(Duration::from_millis(300));
            ticks.tick().await;
            ticks.tick().await;
            "done"
        };
        let app = Router::new().route("/", get(|| async { "well" })).route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
        serving.spawn(serve(listener, app, limits, stop.clone()));
        Server { address, stop, serving }
    }

    async fn sent(server: &Server, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// All that comes until the server closes the connection.
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
        let limits = Limits { connections: 1, ..Limits::default() };
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
