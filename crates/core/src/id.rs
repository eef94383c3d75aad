//! Names and ids of observers, services, pools and kinds. Parsing validates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Why a name was refused: the violated rule, as a sentence for its user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{given}` is not valid: {rule}")]
pub struct InvalidName {
    /// The expected kind of name.
    pub what: &'static str,
    /// The input, shortened to 140 characters.
    pub given: String,
    /// The violated rule.
    pub rule: &'static str,
}

impl InvalidName {
    fn new(what: &'static str, given: &str, rule: &'static str) -> Self {
        Self { what, given: given.chars().take(140).collect(), rule }
    }
}

macro_rules! uuid_id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(ObserverId, "The identity of an observer, given at its creation and never used again.");
uuid_id!(ServiceId, "One incarnation of an observer service process: new at each registration.");
uuid_id!(ManagerId, "One incarnation of a manager process.");
uuid_id!(RolloutId, "The identity of a rollout.");
uuid_id!(BatchId, "The identity of a batch.");
uuid_id!(RepliesId, "The address at which one broker session of a manager receives replies.");

macro_rules! checked_name {
    ($name:ident, $what:literal, $doc:literal, $check:expr) => {
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// # Errors
            /// Names the rule that `text` breaks.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> Result<(), &'static str> = $check;
                check(text).map_err(|rule| InvalidName::new($what, text, rule))?;
                Ok(Self(text.into()))
            }
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(&text)
            }
        }
        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.0)
            }
        }
    };
}

const NAME_RULE: &str =
    "1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit, and not in the form of a UUID";
const POOL_RULE: &str = "1 to 64 of a-z 0-9 -";
const LIMIT_KEY_RULE: &str = "1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit";
const LIMIT_PATTERN_RULE: &str = "a key of 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit, or the beginning of keys and a * behind it";
const KIND_RULE: &str = "1 to 64 of a-z 0-9 . _ -, starting with a letter or digit";

fn check_name(text: &str) -> Result<(), &'static str> {
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    let first = text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if !first || text.len() > 128 || !text.bytes().all(legal) || Uuid::parse_str(text).is_ok() {
        return Err(NAME_RULE);
    }
    Ok(())
}

/// What the limit of a batch begins with; no key of a user contains a colon.
const BATCH_KEY: &str = "batch:";

fn check_limit_key(text: &str) -> Result<(), &'static str> {
    if text.strip_prefix(BATCH_KEY).is_some_and(|id| Uuid::parse_str(id).is_ok()) {
        return Ok(());
    }
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    let first = text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if !first || text.len() > 128 || !text.bytes().all(legal) {
        return Err(LIMIT_KEY_RULE);
    }
    Ok(())
}

fn check_limit_pattern(text: &str) -> Result<(), &'static str> {
    check_limit_key(text.strip_suffix('*').unwrap_or(text)).map_err(|_| LIMIT_PATTERN_RULE)
}

fn check_pool(text: &str) -> Result<(), &'static str> {
    let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if text.is_empty() || text.len() > 64 || !text.bytes().all(legal) {
        return Err(POOL_RULE);
    }
    Ok(())
}

fn check_kind(text: &str) -> Result<(), &'static str> {
    let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'.' | b'_' | b'-');
    let first = text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if !first || text.len() > 64 || !text.bytes().all(legal) {
        return Err(KIND_RULE);
    }
    Ok(())
}

checked_name!(
    Name,
    "name",
    "The name of an observer or of a service: unique among live observers.",
    check_name
);
checked_name!(
    LimitKey,
    "key of a limit",
    "What a limit counts observers by, for example an account: at most so many of those that name it run at once.",
    check_limit_key
);
checked_name!(
    LimitPattern,
    "key of a limit",
    "The keys that a limit applies to: one key, or with a `*` at the end each key that begins with it.",
    check_limit_pattern
);
checked_name!(Pool, "pool", "A named work queue.", check_pool);
checked_name!(Kind, "kind", "What code an observer runs.", check_kind);
checked_name!(RateKey, "rate", "The key of a rate.", check_name);

