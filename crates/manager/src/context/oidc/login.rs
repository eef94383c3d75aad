//! A login in progress. Managers store nothing about it: the browser keeps a record, which is a random text and the time at
//! which the login ends. A manager derives state, nonce and verifier from the record with a secret key. An attacker does
//! not have the key and therefore cannot make a record with a matching state.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everwatch_core::clock::Timestamp;
use ring::{digest, hmac};
use std::time::Duration;

/// How long a user may take to log in at the provider.
pub(crate) const LOGIN_WITHIN: Duration = Duration::from_secs(600);
/// The longest record, in bytes.
const RECORD_MAX: usize = 100;

/// A login that has begun.
pub(crate) struct Login {
    /// What the browser keeps.
    pub(crate) record: String,
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: String,
}

impl Login {
    pub(super) fn begin(key: &[u8], now: Timestamp) -> Self {
        let seed = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        Self::of(key, format!("{}.{seed}", now.plus(LOGIN_WITHIN).0))
    }

    fn of(key: &[u8], record: String) -> Self {
        let derived = |purpose: &str| URL_SAFE_NO_PAD.encode(tag(key, purpose, &record).as_ref());
        let (state, nonce, verifier) = (derived("state"), derived("nonce"), derived("verifier"));
        Self { record, state, nonce, verifier }
    }

    /// The login of this record; `None` if it has ended, or if it has another state.
    pub(super) fn resume(key: &[u8], record: &str, state: &str, now: Timestamp) -> Option<Self> {
        let (until, _) = record.split_once('.').filter(|_| record.len() <= RECORD_MAX)?;
        let until = Timestamp(until.parse().ok()?);
        let state = URL_SAFE_NO_PAD.decode(state).ok()?;
        // In constant time.
        hmac::verify(&sealing(key), &message("state", record), &state).ok()?;
        (now < until).then(|| Self::of(key, record.to_owned()))
    }

    /// What the provider compares with the verifier: its SHA-256.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()))
    }
}

fn sealing(key: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key)
}

fn message(purpose: &str, record: &str) -> Vec<u8> {
    format!("everwatch single sign-on {purpose} {record}").into_bytes()
}

fn tag(key: &[u8], purpose: &str, record: &str) -> hmac::Tag {
    hmac::sign(&sealing(key), &message(purpose, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"the secret of the client";
    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn a_login_resumes_with_its_record_and_state_until_it_ends() {
        let login = Login::begin(KEY, NOW);
        let resumed = |key, record: &str, state: &str, now| Login::resume(key, record, state, now).is_some();
        let end = NOW.plus(LOGIN_WITHIN);
        let again = Login::resume(KEY, &login.record, &login.state, NOW).unwrap();
        assert_eq!((&again.nonce, &again.verifier), (&login.nonce, &login.verifier));
        assert!(resumed(KEY, &login.record, &login.state, Timestamp(end.0 - 1)));
        assert!(!resumed(KEY, &login.record, &login.state, end));
        let other = Login::begin(KEY, NOW);
        assert!(
            !resumed(KEY, &login.record, &other.state, NOW)
                && !resumed(KEY, &other.record, &login.state, NOW)
        );
        assert!(!resumed(b"another key", &login.record, &login.state, NOW));
        assert!(!resumed(KEY, &login.record, "", NOW) && !resumed(KEY, &login.record, &login.nonce, NOW));
        // A browser cannot prolong it.
        let longer = login.record.replacen(&end.0.to_string(), &end.plus(LOGIN_WITHIN).0.to_string(), 1);
        assert!(longer != login.record && !resumed(KEY, &longer, &login.state, NOW));
        for malformed in ["", ".", "x.y", "99999999999999999999.x", &"1.".repeat(100)] {
            assert!(!resumed(KEY, malformed, &login.state, NOW), "{malformed}");
        }
    }

    #[test]
    fn the_parts_of_a_login_differ_and_are_long_enough() {
        let login = Login::begin(KEY, NOW);
        let parts = [&login.state, &login.nonce, &login.verifier, &login.challenge()];
        for (place, part) in parts.iter().enumerate() {
            assert_eq!(part.len(), 43, "256 bits, and what PKCE asks of a verifier");
            assert!(parts.iter().skip(place + 1).all(|other| other != part));
            assert!(!login.record.contains(part.as_str()));
        }
    }
}
