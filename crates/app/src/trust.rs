//! TLS of the connection with a manager: which certificates the command trusts, which it presents, and what its errors
//! mean.

use clap::Args;
use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The files that the command line or the environment names. These arguments are global, so their ids must differ from those of
/// all other arguments.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsFiles {
    /// CA of the manager for https://, in PEM form
    #[arg(
        id = "tls-ca-file",
        long = "ca-file",
        env = "EVERWATCH_CA_FILE",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Global options",
        display_order = 103
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate, in PEM form
    #[arg(
        id = "tls-cert-file",
        long = "cert-file",
        env = "EVERWATCH_CERT_FILE",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Global options",
        display_order = 104
    )]
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(
        id = "tls-key-file",
        long = "key-file",
        env = "EVERWATCH_KEY_FILE",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Global options",
        display_order = 105
    )]
    pub(crate) key: Option<PathBuf>,
}

static FILES: OnceLock<TlsFiles> = OnceLock::new();

/// Uses these files for all connections.
pub(crate) fn use_files(files: TlsFiles) {
    let _already_set = FILES.set(files);
}

/// Adds the trusted CA and the client certificate.
///
/// # Errors
/// Names the file that cannot be used.
pub(crate) fn trusting(builder: ClientBuilder) -> Result<ClientBuilder, String> {
    match FILES.get() {
        Some(files) => files.apply(builder),
        None => Ok(builder),
    }
}

impl TlsFiles {
    fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, String> {
        if let Some(file) = &self.ca {
            let authorities = Certificate::from_pem_bundle(&read("--ca-file", file)?).unwrap_or_default();
            if authorities.is_empty() {
                let text = format!(
                    "--ca-file {}: contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
                    file.display()
                );
                return Err(text);
            }
            builder = builder.tls_certs_only(authorities);
        }
        let usage = |text: &str| Err(text.to_owned());
        match (&self.certificate, &self.key) {
            (None, None) => Ok(builder),
            (Some(_), None) => usage("--cert-file: name the file of its private key too, with --key-file"),
            (None, Some(_)) => usage("--key-file: name the file of its certificate too, with --cert-file"),
            (Some(certificate), Some(key)) => {
                let mut both = read("--cert-file", certificate)?;
                both.push(b'\n');
                both.extend(read("--key-file", key)?);
                let identity = Identity::from_pem(&both).map_err(|error| {
                    let (certificate, key) = (certificate.display(), key.display());
                    format!(
                        "--cert-file {certificate} and --key-file {key} are not a certificate and its private key in \
                         PEM form: {}",
                        innermost(&error)
                    )
                })?;
                Ok(builder.identity(identity))
            }
        }
    }
}

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{flag} {}: {error}", file.display()))
}

/// The last cause of an error.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// The meaning and the cure of an error of TLS; `None` for other errors.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    Some(match of_tls(error)? {
        rustls::Error::InvalidCertificate(why) => of_certificate(why),
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the manager requires a client certificate: name yours with --cert-file and --key-file".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!(
            "the manager refuses the TLS connection ({alert:?}): check the client certificate (--cert-file): is it \
             expired, or not issued by the CA that the manager trusts?"
        ),
        rustls::Error::InvalidMessage(_) => {
            "the server speaks no TLS there: use http:// in --server, or another port".to_owned()
        }
        other => format!("TLS failed: {other}"),
    })
}

fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    match error.downcast_ref::<std::io::Error>() {
        // An I/O error names the cause of its content as its own cause.
        Some(error) => of_tls(error.get_ref()?),
        None => of_tls(error.source()?),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    let expired = "renew it, or correct the clock of this machine";
    match why {
        CertificateError::UnknownIssuer => {
            "an unknown authority issued its certificate: name the file of its CA with --ca-file or \
             EVERWATCH_CA_FILE"
                .to_owned()
        }
        CertificateError::NotValidForName => {
            "its certificate is for another host name: use that name in --server".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for {}, not for {}: use the name of the certificate in --server, or add the other \
             one to the certificate",
            presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "),
            shown(expected)
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("its certificate has expired: {expired}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet: {expired}")
        }
        other => format!("its certificate cannot be accepted: {other:?}"),
    }
}

/// A name without the kind that the library writes around it: `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"')
}

fn shown(name: &ServerName<'_>) -> String {
    name.to_str().into_owned()
}

#[cfg(test)]
mod tests;
