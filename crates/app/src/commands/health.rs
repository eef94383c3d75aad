//! `everwatch health`: checks whether a process on this host is healthy; for container health checks.

use crate::client::Failure;
use crate::trust::{explain, trusting};
use everwatch::dev::Settings;
use everwatch_manager::ManagerSection;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(4);

/// # Errors
/// If the process does not respond with a success. The text contains the response.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(settings: &Settings, url: Option<String>) -> anyhow::Result<()> {
    // The certificate of the manager need not be for the loopback address. The request has no secret, and its response is
    // the word of whichever process listens there.
    let accepts_any_name = url.is_none();
    let url = match url {
        Some(url) => url,
        None => format!("{}/readyz", self::url(&settings.manager)?),
    };
    // Bypasses any proxy: the response must come from the process itself.
    let http = reqwest::Client::builder().no_proxy().timeout(WITHIN);
    let http =
        trusting(http).map_err(Failure::Usage)?.tls_danger_accept_invalid_certs(accepts_any_name).build()?;
    let request = http.get(&url).build();
    let request = request.map_err(|error| Failure::Usage(format!("--url `{url}`: {error}")))?;
    let answer = http.execute(request).await.map_err(|error| match explain(&error) {
        Some(why) => anyhow::Error::new(Failure::Failed(format!("{url} does not answer: {why}"))),
        None => anyhow::Error::new(error).context(format!("{url} does not answer")),
    })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = answer.text().await.unwrap_or_default();
    Err(Failure::Failed(format!("{url} answers {status}: {said}")).into())
}

/// The URL that says whether this manager is healthy.
pub(super) fn of_server(server: &str) -> String {
    format!("{}/readyz", server.trim_end_matches('/'))
}

/// The URL at which clients on the same host reach the manager.
pub(super) fn url(manager: &ManagerSection) -> anyhow::Result<String> {
    let scheme = if manager.tls_cert_file.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", near(&manager.listen)?))
}

/// The address at which clients on the same host reach a listener.
fn near(listen: &str) -> anyhow::Result<SocketAddr> {
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
