//! Access to the API: tokens, the roles that they have, and the verbs that roles permit.

mod accounts;
mod audit;
mod key_fetches;
mod oidc;
mod role;
mod token;
mod verb;

pub use accounts::{Accounts, Certificate, Credential, Principal, Unauthenticated};
pub use audit::{AuditEntry, AuditFilter, Outcome};
pub use key_fetches::LastFetch;
pub use oidc::{ALGORITHMS, Identity, JWT_MAX, LEEWAY, Oidc, OidcRefusal, Purpose, is_safe_url};
pub use role::{BuiltIn, Grant, PART_MAX, ROLES_MAX, Rights, Role, Scope, ScopePart, Target};
pub use token::{Digest, Login, Mistyped, Origin, Presented, Secret, TOKENS_MAX, Token, TokenId};
pub use verb::{Reach, Verb};

use serde::{Deserialize, Serialize};

/// Whether requests need a token (`auth.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// If the manager listens beyond loopback, if a credential is configured, or once a token was created.
    #[default]
    Auto,
    /// Always.
    Required,
    /// Never; only on loopback.
    Off,
}

impl Mode {
    /// Whether requests need a token.
    #[must_use]
    pub fn requires_token(self, is_loopback: bool, has_credentials: bool) -> bool {
        match self {
            Self::Auto => !is_loopback || has_credentials,
            Self::Required => true,
            Self::Off => false,
        }
    }
}

#[cfg(test)]
mod oidc_tests;
#[cfg(test)]
mod tests;
