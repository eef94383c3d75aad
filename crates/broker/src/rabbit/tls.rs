//! TLS of connections with RabbitMQ, with a CA and a client certificate of the deployment's own. The files are read for
//! each connection, so that new ones need no restart.

use async_rs::{Runtime, Tokio};
use lapin::tcp::{AMQPUriTcpExt as _, AsyncTcpStream, RustlsConnector, RustlsConnectorConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Files in PEM form. Without any, connections trust the authorities that this machine trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The only authorities that are trusted.
    pub ca: Option<PathBuf>,
    /// The client certificate and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

pub(super) type Stream = AsyncTcpStream<<Tokio as async_rs::traits::Reactor>::TcpStream>;

impl TlsFiles {
    pub(super) fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// Connects to a node, over TLS if its URL says so.
    pub(super) async fn connect(&self, node: &AMQPUri, runtime: &Runtime<Tokio>) -> io::Result<Stream> {
        if node.scheme == AMQPScheme::AMQP || !self.is_set() {
            return node.connect_async(runtime).await;
        }
        let connector = self.connector()?;
        let host = &node.authority.host;
        let addresses = runtime.to_socket_addrs((host.clone(), node.authority.port));
        AsyncTcpStream::connect(runtime, addresses).await?.into_rustls(&connector, host).await
    }

    /// What connections use.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub(super) fn connector(&self) -> io::Result<RustlsConnector> {
        let trusted = match &self.ca {
            Some(file) => RustlsConnectorConfig::default().with_parsable_certificates(certificates(file)?),
            None => RustlsConnectorConfig::new_with_native_certs()?,
        };
        let Some((certificate, key)) = &self.identity else { return trusted.connector_with_no_client_auth() };
        let chain = certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| {
            let text = format!(
                "{} contains no private key without a password: it must begin with -----BEGIN PRIVATE KEY-----",
                key.display()
            );
            io::Error::other(text)
        })?;
        trusted.connector_with_single_cert(chain, secret).map_err(|error| {
            let (certificate, key) = (certificate.display(), key.display());
            io::Error::other(format!(
                "{certificate} and {key} are not a certificate and its private key: {error}"
            ))
        })
    }

    /// The bytes of the CA.
    pub(super) fn authorities(&self) -> io::Result<Option<Vec<u8>>> {
        self.ca.as_deref().map(read).transpose()
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{} cannot be read: {error}", file.display())))
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(&read(file)?).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| {
        let text = format!(
            "{} contains no certificate: it must begin with -----BEGIN CERTIFICATE-----",
            file.display()
        );
        io::Error::other(text)
    })
}

fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    match error.downcast_ref::<io::Error>() {
        // An I/O error names the cause of its content as its own cause.
        Some(error) => of_tls(error.get_ref()?),
        None => of_tls(error.source()?),
    }
}

/// What to do about an error of TLS.
pub(super) fn cure(error: &io::Error) -> Option<&'static str> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    match of_tls(error)? {
        InvalidCertificate(CertificateError::UnknownIssuer) => Some(
            "an unknown authority issued the broker's certificate: set broker.tls_ca_file to the file of its CA",
        ),
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("use the host name of the broker's certificate in broker.url"),
        InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            Some("renew the broker's certificate, or correct the clock of this machine")
        }
        AlertReceived(AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure) => {
            Some("the broker requires a client certificate: set broker.tls_cert_file and broker.tls_key_file")
        }
        AlertReceived(_) => Some(
            "the broker refuses the client certificate: check broker.tls_cert_file, and ssl_options.cacertfile of the \
             broker",
        ),
        InvalidMessage(_) => {
            Some("the broker speaks no TLS on this port: use amqp:// or the port of its TLS listener")
        }
        _ => None,
    }
}
