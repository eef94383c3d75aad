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
const NAMESPACE_RULE: &str = "1 to 63 of a-z 0-9 -, starting and ending with a letter or digit";
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
/// What the limit of a namespace begins with.
const NAMESPACE_KEY: &str = "namespace:";

fn check_limit_key(text: &str) -> Result<(), &'static str> {
    if text.strip_prefix(BATCH_KEY).is_some_and(|id| Uuid::parse_str(id).is_ok()) {
        return Ok(());
    }
    if text.strip_prefix(NAMESPACE_KEY).is_some_and(|name| check_namespace(name).is_ok()) {
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
    // No pattern covers the keys of several batches or namespaces.
    match text.strip_suffix('*') {
        Some(start) if start.contains(':') => Err(LIMIT_PATTERN_RULE),
        start => check_limit_key(start.unwrap_or(text)).map_err(|_| LIMIT_PATTERN_RULE),
    }
}

fn check_namespace(text: &str) -> Result<(), &'static str> {
    let legal = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if text.is_empty()
        || text.len() > 63
        || !text.bytes().all(legal)
        || text.starts_with('-')
        || text.ends_with('-')
    {
        return Err(NAMESPACE_RULE);
    }
    Ok(())
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
    "The name of an observer or of a service: unique among the live observers of a namespace.",
    check_name
);
checked_name!(
    LimitKey,
    "key of a limit",
    "What a limit counts observers by, for example an account. The limit is the maximum number of observers with this key that run at once.",
    check_limit_key
);
checked_name!(
    LimitPattern,
    "key of a limit",
    "The keys that a limit applies to: one key, or with a `*` at the end each key that begins with it.",
    check_limit_pattern
);
checked_name!(Pool, "pool", "A named work queue.", check_pool);
checked_name!(
    Namespace,
    "namespace",
    "The part of a deployment that an observer belongs to. Names of observers are unique within one.",
    check_namespace
);
checked_name!(Kind, "kind", "What code an observer runs.", check_kind);
checked_name!(RateKey, "rate", "The key of a rate.", check_name);

impl LimitKey {
    /// The key that the members of this batch count towards.
    #[must_use]
    pub fn of_batch(batch: BatchId) -> Self {
        Self(format!("{BATCH_KEY}{batch}").into())
    }

    /// The key that the observers of this namespace count towards. Those of the default namespace count towards none.
    #[must_use]
    pub fn of_namespace(namespace: &Namespace) -> Option<Self> {
        (!namespace.is_default()).then(|| Self(format!("{NAMESPACE_KEY}{namespace}").into()))
    }

    /// Whether it is the key of a batch: only its batch sets it.
    #[must_use]
    pub fn is_of_batch(&self) -> bool {
        self.0.starts_with(BATCH_KEY)
    }

    /// Whether it is the key of a namespace: only its namespace sets it.
    #[must_use]
    pub fn is_of_namespace(&self) -> bool {
        self.0.starts_with(NAMESPACE_KEY)
    }

    /// The namespace whose key it is.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.strip_prefix(NAMESPACE_KEY)
    }

    /// Whether it is the key of a batch or a namespace: users neither add nor remove it.
    #[must_use]
    pub fn is_implied(&self) -> bool {
        self.is_of_batch() || self.is_of_namespace()
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

    /// Whether it is the key of a namespace: only its namespace sets it.
    #[must_use]
    pub fn is_of_namespace(&self) -> bool {
        self.0.starts_with(NAMESPACE_KEY)
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

impl Default for Namespace {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Namespace {
    /// Whether it is the one that every deployment has. Rows and messages without a namespace belong to it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        &*self.0 == "default"
    }

    /// A text that no other namespace and name together have: in the default namespace, the name itself.
    #[must_use]
    pub fn qualify(&self, name: &Name) -> String {
        // No namespace and no name contains a slash.
        if self.is_default() { name.to_string() } else { format!("{self}/{name}") }
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
    /// By name, in a namespace.
    Name(Namespace, Name),
}

impl ObserverRef {
    /// Reads an id, or a name in this namespace.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str, namespace: &Namespace) -> Result<Self, InvalidName> {
        match Uuid::parse_str(text) {
            Ok(id) => Ok(Self::Id(ObserverId(id))),
            Err(_) => Name::new(text).map(|name| Self::Name(namespace.clone(), name)),
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
    /// By name, in a namespace.
    Name(Namespace, Name),
}

impl BatchRef {
    /// Reads an id, or a name in this namespace.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str, namespace: &Namespace) -> Result<Self, InvalidName> {
        match Uuid::parse_str(text) {
            Ok(id) => Ok(Self::Id(BatchId(id))),
            Err(_) => Name::new(text).map(|name| Self::Name(namespace.clone(), name)),
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
        let namespace = Namespace::new("team-a").unwrap();
        let read = |text: &str| ObserverRef::parse(text, &namespace);
        assert_eq!(read(&id.to_string()), Ok(ObserverRef::Id(ObserverId(id))));
        assert_eq!(read("web-1"), Ok(ObserverRef::Name(namespace.clone(), Name::new("web-1").unwrap())));
    }

    #[test]
    fn names_of_two_namespaces_differ() {
        let (name, namespace) = (Name::new("web").unwrap(), Namespace::new("team-a").unwrap());
        assert_eq!(
            (namespace.qualify(&name), Namespace::default().qualify(&name)),
            ("team-a/web".into(), "web".into())
        );
        for bad in ["", "-a", "a-", "A", "a/b", "a.b", &"x".repeat(64)] {
            assert!(Namespace::new(bad).is_err(), "{bad}");
        }
        let key = LimitKey::of_namespace(&namespace).unwrap();
        assert!(key.is_of_namespace() && key.is_implied() && LimitKey::new(key.as_str()) == Ok(key.clone()));
        assert!(LimitPattern::from(key).is_of_namespace() && LimitPattern::new("namespace:team*").is_err());
        assert_eq!(LimitKey::of_namespace(&Namespace::default()), None);
    }
}
