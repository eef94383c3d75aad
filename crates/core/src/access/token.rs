//! Tokens: `ewt_<id>_<secret>_<checksum>`. The prefix is for programs that search for leaked secrets, the checksum tells a
//! typing mistake from a wrong token. Managers store only a digest.

use super::oidc::Identity;
use super::role::Rights;
use crate::clock::Timestamp;
use crate::id::{Name, Namespace};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The most tokens and sessions that are valid at one time.
pub const TOKENS_MAX: u64 = 10_000;
/// What every token begins with.
const PREFIX: &str = "ewt";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The digits of 256 bits.
const SECRET_DIGITS: usize = 43;
/// The digits of an id; 59 bits.
const ID_DIGITS: usize = 10;
/// The digits of a checksum of 32 bits.
const CHECKSUM_DIGITS: usize = 6;

/// The public part of a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(String);

impl TokenId {
    /// An id, if this text can be one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        is_digits(text, ID_DIGITS).then(|| Self(text.to_owned()))
    }
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a secret, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Of a secret that somebody presents or stores.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(secret) {
            let _infallible = write!(text, "{byte:02x}");
        }
        Self(text)
    }
    /// Compares in constant time.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// A new token as its owner gets it, once.
#[derive(Clone)]
pub struct Secret {
    pub id: TokenId,
    pub text: String,
}

impl Secret {
    /// A token made of random bytes.
    #[must_use]
    pub fn new(id: u64, secret: [u8; 32]) -> Self {
        Self::of(TokenId(digits(&id.to_be_bytes(), ID_DIGITS)), secret)
    }
    /// A new secret of a token that exists.
    #[must_use]
    pub fn of(id: TokenId, secret: [u8; 32]) -> Self {
        let text = format!("{PREFIX}_{id}_{}", digits(&secret, SECRET_DIGITS));
        let text = format!("{text}_{}", checksum(&text));
        Self { id, text }
    }
    /// What is stored of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.id)
    }
}

/// A token that a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    pub id: TokenId,
    pub digest: Digest,
}

/// The text is no token: mistyped, cut, or something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mistyped;

impl Presented {
    /// # Errors
    /// If the text has not the form of a token, or another checksum.
    pub fn parse(text: &str) -> Result<Self, Mistyped> {
        let (signed, sum) = text.rsplit_once('_').ok_or(Mistyped)?;
        let mut parts = signed.split('_');
        let (Some(PREFIX), Some(id), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Mistyped);
        };
        let id = TokenId::new(id).ok_or(Mistyped)?;
        if !is_digits(secret, SECRET_DIGITS) || checksum(signed) != sum {
            return Err(Mistyped);
        }
        Ok(Self { id, digest: Digest::of(text) })
    }
}

/// How a token came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A user created it.
    Created,
    /// A login of the console created it. The session ends with the token of the login.
    Session { of: Login },
}

/// The credential with which a user logged in to the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Login {
    Token(TokenId),
    Bootstrap(Digest),
    /// The identity provider identified the user.
    Oidc(Identity),
}

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    /// The name of the principal, as events and the audit log show it; of a session that an identity provider has
    /// authenticated, [`Token::principal`] is the name.
    pub name: Name,
    pub role: Name,
    /// The namespace to which it restricts the rights of its role; `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    pub origin: Origin,
    pub created_at: Timestamp,
    /// The name of the principal that created it.
    pub created_by: String,
    pub expires_at: Timestamp,
    pub digest: Digest,
    /// The secret before the last rotation, and until when it stays valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<(Digest, Timestamp)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// The name of the principal, as events and the audit log show it.
    #[must_use]
    pub fn principal(&self) -> &str {
        self.identity().map_or(self.name.as_str(), |identity| &identity.name)
    }

    /// The identity with which a session of an identity provider began.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match &self.origin {
            Origin::Session { of: Login::Oidc(identity) } => Some(identity),
            Origin::Session { of: Login::Token(_) | Login::Bootstrap(_) } | Origin::Created => None,
        }
    }

    /// What it permits if its role permits this.
    #[must_use]
    pub fn rights(&self, of_role: Rights) -> Rights {
        match &self.namespace {
            Some(namespace) => of_role.within(namespace),
            None => of_role,
        }
    }

    /// Whether it is neither revoked nor expired.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now < self.expires_at
    }

    /// Whether this is its secret, or the one before it and still valid.
    #[must_use]
    pub fn opens_to(&self, digest: &Digest, now: Timestamp) -> bool {
        let previous = self.previous.as_ref().filter(|(_, until)| now < *until);
        self.digest.is(digest) | previous.is_some_and(|(previous, _)| previous.is(digest))
    }

    /// With a new secret; the current one stays valid until `previous_until`.
    #[must_use]
    pub fn rotated(&self, digest: Digest, previous_until: Timestamp, expires_at: Timestamp) -> Self {
        let previous = Some((self.digest.clone(), previous_until));
        Self { digest, previous, expires_at, ..self.clone() }
    }

    /// Revoked; the first revocation counts.
    #[must_use]
    pub fn revoked(&self, now: Timestamp) -> Self {
        Self { revoked_at: self.revoked_at.or(Some(now)), ..self.clone() }
    }
}

/// The last digits of a number to the base 62, with zeros in front.
fn digits(number: &[u8], count: usize) -> String {
    let mut rest = number.to_vec();
    let mut text = Vec::with_capacity(count);
    for _ in 0..count {
        let mut remainder = 0_u32;
        for byte in &mut rest {
            let value = remainder << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or_default();
            remainder = value % 62;
        }
        text.push(char::from(ALPHABET[remainder as usize]));
    }
    text.iter().rev().collect()
}

fn is_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn checksum(text: &str) -> String {
    digits(&crc32fast::hash(text.as_bytes()).to_be_bytes(), CHECKSUM_DIGITS)
}
