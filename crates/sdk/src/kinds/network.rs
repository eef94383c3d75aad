//! The hosts and addresses to which observers of kinds `http` and `websocket` may connect.
//!
//! The service checks the host of a URL before the first request, and the addresses of the host before each connection,
//! because the owner of a name can change its addresses at any time.

mod reach;

use everwatch_core::redact::redacted;
use reach::{Reach, reach};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Any host.
const ANY: &str = "*";

/// The hosts and addresses to which `http` and `websocket` may connect: the section `[service.http]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSettings {
    /// Names or addresses of hosts, or `*.example.org` for all hosts below a domain; `*` is any.
    pub allow_hosts: Vec<String>,
    /// Whether all these hosts may have addresses that are not public.
    pub allow_private: bool,
    /// Hosts and addresses that are allowed in addition, and need not be public.
    pub allow_private_hosts: Vec<String>,
}

impl Default for HttpSettings {
    /// Every host that has a public address.
    fn default() -> Self {
        Self { allow_hosts: vec![ANY.to_owned()], allow_private: false, allow_private_hosts: Vec::new() }
    }
}

impl HttpSettings {
    /// Checks the lists themselves.
    ///
    /// # Errors
    /// Names the key in `[service.http]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(wrong) = self.allow_hosts.iter().find(|it| !is_pattern(it)) {
            return Err(format!(
                "allow_hosts: `{wrong}` is not a host; write a name such as api.example.org or *.example.org (in its xn-- \
                 form if it has other letters than ASCII), or an address, without scheme and port, or \"*\""
            ));
        }
        match self.allow_private_hosts.iter().find(|it| it.starts_with('*') || !is_pattern(it)) {
            Some(wrong) => Err(format!(
                "allow_private_hosts: `{wrong}` is not a single host; write its full name or an address, without scheme \
                 and port"
            )),
            None => Ok(()),
        }
    }

    /// Checks the host of a URL, and its address if the host is one.
    ///
    /// # Errors
    /// Names the refused host and the setting that allows it.
    pub(super) fn ensure_allowed(&self, url: &Url) -> Result<(), String> {
        let host = host(url);
        self.check_listed(host)?;
        match host.parse() {
            Ok(address) => self.check_address(host, address),
            Err(_is_a_name) => Ok(()),
        }
    }

    /// The addresses of a host that observers may connect to.
    ///
    /// # Errors
    /// If the host or all its addresses are refused, or its name cannot be resolved.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        self.check_listed(host).map_err(refuse)?;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in tokio::net::lookup_host((host, port)).await? {
            match self.check_address(host, address.ip()) {
                Ok(()) => allowed.push(address),
                Err(why) => {
                    tracing::debug!(host, address = %address.ip(), "observers may not connect to this address");
                    refused = refused.or(Some(why));
                }
            }
        }
        match refused {
            Some(why) if allowed.is_empty() => Err(refuse(why)),
            _ => Ok(allowed),
        }
    }

    /// Whether the host is in `allow_private_hosts`.
    pub(super) fn is_private_host(&self, host: &str) -> bool {
        self.allow_private_hosts.iter().any(|it| names(it, host))
    }

    fn check_listed(&self, host: &str) -> Result<(), String> {
        let is_listed = |it: &String| it == ANY || names(it, host) || is_below(host, it);
        if self.allow_hosts.iter().any(is_listed) || self.is_private_host(host) {
            return Ok(());
        }
        Err(format!("host `{host}` is not in [service.http] allow_hosts of this service; add it there"))
    }

    /// The error about a name does not tell the address, which may be known only inside the operator's network.
    fn check_address(&self, host: &str, address: IpAddr) -> Result<(), String> {
        if self.is_private_host(&address.to_string()) {
            return Ok(());
        }
        let is_literal = host.parse() == Ok(address);
        match (reach(address), is_literal) {
            (Reach::Public, _) => Ok(()),
            (Reach::Private, _) if self.allow_private || self.is_private_host(host) => Ok(()),
            (Reach::Private, true) => Err(format!(
                "address `{host}` is not public; add it to [service.http] allow_private_hosts of this service"
            )),
            (Reach::Private, false) => Err(format!(
                "host `{host}` has no public address; add it to [service.http] allow_private_hosts of this service"
            )),
            (Reach::Credentials, true) => Err(format!(
                "clouds serve the credentials of machines at addresses such as `{host}`; if observers need it, add it to \
                 [service.http] allow_private_hosts of this service"
            )),
            (Reach::Credentials, false) => Err(format!(
                "host `{host}` has an address at which clouds serve the credentials of machines; if observers need it, \
                 add the address to [service.http] allow_private_hosts of this service"
            )),
        }
    }
}

/// The error about the host of a URL. If the URL has an unescaped `#` or `/` in its password, what looks like the host is a
/// part of the credentials: then the error does not contain it.
pub(super) fn refusal(written: &str, url: &Url, refused: &str) -> String {
    let authority_ends_early = url.username().is_empty() && written.contains('@');
    if authority_ends_early {
        return format!(
            "`url`: the host of `{}` is not allowed by [service.http] of this service",
            redacted(written)
        );
    }
    format!("`url`: {refused}")
}

/// The host of a URL, an IPv6 address without its brackets.
pub(super) fn host(url: &Url) -> &str {
    let host = url.host_str().unwrap_or_default();
    host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host)
}

