//! The cookies of the console: of a session, and of a login in progress.

use axum::http::{HeaderMap, header};
use everwatch_core::access::Secret;
use std::time::Duration;

/// Browsers keep a cookie of such a name only if it came over TLS or from this machine, for this host alone.
pub(crate) const COOKIE: &str = "__Host-everwatch";

/// The record of a login by single sign-on. Unlike a session, it must come with the request to which the page of the
/// identity provider leads.
const LOGIN: &str = "__Host-everwatch-login";

/// Sets the cookie of a login.
pub(crate) fn login_cookie(record: &str, lives: Duration) -> String {
    format!("{LOGIN}={record}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={}", lives.as_secs())
}

/// Removes the cookie of a login.
pub(crate) fn no_login_cookie() -> String {
    format!("{LOGIN}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0")
}

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
    named(headers, COOKIE)
}

/// The record of the login that this browser has started.
pub(crate) fn started_login(headers: &HeaderMap) -> Option<String> {
    named(headers, LOGIN)
}

fn named(headers: &HeaderMap, wanted: &str) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let mut all = cookies.flat_map(|text| text.split(';'));
    all.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == wanted).then(|| value.to_owned())
    })
}
