//! Principals by OpenID Connect: decides whether the claims of a token that an identity provider has signed identify a
//! principal. The manager verifies the signature before.

use super::role::{BuiltIn, Role};
use crate::clock::Timestamp;
use crate::id::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use url::{Host, Url};

/// The longest token that a manager reads, in bytes.
pub const JWT_MAX: usize = 16 * 1024;
/// By how much the clocks of the provider and of the database may differ.
pub const LEEWAY: Duration = Duration::from_secs(60);
/// The algorithms that are accepted: only those in which the manager holds no secret.
pub const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
/// What the name of each such principal begins with. No name of a token contains a colon.
const PREFIX: &str = "oidc:";
/// The most values that a manager reads of the claim with the groups.
const GROUPS_MAX: usize = 1000;
/// The longest name of a principal, in characters.
const NAME_MAX: usize = 200;
/// The latest `exp` and `nbf`, in seconds: the end of the year 9999.
const SECONDS_MAX: f64 = 253_402_300_799.0;

/// An identity provider, and the roles of its users (`[auth.oidc]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oidc {
    /// The `iss` of its tokens.
    pub issuer: String,
    /// The client of the console; empty: the console offers no login.
    pub client_id: String,
    /// The `aud` of tokens that programs send.
    pub audience: String,
    /// The claim with the groups: its name, or a path with dots.
    pub roles_claim: String,
    /// The role of each group.
    pub roles: BTreeMap<String, Name>,
}

/// A user or a program, as its provider identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub issuer: String,
    /// Begins with `oidc:`. Some providers let users choose it, so it may not be unique.
    pub name: String,
    /// Unique at the issuer.
    pub subject: String,
    /// Those of its groups to which the configuration gives a role.
    pub groups: Vec<String>,
}

/// What a token is presented for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A request.
    Request,
    /// A login to the console that began with this nonce.
    Login { nonce: &'a str },
}

/// The reason why a manager refuses a token of an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcRefusal {
    #[error("the token has {0} bytes: a manager reads at most {JWT_MAX}")]
    TooLong(usize),
    #[error("the token is not a signed JWT: {0}")]
    Malformed(String),
    #[error("the token is signed with `{0}`: accepted are {list}", list = ALGORITHMS.join(", "))]
    Algorithm(String),
    #[error("the token is of the type `{0}`, which is not accepted here")]
    Type(String),
    #[error("the token names no key (kid), and the identity provider has several")]
    KeyUnnamed,
    #[error("the identity provider has no key `{0}` for this token")]
    KeyUnknown(String),
    #[error("the signature of the token is not valid")]
    Signature,
    #[error("the token has no claim `{0}`")]
    ClaimMissing(&'static str),
    #[error("the claim `{0}` of the token is not valid")]
    ClaimInvalid(&'static str),
    #[error("the token was issued by `{0}`, not by auth.oidc.issuer of the manager")]
    Issuer(String),
    #[error("the token is for another audience: its `aud` must contain `{0}`")]
    Audience(String),
    #[error("the token was issued to `{0}`, which is not auth.oidc.client_id of the manager")]
    AuthorizedParty(String),
    #[error("the token belongs to another login: log in again")]
    Nonce,
    #[error("the token expired at {0}: request another one from the identity provider")]
    Expired(Timestamp),
    #[error("the token is not valid before {0}")]
    NotYetValid(Timestamp),
    #[error(
        "`{name}` has no role: none of its groups in the claim `{claim}` is in [auth.oidc] roles of the manager"
    )]
    Unmapped { name: String, claim: String },
    #[error(
        "the role {role}, which [auth.oidc] roles of the manager gives to `{name}`, does not exist: an administrator can \
         apply it"
    )]
    RoleMissing { name: String, role: Name },
    #[error("`{0}` has another role since this session began: log in again")]
    RoleChanged(String),
    #[error(
        "this manager does not accept tokens of the identity provider any more: its configuration has changed"
    )]
    Off,
}

impl Oidc {
    /// The identity that the claims of a token with a valid signature state, and when the token expires.
    ///
    /// # Errors
    /// The first rule that the claims break.
    pub fn identify(
        &self,
        claims: &Map<String, Value>,
        purpose: Purpose<'_>,
        now: Timestamp,
    ) -> Result<(Identity, Timestamp), OidcRefusal> {
        let issuer = text(claims, "iss")?.ok_or(OidcRefusal::ClaimMissing("iss"))?;
        if issuer != self.issuer {
            return Err(OidcRefusal::Issuer(shortened(issuer)));
        }
        self.check_audience(claims, purpose)?;
        let expires_at = moment(claims, "exp")?.ok_or(OidcRefusal::ClaimMissing("exp"))?;
        check_expiry(expires_at, now)?;
        if let Some(from) = moment(claims, "nbf")?.filter(|from| now.plus(LEEWAY) < *from) {
            return Err(OidcRefusal::NotYetValid(from));
        }
        if let Purpose::Login { nonce } = purpose
            && text(claims, "nonce")? != Some(nonce)
        {
            return Err(OidcRefusal::Nonce);
        }
        let subject = text(claims, "sub")?.ok_or(OidcRefusal::ClaimMissing("sub"))?.to_owned();
        let (issuer, name) = (self.issuer.clone(), name(claims)?);
        Ok((Identity { issuer, name, subject, groups: self.groups(claims) }, expires_at))
    }

