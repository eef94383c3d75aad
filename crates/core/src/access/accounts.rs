//! Finds out who sends a request.

use super::role::{BuiltIn, Rights, Role};
use super::token::{Digest, Origin, Presented, Token, TokenId};
use crate::clock::Timestamp;
use crate::id::Name;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The longest name of a certificate that a refusal repeats, in characters.
const NAME_SHOWN: usize = 200;

/// Every token and role, as a manager last read them.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    tokens: HashMap<TokenId, Token>,
    roles: BTreeMap<Name, Role>,
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// As events and the audit log show it.
    pub name: String,
    pub role: Name,
    /// The token that identifies it; `None` for the bootstrap token and for a client certificate.
    pub token: Option<TokenId>,
    /// The bootstrap token that identifies it, or that began its session.
    pub bootstrap: Option<Digest>,
    /// Whether a client certificate identifies it.
    pub is_certificate: bool,
    /// Whether it is a session of the console.
    pub is_session: bool,
    pub rights: Rights,
    pub expires_at: Option<Timestamp>,
}

/// A client certificate that a manager has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The URI or the DNS name that it is issued for; `None` if it names none, or several.
    pub name: Option<String>,
    pub expires_at: Timestamp,
}

/// Why a token or a client certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unauthenticated {
    Unknown,
    Expired(Timestamp),
    Revoked(Timestamp),
    /// The role of the token does not exist.
    RoleMissing(Name),
    /// The certificate names nobody, or several.
    CertificateUnnamed,
    CertificateExpired(Timestamp),
    /// The configuration gives this name no role.
    CertificateUnmapped(String),
    /// The role that the configuration gives this name does not exist.
    CertificateRoleMissing(String, Name),
}

impl Principal {
    /// The owner of this bootstrap token.
    #[must_use]
    pub fn bootstrap(digest: Digest) -> Self {
        let role = BuiltIn::Admin.role();
        Self {
            name: "bootstrap".to_owned(),
            rights: role.rights(),
            role: role.name,
            token: None,
            bootstrap: Some(digest),
            is_certificate: false,
            is_session: false,
            expires_at: None,
        }
    }
}

impl Accounts {
    /// From what the database has.
    #[must_use]
    pub fn new(tokens: Vec<Token>, roles: Vec<Role>) -> Self {
        let tokens = tokens.into_iter().map(|token| (token.id.clone(), token)).collect();
        Self { tokens, roles: roles.into_iter().map(|role| (role.name.clone(), role)).collect() }
    }

    /// Whether a user has created a token that is valid.
    #[must_use]
    pub fn has_tokens(&self, now: Timestamp) -> bool {
        self.tokens.values().any(|token| token.origin == Origin::Created && token.is_valid(now))
    }

    /// A role by name, built-in ones included.
    #[must_use]
    pub fn role(&self, name: &Name) -> Option<Role> {
        let built_in = BuiltIn::named(name.as_str()).map(BuiltIn::role);
        built_in.or_else(|| self.roles.get(name).cloned())
    }

    /// Who presents this token.
    ///
    /// # Errors
    /// Why nobody does.
    pub fn authenticate(&self, presented: &Presented, now: Timestamp) -> Result<Principal, Unauthenticated> {
        let token = self.tokens.get(&presented.id).ok_or(Unauthenticated::Unknown)?;
        // Whoever does not know the secret learns nothing about the token.
        if !token.opens_to(&presented.digest, now) {
            return Err(Unauthenticated::Unknown);
        }
        self.principal(token, now)
    }

    /// The principal of a token, if it is still accepted.
    ///
    /// # Errors
    /// Why it is not.
    pub fn still(&self, id: &TokenId, now: Timestamp) -> Result<Principal, Unauthenticated> {
        self.principal(self.tokens.get(id).ok_or(Unauthenticated::Unknown)?, now)
    }

    /// Who presents this client certificate. `roles`: the role of each name (`auth.mtls.roles`).
    ///
    /// # Errors
    /// Why nobody does.
    pub fn certified(
        &self,
        certificate: &Certificate,
        roles: &BTreeMap<String, Name>,
        now: Timestamp,
    ) -> Result<Principal, Unauthenticated> {
        let name = certificate.name.as_ref().ok_or(Unauthenticated::CertificateUnnamed)?;
        if now >= certificate.expires_at {
            return Err(Unauthenticated::CertificateExpired(certificate.expires_at));
        }
        let role = roles.get(name).ok_or_else(|| Unauthenticated::CertificateUnmapped(name.clone()))?;
        let role = self
            .role(role)
            .ok_or_else(|| Unauthenticated::CertificateRoleMissing(name.clone(), role.clone()))?;
        Ok(Principal {
            name: name.clone(),
            rights: role.rights(),
            role: role.name,
            token: None,
            bootstrap: None,
            is_certificate: true,
            is_session: false,
            expires_at: Some(certificate.expires_at),
        })
    }

    fn principal(&self, token: &Token, now: Timestamp) -> Result<Principal, Unauthenticated> {
        if let Some(at) = token.revoked_at {
            return Err(Unauthenticated::Revoked(at));
        }
        if now >= token.expires_at {
            return Err(Unauthenticated::Expired(token.expires_at));
        }
        let mut bootstrap = None;
        if let Origin::Session { of, bootstrap: used } = &token.origin {
            of.as_ref().map_or(Ok(()), |of| self.still(of, now).map(drop))?;
            bootstrap.clone_from(used);
        }
        let role = self.role(&token.role).ok_or_else(|| Unauthenticated::RoleMissing(token.role.clone()))?;
        Ok(Principal {
            name: token.name.to_string(),
            rights: role.rights(),
            role: role.name,
            token: Some(token.id.clone()),
            bootstrap,
            is_certificate: false,
            is_session: token.origin != Origin::Created,
            expires_at: Some(token.expires_at),
        })
    }
}

impl fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no token is known with this id and secret"),
            Self::Expired(at) => write!(f, "the token expired at {at}: create another one"),
            Self::Revoked(at) => write!(f, "the token was revoked at {at}"),
            Self::RoleMissing(role) => {
                write!(f, "the role {role} of the token does not exist: an administrator can apply it again")
            }
            Self::CertificateUnnamed => f.write_str(
                "the client certificate identifies nobody: it needs exactly one URI, or exactly one DNS name, as \
                 subject alternative name; or send a token",
            ),
            Self::CertificateExpired(at) => {
                write!(f, "the client certificate expired at {at}: connect with another one")
            }
            Self::CertificateUnmapped(name) => {
                let shown: String = name.chars().take(NAME_SHOWN).collect();
                write!(
                    f,
                    "the client certificate of `{shown}` has no role: add the name to [auth.mtls] roles of the manager, \
                     or send a token"
                )
            }
            Self::CertificateRoleMissing(name, role) => write!(
                f,
                "the role {role}, which [auth.mtls] roles of the manager gives to `{name}`, does not exist: an \
                 administrator can apply it"
            ),
        }
    }
}
