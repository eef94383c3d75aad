//! Signatures of the messages of managers: what is signed, how a signature is written, and why one is refused.
//!
//! Managers sign with Ed25519. A signature covers the way of the message through the broker, so that a signed message is
//! worth nothing in another queue.

use crate::clock::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How the reason begins for which a service parks a message that it refuses.
pub const PARKED_AS: &str = "not from a manager: ";
/// The header with the signature.
pub const HEADER: &str = "everwatch-signature";
/// A command is refused if its signature is older than this, or as far in the future, by the clock of the service.
pub const VALID_FOR: Duration = Duration::from_secs(300);
/// The most commands that a service remembers to refuse copies of them.
const SEEN_MAX: usize = 100_000;

/// Names a public key: the first 8 bytes of its SHA-256 digest in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(String);

impl KeyId {
    /// The name of this public key of 32 bytes.
    #[must_use]
    pub fn of(public_key: &[u8]) -> Self {
        Self(Sha256::digest(public_key).iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The signature of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub key: KeyId,
    /// When it was signed, by the clock of the manager.
    pub at: Timestamp,
    pub bytes: Vec<u8>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.key, self.at.0, URL_SAFE_NO_PAD.encode(&self.bytes))
    }
}

impl FromStr for Signature {
    type Err = Refused;
    fn from_str(text: &str) -> Result<Self, Refused> {
        let read = || {
            let mut parts = text.split('.');
            let (key, at, bytes) = (parts.next()?, parts.next()?, parts.next()?);
            let is_id = key.len() == 16 && key.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
            let bytes = URL_SAFE_NO_PAD.decode(bytes).ok().filter(|bytes| bytes.len() == 64)?;
            let at = Timestamp(at.parse().ok()?);
            (is_id && parts.next().is_none()).then(|| Self { key: KeyId(key.to_owned()), at, bytes })
        };
        read().ok_or(Refused::Malformed)
    }
}

/// The bytes that are signed: the way of the message, the time, and the body.
#[must_use]
pub fn signed_bytes((exchange, routing_key): (&str, &str), at: Timestamp, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("everwatch-signature-1\n{exchange}\n{routing_key}\n{}\n", at.0).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Why a service refuses a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it has no signature")]
    Unsigned,
    #[error("its signature is malformed")]
    Malformed,
    #[error("it is signed with the key {0}, which broker.verify_keys_file does not have")]
    UnknownKey(KeyId),
    #[error("its signature does not fit: it was altered, or copied from another queue")]
    Altered,
    #[error("it was signed more than {} s before or after the time of this machine", VALID_FOR.as_secs())]
    NotCurrent,
    #[error("it is a copy of an earlier command")]
    Replayed,
}

impl Refused {
    /// A word for metrics and reports.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Malformed => "malformed",
            Self::UnknownKey(_) => "unknown-key",
            Self::Altered => "altered",
            Self::NotCurrent => "not-current",
            Self::Replayed => "replayed",
        }
    }
}

/// Refuses copies of commands. Work messages wait for years, so that they have no such limit: managers find copies of them.
#[derive(Debug, Default)]
pub struct SeenCommands {
    seen: BTreeSet<(Timestamp, Vec<u8>)>,
    /// Signatures before this time are refused, because they are no longer remembered.
    floor: Option<Timestamp>,
}

impl SeenCommands {
    /// Remembers a command whose signature is genuine.
    ///
    /// # Errors
    /// If it is not current, or a copy.
    pub fn accept(&mut self, signature: &Signature, now: Timestamp) -> Result<(), Refused> {
        let apart = now.since(signature.at).max(signature.at.since(now));
        if apart > VALID_FOR || self.floor.is_some_and(|floor| signature.at < floor) {
            return Err(Refused::NotCurrent);
        }
        while self.seen.first().is_some_and(|(at, _)| now.since(*at) > VALID_FOR) {
            self.seen.pop_first();
        }
        // Half of a signature identifies it.
        let start = signature.bytes.iter().take(32).copied().collect();
        if !self.seen.insert((signature.at, start)) {
            return Err(Refused::Replayed);
        }
        if self.seen.len() > SEEN_MAX
            && let Some((at, _)) = self.seen.pop_first()
        {
            self.floor = Some(at.plus(Duration::from_millis(1)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(at: i64, byte: u8) -> Signature {
        Signature { key: KeyId::of(b"key"), at: Timestamp(at), bytes: vec![byte; 64] }
    }

    #[test]
    fn a_signature_is_read_as_it_was_written() {
        let written = signature(1_700_000_000_000, 7).to_string();
        assert_eq!(written.parse(), Ok(signature(1_700_000_000_000, 7)));
        let key = KeyId::of(b"key").to_string();
        assert_eq!(key.len(), 16);
        for wrong in
            ["", "a", "a.b.c", &format!("{written}.x"), &format!("{key}.1.AA"), &written.replace(&key, "k")]
        {
            assert_eq!(wrong.parse::<Signature>(), Err(Refused::Malformed), "{wrong}");
        }
    }

    #[test]
    fn every_part_of_the_way_is_signed() {
        let of =
            |exchange, key, at, body: &str| signed_bytes((exchange, key), Timestamp(at), body.as_bytes());
        let all = [
            of("e.work", "e.work.a", 1, "body"),
            of("e.work", "e.work.b", 1, "body"),
            of("e.commands", "e.work.a", 1, "body"),
            of("e.work", "e.work.a", 2, "body"),
            of("e.work", "e.work.a", 1, "bodY"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_command_is_accepted_once_and_only_while_it_is_current() {
        let (mut seen, valid) = (SeenCommands::default(), 300_000);
        let now = Timestamp(10 * valid);
        assert_eq!(seen.accept(&signature(now.0, 1), now), Ok(()));
        assert_eq!(seen.accept(&signature(now.0, 2), now), Ok(()));
        assert_eq!(seen.accept(&signature(now.0, 1), now), Err(Refused::Replayed));
        for (at, expected) in [
            (now.0 - valid, Ok(())),
            (now.0 - valid - 1, Err(Refused::NotCurrent)),
            (now.0 + valid, Ok(())),
            (now.0 + valid + 1, Err(Refused::NotCurrent)),
        ] {
            assert_eq!(seen.accept(&signature(at, 3), now), expected, "{at}");
        }
        let later = Timestamp(now.0 + valid + 1);
        assert_eq!(seen.accept(&signature(now.0, 1), later), Err(Refused::NotCurrent));
        assert_eq!(seen.accept(&signature(later.0, 1), later), Ok(()));
        assert!(seen.seen.iter().all(|(at, _)| later.0 - at.0 <= valid), "what is too old is forgotten");
    }

    #[test]
    fn what_is_no_longer_remembered_is_refused() {
        let (mut seen, now) = (SeenCommands::default(), Timestamp(1_000_000));
        let wide = |number: usize| {
            let mut it = signature(now.0 - 1000 + i64::try_from(number / 200).unwrap(), 0);
            it.bytes[..8].copy_from_slice(&number.to_be_bytes());
            it
        };
        for number in 0..=SEEN_MAX {
            assert_eq!(seen.accept(&wide(number), now), Ok(()), "{number}");
        }
        assert_eq!(seen.seen.len(), SEEN_MAX);
        assert_eq!(seen.accept(&wide(0), now), Err(Refused::NotCurrent));
        assert_eq!(seen.accept(&wide(SEEN_MAX), now), Err(Refused::Replayed));
    }
}
