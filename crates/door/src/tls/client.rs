//! The names in a verified client certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// A client's certificate, verified by the handshake of its connection. Only this listener makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The one URI among its subject alternative names; without a URI, the one DNS name. `None`: it has no such name, or
    /// several.
    pub name: Option<String>,
    /// When it ends, in seconds since 1970.
    pub expires_at: i64,
}

impl ClientCertificate {
    /// From the certificate itself; `None` if it cannot be read.
    pub(crate) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let names = certificate.subject_alternative_name().ok()?;
        let names = names.map(|it| it.value.general_names.as_slice()).unwrap_or_default();
        let uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        });
        let hosts = names.iter().filter_map(|name| match name {
            GeneralName::DNSName(host) => Some(host.to_ascii_lowercase()),
            _ => None,
        });
        let (uris, hosts) = (uris.collect::<Vec<_>>(), hosts.collect::<Vec<_>>());
        let name = match (uris.as_slice(), hosts.as_slice()) {
            ([uri], _) => Some(uri.clone()),
            ([], [host]) => Some(host.clone()),
            _ => None,
        };
        Some(Self { name, expires_at: certificate.validity().not_after.timestamp() })
    }
}
