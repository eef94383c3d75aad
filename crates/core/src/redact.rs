//! URLs without their secrets, for logs, answers and error messages. Invalid URLs are hidden if in doubt.

use url::{Position, Url};

/// Replaces a secret.
const HIDDEN: &str = "…";
/// A query parameter whose name contains one of these holds a secret.
const SECRETS: [&str; 9] = ["pass", "pwd", "secret", "token", "key", "auth", "cred", "sig", "session"];

/// One URL, or several separated by commas, with every password hidden. A URL without secrets is unchanged.
#[must_use]
pub fn redacted(urls: &str) -> String {
    let mut pieces: Vec<String> = Vec::new();
    for piece in urls.split(',') {
        match pieces.last_mut() {
            // This comma belongs to a password or a query; it does not separate two URLs.
            Some(last) if !piece.contains("://") => {
                last.push(',');
                last.push_str(piece);
            }
            _ => pieces.push(piece.to_owned()),
        }
    }
    pieces.iter().map(|url| redacted_one(url)).collect::<Vec<_>>().join(",")
}

/// A URL without its user and password, and with the secrets of its query hidden.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    let shown = redacted_one(url);
    let Some((scheme, rest)) = shown.split_once("://") else { return shown };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => shown,
    }
}

fn redacted_one(text: &str) -> String {
    let Ok(url) = Url::parse(text) else { return hidden_in_doubt(text) };
    // An unescaped `/`, `?` or `#` in a password ends the parsed authority: the rest of the password and the real host
    // then follow it.
    let (authority, rest) = split_authority(text);
    if url.scheme() != "sqlite" && authority.is_none_or(|it| it.contains(':')) && rest.contains('@') {
        return hidden_in_doubt(text);
    }
    let has_secret = url.query_pairs().any(|(key, _)| is_secret(&key));
    if url.password().is_none() && !has_secret && url.fragment().is_none() {
        return text.to_owned();
    }
    let mut shown = match url.password() {
        // Without a password, the positions around it are not defined.
        None => url[..Position::AfterPath].to_owned(),
        Some(_) => format!(
            "{}{HIDDEN}{}",
            &url[..Position::BeforePassword],
            &url[Position::AfterPassword..Position::AfterPath]
        ),
    };
    for (number, pair) in url.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((key, _)) if is_secret(&decoded(key)) => {
                shown.push_str(key);
                shown.push('=');
                shown.push_str(HIDDEN);
            }
            _ => shown.push_str(pair),
        }
    }
    shown
}

/// The parsed authority (user, password, host and port), if any, and the text after it.
fn split_authority(text: &str) -> (Option<&str>, &str) {
    let Some((_, rest)) = text.split_once("://") else { return (None, text) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (Some(&rest[..end]), &rest[end..])
}

fn decoded(key: &str) -> String {
    url::form_urlencoded::parse(key.as_bytes()).map(|(key, _)| key.into_owned()).collect()
}

fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    SECRETS.iter().any(|secret| key.contains(secret))
}

/// A password may be between the scheme and the last `@`, or after the first `?`.
fn hidden_in_doubt(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let start = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    match rest.rfind('@') {
        Some(at) => {
            let host = rest[at..].split(['?', '#']).next().unwrap_or_default();
            format!("{start}{HIDDEN}{host}")
        }
        None => format!("{start}{}", rest.split(['?', '#']).next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_without_secrets_are_unchanged() {
        for url in [
            "amqp://h:1/%2f",
            "sqlite://everwatch.db",
            "sqlite:///tmp/a b@c.db?mode=rwc",
            "postgres://u@h:5432/db?sslmode=require",
            "http://127.0.0.1:4318",
            "amqp://a/%2f,amqps://b:5671",
            "",
            "localhost:7700",
        ] {
            assert_eq!(redacted(url), url);
        }
    }

    #[test]
    fn a_password_is_hidden_in_every_position() {
        for (url, shown) in [
            ("amqp://u:secret@h:1/%2f", "amqp://u:…@h:1/%2f"),
            ("amqp://u:se/cret@h:1/%2f", "amqp://…@h:1/%2f"),
            ("amqp://u:1/secret@h:1/%2f", "amqp://…@h:1/%2f"),
            ("amqp://u:se?cret@h:1/%2f", "amqp://…@h:1/%2f"),
            ("amqp://u:se#cret@h:1/%2f", "amqp://…@h:1/%2f"),
            ("amqp://u:secret@cret@h/%2f", "amqp://u:…@h/%2f"),
            ("amqp://u:sec,ret@h/%2f,amqps://u:secret@b", "amqp://u:…@h/%2f,amqps://u:…@b"),
            (
                "postgres://h/db?user=u&password=secret&sslmode=require",
                "postgres://h/db?user=u&password=…&sslmode=require",
            ),
            ("postgres://h/db?pass%77ord=secret", "postgres://h/db?pass%77ord=…"),
            ("http://h/x?api_key=secret#secret", "http://h/x?api_key=…"),
            ("http://u@h/x?api_key=secret", "http://u@h/x?api_key=…"),
            ("no url u:secret@h", "…@h"),
            ("http://u:secret@[bad", "http://…@[bad"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn credentials_can_be_removed() {
        assert_eq!(without_credentials("https://u:secret@h/x?token=secret&a=b"), "https://h/x?token=…&a=b");
        assert_eq!(without_credentials("https://h/x?a=b"), "https://h/x?a=b");
        assert_eq!(without_credentials("https://h/@x"), "https://h/@x");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_password_is_ever_shown(before in "[ -~]{0,5}", after in "[ -~]{0,5}", host in "[a-z]{1,8}(:[0-9]{1,4})?") {
            let password = format!("{before}Qx7Zk{after}");
            for url in [
                format!("amqp://user:{password}@{host}/%2f"),
                format!("amqp://one:one@one/%2f,amqps://user:{password}@{host}"),
                format!("postgres://user:{password}@{host}/database?sslmode=require"),
            ] {
                prop_assert!(!redacted(&url).contains("Qx7Zk"), "{url} is shown as {}", redacted(&url));
                prop_assert!(!without_credentials(&url).contains("Qx7Zk"), "{url}");
            }
        }
    }
}
