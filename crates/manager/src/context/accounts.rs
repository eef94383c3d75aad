//! Who may use the API: the tokens and roles as this manager last read them, and the bootstrap token.

use crate::clock::DbClock;
use crate::lock::lock;
use crate::settings::AuthSettings;
use everwatch_core::access::{Accounts, Certificate, Digest, Presented, Principal, Unauthenticated};
use everwatch_door::rate::Rate;
use everwatch_store::{Store, StoreError};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

/// Nothing is accepted on the word of what was read longer ago than this: a token that is revoked must be refused
/// within 5 s, also while the database does not answer.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// A token that is not known may be new: the database is asked again, at most this often.
const ASKS_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How many requests with a token that is not accepted the audit log gets per second at most.
const REFUSALS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");
/// The shortest secret that serves as a bootstrap token, in characters.
const BOOTSTRAP_MIN: usize = 32;

/// What was read last.
#[derive(Default)]
struct Known {
    accounts: Arc<Accounts>,
    /// The number of the last write that it contains.
    changes: Option<i64>,
    bootstrap: Option<Digest>,
    read_at: Option<Instant>,
}

/// Who may use the API.
pub(crate) struct AccountsInUse {
    settings: AuthSettings,
    is_loopback: bool,
    clock: Arc<DbClock>,
    known: Mutex<Known>,
    refusals: Rate,
}

/// Why nobody is let in.
pub(crate) enum Denied {
    /// The request has no token and no client certificate, and needs one.
    NoToken,
    /// Its token or client certificate is not accepted.
    Token(Unauthenticated),
    /// Its text is no token.
    Mistyped,
    /// Whether it is accepted is not known: the database does not answer.
    Unknown,
}

impl AccountsInUse {
    pub(crate) fn new(settings: AuthSettings, listen: SocketAddr, clock: Arc<DbClock>) -> Self {
        Self {
            settings,
            is_loopback: listen.ip().is_loopback(),
            clock,
            known: Mutex::default(),
            refusals: Rate::new(REFUSALS),
        }
    }

    pub(crate) fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    /// Reads the tokens and roles again if they have changed, and the bootstrap token.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        // Before the rows: a write in between is read again the next time.
        let changes = store.access_changes().await?;
        let has_changed = lock(&self.known).changes != Some(changes);
        let accounts = if has_changed {
            Some(Arc::new(Accounts::new(store.tokens().await?, store.roles().await?)))
        } else {
            None
        };
        let bootstrap = self.settings.bootstrap_token_file.as_deref().and_then(bootstrap);
        let mut known = lock(&self.known);
        if known.read_at.is_some_and(|at| at > asked_at) {
            return Ok(());
        }
        if let Some(accounts) = accounts {
            (known.accounts, known.changes) = (accounts, Some(changes));
        }
        (known.bootstrap, known.read_at) = (bootstrap, Some(asked_at));
        Ok(())
    }

    /// The accounts as they were read last.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&lock(&self.known).accounts)
    }

    pub(crate) fn has_bootstrap(&self) -> bool {
        lock(&self.known).bootstrap.is_some()
    }

    /// Whether requests need a token.
    pub(crate) fn require_token(&self) -> bool {
        let has_credentials =
            !self.settings.mtls_roles.is_empty() || self.accounts().has_tokens(self.clock.now());
        self.settings.mode.requires_token(self.is_loopback, has_credentials)
    }

    /// Who presents this token or, without a token, this client certificate.
    pub(crate) async fn authenticate(
        &self,
        store: &dyn Store,
        token: Option<&str>,
        certificate: Option<&Certificate>,
    ) -> Result<Principal, Denied> {
        let look_up = || match (token, certificate) {
            (Some(token), _) => self.look_up(token),
            (None, Some(certificate)) => self.certified(certificate),
            (None, None) => Err(Denied::NoToken),
        };
        match look_up() {
            Err(
                Denied::Token(Unauthenticated::Unknown | Unauthenticated::CertificateRoleMissing(..))
                | Denied::Unknown,
            ) if self.may_ask_again() => {
                // The failure is told by the age of what is known.
                let _unread = self.refresh(store).await;
                look_up()
            }
            known => known,
        }
    }

    fn certified(&self, certificate: &Certificate) -> Result<Principal, Denied> {
        if lock(&self.known).read_at.is_none_or(|at| at.elapsed() > KNOWN_FOR) {
            return Err(Denied::Unknown);
        }
        let roles = &self.settings.mtls_roles;
        self.accounts().certified(certificate, roles, self.clock.now()).map_err(Denied::Token)
    }

    fn look_up(&self, token: &str) -> Result<Principal, Denied> {
        let (accounts, bootstrap) = {
            let known = lock(&self.known);
            if known.read_at.is_none_or(|at| at.elapsed() > KNOWN_FOR) {
                return Err(Denied::Unknown);
            }
            (Arc::clone(&known.accounts), known.bootstrap.clone())
        };
        if bootstrap.is_some_and(|bootstrap| bootstrap.is(&Digest::of(token))) {
            return Ok(Principal::bootstrap());
        }
        let presented = Presented::parse(token).map_err(|_| Denied::Mistyped)?;
        accounts.authenticate(&presented, self.clock.now()).map_err(Denied::Token)
    }

    /// Whether the audit log gets another request whose token is not accepted.
    pub(crate) fn notes_refusal(&self) -> bool {
        self.refusals.admits(None, std::time::Instant::now())
    }

    fn may_ask_again(&self) -> bool {
        lock(&self.known).read_at.is_none_or(|at| at.elapsed() > ASKS_AGAIN_AFTER)
    }

    /// Whether this principal still has the same rights.
    pub(crate) fn still_knows(&self, principal: &Principal) -> bool {
        let (accounts, has_bootstrap) = {
            let known = lock(&self.known);
            if known.read_at.is_none_or(|at| at.elapsed() > KNOWN_FOR) {
                return false;
            }
            (Arc::clone(&known.accounts), known.bootstrap.is_some())
        };
        match (&principal.token, principal.expires_at) {
            (None, Some(expires_at)) if principal.is_certificate => {
                let certificate = Certificate { name: Some(principal.name.clone()), expires_at };
                self.certified(&certificate).is_ok_and(|it| it == *principal)
            }
            (None, _) => has_bootstrap,
            (Some(id), _) => accounts.still(id, self.clock.now()).is_ok_and(|it| it == *principal),
        }
    }

    /// Tells the operator what they must know when the manager starts.
    pub(crate) fn tell(&self) {
        if !self.require_token() {
            info!("requests need no token: the manager listens on loopback only, and there is no token");
            return;
        }
        let has_admin = self.has_bootstrap()
            || !self.settings.mtls_roles.is_empty()
            || self.accounts().has_tokens(self.clock.now());
        if !has_admin {
            warn!(
                "requests need a token, and there is none: set auth.bootstrap_token_file to a file with a secret of \
                 {BOOTSTRAP_MIN} characters or more, which then is the token of an administrator"
            );
        }
    }
}

/// The digest of the secret in this file; `None`, with a warning, if it is not usable.
fn bootstrap(file: &Path) -> Option<Digest> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            warn!(file = %file.display(), %error, "auth.bootstrap_token_file cannot be read");
            return None;
        }
    };
    let secret = text.trim();
    if secret.chars().count() < BOOTSTRAP_MIN {
        warn!(file = %file.display(), "auth.bootstrap_token_file: the secret must have at least {BOOTSTRAP_MIN} characters");
        return None;
    }
    Some(Digest::of(secret))
}
