//! RabbitMQ: parses the URLs, opens sessions, and runs lapin on a runtime of its own, so that a blocked
//! runtime of the caller does not stop the heartbeats.

mod acceptance;
mod asking;
mod channel;
mod consumer;
mod declare;
mod exchanges;
mod known_exchanges;
mod management;
mod nodes;
mod publisher;
mod receipts;
mod remove;
mod reread;
mod session;
mod tls;
mod version;

pub use tls::TlsFiles;

use crate::port::{Broker, ConnectError, QueueKind, Session};
use crate::signing::{Signer, Signing, Verifier};
use async_trait::async_trait;
use everwatch_core::doctor::{Management, Server};
use everwatch_core::redact::redacted;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use nodes::{FORM, Nodes};
use reread::Reread;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// The time limit for opening both connections to one node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the broker's greeting; after it, the version counts as unknown.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest frame, in bytes, where the URL names none. lapin reserves two buffers of 32 frames for each connection,
/// and traffic touches all of them: with the 128 KiB that RabbitMQ offers, they take 8 MiB of memory.
const FRAME_MAX: u32 = 16 * 1024;

/// The nodes of one RabbitMQ cluster. Works while at least one of them answers.
pub struct RabbitBroker {
    nodes: Arc<Nodes>,
    tls: TlsFiles,
    prefix: String,
    signing: Signing,
    /// URL of RabbitMQ's own HTTP API.
    management: Option<Reread<String>>,
    runtime: Arc<AmqpRuntime>,
}

impl RabbitBroker {
    /// `urls`: the nodes of one cluster, separated by commas, tried in order. `prefix`: of the names of
    /// the deployment's queues. `heartbeat`: whole seconds, 1 to 65,535.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if a URL cannot be read (its password hidden) or no thread can be started.
    pub fn new(urls: &str, prefix: &str, heartbeat: Duration) -> Result<Self, ConnectError> {
        let nodes = Arc::new(Nodes::new(urls, heartbeat)?);
        let runtime = Arc::new(AmqpRuntime::start()?);
        let tls = TlsFiles::default();
        let signing = Signing::default();
        Ok(Self { nodes, tls, prefix: prefix.to_owned(), signing, management: None, runtime })
    }

    /// The URLs are in this file, which is read again for each connection. A file that cannot be used is logged and
    /// changes nothing.
    #[must_use]
    pub fn with_url_file(mut self, file: &Path) -> Self {
        self.nodes_mut().set_file(file.to_owned());
        self
    }

    /// The vhost of its URLs.
    #[must_use]
    pub fn vhost(&self) -> String {
        self.nodes.last().first().map_or_else(|| "/".to_owned(), |node| node.vhost.clone())
    }

    fn nodes_mut(&mut self) -> &mut Nodes {
        Arc::get_mut(&mut self.nodes).expect("shared by sessions only, and none has begun")
    }

    /// With a CA or a client certificate for `amqps://`. The files are read for each connection.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if a file cannot be used, or if a URL is not `amqps://`.
    pub fn with_tls(mut self, files: TlsFiles) -> Result<Self, ConnectError> {
        if files.is_set() {
            self.nodes_mut().require_tls()?;
            files.connector().map_err(|error| ConnectError::Refused(error.to_string()))?;
        }
        self.tls = files;
        Ok(self)
    }

