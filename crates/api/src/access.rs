//! Tokens, roles, sessions and the audit log.

use everwatch_core::access::{self, BuiltIn, TokenId};
use everwatch_core::clock::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token to be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The name of its owner, as events and the audit log show it; unique among valid tokens.
    pub name: String,
    /// What it permits: `viewer`, `operator`, `admin`, or a role that was defined.
    pub role: String,
    /// The namespace to which it restricts the rights of its role; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How long it is valid, for example `90d`; 90 days by default, at most `auth.token_ttl_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
}

/// How a token gets a new secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// How long the current secret stays valid, for example `10m`; `1h` by default, at most `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// How long the token is valid from now on; as before by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Ten letters and digits, which are also a part of the token itself.
    pub id: String,
    /// The name of its principal, as events and the audit log show it; unique among valid tokens except
    /// sessions.
    pub name: String,
    /// The name of its role, which says what it permits.
    pub role: String,
    /// The namespace to which it restricts the rights of its role; null: it does not.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `created` by a user, or the `session` of a console.
    pub origin: String,
    /// When it was created, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The name of the principal that created it.
    pub created_by: String,
    /// When it expires, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// Until when the secret before the last rotation is valid; null if none is.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub previous_until: Option<Timestamp>,
    /// When it was revoked, by the database's clock; null if it was not.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<Timestamp>,
    /// Whether it is neither revoked nor expired.
    pub valid: bool,
    /// Whether it is the last token that may create tokens: managers refuse to revoke it.
    #[serde(default)]
    pub is_last: bool,
}

/// A token with its secret, which no later response contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// What clients send as `Authorization: Bearer …`.
    pub token: String,
    /// Ten letters and digits, which are also a part of the token itself; a rotation keeps it.
    pub id: String,
    /// The name of its owner, as events and the audit log show it.
    pub name: String,
    /// The name of its role, which says what it permits.
    pub role: String,
    /// The namespace to which it restricts the rights of its role; null: it does not.
    #[serde(default)]
    pub namespace: Option<String>,
    /// When it expires, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// Until when the secret before this one is valid; null if there is none.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub previous_until: Option<Timestamp>,
}

impl Token {
    /// As responses show it. `last` is the token that managers refuse to revoke.
    #[must_use]
    pub fn of(token: &access::Token, last: Option<&TokenId>, now: Timestamp) -> Self {
        let origin = match token.origin {
            access::Origin::Created => "created",
            access::Origin::Session { .. } => "session",
        };
        let previous = token.previous.as_ref().map(|(_, until)| *until);
        Self {
            id: token.id.to_string(),
            name: token.principal().to_owned(),
            role: token.role.to_string(),
            namespace: token.namespace.as_ref().map(ToString::to_string),
            origin: origin.to_owned(),
            created_at: token.created_at,
            created_by: token.created_by.clone(),
            expires_at: token.expires_at,
            previous_until: previous.filter(|until| now < *until),
            revoked_at: token.revoked_at,
            valid: token.is_valid(now),
            is_last: last == Some(&token.id),
        }
    }
}

/// Verbs on some namespaces, pools and kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleGrant {
    /// `resource:action`, `resource:*`, `*:action` or `*`.
    pub verbs: Vec<String>,
    /// Absent: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Absent: every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
    /// Absent: every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
}

/// What a role permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleSettings {
    /// What it permits: a request needs one grant that has its verb, namespace, pool and kind.
    pub grants: Vec<RoleGrant>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    /// Unique among roles; `viewer`, `operator` and `admin` are built in.
    pub name: String,
    /// Whether it cannot be changed.
    pub built_in: bool,
    /// What it permits: a request needs one grant that has its verb, namespace, pool and kind.
    pub grants: Vec<RoleGrant>,
}

impl From<access::Role> for Role {
    fn from(role: access::Role) -> Self {
        let text = |all: Vec<_>| all.into_iter().map(String::from).collect();
        let grants = role.grants.into_iter().map(|grant| RoleGrant {
            verbs: grant.verbs,
            namespaces: grant.namespaces.map(|all| all.into_iter().map(String::from).collect()),
            pools: grant.pools.map(text),
            kinds: grant.kinds.map(|all| all.into_iter().map(String::from).collect()),
        });
        Self {
            built_in: BuiltIn::named(role.name.as_str()).is_some(),
            name: role.name.into(),
            grants: grants.collect(),
        }
    }
}

/// The principal of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Whether requests need a token. If they need none, everybody may do everything.
    pub authentication: bool,
    /// Its name, as events and the audit log show it; null if requests need no token.
    pub name: Option<String>,
    /// The name of its role; null if requests need no token.
    pub role: Option<String>,
    /// The only namespace in which the principal has rights; names in its requests refer to this namespace. Null: several, or all.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The id of the token or session; null for the bootstrap token, a client certificate and a token of the identity
    /// provider.
    pub token: Option<String>,
    /// Whether it is the session of a console.
    pub session: bool,
    /// What authenticates it: `token`, `session`, `bootstrap`, `certificate`, or `oidc` for a token of the identity
    /// provider.
    #[serde(default)]
    pub credential: Option<String>,
    /// When the credential expires; null for the bootstrap token, and if requests need no token.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// The verbs that the role permits on something.
    pub verbs: Vec<String>,
}

/// How users can log in to the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginMethods {
    /// Whether `GET /v1/session/oidc` begins a login at the identity provider.
    pub single_sign_on: bool,
}

/// A request that changes something, or that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Later entries have higher numbers.
    pub id: i64,
    /// When the request arrived, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Null: the request was not authenticated.
    pub principal: Option<String>,
    /// The id of its token.
    pub token: Option<String>,
    /// What the client says about its user.
    pub actor: Option<String>,
    /// The address at the other end of the connection.
    pub from: Option<String>,
    /// The verb that the request needs, the first one if it needs one of several; null if it needs none.
    pub verb: Option<String>,
    /// The HTTP method.
    pub method: String,
    /// The path with the query, at most 1,000 characters; of a login at the identity provider, without the
    /// query.
    pub path: String,
    /// The HTTP status of the response; null while the request is in progress, or if the manager died.
    pub status: Option<u16>,
    /// The path of what it created.
    pub created: Option<String>,
}

impl From<access::AuditEntry> for AuditEntry {
    fn from(entry: access::AuditEntry) -> Self {
        let outcome = entry.outcome;
        Self {
            id: entry.id,
            at: entry.at,
            principal: entry.principal,
            token: entry.token,
            actor: entry.actor,
            from: entry.from,
            verb: entry.verb.map(|verb| verb.to_string()),
            method: entry.method,
            path: entry.path,
            status: outcome.as_ref().map(|it| it.status),
            created: outcome.and_then(|it| it.created),
        }
    }
}
