//! The credentials that the API accepts, as this manager last read them.

use super::oidc::{IdentityProvider, Unverified};
use crate::clock::DbClock;
use crate::lock::lock;
use crate::settings::AuthSettings;
use everwatch_core::access::{
    Accounts, Certificate, Digest, Identity, Mode, OidcRefusal, Principal, Purpose, Secret, Unauthenticated,
};
use everwatch_core::clock::Timestamp;
use everwatch_door::quota::Client;
use everwatch_door::rate::Rate;
use everwatch_store::{AccessChanges, Store, StoreError};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

/// How long a manager relies on what it has read. It must refuse a revoked token within 5 s, also while the database does not
/// answer.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How many requests with a refused token the audit log gets per second at most.
const REFUSALS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");
/// The shortest secret that serves as a bootstrap token, in characters.
const BOOTSTRAP_MIN: usize = 32;

/// What was read last.
#[derive(Default)]
struct Known {
    accounts: Arc<Accounts>,
    /// The writes of tokens and roles that `accounts` contains.
    changes: Option<AccessChanges>,
    /// Why the bootstrap token cannot be used, as it was last logged.
    bootstrap_fault: Option<String>,
    read_at: Option<Instant>,
}

/// The credentials that the API accepts.
pub(crate) struct AccountsInUse {
    settings: AuthSettings,
    is_loopback: bool,
    clock: Arc<DbClock>,
    known: Mutex<Known>,
    /// An unknown token may be new. However many of them arrive, one request at a time asks the database.
    turn: tokio::sync::Mutex<()>,
    refusals: Rate,
    /// `None`: principals may send as many requests as they like.
    requests: Option<Rate>,
    /// `None`: none is configured.
    provider: Option<Arc<IdentityProvider>>,
}