    fn check_audience(&self, claims: &Map<String, Value>, purpose: Purpose<'_>) -> Result<(), OidcRefusal> {
        let own = match purpose {
            Purpose::Request => &self.audience,
            Purpose::Login { .. } => &self.client_id,
        };
        let (is_own, others) = match claims.get("aud").ok_or(OidcRefusal::ClaimMissing("aud"))? {
            Value::String(audience) => (audience == own, 0),
            Value::Array(all) => (all.iter().any(|it| it == own), all.len().saturating_sub(1)),
            _ => return Err(OidcRefusal::ClaimInvalid("aud")),
        };
        if !is_own {
            return Err(OidcRefusal::Audience(own.clone()));
        }
        // Section 3.1.3.7 of OpenID Connect Core, for the tokens of logins.
        let Purpose::Login { .. } = purpose else { return Ok(()) };
        match text(claims, "azp")? {
            Some(party) if party != self.client_id => Err(OidcRefusal::AuthorizedParty(shortened(party))),
            None if others > 0 => Err(OidcRefusal::ClaimMissing("azp")),
            _ => Ok(()),
        }
    }

    /// The groups in the claim that have a role.
    fn groups(&self, claims: &Map<String, Value>) -> Vec<String> {
        let values = match claim(claims, &self.roles_claim) {
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        let texts = values.iter().take(GROUPS_MAX).filter_map(Value::as_str);
        let mut groups: Vec<String> =
            texts.filter(|group| self.roles.contains_key(*group)).map(str::to_owned).collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// The role of an identity. Of several, `admin` and then `operator` take precedence over those that users have
    /// defined, in the order of their names, and these over `viewer`.
    pub(super) fn role_of(
        &self,
        identity: &Identity,
        find: impl Fn(&Name) -> Option<Role>,
    ) -> Result<Role, OidcRefusal> {
        if identity.issuer != self.issuer {
            return Err(OidcRefusal::Off);
        }
        let mut given: Vec<&Name> =
            identity.groups.iter().filter_map(|group| self.roles.get(group)).collect();
        given.sort_by_key(|role| (precedence(role), *role));
        let name = identity.name.clone();
        match (given.iter().find_map(|role| find(role)), given.first()) {
            (Some(role), _) => Ok(role),
            (None, Some(role)) => Err(OidcRefusal::RoleMissing { name, role: (*role).clone() }),
            (None, None) => Err(OidcRefusal::Unmapped { name, claim: self.roles_claim.clone() }),
        }
    }
}

/// Whether a manager may fetch from this URL of a provider: by HTTPS, or by HTTP from its own machine.
#[must_use]
pub fn is_safe_url(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(addr)) => addr.is_loopback(),
        Some(Host::Ipv6(addr)) => addr.is_loopback(),
        None => return false,
    };
    let has_password = !url.username().is_empty() || url.password().is_some();
    !has_password && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback))
}

/// Refuses what has expired, with the leeway.
pub(super) fn check_expiry(expires_at: Timestamp, now: Timestamp) -> Result<(), OidcRefusal> {
    if now >= expires_at.plus(LEEWAY) { Err(OidcRefusal::Expired(expires_at)) } else { Ok(()) }
}

fn precedence(role: &Name) -> u8 {
    match BuiltIn::named(role.as_str()) {
        Some(BuiltIn::Admin) => 0,
        Some(BuiltIn::Operator) => 1,
        None => 2,
        Some(BuiltIn::Viewer) => 3,
    }
}

fn text<'a>(claims: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, OidcRefusal> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(OidcRefusal::ClaimInvalid(name)),
    }
}

/// Seconds since 1970, with or without a fraction.
fn moment(claims: &Map<String, Value>, name: &'static str) -> Result<Option<Timestamp>, OidcRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|it| (0.0..=SECONDS_MAX).contains(it));
    let seconds = seconds.ok_or(OidcRefusal::ClaimInvalid(name))?;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked above")]
    let millis = (seconds * 1000.0) as i64;
    Ok(Some(Timestamp(millis)))
}

/// The claim of this name or, if there is none, the one at the end of this path.
fn claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let mut parts = path.split('.');
    let first = claims.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.as_object()?.get(part))
}

/// The name of the principal: what users recognize, if there is such a claim.
fn name(claims: &Map<String, Value>) -> Result<String, OidcRefusal> {
    let is_verified = claims.get("email_verified").is_none_or(|it| *it == Value::Bool(true));
    let usable = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| is_name(text));
    let email = usable("email").filter(|_| is_verified);
    let name = usable("preferred_username").or(email).or_else(|| usable("sub"));
    name.map(|name| format!("{PREFIX}{name}")).ok_or(OidcRefusal::ClaimInvalid("sub"))
}

fn is_name(text: &str) -> bool {
    let length = text.chars().count();
    (1..=NAME_MAX).contains(&length) && !text.chars().any(is_invisible)
}

/// Whether a character hides or reorders others, so that one name could look like another.
fn is_invisible(c: char) -> bool {
    let formats = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    formats || c.is_control() || c.is_whitespace()
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
