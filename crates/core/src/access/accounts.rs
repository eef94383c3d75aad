//! Authentication: finds the principal of a token, of a client certificate or of an identity of the identity provider.

use super::oidc::{Identity, Oidc, OidcRefusal, check_expiry};
use super::role::{BuiltIn, Rights, Role};
use super::token::{Digest, Login, Origin, Presented, Token, TokenId};
use crate::clock::Timestamp;
use crate::id::{Name, Namespace};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The longest name of a certificate that a refusal repeats, in characters.
const NAME_SHOWN: usize = 200;

/// All credentials that a manager accepts, and the roles that they have.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    tokens: HashMap<TokenId, Token>,
    roles: BTreeMap<Name, Role>,
    bootstrap: Option<Digest>,
    /// The role of each name in client certificates (`auth.mtls.roles`).
    certificates: BTreeMap<String, Name>,
    /// `None`: no identity provider is configured.
    oidc: Option<Oidc>,
}

/// The sender of a request, after its authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name in events and in the audit log.
    pub name: String,
    /// The subject at the identity provider, for principals that it has identified.
    pub subject: Option<String>,
    pub role: Name,
    pub credential: Credential,
    pub rights: Rights,
    /// `None`: the credential does not expire.
    pub expires_at: Option<Timestamp>,
}

/// What authenticates a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    Token(TokenId),
    /// A session of the console.
    Session(TokenId),
    Bootstrap(Digest),
    Certificate,
    /// A token of the identity provider.
    Oidc(Identity),
}

/// A client certificate that a manager has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its only URI or, without a URI, its only DNS name. `None`: it has no such name, or several.
    pub name: Option<String>,
    pub expires_at: Timestamp,
}

/// The reason why a manager refuses a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unauthenticated {
    /// The text is not a token, and not the bootstrap token.
    Mistyped,
    Unknown,
    Expired(Timestamp),
    Revoked(Timestamp),
    /// The role of the token does not exist.
    RoleMissing(Name),
    /// The certificate has no usable name, or more than one.
    CertificateUnnamed,
    CertificateExpired(Timestamp),
    /// The configuration gives this name no role.
    CertificateUnmapped(String),
    /// The role that the configuration gives this name does not exist.
    CertificateRoleMissing(String, Name),
    /// A token of the identity provider, or a session that began with one.
    Oidc(OidcRefusal),
}

impl From<OidcRefusal> for Unauthenticated {
    fn from(refusal: OidcRefusal) -> Self {
        Self::Oidc(refusal)
    }
}

impl Principal {
    fn bootstrap(digest: Digest) -> Self {
        let Role { name: role, .. } = BuiltIn::Admin.role();
        let rights = BuiltIn::Admin.role().rights();
        let (name, credential) = ("bootstrap".to_owned(), Credential::Bootstrap(digest));
        Self { name, subject: None, role, credential, rights, expires_at: None }
    }

    /// A text that no other principal has. Unlike the name, users of an identity provider cannot choose it.
    #[must_use]
    pub fn account(&self) -> String {
        // No name contains a space.
        self.subject.as_ref().map_or_else(|| self.name.clone(), |subject| format!("subject {subject}"))
    }

    /// The namespace to which its rights are restricted; `None` if they concern several, or any.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.rights.only_namespace()
    }

    /// The id of the token or session that authenticates it.
    #[must_use]
    pub fn token(&self) -> Option<&TokenId> {
        match &self.credential {
            Credential::Token(id) | Credential::Session(id) => Some(id),
            Credential::Bootstrap(_) | Credential::Certificate | Credential::Oidc(_) => None,
        }
    }
}

impl Accounts {
    /// The tokens and roles of the database.
    #[must_use]
    pub fn new(tokens: Vec<Token>, roles: Vec<Role>) -> Self {
        let tokens = tokens.into_iter().map(|token| (token.id.clone(), token)).collect();
        let roles = roles.into_iter().map(|role| (role.name.clone(), role)).collect();
        Self { tokens, roles, ..Self::default() }
    }

    /// With this bootstrap token.
    #[must_use]
    pub fn with_bootstrap(self, bootstrap: Option<Digest>) -> Self {
        Self { bootstrap, ..self }
    }