/// The name without the final dot that says that it is complete.
fn without_final_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether both are one name or one address.
pub(super) fn names(pattern: &str, host: &str) -> bool {
    without_final_dot(pattern).eq_ignore_ascii_case(without_final_dot(host))
        || matches!((pattern.parse::<IpAddr>(), host.parse::<IpAddr>()), (Ok(one), Ok(other)) if one == other)
}

fn is_below(host: &str, pattern: &str) -> bool {
    let Some(domain) = pattern.strip_prefix('*').map(without_final_dot) else { return false };
    let host = without_final_dot(host);
    let cut = host.len().checked_sub(domain.len()).filter(|cut| *cut > 0);
    cut.and_then(|cut| host.get(cut..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
}

/// A name whose last label is a number would be read as an address: URLs write `0x7f.1` for 127.0.0.1.
fn is_pattern(pattern: &str) -> bool {
    if pattern == ANY || pattern.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = without_final_dot(pattern.strip_prefix("*.").unwrap_or(pattern));
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_'))
    };
    let is_number = |label: &str| label.starts_with("0x") || label.chars().all(|it| it.is_ascii_digit());
    name.split('.').all(is_label) && !name.rsplit('.').next().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|it| (*it).to_owned()).collect()
    }
    fn hosts(allow_hosts: &[&str]) -> HttpSettings {
        HttpSettings { allow_hosts: owned(allow_hosts), ..HttpSettings::default() }
    }
    fn private() -> HttpSettings {
        HttpSettings { allow_private: true, ..HttpSettings::default() }
    }
    fn with_private_hosts(list: &[&str]) -> HttpSettings {
        HttpSettings { allow_private_hosts: owned(list), ..hosts(&["example.org"]) }
    }
    fn checked(settings: &HttpSettings, host: &str) -> Result<(), String> {
        settings.ensure_allowed(&format!("http://{host}:81/x").parse().unwrap())
    }

    #[test]
    fn only_hosts_of_the_list_are_allowed() {
        let some = hosts(&["api.example.org", "*.feeds.example", "1.1.1.1", "2606:4700::1111"]);
        assert_eq!(some.check(), Ok(()));
        for host in [
            "API.example.org",
            "api.example.org.",
            "a.feeds.example",
            "a.b.Feeds.example",
            "[2606:4700:0::1111]",
        ] {
            assert_eq!(checked(&some, host), Ok(()), "{host}");
        }
        for host in
            ["example.org", "feeds.example", "xfeeds.example", "api.example.org.evil.example", "1.1.1.2"]
        {
            let refused = checked(&some, host).unwrap_err();
            assert!(
                refused.contains(&format!("host `{host}` is not in [service.http] allow_hosts")),
                "{refused}"
            );
        }
        for wrong in
            ["", "http://x", "x:80", "*.", "a.*.b", "*x", "a b", "*.*", "0x7f.1", "10.1", "2130706433"]
        {
            let error = hosts(&["*", wrong]).check().unwrap_err();
            assert!(error.starts_with(&format!("allow_hosts: `{wrong}`")), "{error}");
        }
        for wrong in ["*", "*.x", "x:80"] {
            let error = with_private_hosts(&[wrong]).check().unwrap_err();
            assert!(error.starts_with(&format!("allow_private_hosts: `{wrong}`")), "{error}");
        }
    }

    /// The same address has several notations in a URL.
    #[test]
    fn an_address_that_is_not_public_needs_a_permission() {
        let ways =
            ["127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1"];
        for host in ways {
            let refused = checked(&HttpSettings::default(), host).unwrap_err();
            assert!(refused.contains("is not public"), "{refused}");
            assert_eq!(checked(&private(), host), Ok(()), "{host}");
        }
        let credentials = ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "168.63.129.16"];
        for host in credentials {
            let refused = checked(&private(), host).unwrap_err();
            assert!(refused.contains("credentials of machines"), "{refused}");
        }
        let named = with_private_hosts(&["10.0.0.1", "169.254.169.254", "fe80::1", "device.example"]);
        assert_eq!(named.check(), Ok(()));
        for host in ["10.0.0.1", "169.254.169.254", "[fe80::1]", "device.example"] {
            assert_eq!(checked(&named, host), Ok(()), "{host}");
        }
    }

    /// The owner of a name can set it to any address.
    #[test]
    fn to_allow_a_name_does_not_allow_every_address() {
        let [here, cloud] = ["127.0.0.1", "169.254.169.254"].map(|it| it.parse().unwrap());
        let listed = hosts(&["partner.example"]);
        let refused = listed.check_address("partner.example", here).unwrap_err();
        assert!(refused.contains("has no public address") && !refused.contains("127"), "{refused}");
        let named = with_private_hosts(&["partner.example"]);
        assert_eq!(named.check_address("partner.example", here), Ok(()));
        for settings in [listed, named, private()] {
            let refused = settings.check_address("partner.example", cloud).unwrap_err();
            assert!(refused.contains("credentials of machines") && !refused.contains("169"), "{refused}");
        }
        assert_eq!(with_private_hosts(&["169.254.169.254"]).check_address("any.example", cloud), Ok(()));
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_checked_as_well() {
        let refused = HttpSettings::default().resolve("localhost", 80).await.unwrap_err().to_string();
        assert!(refused.contains("host `localhost` has no public address"), "{refused}");
        for allows in [private(), with_private_hosts(&["localhost"])] {
            assert!(!allows.resolve("localhost", 80).await.unwrap().is_empty());
        }
        let other = HttpSettings { allow_private: true, ..hosts(&["other"]) };
        let refused = other.resolve("localhost", 80).await.unwrap_err().to_string();
        assert!(refused.contains("host `localhost` is not in"), "{refused}");
    }
}