    /// Signs work and commands with the private key in this file, which is read again every 5 s.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn with_sign_key_file(mut self, file: &Path) -> Result<Self, String> {
        self.signing.signer = Some(Arc::new(Signer::open(file)?));
        Ok(self)
    }

    /// Verifies the signatures of what it receives with the public keys in this file, which is read again every 5 s, and
    /// tells in [`crate::Delivery::refused`] why a message is not genuine.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn with_verify_keys_file(mut self, file: &Path) -> Result<Self, String> {
        self.signing.verifier = Some(Arc::new(Verifier::open(file)?));
        Ok(self)
    }

    /// Where RabbitMQ's own HTTP API is, as `http://user:password@host:15672`; only [`Broker::inspect`] asks it.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if the URL cannot be read.
    pub fn with_management(mut self, url: &str) -> Result<Self, ConnectError> {
        management::check(url).map_err(|why| {
            let form = "http://user:password@host:15672";
            ConnectError::Refused(format!("cannot read the URL {} ({why}): expected {form}", redacted(url)))
        })?;
        self.management = Some(Reread::new("broker.management_url_file", url.to_owned()));
        Ok(self)
    }

    /// The URL of RabbitMQ's own HTTP API is in this file, which is read again for each request.
    #[must_use]
    pub fn with_management_file(mut self, file: &Path) -> Self {
        if let Some(management) = &mut self.management {
            management.set_file(file.to_owned());
        }
        self
    }

    async fn open(&self, node: &AMQPUri, name: &str) -> Result<Arc<dyn Session>, ConnectError> {
        let opening = async {
            let consume = self.dial(node, format!("{name} consume")).await?;
            let publish = self.dial(node, format!("{name} publish")).await?;
            let asking = asking::Asking::new(
                (node.clone(), Arc::clone(&self.nodes), self.tls.clone()),
                format!("{name} ask"),
                Arc::clone(&self.runtime),
            );
            let names = (self.prefix.as_str(), self.signing.clone());
            session::RabbitSession::start((consume, publish, asking), names, Arc::clone(&self.runtime)).await
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
            Ok(Ok(session)) => Ok(Arc::new(session)),
            Ok(Err(error)) => Err(explain(node, &error)),
            Err(_) => Err(ConnectError::Unreachable(format!(
                "RabbitMQ at {} did not answer within {} s",
                place(node),
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn dial(&self, node: &AMQPUri, name: String) -> lapin::Result<Connection> {
        dial(node, &self.tls, name, &self.runtime).await
    }
}

async fn dial(
    node: &AMQPUri,
    tls: &TlsFiles,
    name: String,
    runtime: &AmqpRuntime,
) -> lapin::Result<Connection> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = async_rs::Runtime::tokio_with_handle(runtime.handle().clone());
    let tls = tls.clone();
    let connect = async move |node: AMQPUri, runtime| Ok(tls.connect(&node, &runtime).await?);
    Connection::connector(node.clone(), runtime, connect, properties).await
}

#[async_trait]
impl Broker for RabbitBroker {
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError> {
        let mut silent = Vec::new();
        for node in self.nodes.current().iter() {
            match self.open(node, name).await {
                Ok(session) => return Ok(session),
                Err(ConnectError::Unreachable(why)) => silent.push(why),
                Err(refused @ ConnectError::Refused(_)) => return Err(refused),
            }
        }
        Err(ConnectError::Unreachable(silent.join("; ")))
    }

    async fn version(&self) -> Option<String> {
        let runtime = async_rs::Runtime::tokio_with_handle(self.runtime.handle().clone());
        for node in self.nodes.current().iter() {
            let asked = tokio::time::timeout(VERSION_TIMEOUT, version::of(node, &self.tls, &runtime)).await;
            if let Ok(Ok(Some(version))) = asked {
                return Some(version);
            }
        }
        None
    }

    fn signs(&self) -> bool {
        self.signing.signer.is_some()
    }

    async fn inspect(&self, queues: &[(String, QueueKind)]) -> Option<Server> {
        let nodes = self.nodes.last();
        let node = nodes.first()?;
        let management = async {
            match &self.management {
                Some(url) => {
                    management::ask(&current_url(url), &self.tls, (&node.vhost, &self.prefix), queues).await
                }
                None => Management::Unset,
            }
        };
        let (version, management) = tokio::join!(self.version(), management);
        Some(Server {
            place: nodes.iter().map(place).collect::<Vec<_>>().join(", "),
            vhost: node.vhost.clone(),
            version,
            guest_over_network: nodes.iter().any(is_guest_over_network),
            plain_over_network: nodes.iter().any(is_plain_over_network),
            heartbeat: self.nodes.heartbeat,
            management,
        })
    }
}

fn current_url(management: &Reread<String>) -> String {
    management.current(|text| management::check(text).map(|_| text.to_owned()))
}

fn is_guest_over_network(node: &AMQPUri) -> bool {
    node.authority.userinfo.username == "guest" && !is_local(node)
}

fn is_plain_over_network(node: &AMQPUri) -> bool {
    node.scheme == AMQPScheme::AMQP && !is_local(node)
}

fn is_local(node: &AMQPUri) -> bool {
    let host = node.authority.host.as_str();
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The runtime of the thread `amqp`. Sessions share it, so it lives as long as the [`RabbitBroker`] or any
/// session.
struct AmqpRuntime(Option<Runtime>);

impl AmqpRuntime {
    fn start() -> Result<Self, ConnectError> {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("amqp")
            .enable_all()
            .build()
            .map(|runtime| Self(Some(runtime)))
            .map_err(|e| ConnectError::Refused(format!("cannot start the thread for the broker: {e}")))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("taken only by drop").handle()
    }
}

impl Drop for AmqpRuntime {
    // A plain drop would wait for the thread to end, and waiting panics in an asynchronous caller.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn read(url: &str, heartbeat: Duration) -> Result<AMQPUri, ConnectError> {
    let refused = |why: &str| {
        ConnectError::Refused(format!(
            "cannot read the broker URL {} ({why}): expected {FORM}",
            redacted(url)
        ))
    };
    // lapin would silently connect to localhost if the URL has no `://` or no host.
    if url.split_once("://").is_none_or(|(_, rest)| rest.is_empty() || rest.starts_with('/')) {
        return Err(refused("no host"));
    }
    if url.contains("://[") || url.contains("@[") {
        return Err(refused("an IPv6 address; give a host name"));
    }
    let mut uri: AMQPUri = url.parse().map_err(|why: String| refused(&why))?;
    let seconds = u16::try_from(heartbeat.as_secs()).ok().filter(|seconds| *seconds > 0);
    let Some(seconds) = seconds else {
        return Err(ConnectError::Refused(format!(
            "the heartbeat of {heartbeat:?} is not between 1 s and 65535 s"
        )));
    };
    uri.query.heartbeat = Some(seconds);
    uri.query.frame_max.get_or_insert(FRAME_MAX);
    uri.query.connection_timeout = Some(10_000);
    Ok(uri)
}

fn place(node: &AMQPUri) -> String {
    format!("{}:{}", node.authority.host, node.authority.port)
}

/// Classifies an error: a retry may help, or an operator must act. The text then names the remedy.
fn explain(node: &AMQPUri, error: &lapin::Error) -> ConnectError {
    let (place, user, vhost) = (place(node), &node.authority.userinfo.username, &node.vhost);
    let code = if let ErrorKind::ProtocolError(said) = error.kind() { said.get_id() } else { 0 };
    let text = error.to_string();
    // RabbitMQ uses the code of a missing vhost also for a vhost that is starting and for a node that is
    // full.
    let passes = text.contains("is down") || text.contains("limit");
    match code {
        403 if text.contains("access to queue") || text.contains("access to exchange") => {
            ConnectError::Refused(format!(
                "RabbitMQ at {place} does not give user {user} the permissions that Everwatch needs in vhost {vhost} ({text}): \
                 run the commands that `everwatch broker permissions --vhost {vhost}` prints"
            ))
        }
        403 | 530 if text.contains("vhost") && !passes => ConnectError::Refused(format!(
            "RabbitMQ at {place} does not let user {user} into vhost {vhost} ({text}): \
             `rabbitmqctl add_vhost {vhost}` if it is missing, then run the commands that `everwatch broker permissions \
             --vhost {vhost}` prints"
        )),
        403 | 530 if !passes => ConnectError::Refused(format!(
            "RabbitMQ at {place} refuses user {user} ({text}): check user and password in the broker URL \
             (the user guest may log in only from the broker's own host)"
        )),
        _ => {
            let cure = if let ErrorKind::IOError(error) = error.kind() { tls::cure(error) } else { None };
            let cure = cure.map_or_else(String::new, |cure| format!(" ({cure})"));
            ConnectError::Unreachable(format!("RabbitMQ at {place} cannot be reached: {text}{cure}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_is_named_without_its_password() {
        for url in ["http://me:secret@host/", "amqp:/me:secret@host", "amqp://me:secret@[::1]/"] {
            let refused = RabbitBroker::new(url, "p.", Duration::from_secs(5)).err().unwrap().to_string();
            assert!(!refused.contains("secret"), "{refused}");
            assert!(refused.contains("host") && refused.contains("amqp://user:password"), "{refused}");
        }
        assert!(RabbitBroker::new(" , ", "p.", Duration::from_secs(5)).is_err());
        assert!(RabbitBroker::new("amqp://host", "p.", Duration::ZERO).is_err());
    }

    #[test]
    fn nodes_are_kept_in_order() {
        let broker = RabbitBroker::new("amqp://a/%2f, amqps://b", "p.", Duration::from_secs(5)).unwrap();
        assert_eq!(broker.nodes.current().iter().map(place).collect::<Vec<_>>(), ["a:5672", "b:5671"]);
    }
}
