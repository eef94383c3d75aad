//! Tests of `websocket` with a real server that misbehaves in each way.

use super::*;
use crate::kinds::trial::Kept;
use crate::kinds::trial::{shared, start, until, until_logged, with};
use crate::testing::Trial;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};
use tokio_tungstenite::{WebSocketStream, accept_async, accept_hdr_async};

type Served = WebSocketStream<TcpStream>;

struct Server {
    listener: TcpListener,
}

impl Server {
    async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }
    fn url(&self) -> String {
        format!("ws://{}/feed", self.listener.local_addr().unwrap())
    }
    async fn tcp(&self) -> TcpStream {
        let accepted = tokio::time::timeout(Duration::from_secs(10), self.listener.accept());
        accepted.await.expect("a connection").unwrap().0
    }
    async fn accept(&self) -> Served {
        accept_async(self.tcp().await).await.unwrap()
    }
    /// Answers the next request with a status.
    async fn refuse(&self, status: &str) {
        let mut tcp = self.tcp().await;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(tcp.read_u8().await.unwrap());
        }
        tcp.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
    }
    fn spec(&self, more: Value) -> Value {
        with(json!({"url": self.url(), "reconnect": {"first": "10ms", "max": "20ms"}}), more)
    }
    fn start(&self, more: Value) -> (Trial, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        let here = HttpSettings { allow_private: true, ..HttpSettings::default() };
        (start::<WebSocket>(self.spec(more), &kept, vec![shared(here)]), kept)
    }
}

async fn say(served: &mut Served, text: &str) {
    served.send(Message::text(text)).await.unwrap();
}

/// The code with which the client closes.
async fn closed(served: &mut Served) -> u16 {
    loop {
        match tokio::time::timeout(Duration::from_secs(10), served.next()).await.expect("a close") {
            Some(Ok(Message::Close(frame))) => return frame.unwrap().code.into(),
            Some(Ok(_)) => {}
            other => panic!("no close: {other:?}"),
        }
    }
}

