//! Who may use the API: the tokens and roles as this manager last read them, and the bootstrap token.

use crate::clock::DbClock;
use crate::lock::lock;
use crate::settings::AuthSettings;
use everwatch_core::access::{
    Accounts, Certificate, Digest, Mode, Presented, Principal, Secret, Unauthenticated,
};
use everwatch_door::rate::Rate;
use everwatch_store::{Store, StoreError};
use rand::RngCore as _;
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
/// The note that a token was created while requests needed none.
const CLOSED: &str = "access/closed";
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
    /// Why the bootstrap token cannot be used, as it was last logged.
    bootstrap_fault: Option<String>,
    /// Whether a token was created while requests needed none.
    is_closed: bool,
    read_at: Option<Instant>,
}

/// Who may use the API.
pub(crate) struct AccountsInUse {
    settings: AuthSettings,
    is_loopback: bool,
    clock: Arc<DbClock>,
    known: Mutex<Known>,
    /// A token that is not known may be new. However many of them arrive, one request at a time asks the database.
    turn: tokio::sync::Mutex<()>,
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
            turn: tokio::sync::Mutex::default(),
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
        let read = if has_changed {
            let accounts = Arc::new(Accounts::new(store.tokens().await?, store.roles().await?));
            Some((accounts, store.note(CLOSED).await?.is_some()))
        } else {
            None
        };
        let bootstrap = self.settings.bootstrap_token_file.as_deref().map(bootstrap).transpose();
        let (bootstrap, fault) = bootstrap.map_or_else(|fault| (None, Some(fault)), |it| (it, None));
        let mut known = lock(&self.known);
        if known.read_at.is_some_and(|at| at > asked_at) {
            return Ok(());
        }
        if let Some((accounts, is_closed)) = read {
            (known.accounts, known.is_closed, known.changes) = (accounts, is_closed, Some(changes));
        }
        if let Some(fault) = fault.as_ref().filter(|_| known.bootstrap_fault != fault) {
            warn!(fault, "the bootstrap token is not accepted");
        }
        (known.bootstrap, known.bootstrap_fault) = (bootstrap, fault);
        known.read_at = Some(asked_at);
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
        let (accounts, is_closed) = {
            let known = lock(&self.known);
            (Arc::clone(&known.accounts), known.is_closed)
        };
        let has_credentials = is_closed
            || self.settings.bootstrap_token_file.is_some()
            || !self.settings.mtls_roles.is_empty()
            || accounts.has_tokens(self.clock.now());
        self.settings.mode.requires_token(self.is_loopback, has_credentials)
    }

    /// Whether requests need a token, as far as the database is known. A manager that has not read it yet reads it first: it
    /// must not be open until it has.
    ///
    /// # Errors
    /// If the database does not answer.
    pub(crate) async fn check_open(&self, store: &dyn Store) -> Result<bool, Denied> {
        let is_unread = || lock(&self.known).read_at.is_none();
        if self.settings.mode != Mode::Off && is_unread() {
            let _turn = self.turn.lock().await;
            if is_unread() && self.refresh(store).await.is_err() {
                return Err(Denied::Unknown);
            }
        }
        Ok(!self.require_token())
    }

    /// Notes that requests need a token also after the last one has expired or was revoked: nobody expects a deployment to
    /// open by itself.
    pub(crate) async fn require_from_now_on(&self, store: &dyn Store) -> Result<(), StoreError> {
        store.set_note(CLOSED, "yes", Duration::MAX).await?;
        lock(&self.known).is_closed = true;
        Ok(())
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
        let asked_at = Instant::now();
        match look_up() {
            Err(
                Denied::Token(Unauthenticated::Unknown | Unauthenticated::CertificateRoleMissing(..))
                | Denied::Unknown,
            ) => {
                let _turn = self.turn.lock().await;
                if lock(&self.known).read_at.is_none_or(|at| at < asked_at) {
                    // The failure is told by the age of what is known.
                    let _unread = self.refresh(store).await;
                }
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
        if let Some(bootstrap) = bootstrap.as_ref().filter(|it| it.is(&Digest::of(token))) {
            return Ok(Principal::bootstrap(bootstrap.clone()));
        }
        let presented = Presented::parse(token).map_err(|_| Denied::Mistyped)?;
        let principal = accounts.authenticate(&presented, self.clock.now()).map_err(Denied::Token)?;
        // A session of a bootstrap token that was replaced.
        if principal.bootstrap.is_some() && principal.bootstrap != bootstrap {
            return Err(Denied::Token(Unauthenticated::Unknown));
        }
        Ok(principal)
    }

    /// Whether the audit log gets another request whose token is not accepted.
    pub(crate) fn notes_refusal(&self) -> bool {
        self.refusals.admits(None, std::time::Instant::now())
    }

    /// Whether this principal still has the same rights.
    pub(crate) fn still_knows(&self, principal: &Principal) -> bool {
        let (accounts, bootstrap) = {
            let known = lock(&self.known);
            if known.read_at.is_none_or(|at| at.elapsed() > KNOWN_FOR) {
                return false;
            }
            (Arc::clone(&known.accounts), known.bootstrap.clone())
        };
        if principal.bootstrap.is_some() && principal.bootstrap != bootstrap {
            return false;
        }
        match (&principal.token, principal.expires_at) {
            (None, Some(expires_at)) if principal.is_certificate => {
                let certificate = Certificate { name: Some(principal.name.clone()), expires_at };
                self.certified(&certificate).is_ok_and(|it| it == *principal)
            }
            (None, _) => principal.bootstrap.is_some(),
            (Some(id), _) => accounts.still(id, self.clock.now()).is_ok_and(|it| it == *principal),
        }
    }

    /// When the manager starts: if the file of the bootstrap token does not exist, creates it with a random secret. A file
    /// that an operator removes later stays away until the next start.
    pub(crate) fn prepare(&self) {
        let Some(file) = self.settings.bootstrap_token_file.as_deref() else { return };
        match generate(file) {
            Ok(()) => {
                info!(file = %file.display(), "created auth.bootstrap_token_file with the token of the first administrator");
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                warn!(file = %file.display(), %error, "auth.bootstrap_token_file does not exist and cannot be created");
            }
        }
    }

    /// Tells the operator what they must know when the manager starts.
    pub(crate) fn tell(&self) {
        if !self.require_token() {
            info!("requests need no token: the manager listens on loopback only, and no token was created");
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

/// Writes a new secret to this file, for its owner alone.
fn generate(file: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let secret = Secret::new(rand::rng().next_u64(), rand::random());
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(file, "{}", secret.text)?;
    file.sync_all()
}

/// The digest of the secret in this file.
fn bootstrap(file: &Path) -> Result<Digest, String> {
    let named = |why: String| format!("auth.bootstrap_token_file {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let secret = text.trim();
    if secret.chars().count() < BOOTSTRAP_MIN {
        return Err(named(format!("the secret must have at least {BOOTSTRAP_MIN} characters")));
    }
    Ok(Digest::of(secret))
}
