//! Who may do what: tokens, and the roles that say what their owners may do.

mod accounts;
mod audit;
mod role;
mod token;
mod verb;

pub use accounts::{Accounts, Certificate, Principal, Unauthenticated};
pub use audit::{AuditEntry, AuditFilter, Outcome};
pub use role::{BuiltIn, Grant, PART_MAX, ROLES_MAX, Rights, Role, Scope, ScopePart, Target};
pub use token::{Digest, Mistyped, Origin, Presented, Secret, TOKENS_MAX, Token, TokenId};
pub use verb::{Reach, Verb};

use serde::{Deserialize, Serialize};

/// Whether requests need a token (`auth.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// If the manager listens beyond loopback, or if there is a token.
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
    pub fn requires_token(self, is_loopback: bool, has_tokens: bool) -> bool {
        match self {
            Self::Auto => !is_loopback || has_tokens,
            Self::Required => true,
            Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests;
