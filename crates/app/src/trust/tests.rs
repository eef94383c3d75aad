use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for a name, valid until the end of a year, with its key, both PEM.
fn issued(authority: &Authority, name: &str, year: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 12, 31);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

struct Server {
    port: u16,
    _serving: JoinSet<()>,
}

/// A server that answers every request with an empty object.
async fn server((certificate, key): (String, String), clients: Option<&Authority>) -> Server {
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.read(&mut [0; 4096]).await.is_ok_and(|size| size > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    Server { port, _serving: serving }
}

/// What a request with these files is told.
async fn told(url: &str, files: &TlsFiles) -> String {
    let _already_set = rustls::crypto::ring::default_provider().install_default();
    let http = files.apply(reqwest::Client::builder()).unwrap().no_proxy().build().unwrap();
    match http.get(url).send().await {
        Ok(answer) => answer.text().await.unwrap(),
        Err(error) => explain(&error).unwrap_or_else(|| panic!("{error:?} is not explained")),
    }
}

#[tokio::test]
async fn errors_of_tls_name_their_cause_and_cure() {
    let (folder, own) = (tempfile::tempdir().unwrap(), authority());
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, own.pem()).unwrap();
    let trusts = TlsFiles { ca: Some(ca), ..TlsFiles::default() };

    let good = server(issued(&own, "localhost", 4000), None).await;
    let url = format!("https://localhost:{}/", good.port);
    assert_eq!(told(&url, &trusts).await, "{}");
    let unknown = told(&url, &TlsFiles::default()).await;
    assert!(unknown.contains("unknown authority") && unknown.contains("--ca-file"), "{unknown}");

    let other = server(issued(&own, "manager.example", 4000), None).await;
    let wrong = told(&format!("https://localhost:{}/", other.port), &trusts).await;
    assert!(wrong.contains("is for manager.example, not for localhost"), "{wrong}");

    let old = server(issued(&own, "localhost", 2020), None).await;
    let expired = told(&format!("https://localhost:{}/", old.port), &trusts).await;
    assert!(expired.contains("has expired: renew it"), "{expired}");

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", plain.local_addr().unwrap().port());
    let answering = async {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream.read_to_end(&mut Vec::new()).await
    };
    let (_, not_tls) = tokio::join!(answering, told(&url, &trusts));
    assert!(not_tls.contains("speaks no TLS"), "{not_tls}");
}

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let (folder, own) = (tempfile::tempdir().unwrap(), authority());
    let [ca, certificate, key] = ["ca.crt", "me.crt", "me.key"].map(|name| folder.path().join(name));
    std::fs::write(&ca, own.pem()).unwrap();
    let (pem, secret) = issued(&own, "ci.example", 4000);
    std::fs::write(&certificate, pem).unwrap();
    std::fs::write(&key, secret).unwrap();
    let strict = server(issued(&own, "localhost", 4000), Some(&own)).await;
    let url = format!("https://localhost:{}/", strict.port);
    let trusts = TlsFiles { ca: Some(ca), ..TlsFiles::default() };
    let refused = told(&url, &trusts).await;
    assert!(
        refused.contains("requires a client certificate") && refused.contains("--cert-file"),
        "{refused}"
    );
    let known = TlsFiles { certificate: Some(certificate.clone()), key: Some(key.clone()), ..trusts };
    assert_eq!(told(&url, &known).await, "{}");

    let half = TlsFiles { key: None, ..known.clone() };
    let refused = half.apply(reqwest::Client::builder()).unwrap_err();
    assert!(refused.contains("--key-file"), "{refused}");
    std::fs::write(&key, "nothing").unwrap();
    let refused = known.apply(reqwest::Client::builder()).unwrap_err();
    assert!(refused.contains("me.key"), "{refused}");
}
