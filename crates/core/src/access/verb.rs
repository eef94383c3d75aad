//! What a request does. Each route of the API declares one verb, and roles permit verbs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a grant of a verb can be restricted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Namespaces, pools and kinds.
    Observer,
    /// Namespaces.
    Namespace,
    /// Pools.
    Pool,
    /// Nothing: the verb concerns the whole deployment.
    Deployment,
}

macro_rules! verbs {
    ($($name:ident = $word:literal, $reach:ident;)*) => {
        /// What a request does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Verb { $($name,)* }

        impl Verb {
            /// Every verb.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As roles and the OpenAPI document write it: `resource:action`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
            /// What a grant of it can be restricted to.
            #[must_use]
            pub fn reach(self) -> Reach {
                match self { $(Self::$name => Reach::$reach,)* }
            }
        }
    };
}

verbs! {
    ObserversRead = "observers:read", Observer;
    ObserversCreate = "observers:create", Observer;
    ObserversUpdate = "observers:update", Observer;
    ObserversDelete = "observers:delete", Observer;
    ObserversOperate = "observers:operate", Observer;
    SpecsRead = "specs:read", Observer;
    LogsRead = "logs:read", Observer;
    ServicesRead = "services:read", Pool;
    ServicesOperate = "services:operate", Pool;
    PoolsRead = "pools:read", Pool;
    PoolsWrite = "pools:write", Pool;
    KindsRead = "kinds:read", Deployment;
    LimitsRead = "limits:read", Deployment;
    LimitsWrite = "limits:write", Deployment;
    RatesRead = "rates:read", Deployment;
    RatesWrite = "rates:write", Deployment;
    BatchesRead = "batches:read", Namespace;
    BatchesWrite = "batches:write", Namespace;
    NamespacesRead = "namespaces:read", Namespace;
    NamespacesWrite = "namespaces:write", Deployment;
    RolloutsRead = "rollouts:read", Deployment;
    RolloutsWrite = "rollouts:write", Deployment;
    EventsRead = "events:read", Deployment;
    ParkedRead = "parked:read", Deployment;
    ParkedWrite = "parked:write", Deployment;
    SafeModeRead = "safe-mode:read", Deployment;
    SafeModeWrite = "safe-mode:write", Deployment;
    StatusRead = "status:read", Deployment;
    MetricsRead = "metrics:read", Deployment;
    TokensRead = "tokens:read", Deployment;
    TokensWrite = "tokens:write", Deployment;
    RolesRead = "roles:read", Deployment;
    RolesWrite = "roles:write", Deployment;
    AuditRead = "audit:read", Deployment;
}

impl Verb {
    /// Whether a token of one namespace keeps it although it concerns the whole deployment: its responses contain no
    /// observers.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::KindsRead)
    }

    /// The verbs that match this text of a grant: a verb, `resource:*`, `*:action` or `*`.
    #[must_use]
    pub fn matching(text: &str) -> Vec<Self> {
        let (resource, action) = match text {
            "*" => ("*", "*"),
            text => text.split_once(':').unwrap_or((text, "")),
        };
        let is = |pattern: &str, word: &str| pattern == "*" || pattern == word;
        let parts = |verb: Self| verb.as_str().split_once(':').unwrap_or_default();
        let all = Self::ALL.iter().copied();
        all.filter(|verb| is(resource, parts(*verb).0) && is(action, parts(*verb).1)).collect()
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|verb| verb.as_str() == text);
        found.ok_or_else(|| {
            let text: String = text.chars().take(100).collect();
            format!("`{text}` is not a verb")
        })
    }
}

impl TryFrom<String> for Verb {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Verb> for String {
    fn from(verb: Verb) -> Self {
        verb.as_str().to_owned()
    }
}