#[tokio::test]
async fn it_introduces_itself_subscribes_and_emits_every_message() {
    let server = Server::new().await;
    let address = server.listener.local_addr().unwrap();
    let spec = json!({"url": format!("ws://me:p%40ss@{address}/feed?token=hunter2#part"), "headers": {"X-Of": "eur"},
        "subprotocols": ["v2", "v1"], "subscribe": ["hello", {"op": "subscribe"}], "json": true});
    let (mut trial, kept) = server.start(spec);
    #[expect(clippy::result_large_err, reason = "the signature of the handshake")]
    let check = |request: &Request, mut response: Response| {
        let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(request.uri().to_string(), "/feed?token=hunter2");
        assert_eq!(header("x-of"), "eur");
        assert_eq!(header("authorization"), "Basic bWU6cEBzcw==");
        assert_eq!(header("sec-websocket-protocol"), "v2, v1");
        response.headers_mut().insert("sec-websocket-protocol", "v1".parse().unwrap());
        Ok::<_, ErrorResponse>(response)
    };
    let accepting = accept_hdr_async(server.tcp().await, check);
    let mut served = accepting.await.unwrap();
    assert_eq!(served.next().await.unwrap().unwrap(), Message::text("hello"));
    assert_eq!(served.next().await.unwrap().unwrap(), Message::text(r#"{"op":"subscribe"}"#));
    say(&mut served, r#"{"price": 1.5}"#).await;
    say(&mut served, "no JSON").await;
    served.send(Message::binary(vec![0_u8, 255])).await.unwrap();
    assert_eq!(trial.emitted().await.unwrap(), json!({"price": 1.5}));
    assert_eq!(trial.emitted().await.unwrap(), json!("no JSON"));
    assert_eq!(trial.emitted().await.unwrap(), json!({"base64": "AP8="}));
    assert!(kept.is_ready());
    let lines = trial.logged().join("\n");
    assert!(lines.contains(&format!("connected to ws://{address}/feed?token=…")), "{lines}");
    assert!(!lines.contains("hunter2") && !lines.contains("ss@"), "{lines}");
    let (stopped, code) = tokio::join!(trial.stop(), closed(&mut served));
    assert_eq!((stopped.unwrap().unwrap(), code), (Exit::Done, 1001));
}

#[tokio::test]
async fn it_connects_again_after_every_kind_of_end() {
    let server = Server::new().await;
    let (mut trial, _) = server
        .start(json!({"max_message": 100, "reconnect": {"first": "10ms", "max": "20ms", "attempts": 20}}));
    // The server ends the connection without a word.
    drop(server.accept().await);
    until_logged(&trial, "connecting again in ").await;
    // It closes the connection with a code.
    let frame = CloseFrame { code: CloseCode::Restart, reason: "deploying".into() };
    server.accept().await.close(Some(frame)).await.unwrap();
    until_logged(&trial, "the server closed the connection with code 1012: deploying").await;
    // It sends a message that is too large, as one frame and as many.
    let mut served = server.accept().await;
    say(&mut served, &"x".repeat(101)).await;
    assert_eq!(closed(&mut served).await, 1009);
    until_logged(&trial, "larger than `max_message`, 100 bytes").await;
    // It sends no frame at all, and text that is not UTF-8.
    let mut served = server.accept().await;
    served.get_mut().write_all(&[0xff; 64]).await.unwrap();
    until_logged(&trial, "the server broke the protocol").await;
    let mut served = server.accept().await;
    served.get_mut().write_all(&[0x81, 2, 0xff, 0xff]).await.unwrap();
    until_logged(&trial, "not UTF-8").await;
    // It is overloaded, or answers no HTTP.
    server.refuse("503 Service Unavailable").await;
    until_logged(&trial, "the server answered 503 Service Unavailable").await;
    server.tcp().await.write_all(b"SSH-2.0-x\r\n\r\n").await.unwrap();
    // Then it works.
    say(&mut server.accept().await, "here").await;
    assert_eq!(trial.emitted().await.unwrap(), json!("here"));
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_server_that_stalls_is_left() {
    let server = Server::new().await;
    let (mut trial, _) = server.start(json!({"ping": "100ms", "pong_timeout": "200ms"}));
    // It accepts and then reads nothing, so that no pong is sent.
    let _stalled = server.accept().await;
    until_logged(&trial, "no answer to a ping within 200ms").await;
    // One that answers pings is kept, even if it sends nothing.
    let mut served = server.accept().await;
    for _ in 0..4 {
        assert_eq!(served.next().await.unwrap().unwrap(), Message::Ping("".into()));
    }
    say(&mut served, "still here").await;
    assert_eq!(trial.emitted().await.unwrap(), json!("still here"));
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    // Unless the spec limits the silence.
    let (trial, _) = server.start(json!({"silence": "100ms"}));
    let mut served = server.accept().await;
    assert_eq!(closed(&mut served).await, 1008);
    until_logged(&trial, "no message for 100ms").await;
    server.accept().await;
}

#[tokio::test]
async fn a_server_that_does_not_even_greet_is_left() {
    let server = Server::new().await;
    let (trial, kept) = server.start(json!({"connect_timeout": "100ms"}));
    let _stalled = server.tcp().await;
    until_logged(&trial, "no connection within 100ms").await;
    assert!(!kept.is_ready());
}

#[tokio::test]
async fn a_refusal_ends_the_attempt_and_names_the_cure() {
    for (status, told) in [
        (
            "403 Forbidden",
            "the server answered 403 Forbidden instead of opening a WebSocket; check `url`, `headers`",
        ),
        ("404 Not Found", "404 Not Found"),
        ("302 Found\r\nlocation: wss://u:hunter2@h/x", "it redirects to wss://h/x: write that in `url`"),
        ("200 OK", "200 OK"),
    ] {
        let server = Server::new().await;
        let (mut trial, kept) = server.start(json!({}));
        server.refuse(status).await;
        let error = trial.ended().await.unwrap().unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains("hunter2"), "{error}");
        assert!(!kept.is_ready());
    }
}

#[tokio::test]
async fn connections_in_a_row_that_do_not_last_end_the_attempt() {
    let server = Server::new().await;
    let reconnect = json!({"first": "10ms", "max": "10ms", "healthy_after": "1m", "attempts": 3});
    let (mut trial, _) = server.start(json!({ "reconnect": reconnect }));
    for _ in 0..3 {
        drop(server.accept().await);
    }
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("connection 3 in a row that did not last for 1m"), "{error}");
    // A connection that lasts makes the count start over.
    let reconnect = json!({"first": "10ms", "max": "10ms", "healthy_after": "0s", "attempts": 2});
    let (trial, _) = server.start(json!({ "reconnect": reconnect }));
    for _ in 0..5 {
        drop(server.accept().await);
    }
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn it_is_ready_when_its_spec_says_so() {
    let server = Server::new().await;
    let (mut trial, kept) = server.start(json!({"ready": "message"}));
    let mut served = server.accept().await;
    until_logged(&trial, "connected to").await;
    assert!(!kept.is_ready());
    say(&mut served, "first").await;
    trial.emitted().await.unwrap();
    assert!(kept.is_ready());
    drop(trial);
    let answer = json!({"pointer": "/type", "equals": "subscribed"});
    let spec = json!({"ready": "answer", "answer": answer, "subscribe": ["x"], "connect_timeout": "300ms"});
    let (mut trial, kept) = server.start(spec);
    let mut served = server.accept().await;
    say(&mut served, "subscribed").await;
    say(&mut served, r#"{"type": "other"}"#).await;
    trial.emitted().await.unwrap();
    trial.emitted().await.unwrap();
    assert!(!kept.is_ready());
    until_logged(&trial, "no answer to `subscribe` within 300ms").await;
    let mut served = server.accept().await;
    say(&mut served, r#"{"type": "subscribed"}"#).await;
    until("readiness", || kept.is_ready()).await;
}

#[tokio::test]
async fn a_slow_consumer_stops_the_server_and_loses_nothing() {
    const ALL: usize = 4000;
    let server = Server::new().await;
    let (mut trial, _) =
        server.start(json!({"buffer": 4, "ping": "100ms", "pong_timeout": "100ms", "silence": "1s"}));
    let mut served = server.accept().await;
    let mut sent = 0;
    // Until the buffers of both kernels and of the trial are full.
    let body = "x".repeat(20_000);
    loop {
        let sending = served.send(Message::text(format!("{sent} {body}")));
        match tokio::time::timeout(Duration::from_secs(1), sending).await {
            Ok(result) => result.unwrap(),
            Err(_blocked) => break,
        }
        sent += 1;
        assert!(sent < ALL, "nothing holds the server back");
    }
    // The message whose sending was interrupted is in the buffer of the server.
    let reading = async {
        for number in 0..=sent {
            let text = trial.emitted().await.unwrap();
            assert!(text.as_str().unwrap().starts_with(&format!("{number} ")), "{number}");
        }
    };
    let (flushed, ()) = tokio::join!(served.flush(), reading);
    flushed.unwrap();
    // The connection outlived the wait.
    say(&mut served, "after").await;
    assert_eq!(trial.emitted().await.unwrap(), json!("after"));
    assert_eq!(trial.logged().iter().filter(|line| line.starts_with("connected to")).count(), 1);
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_spec_that_no_schema_can_refuse_fails_with_the_member_and_the_cure() {
    for (spec, told) in [
        (json!({"url": "http://h/"}), "`url`: `http://h/` does not begin with ws://"),
        (json!({"url": "no u:hunter2@url"}), "`url`: "),
        (json!({"url": "ws://h/", "headers": {"a b": "x"}}), "`headers`: `a b`"),
        (json!({"url": "ws://h/", "headers": {"x": "hunter2\n"}}), "`headers`: the value of `x`"),
        (
            json!({"url": "ws://h/", "headers": {"Upgrade": "x"}}),
            "`headers`: `Upgrade` is set by the handshake",
        ),
        (json!({"url": "ws://h/", "subprotocols": ["a,b"]}), "`subprotocols`: `a,b`"),
        (json!({"url": "ws://h/", "ready": "answer"}), "`answer`: set `contains` or `pointer`"),
        (json!({"url": "ws://h/", "answer": {"equals": 1}}), "`answer`: `equals` needs `pointer`"),
    ] {
        let kept = Arc::new(Kept::default());
        let ended = start::<WebSocket>(spec, &kept, Vec::new()).ended().await.unwrap().unwrap();
        let Exit::Failed(reason) = ended else { panic!("{told}: it is done") };
        assert!(reason.contains(told) && !reason.contains("hunter2"), "{reason}");
    }
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_fit_the_host() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let trusting = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    super::request::CONFIG.set(Arc::new(trusting)).expect("no other test connects with TLS");
    let server = Server::new().await;
    let port = server.listener.local_addr().unwrap().port();
    let (mut trial, _) = server.start(json!({"url": format!("wss://localhost:{port}/")}));
    let mut served = accept_async(acceptor.accept(server.tcp().await).await.unwrap()).await.unwrap();
    served.send(Message::text("secret")).await.unwrap();
    assert_eq!(trial.emitted().await.unwrap(), json!("secret"));
    drop(trial);
    let (trial, _) = server.start(json!({"url": format!("wss://127.0.0.1:{port}/")}));
    assert!(acceptor.accept(server.tcp().await).await.is_err());
    until_logged(&trial, "certificate not valid for name").await;
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_never_connected_to() {
    let server = Server::new().await;
    let port = server.listener.local_addr().unwrap().port();
    for (host, settings) in [
        ("127.0.0.1", HttpSettings::default()),
        ("[::ffff:7f00:1]", HttpSettings::default()),
        ("localhost", HttpSettings::default()),
        (
            "localhost",
            HttpSettings {
                allow_hosts: vec!["other".to_owned()],
                allow_private: true,
                ..HttpSettings::default()
            },
        ),
    ] {
        let spec = server.spec(json!({
            "url": format!("ws://{host}:{port}/"), "reconnect": {"first": "10ms", "max": "20ms", "attempts": 1}
        }));
        let mut trial = start::<WebSocket>(spec, &Kept::default(), vec![shared(settings)]);
        let told = match trial.ended().await.unwrap() {
            Ok(Exit::Failed(reason)) => reason,
            Ok(_) => panic!("{host}: it is done"),
            Err(error) => error.to_string(),
        };
        assert!(told.contains("[service.http] allow_"), "{host}: {told}");
    }
    let connected = tokio::time::timeout(Duration::from_millis(10), server.listener.accept()).await;
    assert!(connected.is_err(), "{connected:?}");
}