impl LimitKey {
    /// The key that the members of this batch count towards.
    #[must_use]
    pub fn of_batch(batch: BatchId) -> Self {
        Self(format!("{BATCH_KEY}{batch}").into())
    }

    /// Whether it is the key of a batch: only its batch sets it.
    #[must_use]
    pub fn is_of_batch(&self) -> bool {
        self.0.starts_with(BATCH_KEY)
    }
}

impl From<LimitKey> for LimitPattern {
    fn from(key: LimitKey) -> Self {
        Self(key.0)
    }
}

impl LimitPattern {
    /// Whether it is the key of a batch: only its batch sets it.
    #[must_use]
    pub fn is_of_batch(&self) -> bool {
        self.0.starts_with(BATCH_KEY)
    }

    /// What its keys begin with; `None` if it is one key.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Whether the limit applies to this key, unless a more exact one does.
    #[must_use]
    pub fn covers(&self, key: &LimitKey) -> bool {
        self.prefix().map_or(*self.0 == *key.0, |prefix| key.0.starts_with(prefix))
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self("default".into())
    }
}

/// A user's reference to an observer: its id or its name (a name never looks like an id).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObserverRef {
    /// By id.
    Id(ObserverId),
    /// By name.
    Name(Name),
}

impl FromStr for ObserverRef {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match Uuid::parse_str(text) {
            Ok(id) => Ok(Self::Id(ObserverId(id))),
            Err(_) => Name::new(text).map(Self::Name),
        }
    }
}

/// A reference to a rollout: by id, or by name, which means the newest of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutRef {
    /// By id.
    Id(RolloutId),
    /// By name.
    Name(Name),
}

impl FromStr for RolloutRef {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match Uuid::parse_str(text) {
            Ok(id) => Ok(Self::Id(RolloutId(id))),
            Err(_) => Name::new(text).map(Self::Name),
        }
    }
}

/// A reference to a batch: by id, or by name, which means the newest of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchRef {
    /// By id.
    Id(BatchId),
    /// By name.
    Name(Name),
}

impl FromStr for BatchRef {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match Uuid::parse_str(text) {
            Ok(id) => Ok(Self::Id(BatchId(id))),
            Err(_) => Name::new(text).map(Self::Name),
        }
    }
}

/// A reference to a service: by id, or by name, which means the newest incarnation of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceRef {
    /// By id.
    Id(ServiceId),
    /// By name.
    Name(Name),
}

impl From<ServiceId> for ServiceRef {
    fn from(id: ServiceId) -> Self {
        Self::Id(id)
    }
}

impl From<Name> for ServiceRef {
    fn from(name: Name) -> Self {
        Self::Name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rules() {
        for good in ["a", "0", "A.b_c-9", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "a b", "ä", &"x".repeat(129), "0196f0a0-0000-7000-8000-000000000000"] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
        assert!(Pool::new("gpu-2").is_ok() && Pool::new("GPU").is_err() && Pool::new("").is_err());
        assert!(Kind::new("price-watch").is_ok() && Kind::new("Price").is_err());
    }

    #[test]
    fn the_key_of_a_batch_is_none_that_a_user_can_make_up() {
        let key = LimitKey::of_batch(BatchId(Uuid::from_u128(7)));
        assert!(key.is_of_batch() && LimitKey::new(key.as_str()) == Ok(key.clone()));
        assert!(LimitKey::new("batch:x").is_err() && LimitPattern::new("batch:*").is_err());
        assert!(!LimitKey::new("batch-1").unwrap().is_of_batch());
        assert!(LimitPattern::from(key).is_of_batch());
    }

    #[test]
    fn a_reference_is_an_id_or_a_name() {
        let id = Uuid::from_u128(7);
        assert_eq!(id.to_string().parse(), Ok(ObserverRef::Id(ObserverId(id))));
        assert_eq!("web-1".parse(), Ok(ObserverRef::Name(Name::new("web-1").unwrap())));
    }
}
