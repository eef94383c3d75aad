//! `everwatch health`: checks whether a process on this host is healthy; for container health checks.

use crate::client::Failure;
use anyhow::Context as _;
use everwatch::dev::Settings;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(4);

/// # Errors
/// If the process does not respond with a success. The text contains the response.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(settings: &Settings, url: Option<String>) -> anyhow::Result<()> {
    let url = match url {
        Some(url) => url,
        None => format!("http://{}/readyz", near(&settings.manager.listen)?),
    };
    // Bypasses any proxy: the response must come from the process itself.
    let http = reqwest::Client::builder().no_proxy().timeout(WITHIN).build()?;
    let request = http.get(&url).build();
    let request = request.map_err(|error| Failure::Usage(format!("--url `{url}`: {error}")))?;
    let answer = http.execute(request).await.with_context(|| format!("{url} does not answer"))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = answer.text().await.unwrap_or_default();
    Err(Failure::Failed(format!("{url} answers {status}: {said}")).into())
}

/// The address at which clients on the same host reach a listener.
pub(super) fn near(listen: &str) -> anyhow::Result<SocketAddr> {
    let mut address: SocketAddr = listen
        .parse()
        .map_err(|_| Failure::Usage(format!("manager.listen: `{listen}` is not an address with a port")))?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn a_listener_on_every_address_is_asked_on_the_loopback() {
        assert_eq!(near("0.0.0.0:7700").unwrap().to_string(), "127.0.0.1:7700");
        assert_eq!(near("[::]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(near("10.0.0.7:7700").unwrap().to_string(), "10.0.0.7:7700");
        assert!(near("7700").is_err());
    }
}
