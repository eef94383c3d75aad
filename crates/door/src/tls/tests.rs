use super::testing::{Authority, dns, files, uri};
use super::*;
use crate::quota::Limit;
use crate::serve::{Limits, serve};
use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

fn name_in(names: Vec<rcgen::SanType>) -> Option<String> {
    let issued = Authority::new().issue(names);
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    ClientCertificate::read(&certificate).unwrap().name
}

#[test]
fn a_certificate_is_named_by_its_only_uri_or_its_only_host() {
    let ci = "spiffe://example.org/ci";
    assert_eq!(name_in(vec![dns("a.example"), uri(ci), dns("b.example")]).as_deref(), Some(ci));
    assert_eq!(name_in(vec![dns("A.example")]).as_deref(), Some("a.example"));
    assert_eq!(name_in(vec![uri(ci), uri("spiffe://example.org/admin")]), None, "it is open who it is");
    assert_eq!(name_in(vec![dns("a.example"), dns("b.example")]), None);
    assert_eq!(name_in(Vec::new()), None);
}

#[test]
fn files_that_cannot_be_used_are_named_and_the_previous_ones_stay() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let files = files(folder.path(), None);
    let told = |files: &Files| Tls::read(files.clone()).unwrap_err().to_string();
    assert!(told(&files).contains("tls.crt cannot be read"), "{}", told(&files));
    let first = authority.issue(vec![dns("localhost")]);
    first.write(folder.path());
    let tls = Tls::read(files.clone()).unwrap();
    let used = tls.config();
    tls.refresh();
    assert!(Arc::ptr_eq(&used, &tls.config()), "unchanged files are not parsed again");

    let second = authority.issue(vec![dns("localhost")]);
    let broken = [
        (&*second.certificate, &*first.key, "is not that of the first certificate"),
        ("", &*first.key, "tls.crt contains no certificate"),
        (&*first.certificate, "no key", "tls.key contains no private key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA", &*first.key, "tls.crt cannot be used"),
    ];
    for (certificate, key, why) in broken {
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        assert!(told(&files).contains(why), "{}", told(&files));
        tls.refresh();
        assert!(Arc::ptr_eq(&used, &tls.config()), "{why}");
    }
    second.write(folder.path());
    tls.refresh();
    assert!(!Arc::ptr_eq(&used, &tls.config()));
}

struct Server {
    address: SocketAddr,
    tls: Arc<Tls>,
    _serving: JoinSet<()>,
}

/// Responds with the name in the client's certificate.
async fn server(files: Files, limits: Limits) -> Server {
    let named = |client: Option<Extension<ClientCertificate>>| async {
        client.and_then(|Extension(it)| it.name).unwrap_or_else(|| "nobody".to_owned())
    };
    let app = Router::new().route("/", get(named));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Arc::new(Tls::read(files).unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, Some(Arc::clone(&tls)), app, limits, CancellationToken::new()));
    Server { address, tls, _serving: serving }
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Sends a request over TLS and reads the whole response.
async fn ask(server: &Server, client: rustls::ClientConfig) -> std::io::Result<String> {
    let stream = TcpStream::connect(server.address).await?;
    let connector = TlsConnector::from(Arc::new(client));
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await?;
    stream.write_all(ASK).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Reads until the server closes the connection.
async fn told(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(), Authority::new());
    first.issue(vec![dns("localhost")]).write(folder.path());
    let server = server(files(folder.path(), None), Limits::default()).await;
    assert!(ask(&server, first.client(None)).await.unwrap().ends_with("nobody"));
    assert!(ask(&server, second.client(None)).await.is_err());
    let before = server.tls.config();
    second.issue(vec![dns("localhost")]).write(folder.path());
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let taken = async {
        while Arc::ptr_eq(&before, &server.tls.config()) {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), taken).await.expect("the listener reads the files again");
    assert!(ask(&server, second.client(None)).await.unwrap().ends_with("nobody"));
    assert!(ask(&server, first.client(None)).await.is_err());
}

#[tokio::test]
async fn a_client_certificate_is_verified_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let (own, theirs) = (Authority::new(), Authority::new());
    own.issue(vec![dns("localhost")]).write(folder.path());
    let server = server(files(folder.path(), Some((&theirs, false))), Limits::default()).await;
    let ci = vec![uri("spiffe://example.org/ci")];
    let known = own.client(Some(&theirs.issue(ci.clone())));
    assert!(ask(&server, known).await.unwrap().ends_with("spiffe://example.org/ci"));
    assert!(ask(&server, own.client(None)).await.unwrap().ends_with("nobody"));
    let forged = own.client(Some(&Authority::new().issue(ci)));
    assert!(ask(&server, forged).await.is_err(), "an unknown authority issued it");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.issue(vec![dns("localhost")]).write(folder.path());
    let server = server(files(folder.path(), Some((&authority, true))), Limits::default()).await;
    assert!(ask(&server, authority.client(None)).await.is_err());
    let known = authority.client(Some(&authority.issue(vec![dns("ci.example")])));
    assert!(ask(&server, known).await.unwrap().ends_with("ci.example"));
}

#[tokio::test]
async fn a_request_without_tls_is_told_to_use_it() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().issue(vec![dns("localhost")]).write(folder.path());
    let server = server(files(folder.path(), None), Limits::default()).await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(ASK).await.unwrap();
    plain.shutdown().await.unwrap();
    let refused = told(plain).await;
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("use https://"), "{refused}");
    assert!(head.ends_with(&format!("content-length: {}", body.len())), "{refused}");
}

#[tokio::test]
async fn a_handshake_has_a_time_limit_and_counts_as_a_connection() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.issue(vec![dns("localhost")]).write(folder.path());
    let limits = Limits {
        handshake_within: Duration::from_millis(300),
        connections: Limit { total: 1, per_client: 1 },
        ..Limits::default()
    };
    let server = server(files(folder.path(), None), limits).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    let mut begun = TcpStream::connect(server.address).await.unwrap();
    begun.write_all(&[22, 3, 1]).await.unwrap();
    // Each waits for the one before it, and this request for both.
    assert!(ask(&server, authority.client(None)).await.unwrap().ends_with("nobody"));
    assert_eq!(told(idle).await, "");
    // Closed with an alert of TLS, or without.
    assert!(begun.read_to_end(&mut Vec::new()).await.is_ok());
}

#[tokio::test]
async fn only_http_1_is_negotiated() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.issue(vec![dns("localhost")]).write(folder.path());
    let server = server(files(folder.path(), None), Limits::default()).await;
    let mut client = authority.client(None);
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}
