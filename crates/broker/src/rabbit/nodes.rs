//! The nodes of a cluster and the credentials for them. With a file, a new password needs no restart: the file is read
//! again for each connection.

use super::reread::Reread;
use super::{place, read};
use crate::port::ConnectError;
use lapin::uri::{AMQPScheme, AMQPUri};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The form of a URL, for errors.
pub(super) const FORM: &str =
    "amqp://user:password@host:5672/vhost (amqps:// for TLS; the vhost \"/\" is written %2f)";

pub(super) struct Nodes {
    pub(super) heartbeat: Duration,
    needs_tls: bool,
    urls: Reread<Arc<[AMQPUri]>>,
}

impl Nodes {
    pub(super) fn new(urls: &str, heartbeat: Duration) -> Result<Self, ConnectError> {
        let urls = Reread::new("broker.url_file", parse(urls, heartbeat)?);
        Ok(Self { heartbeat, needs_tls: false, urls })
    }

    pub(super) fn set_file(&mut self, file: PathBuf) {
        self.urls.set_file(file);
    }

    /// From now on, no URL may be `amqp://`.
    pub(super) fn require_tls(&mut self) -> Result<(), ConnectError> {
        self.needs_tls = true;
        self.check(&self.last()).map_err(ConnectError::Refused)
    }

    /// The last valid nodes, without reading the file.
    pub(super) fn last(&self) -> Arc<[AMQPUri]> {
        self.urls.last()
    }

    /// Reads the file again. A file that is unusable changes nothing.
    pub(super) fn current(&self) -> Arc<[AMQPUri]> {
        self.urls.current(|text| {
            let nodes = parse(text, self.heartbeat).map_err(|error| error.to_string())?;
            self.check(&nodes).map(|()| nodes)
        })
    }

    /// A node with the credentials that are valid now.
    pub(super) fn renewed(&self, node: &AMQPUri) -> AMQPUri {
        let nodes = self.current();
        nodes.iter().find(|it| place(it) == place(node)).unwrap_or(node).clone()
    }

    fn check(&self, nodes: &[AMQPUri]) -> Result<(), String> {
        match nodes.iter().find(|node| self.needs_tls && node.scheme == AMQPScheme::AMQP) {
            None => Ok(()),
            Some(plain) => Err(format!(
                "the broker URL has amqp:// for {}; broker.tls_ca_file and broker.tls_cert_file need amqps://",
                place(plain)
            )),
        }
    }
}

fn parse(urls: &str, heartbeat: Duration) -> Result<Arc<[AMQPUri]>, ConnectError> {
    let nodes = urls
        .split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty())
        .map(|url| read(url, heartbeat))
        .collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        return Err(ConnectError::Refused(format!("no broker URL given: expected {FORM}")));
    }
    Ok(nodes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(nodes: &[AMQPUri]) -> Vec<String> {
        nodes.iter().map(|node| node.authority.userinfo.username.to_string()).collect()
    }

    #[test]
    fn a_file_is_read_again_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        let mut nodes = Nodes::new("amqps://first@a,amqps://first@b", Duration::from_secs(5)).unwrap();
        nodes.set_file(file.clone());
        nodes.require_tls().unwrap();
        assert_eq!(users(&nodes.current()), ["first", "first"], "there is no file");
        std::fs::write(&file, "amqps://second@a, amqps://third@b\n").unwrap();
        assert_eq!(users(&nodes.current()), ["second", "third"]);
        let node = nodes.last()[1].clone();
        std::fs::write(&file, "amqps://fourth@b,amqps://fourth@a").unwrap();
        assert_eq!(users(&[nodes.renewed(&node)]), ["fourth"]);
        for broken in ["", "http://x", "amqp://plain@a"] {
            std::fs::write(&file, broken).unwrap();
            assert_eq!(users(&nodes.current()), ["fourth", "fourth"], "{broken}");
        }
        std::fs::write(&file, "amqps://fifth@c").unwrap();
        assert_eq!(users(&[nodes.renewed(&node)]), ["third"], "a node that left keeps its credentials");
    }
}
