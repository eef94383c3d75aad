//! Refuses requests that web pages of other sites make.
//!
//! A browser sends requests on behalf of every page that is open in it. Headers show which of them to refuse.
//! `Host` is the name to which the browser sends the request: a name that is not the listener's own means
//! that an attacker has pointed a domain at its address (DNS rebinding). `Sec-Fetch-Site` and `Origin` say
//! whether the page is the listener's own; if not, it is a cross-site request forgery. Programs other than
//! browsers send neither `Sec-Fetch-Site` nor `Origin` and are let in.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use std::fmt;
use std::net::IpAddr;

/// The names by which clients reach a listener, besides those that are always accepted: loopback names and IP
/// addresses, which no attacker controls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The listener does not have this name.
    Host(String),
    /// The request comes from a page of this origin; `None` if the browser does not name the origin.
    Page(Option<String>),
}

impl Hosts {
    /// Matches any name.
    pub const ANY: &'static str = "*";

    /// Names without ports; `*.` before a name admits all names below it, `*` alone admits any name.
    ///
    /// # Errors
    /// The first text that is not such a name.
    pub fn new(names: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let name = |given: String| {
            let name = given.to_ascii_lowercase();
            let labels = name.strip_prefix("*.").unwrap_or(&name);
            let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let is_name = !labels.is_empty() && !labels.starts_with('.') && labels.chars().all(letters);
            if is_name || name == Self::ANY { Ok(name) } else { Err(given) }
        };
        names.into_iter().map(name).collect::<Result<_, _>>().map(Self)
    }

    /// Adds a name; ignores a text that is not a name.
    #[must_use]
    pub fn and(mut self, name: Option<String>) -> Self {
        self.0.extend(Self::new(name).unwrap_or_default().0);
        self
    }

    /// Lets a request in or refuses it, by its method and its headers.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        let host = text(header::HOST);
        if let Some(host) = &host
            && !self.goes_by(host)
        {
            return Err(Refusal::Host(host.clone()));
        }
        let origin = text(header::ORIGIN);
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let reads = method.is_safe();
        let own = match (site, &origin) {
            (Some(b"same-origin" | b"none"), _) => true,
            // A page of another site may contain a link to the console.
            (Some(_), _) => reads && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate"),
            (None, Some(origin)) => reads || is_of(origin, host.as_deref()),
            (None, None) => true,
        };
        if own { Ok(()) } else { Err(Refusal::Page(origin)) }
    }

    fn goes_by(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(&name);
        if bare.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost") {
            return true;
        }
        self.0.iter().any(|known| match known.strip_prefix('*') {
            Some(below) => name.ends_with(below) && name.len() > below.len(),
            None => name == *known,
        })
    }
}

/// Whether an origin, such as `https://console.example:8443`, belongs to the requested host. Schemes are not
/// compared: a proxy may terminate TLS.
fn is_of(origin: &str, host: Option<&str>) -> bool {
    let of_host = |authority: &str, default: Option<u16>| {
        let authority = authority.parse::<Authority>().ok()?;
        let port = authority.port_u16().or(default).filter(|port| Some(*port) != default);
        Some((authority.host().to_ascii_lowercase(), port))
    };
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => return false,
    };
    let page = of_host(authority, default);
    page.is_some() && page == host.and_then(|host| of_host(host, default))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "this manager is not known as `{host}`; if the name is yours, add it to manager.hosts"
            ),
            Self::Page(Some(origin)) => write!(f, "a page of {origin} may not send this request"),
            Self::Page(None) => f.write_str("a page of another site may not send this request"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(hosts: &[&str], method: &Method, sent: &[(&'static str, &str)]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        Hosts::new(hosts.iter().map(|it| (*it).to_owned())).unwrap().admit(method, &headers)
    }

    #[test]
    fn only_names_that_cannot_be_pointed_elsewhere_are_known_from_the_start() {
        let known =
            ["localhost", "LocalHost:7700", "a.localhost", "127.0.0.1:7700", "[::1]:7700", "10.1.2.3"];
        for host in known {
            assert_eq!(admits(&[], &Method::POST, &[("host", host)]), Ok(()), "{host}");
        }
        let mine = &["manager", "*.example.org"];
        for host in ["manager", "Manager.:80", "a.example.org", "a.b.example.org:7700"] {
            assert_eq!(admits(mine, &Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        let strange = [
            "evil.example",
            "example.org",
            ".example.org",
            "manager.evil",
            "localhost.evil",
            "127.0.0.1.nip.io",
            "a b",
        ];
        for host in strange {
            let refused = admits(mine, &Method::GET, &[("host", host)]);
            assert_eq!(refused, Err(Refusal::Host(host.to_owned())));
        }
        assert_eq!(admits(&["*"], &Method::GET, &[("host", "evil.example")]), Ok(()));
    }

    #[test]
    fn programs_name_no_origin_and_are_let_in() {
        assert_eq!(admits(&[], &Method::DELETE, &[]), Ok(()));
        assert_eq!(admits(&[], &Method::POST, &[("host", "localhost:7700")]), Ok(()));
    }

    #[test]
    fn a_page_of_elsewhere_changes_nothing_and_reads_nothing() {
        let host = ("host", "localhost:7700");
        let page = |origin: &str| Err(Refusal::Page(Some(origin.to_owned())));
        for origin in ["https://evil.example", "null", "http://localhost:3000", "file://", "http://localhost"]
        {
            assert_eq!(admits(&[], &Method::POST, &[host, ("origin", origin)]), page(origin));
        }
        for site in ["cross-site", "same-site", "anything"] {
            for method in &[Method::POST, Method::DELETE, Method::GET] {
                let sent = [host, ("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")];
                assert_eq!(admits(&[], method, &sent), Err(Refusal::Page(None)), "{site}");
            }
            let navigation = [host, ("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
            assert_eq!(admits(&[], &Method::GET, &navigation), Ok(()), "a link to the console");
            assert_eq!(admits(&[], &Method::POST, &navigation), Err(Refusal::Page(None)), "a form");
        }
    }

    #[test]
    fn the_own_pages_are_let_in_behind_a_proxy_too() {
        let mine = &["console.example"];
        let pages = [
            ("localhost:7700", "http://localhost:7700"),
            ("console.example", "https://console.example"),
            ("console.example:443", "https://Console.example"),
        ];
        for (host, origin) in pages {
            assert_eq!(
                admits(mine, &Method::POST, &[("host", host), ("origin", origin)]),
                Ok(()),
                "{origin}"
            );
        }
        // A proxy forwards the request under another host name.
        let sent = [("host", "127.0.0.1"), ("origin", "https://a.b"), ("sec-fetch-site", "same-origin")];
        assert_eq!(admits(mine, &Method::POST, &sent), Ok(()));
    }

    #[test]
    fn what_is_no_name_is_refused_by_its_own() {
        for wrong in ["", "http://a", "a:80", "*.", "a b", "*a"] {
            assert_eq!(Hosts::new([wrong.to_owned()]), Err(wrong.to_owned()));
        }
    }
}