/// What a client proves itself with.
#[derive(Clone, Copy)]
enum Proof<'a> {
    Token(&'a str),
    Certificate(&'a Certificate),
    /// A verified token of the identity provider, and when it expires.
    Identity(&'a Identity, Timestamp),
}

/// The reason why a request is not authenticated.
pub(crate) enum Denied {
    /// The request has neither a token nor a client certificate.
    NoCredential,
    /// Its token or client certificate is refused.
    Refused(Unauthenticated),
    /// The database does not answer, so the manager cannot tell.
    Unknown,
    /// The identity provider does not answer, so the manager cannot tell.
    NoProvider(String),
}

impl From<Unverified> for Denied {
    fn from(unverified: Unverified) -> Self {
        match unverified {
            Unverified::Refused(refusal) => Self::Refused(refusal.into()),
            Unverified::Unavailable(why) => Self::NoProvider(why),
        }
    }
}

impl AccountsInUse {
    pub(crate) fn new(settings: AuthSettings, listen: SocketAddr, clock: Arc<DbClock>) -> Self {
        let requests = settings.requests_per_second.map(Rate::new);
        let provider = settings.oidc.clone().map(|oidc| Arc::new(IdentityProvider::new(oidc)));
        Self {
            provider,
            settings,
            requests,
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

    /// How many requests a principal may send in a second.
    pub(crate) fn requests_per_second(&self) -> u32 {
        self.settings.requests_per_second.map_or(u32::MAX, NonZeroU32::get)
    }

    /// Whether a principal may send this request.
    pub(crate) fn admits(&self, principal: &Principal) -> bool {
        let client = Client::Principal(principal.account());
        self.requests.as_ref().is_none_or(|requests| requests.admits(client, Instant::now().into_std()))
    }

    /// The identity provider.
    pub(crate) fn provider(&self) -> Option<&Arc<IdentityProvider>> {
        self.provider.as_ref()
    }

    /// Reads the tokens and roles again if they have changed, and the bootstrap token.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        // Before the rows: a write in between is read again the next time.
        let changes = store.access_changes().await?;
        let has_changed = lock(&self.known).changes != Some(changes);
        let read = if has_changed { Some((store.tokens().await?, store.roles().await?)) } else { None };
        let bootstrap = self.settings.bootstrap_token_file.as_deref().map(bootstrap).transpose();
        let (bootstrap, fault) = bootstrap.map_or_else(|fault| (None, Some(fault)), |it| (it, None));
        let mut known = lock(&self.known);
        if known.read_at.is_some_and(|at| at > asked_at) {
            return Ok(());
        }
        if let Some((tokens, roles)) = read {
            let accounts = Accounts::new(tokens, roles).with_certificates(self.settings.mtls_roles.clone());
            let accounts = accounts.with_oidc(self.settings.oidc.as_ref().map(|oidc| oidc.policy.clone()));
            (known.accounts, known.changes) = (Arc::new(accounts.with_bootstrap(bootstrap)), Some(changes));
        } else if known.accounts.bootstrap() != bootstrap.as_ref() {
            known.accounts = Arc::new(Accounts::clone(&known.accounts).with_bootstrap(bootstrap));
        }
        if let Some(fault) = fault.as_ref().filter(|_| known.bootstrap_fault != fault) {
            warn!(fault, "the bootstrap token is not accepted");
        }
        (known.bootstrap_fault, known.read_at) = (fault, Some(asked_at));
        Ok(())
    }

    /// The accounts as they were read last.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&lock(&self.known).accounts)
    }

    /// The accounts, if they were read recently enough to rely on them.
    fn recent(&self) -> Option<Arc<Accounts>> {
        let known = lock(&self.known);
        let is_recent = known.read_at.is_some_and(|at| at.elapsed() <= KNOWN_FOR);
        is_recent.then(|| Arc::clone(&known.accounts))
    }

    /// Whether requests need a token.
    pub(crate) fn require_token(&self) -> bool {
        let had_token = lock(&self.known).changes.is_some_and(|changes| changes.had_token);
        let settings = &self.settings;
        let is_configured = settings.bootstrap_token_file.is_some()
            || !settings.mtls_roles.is_empty()
            || settings.oidc.is_some();
        self.settings.mode.requires_token(self.is_loopback, had_token || is_configured)
    }

    /// Whether requests need no token. A manager that has not read the database yet reads it first: until then, it must not be
    /// open.
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

    /// The principal of this token or, without a token, of this client certificate.
    pub(crate) async fn authenticate(
        &self,
        store: &dyn Store,
        token: Option<&str>,
        certificate: Option<&Certificate>,
    ) -> Result<Principal, Denied> {
        let proof = match (token, certificate) {
            (Some(token), _) => Proof::Token(token),
            (None, Some(certificate)) => Proof::Certificate(certificate),
            (None, None) => return Err(Denied::NoCredential),
        };
        match (self.find(store, proof).await, &self.provider, token.filter(|token| is_jwt(token))) {
            (Err(Denied::Refused(Unauthenticated::Mistyped)), Some(provider), Some(jwt)) => {
                let (identity, expires_at) =
                    provider.identify(jwt, Purpose::Request, self.clock.now()).await?;
                self.identified(store, &identity, expires_at).await
            }
            (found, _, _) => found,
        }
    }

    /// The principal of an identity whose token, verified before, expires at this time.
    pub(crate) async fn identified(
        &self,
        store: &dyn Store,
        identity: &Identity,
        expires_at: Timestamp,
    ) -> Result<Principal, Denied> {
        self.find(store, Proof::Identity(identity, expires_at)).await
    }

    /// Looks up a principal; reads the database first if what it needs may be new there.
    async fn find(&self, store: &dyn Store, proof: Proof<'_>) -> Result<Principal, Denied> {
        let asked_at = Instant::now();
        match self.look_up(proof) {
            Err(
                Denied::Refused(
                    Unauthenticated::Unknown
                    | Unauthenticated::CertificateRoleMissing(..)
                    | Unauthenticated::Oidc(OidcRefusal::RoleMissing { .. }),
                )
                | Denied::Unknown,
            ) => {
                let _turn = self.turn.lock().await;
                if lock(&self.known).read_at.is_none_or(|at| at < asked_at) {
                    // After a failure, what is known is too old.
                    let _unread = self.refresh(store).await;
                }
                self.look_up(proof)
            }
            known => known,
        }
    }

    fn look_up(&self, proof: Proof<'_>) -> Result<Principal, Denied> {
        let (accounts, now) = (self.recent().ok_or(Denied::Unknown)?, self.clock.now());
        let found = match proof {
            Proof::Token(token) => accounts.authenticate(token, now),
            Proof::Certificate(certificate) => accounts.certified(certificate, now),
            Proof::Identity(identity, expires_at) => accounts.identified(identity, expires_at, now),
        };
        found.map_err(Denied::Refused)
    }

    /// Whether the audit log gets another request with a refused token.
    pub(crate) fn notes_refusal(&self) -> bool {
        self.refusals.admits(None, std::time::Instant::now())
    }

    /// Whether this principal is still accepted, with the same rights.
    pub(crate) fn still_accepts(&self, principal: &Principal) -> bool {
        self.recent().is_some_and(|accounts| accounts.still_accepts(principal, self.clock.now()))
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
        let accounts = self.accounts();
        for role in self.settings.oidc.iter().flat_map(|oidc| oidc.policy.roles.values()) {
            if accounts.role(role).is_none() {
                warn!(%role, "a role in auth.oidc.roles does not exist: apply it with `everwatch role apply`");
            }
        }
        if !accounts.accepts_any(self.clock.now()) {
            warn!(
                "requests need a token, and there is none: set auth.bootstrap_token_file to a file with a secret of \
                 {BOOTSTRAP_MIN} characters or more, which then is the token of an administrator"
            );
        }
    }
}

/// Whether a text can be a token of an identity provider: three parts, of which the first begins with `{"` in base64.
fn is_jwt(text: &str) -> bool {
    text.starts_with("ey") && text.matches('.').count() == 2
}

/// Writes a new secret to this file, for its owner alone.
fn generate(file: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let secret = Secret::new(rand::random(), rand::random());
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

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::record::row_policy::RowPolicy;
    use everwatch_store::MemoryStore;
    use std::net::Ipv4Addr;

    #[tokio::test(start_paused = true)]
    async fn what_was_read_is_relied_on_for_5_s_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bootstrap");
        let settings = AuthSettings { bootstrap_token_file: Some(file.clone()), ..AuthSettings::default() };
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let accounts = AccountsInUse::new(settings, listen, Arc::default());
        accounts.prepare();
        let secret = std::fs::read_to_string(&file).unwrap();
        let look_up = || accounts.look_up(Proof::Token(secret.trim()));
        assert!(matches!(look_up(), Err(Denied::Unknown)), "nothing was read yet");
        accounts.refresh(&MemoryStore::new(RowPolicy::default())).await.unwrap();
        let Ok(principal) = look_up() else { unreachable!("it is accepted") };
        tokio::time::advance(KNOWN_FOR).await;
        assert!(look_up().is_ok() && accounts.still_accepts(&principal));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(matches!(look_up(), Err(Denied::Unknown)) && !accounts.still_accepts(&principal));
    }
}
