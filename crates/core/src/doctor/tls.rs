//! Findings about connections that others on the network can read or change.

use super::{Facts, Finding, ManagerFacts, Server, Severity};
use std::net::IpAddr;
use url::Url;

/// How a manager reaches its database over the network. It has no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseLink {
    /// Host and port; `None`: a socket or the loopback interface.
    pub place: Option<String>,
    /// Such as `verify-full`.
    pub sslmode: String,
}

impl DatabaseLink {
    /// From the URL of a PostgreSQL database; `None` for other URLs. `environment`: the value of `PGSSLMODE`.
    #[must_use]
    pub fn of(url: &str, environment: Option<&str>) -> Option<Self> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "postgres" | "postgresql"))?;
        let parameter = |names: &[&str]| {
            url.query_pairs()
                .filter(|(name, _)| names.contains(&name.as_ref()))
                .last()
                .map(|(_, it)| it.into_owned())
        };
        let host = parameter(&["host", "hostaddr"])
            .or_else(|| url.host_str().map(str::to_owned))
            .unwrap_or_default();
        let is_socket =
            host.is_empty() || host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f");
        let port = parameter(&["port"]).and_then(|port| port.parse().ok()).or(url.port()).unwrap_or(5432);
        let place = (!is_socket && !is_loopback(&host)).then(|| format!("{host}:{port}"));
        let sslmode = parameter(&["sslmode", "ssl-mode"]).or_else(|| environment.map(str::to_owned));
        Some(Self { place, sslmode: sslmode.unwrap_or_else(|| "prefer".to_owned()).to_ascii_lowercase() })
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let broker = facts.server.as_ref().and_then(of_broker);
    of_api(&facts.manager).into_iter().chain(broker).chain(of_database(&facts.manager)).collect()
}

fn of_api(manager: &ManagerFacts) -> Option<Finding> {
    let listen = manager.listen.filter(|listen| !listen.ip().is_loopback() && !manager.tls)?;
    Some(Finding {
        code: "api-plain",
        severity: Severity::Warning,
        subject: "this manager".to_owned(),
        what: format!("the API listens on {listen} without TLS"),
        why: "anyone on the network between clients and the manager can read tokens and specs; a proxy in front of the \
              manager may terminate TLS, which the manager cannot see"
            .to_owned(),
        cure: "set `[manager] tls_cert_file` and `tls_key_file`, or listen on 127.0.0.1 behind a proxy with TLS".to_owned(),
    })
}

fn of_broker(server: &Server) -> Option<Finding> {
    server.plain_over_network.then(|| Finding {
        code: "broker-plain",
        severity: Severity::Warning,
        subject: server.place.clone(),
        what: "the connection with the broker has no TLS".to_owned(),
        why: "anyone on the network in between can read its password, and every spec and report".to_owned(),
        cure: "give RabbitMQ a TLS listener, use `amqps://` in `[broker] url` of managers and services, and set \
               `[broker] tls_ca_file` if its CA is your own"
            .to_owned(),
    })
}

fn of_database(manager: &ManagerFacts) -> Option<Finding> {
    let DatabaseLink { place, sslmode } = manager.database.as_ref()?;
    let place = place.as_ref()?;
    let why = match sslmode.as_str() {
        "verify-full" => return None,
        "verify-ca" => "any server with a certificate of that CA can pose as the database",
        "require" => {
            "the server's certificate is not verified: others on the network can pose as the database"
        }
        _ => "anyone on the network in between can read and change everything that the manager stores",
    };
    Some(Finding {
        code: "database-plain",
        severity: Severity::Warning,
        subject: "database".to_owned(),
        what: format!("the connection with the database at {place} uses sslmode {sslmode}"),
        why: why.to_owned(),
        cure:
            "add `sslmode=verify-full&sslrootcert=FILE` to `[store] url`, FILE being the CA of the database"
                .to_owned(),
    })
}