    /// With roles for the names in client certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: BTreeMap<String, Name>) -> Self {
        Self { certificates, ..self }
    }

    /// With an identity provider.
    #[must_use]
    pub fn with_oidc(self, oidc: Option<Oidc>) -> Self {
        Self { oidc, ..self }
    }

    /// The bootstrap token that is accepted.
    #[must_use]
    pub fn bootstrap(&self) -> Option<&Digest> {
        self.bootstrap.as_ref()
    }

    /// Whether any credential is accepted now.
    #[must_use]
    pub fn accepts_any(&self, now: Timestamp) -> bool {
        let is_valid = |token: &Token| token.origin == Origin::Created && token.is_valid(now);
        let is_configured = self.bootstrap.is_some() || !self.certificates.is_empty() || self.oidc.is_some();
        is_configured || self.tokens.values().any(is_valid)
    }

    /// A role by name, built-in ones included.
    #[must_use]
    pub fn role(&self, name: &Name) -> Option<Role> {
        let built_in = BuiltIn::named(name.as_str()).map(BuiltIn::role);
        built_in.or_else(|| self.roles.get(name).cloned())
    }

    /// The principal of this token.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn authenticate(&self, text: &str, now: Timestamp) -> Result<Principal, Unauthenticated> {
        if let Some(bootstrap) = self.bootstrap.as_ref().filter(|it| it.is(&Digest::of(text))) {
            return Ok(Principal::bootstrap(bootstrap.clone()));
        }
        let presented = Presented::parse(text).map_err(|_| Unauthenticated::Mistyped)?;
        let token = self.tokens.get(&presented.id).ok_or(Unauthenticated::Unknown)?;
        // A client that does not know the secret learns nothing about the token.
        if !token.opens_to(&presented.digest, now) {
            return Err(Unauthenticated::Unknown);
        }
        self.principal(token, now)
    }

    /// The principal of this client certificate.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn certified(&self, certificate: &Certificate, now: Timestamp) -> Result<Principal, Unauthenticated> {
        let name = certificate.name.as_ref().ok_or(Unauthenticated::CertificateUnnamed)?;
        if now >= certificate.expires_at {
            return Err(Unauthenticated::CertificateExpired(certificate.expires_at));
        }
        let role = self.certificates.get(name);
        let role = role.ok_or_else(|| Unauthenticated::CertificateUnmapped(name.clone()))?;
        let missing = || Unauthenticated::CertificateRoleMissing(name.clone(), role.clone());
        let role = self.role(role).ok_or_else(missing)?;
        Ok(Principal {
            name: name.clone(),
            subject: None,
            rights: role.rights(),
            role: role.name,
            credential: Credential::Certificate,
            expires_at: Some(certificate.expires_at),
        })
    }

    /// The principal of an identity whose token expires at this time.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn identified(
        &self,
        identity: &Identity,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> Result<Principal, Unauthenticated> {
        check_expiry(expires_at, now)?;
        let role = self.role_of(identity)?;
        Ok(Principal {
            name: identity.name.clone(),
            subject: Some(identity.subject.clone()),
            rights: role.rights(),
            role: role.name,
            credential: Credential::Oidc(identity.clone()),
            expires_at: Some(expires_at),
        })
    }

    fn role_of(&self, identity: &Identity) -> Result<Role, OidcRefusal> {
        let oidc = self.oidc.as_ref().ok_or(OidcRefusal::Off)?;
        oidc.role_of(identity, |name| self.role(name))
    }

    /// The namespace of the token that authenticates this principal, if it has one.
    #[must_use]
    pub fn namespace_of(&self, principal: &Principal) -> Option<Namespace> {
        self.tokens.get(principal.token()?)?.namespace.clone()
    }

    /// Whether this principal is still accepted, with the same rights.
    #[must_use]
    pub fn still_accepts(&self, principal: &Principal, now: Timestamp) -> bool {
        let current = match (&principal.credential, principal.expires_at) {
            (Credential::Token(id) | Credential::Session(id), _) => {
                self.tokens.get(id).ok_or(Unauthenticated::Unknown).and_then(|it| self.principal(it, now))
            }
            (Credential::Bootstrap(digest), _) => return self.bootstrap.as_ref() == Some(digest),
            (Credential::Certificate, Some(expires_at)) => {
                self.certified(&Certificate { name: Some(principal.name.clone()), expires_at }, now)
            }
            (Credential::Oidc(identity), Some(expires_at)) => self.identified(identity, expires_at, now),
            (Credential::Certificate | Credential::Oidc(_), None) => return false,
        };
        current.as_ref() == Ok(principal)
    }

    fn principal(&self, token: &Token, now: Timestamp) -> Result<Principal, Unauthenticated> {
        if let Some(at) = token.revoked_at {
            return Err(Unauthenticated::Revoked(at));
        }
        if now >= token.expires_at {
            return Err(Unauthenticated::Expired(token.expires_at));
        }
        let credential = match &token.origin {
            Origin::Created => Credential::Token(token.id.clone()),
            Origin::Session { of } => {
                self.check_login(of, &token.role, now)?;
                Credential::Session(token.id.clone())
            }
        };
        let role = self.role(&token.role).ok_or_else(|| Unauthenticated::RoleMissing(token.role.clone()))?;
        Ok(Principal {
            name: token.principal().to_owned(),
            subject: token.identity().map(|identity| identity.subject.clone()),
            rights: token.rights(role.rights()),
            role: role.name,
            credential,
            expires_at: Some(token.expires_at),
        })
    }

    /// Whether the credential with which a session of this role began is still accepted. The token of an identity provider
    /// may expire before the session does.
    fn check_login(&self, login: &Login, role: &Name, now: Timestamp) -> Result<(), Unauthenticated> {
        match login {
            Login::Token(id) => {
                let token = self.tokens.get(id).ok_or(Unauthenticated::Unknown)?;
                self.principal(token, now).map(drop)
            }
            Login::Bootstrap(digest) if self.bootstrap.as_ref() == Some(digest) => Ok(()),
            Login::Bootstrap(_) => Err(Unauthenticated::Unknown),
            Login::Oidc(identity) if self.role_of(identity)?.name == *role => Ok(()),
            Login::Oidc(identity) => Err(OidcRefusal::RoleChanged(identity.name.clone()).into()),
        }
    }
}

impl fmt::Display for Unauthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistyped => f.write_str(
                "the token is mistyped or incomplete, or it is a bootstrap token that is not valid any more",
            ),
            Self::Unknown => f.write_str("no token is known with this id and secret"),
            Self::Expired(at) => write!(f, "the token expired at {at}: create another one"),
            Self::Revoked(at) => write!(f, "the token was revoked at {at}"),
            Self::RoleMissing(role) => {
                write!(f, "the role {role} of the token does not exist: an administrator can apply it again")
            }
            Self::CertificateUnnamed => f.write_str(
                "the client certificate has no usable name: it needs exactly one URI, or exactly one DNS name, as \
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
            Self::Oidc(refusal) => refusal.fmt(f),
        }
    }
}
