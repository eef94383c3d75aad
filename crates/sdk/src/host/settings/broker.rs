//! The section `[broker]`: where the broker is, and how connections with it are secured.

use super::SettingsError;
use crate::host::secret;
use everwatch_broker::{RabbitBroker, TlsFiles};
use everwatch_core::clock::friendly;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// `[broker]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Broker {
    /// URLs of the nodes of one cluster, comma-separated; tried in order.
    pub url: String,
    /// A file that contains the URL; it takes precedence over `url`.
    pub url_file: Option<PathBuf>,
    /// Prefix of all queue and exchange names; deployments that share a vhost need different prefixes.
    pub prefix: String,
    /// The number of state queues, 1 to 64; managers read as many, and services spread their reports over them.
    pub state_queues: u16,
    /// Whole seconds, 3 s to 60 s.
    #[serde(with = "friendly")]
    pub heartbeat: Duration,
    /// URL of RabbitMQ's management API, which `everwatch doctor` queries.
    pub management_url: Option<String>,
    /// A file that contains the URL; it takes precedence over `management_url`.
    pub management_url_file: Option<PathBuf>,
    /// PEM file with the CA of the broker; `None`: the authorities that this machine trusts.
    pub tls_ca_file: Option<PathBuf>,
    /// PEM file with the client certificate for the broker.
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with the private Ed25519 key with which managers sign work and commands. Services do not read it.
    pub sign_key_file: Option<PathBuf>,
    /// PEM file with the public keys of the managers; with it, services refuse work and commands that these have not signed.
    /// Managers do not read it.
    pub verify_keys_file: Option<PathBuf>,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned(),
            url_file: None,
            prefix: "everwatch.".to_owned(),
            state_queues: 1,
            heartbeat: Duration::from_secs(5),
            management_url: None,
            management_url_file: None,
            tls_ca_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            sign_key_file: None,
            verify_keys_file: None,
        }
    }
}

impl Broker {
    /// The client of this broker for a service, not connected yet.
    ///
    /// # Errors
    /// If a URL or a file cannot be read.
    pub fn for_service(&self) -> Result<RabbitBroker, SettingsError> {
        let broker = self.connectable()?;
        match &self.verify_keys_file {
            Some(file) => broker.with_verify_keys_file(file).map_err(SettingsError),
            None => Ok(broker),
        }
    }

    /// The client of this broker for a manager, not connected yet. `everwatch doctor` makes it query the management API.
    ///
    /// # Errors
    /// If a URL or a file cannot be read.
    pub fn for_manager(&self) -> Result<RabbitBroker, SettingsError> {
        let broker = self.inspectable()?;
        match &self.sign_key_file {
            Some(file) => broker.with_sign_key_file(file).map_err(SettingsError),
            None => Ok(broker),
        }
    }

    fn connectable(&self) -> Result<RabbitBroker, SettingsError> {
        let url = match &self.url_file {
            Some(file) => secret(file).map_err(|error| SettingsError(format!("broker.url_file: {error}")))?,
            None => self.url.clone(),
        };
        let broker = RabbitBroker::new(&url, &self.prefix, self.heartbeat)
            .map_err(|error| SettingsError(format!("broker.url: {error}")))?;
        let broker = match &self.url_file {
            Some(file) => broker.with_url_file(file),
            None => broker,
        };
        broker.with_tls(self.tls()?).map_err(|error| SettingsError(format!("broker.tls_*: {error}")))
    }

    /// # Errors
    /// Names the key that is missing.
    pub(super) fn tls(&self) -> Result<TlsFiles, SettingsError> {
        let wrong = |text: &str| Err(SettingsError(text.to_owned()));
        let identity = match (self.tls_cert_file.clone(), self.tls_key_file.clone()) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => {
                return wrong(
                    "broker.tls_cert_file: set broker.tls_key_file too, the file with its private key",
                );
            }
            (None, Some(_)) => {
                return wrong(
                    "broker.tls_key_file: set broker.tls_cert_file too, the file with its certificate",
                );
            }
        };
        Ok(TlsFiles { ca: self.tls_ca_file.clone(), identity })
    }

    /// The client of this broker with its management API.
    ///
    /// # Errors
    /// If a URL cannot be read.
    pub fn inspectable(&self) -> Result<RabbitBroker, SettingsError> {
        let wrong = |error: &dyn Display| SettingsError(format!("broker.management_url: {error}"));
        let url = match &self.management_url_file {
            Some(file) => Some(secret(file).map_err(|error| wrong(&error))?),
            None => self.management_url.clone().filter(|url| !url.is_empty()),
        };
        let broker = self.connectable()?;
        let Some(url) = url else { return Ok(broker) };
        let broker = broker.with_management(&url).map_err(|error| wrong(&error))?;
        Ok(match &self.management_url_file {
            Some(file) => broker.with_management_file(file),
            None => broker,
        })
    }
}
