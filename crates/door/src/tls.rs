//! TLS of a listener: reads the certificate, its key and the CA of client certificates from files, and reads them again
//! when they change. Knows no HTTP.

mod client;
#[cfg(test)]
pub(crate) mod testing;

pub use client::ClientCertificate;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{info, warn};

/// Where a listener's certificate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// PEM: the certificate, then the certificates of its issuers, without the root.
    pub certificate: PathBuf,
    /// PEM: the private key of the certificate.
    pub key: PathBuf,
    /// `None`: no client certificate is requested.
    pub clients: Option<Clients>,
}

/// Which client certificates are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// PEM: the certificates that issue them.
    pub ca: PathBuf,
    /// Whether clients without a certificate are refused.
    pub required: bool,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error("{} contains no certificate: it must begin with -----BEGIN CERTIFICATE-----", file.display())]
    NoCertificate { file: PathBuf },
    #[error("{} contains no private key without a password: it must begin with -----BEGIN PRIVATE KEY-----", file.display())]
    NoKey { file: PathBuf },
    #[error("the key in {} is not that of the first certificate in {}", key.display(), certificate.display())]
    OtherKey { certificate: PathBuf, key: PathBuf },
    #[error("{} cannot be used: {why}", file.display())]
    Unusable { file: PathBuf, why: String },
}

/// The certificate of a listener as it was read last.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    contents: Contents,
    config: Arc<ServerConfig>,
    /// Why newer files are not used, as it was logged.
    refused: Option<String>,
}

#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contents")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn read(files: Files) -> Result<Self, TlsError> {
        let contents = files.read()?;
        let config = files.config(&contents)?;
        Ok(Self { files, used: Mutex::new(Used { contents, config, refused: None }) })
    }

    /// What new connections use.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.used.lock().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Reads the files again. If they have changed, new connections use them; files that cannot be used are ignored
    /// with a warning.
    pub fn refresh(&self) {
        let read = self.files.read();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().is_ok_and(|contents| *contents == used.contents) {
            used.refused = None;
            return;
        }
        match read.and_then(|contents| Ok((self.files.config(&contents)?, contents))) {
            Ok((config, contents)) => {
                info!(file = %self.files.certificate.display(), "new connections use the new TLS certificate");
                *used = Used { contents, config, refused: None };
            }
            Err(error) => {
                let why = error.to_string();
                if used.refused.as_ref() != Some(&why) {
                    warn!(
                        error = why,
                        "the changed TLS files are not used; the previous certificate stays in use"
                    );
                    used.refused = Some(why);
                }
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<Contents, TlsError> {
        let read = |file: &Path| {
            std::fs::read(file).map_err(|error| TlsError::Unreadable { file: file.to_owned(), error })
        };
        Ok(Contents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_ca: self.clients.as_ref().map(|clients| read(&clients.ca)).transpose()?,
        })
    }

    fn config(&self, contents: &Contents) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate, &contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|_| TlsError::NoKey { file: self.key.clone() })?;
        let unusable = |file: &Path, why: String| TlsError::Unusable { file: file.to_owned(), why };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, error.to_string()))?;
        let builder = match self.clients.as_ref().zip(contents.client_ca.as_ref()) {
            None => builder.with_no_client_auth(),
            Some((clients, text)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(&clients.ca, text)? {
                    roots.add(certificate).map_err(|error| unusable(&clients.ca, error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|error| unusable(&clients.ca, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::OtherKey { certificate: self.certificate.clone(), key: self.key.clone() }
            }
            error => unusable(&self.certificate, error.to_string()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.clients.is_some() {
            // A resumed session would accept a certificate as it was verified earlier: it may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Unusable { file: file.to_owned(), why: error.to_string() })?;
    if all.is_empty() { Err(TlsError::NoCertificate { file: file.to_owned() }) } else { Ok(all) }
}

#[cfg(test)]
mod tests;
