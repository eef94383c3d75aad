//! The cookie of a session of the console.

use axum::http::{HeaderMap, header};
use everwatch_core::access::Secret;
use std::time::Duration;

/// Browsers keep a cookie of such a name only if it came over TLS or from this machine, for this host alone.
pub(crate) const COOKIE: &str = "__Host-everwatch";

/// Sets the cookie.
pub(crate) fn cookie(secret: &Secret, lives: Duration) -> String {
    format!(
        "{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}",
        secret.text,
        lives.as_secs()
    )
}

/// Removes the cookie.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// The token in the cookie.
pub(super) fn presented(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut all = cookies.flat_map(|text| text.split(';'));
    all.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then(|| value.to_owned())
    })
}
