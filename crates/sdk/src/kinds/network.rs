//! Which hosts observers of kinds `http` and `websocket` may connect to.
//!
//! The host of a URL is checked before the first connection, and its addresses at each one: whoever controls the name of
//! a host controls its addresses, and may change them after any earlier check.

mod reach;

use reach::{Reach, reach};
use reqwest::Url;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Any host.
const ANY: &str = "*";

/// What `http` and `websocket` may connect to from a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Names or addresses of hosts, or `*.example.org` for all hosts below a domain; `*` is any.
    pub allow_hosts: Vec<String>,
    /// Whether a host may have a private address. One that `allow_hosts` names in full may always have one.
    pub allow_private: bool,
}

impl Default for HttpSettings {
    /// All hosts with public addresses.
    fn default() -> Self {
        Self { allow_hosts: vec![ANY.to_owned()], allow_private: false }
    }
}

impl HttpSettings {
    /// Checks the list itself.
    ///
    /// # Errors
    /// Names the key in `[service.http]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.allow_hosts.iter().find(|it| !is_pattern(it)) {
            Some(wrong) => Err(format!(
                "allow_hosts: `{wrong}` is not a host; write a name such as api.example.org or *.example.org, or an \
                 address, without scheme and port, or \"*\""
            )),
            None => Ok(()),
        }
    }

    /// Checks the host of a URL, and its address if the host is one.
    ///
    /// # Errors
    /// Names the host and the cure.
    pub(super) fn ensure_allowed(&self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        self.ensure_listed(host)?;
        match host.parse() {
            Ok(address) => self.ensure_reachable(host, address),
            Err(_is_a_name) => Ok(()),
        }
    }

    /// The addresses of a host that observers may connect to.
    ///
    /// # Errors
    /// If the host or all its addresses are refused, or its name cannot be resolved.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        self.ensure_listed(host).map_err(refuse)?;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in tokio::net::lookup_host((host, port)).await? {
            match self.ensure_reachable(host, address.ip()) {
                Ok(()) => allowed.push(address),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        match refused {
            Some(why) if allowed.is_empty() => Err(refuse(why)),
            _ => Ok(allowed),
        }
    }

    fn ensure_listed(&self, host: &str) -> Result<(), String> {
        let is_listed = self.allow_hosts.iter().any(|it| it == ANY || names(it, host) || is_below(host, it));
        if is_listed {
            return Ok(());
        }
        Err(format!("host `{host}` is not in [service.http] allow_hosts of this service; add it there"))
    }

    fn ensure_reachable(&self, host: &str, address: IpAddr) -> Result<(), String> {
        if self.allow_hosts.iter().any(|it| names(it, host)) {
            return Ok(());
        }
        let whose = if host.parse() == Ok(address) { String::new() } else { format!(" of host `{host}`") };
        match reach(address) {
            Reach::Public => Ok(()),
            Reach::Private if self.allow_private => Ok(()),
            Reach::Private => Err(format!(
                "address `{address}`{whose} is private: name the host in [service.http] allow_hosts of this service, or \
                 set allow_private there"
            )),
            Reach::LinkLocal => Err(format!(
                "address `{address}`{whose} is link-local, as the credentials of a cloud machine are: name the host in \
                 [service.http] allow_hosts of this service"
            )),
        }
    }
}

/// A final dot says that a name is complete.
fn plain(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn names(pattern: &str, host: &str) -> bool {
    plain(pattern).eq_ignore_ascii_case(plain(host))
        || matches!((pattern.parse::<IpAddr>(), host.parse::<IpAddr>()), (Ok(one), Ok(other)) if one == other)
}

fn is_below(host: &str, pattern: &str) -> bool {
    let Some(domain) = pattern.strip_prefix('*').map(plain) else { return false };
    let host = plain(host);
    let cut = host.len().checked_sub(domain.len()).filter(|cut| *cut > 0);
    cut.and_then(|cut| host.get(cut..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
}

fn is_pattern(pattern: &str) -> bool {
    if pattern == ANY || pattern.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = plain(pattern.strip_prefix("*.").unwrap_or(pattern));
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_'))
    };
    name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allow_hosts: &[&str], allow_private: bool) -> HttpSettings {
        HttpSettings { allow_hosts: allow_hosts.iter().map(|it| (*it).to_owned()).collect(), allow_private }
    }
    fn checked(settings: &HttpSettings, host: &str) -> Result<(), String> {
        settings.ensure_allowed(&format!("http://{host}:81/x").parse().unwrap())
    }

    #[test]
    fn only_hosts_of_the_list_are_allowed() {
        let some = settings(&["api.example.org", "*.feeds.example", "192.0.2.7", "2001:DB8::1"], false);
        assert_eq!(some.check(), Ok(()));
        for host in
            ["API.example.org", "api.example.org.", "a.feeds.example", "a.b.Feeds.example", "[2001:db8:0::1]"]
        {
            assert_eq!(checked(&some, host), Ok(()), "{host}");
        }
        for host in
            ["example.org", "feeds.example", "xfeeds.example", "api.example.org.evil.example", "192.0.2.8"]
        {
            let refused = checked(&some, host).unwrap_err();
            assert!(
                refused.contains(&format!("host `{host}` is not in [service.http] allow_hosts")),
                "{refused}"
            );
        }
        for wrong in ["", "http://x", "x:80", "*.", "a.*.b", "*x", "a b", "*.*"] {
            let error = settings(&["*", wrong], false).check().unwrap_err();
            assert!(error.starts_with(&format!("allow_hosts: `{wrong}`")), "{error}");
        }
    }

    /// A URL may write one address in many ways.
    #[test]
    fn a_private_address_needs_the_permission_or_its_name_in_the_list() {
        let ways =
            ["127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1"];
        for host in ways {
            let refused = checked(&settings(&["*"], false), host).unwrap_err();
            assert!(refused.contains("is private") && !refused.contains("of host"), "{refused}");
            assert_eq!(checked(&settings(&["*"], true), host), Ok(()), "{host}");
        }
        for host in ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"] {
            let refused = checked(&settings(&["*"], true), host).unwrap_err();
            assert!(refused.contains("is link-local"), "{refused}");
        }
        let named = settings(&["10.0.0.1", "169.254.169.254", "fe80::1"], false);
        for host in ["10.0.0.1", "169.254.169.254", "[fe80::1]"] {
            assert_eq!(checked(&named, host), Ok(()), "{host}");
        }
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_checked_as_well() {
        let refused = settings(&["*"], false).resolve("localhost", 80).await.unwrap_err().to_string();
        assert!(refused.contains("of host `localhost` is private"), "{refused}");
        for allows in [settings(&["*"], true), settings(&["localhost"], false)] {
            assert!(!allows.resolve("localhost", 80).await.unwrap().is_empty());
        }
        let refused = settings(&["other"], true).resolve("localhost", 80).await.unwrap_err().to_string();
        assert!(refused.contains("host `localhost` is not in"), "{refused}");
    }
}
