//! The identity provider, as this manager last read it: its endpoints and its keys. Verifies tokens, and exchanges the code
//! of a login for one.
//!
//! Only the loop `identity_provider` fetches: a client that disconnects interrupts no fetch. `LastFetch` in `core` decides
//! when.

mod fetch;
mod keys;
mod login;
mod signature;

pub(crate) use login::{LOGIN_WITHIN, Login};

use self::keys::{Header, Keys, verified};
use crate::settings::OidcSettings;
use everwatch_core::access::{Identity, LastFetch, OidcRefusal, Purpose};
use everwatch_core::clock::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};
use url::Url;

/// How long a request with an unknown key waits for the keys.
const KEYS_WITHIN: Duration = Duration::from_secs(12);
/// How many logins are exchanged at once.
const EXCHANGES_MAX: usize = 16;
/// How long a login waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);

/// The identity provider of `[auth.oidc]`.
pub(crate) struct IdentityProvider {
    settings: OidcSettings,
    /// The zero of the times in `LastFetch`.
    began: Instant,
    known: watch::Sender<Known>,
    /// A token names a key that is not known.
    wanted: Notify,
    exchanges: Semaphore,
    /// Seals logins if the client has no secret that all managers know.
    own_key: [u8; 32],
}

/// What was fetched last.
#[derive(Clone, Default)]
struct Known {
    provider: Option<Arc<Discovered>>,
    last: LastFetch,
    /// Why the last fetch failed.
    fault: Option<String>,
}

/// The endpoints and the keys of the provider.
struct Discovered {
    authorization_endpoint: Url,
    token_endpoint: Url,
    /// Whether the client sends its secret in a header; otherwise, in the body.
    uses_basic: bool,
    keys: Keys,
}

/// The reason why a token is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unverified {
    Refused(OidcRefusal),
    /// The provider does not answer, or not as it should.
    Unavailable(String),
}

impl From<OidcRefusal> for Unverified {
    fn from(refusal: OidcRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl IdentityProvider {
    pub(crate) fn new(settings: OidcSettings) -> Self {
        signature::use_ring();
        Self {
            settings,
            began: Instant::now(),
            known: watch::Sender::new(Known::default()),
            wanted: Notify::new(),
            exchanges: Semaphore::new(EXCHANGES_MAX),
            own_key: rand::random(),
        }
    }

    pub(crate) fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    /// Whether users can log in to the console.
    pub(crate) fn has_login(&self) -> bool {
        !self.settings.policy.client_id.is_empty()
    }

    /// Waits for the time of the next fetch, or for a token with an unknown key; then fetches the endpoints and keys.
    pub(crate) async fn renew(&self) {
        let known = self.known.borrow().clone();
        tokio::time::sleep_until(self.began + known.last.earliest_next()).await;
        tokio::select! {
            () = tokio::time::sleep_until(self.began + known.last.next()) => {}
            () = self.wanted.notified() => {}
        }
        let fetched = fetch::discover(&self.settings).await;
        let issuer = &self.settings.policy.issuer;
        if let Err(fault) = &fetched
            && known.fault.as_ref() != Some(fault)
        {
            warn!(
                issuer,
                fault, "the identity provider cannot be used; retrying. Keys that are known stay valid"
            );
        } else if fetched.is_ok() && (known.fault.is_some() || known.provider.is_none()) {
            info!(issuer, "read the keys of the identity provider");
        }
        self.known.send_modify(|it| {
            it.last = LastFetch { ended_at: Some(self.began.elapsed()), has_failed: fetched.is_err() };
            it.fault = fetched.as_ref().err().cloned();
            if let Ok(provider) = fetched {
                it.provider = Some(Arc::new(provider));
            }
        });
    }

    /// The identity that a token states, and when the token expires.
    pub(crate) async fn identify(
        &self,
        token: &str,
        purpose: Purpose<'_>,
        now: Timestamp,
    ) -> Result<(Identity, Timestamp), Unverified> {
        let header = Header::read(token)?;
        let media_type = header.media_type.as_deref();
        let is_right = match purpose {
            Purpose::Request => matches!(media_type, None | Some("jwt" | "at+jwt")),
            Purpose::Login { .. } => matches!(media_type, None | Some("jwt")),
        };
        if !is_right {
            return Err(OidcRefusal::Type(keys::shown(media_type.unwrap_or_default())).into());
        }
        let provider = self.knowing(&header).await?;
        let key = provider.keys.find(&header)?;
        let unknown = || OidcRefusal::KeyUnknown(keys::shown(header.key.as_deref().unwrap_or_default()));
        let claims = verified(token, header.algorithm, key.ok_or_else(unknown)?)?;
        Ok(self.settings.policy.identify(&claims, purpose, now)?)
    }

    /// The provider with the key of this token, if it has one. Waits for another fetch if that may find the key.
    async fn knowing(&self, header: &Header) -> Result<Arc<Discovered>, Unverified> {
        let (asked_at, mut changes) = (self.began.elapsed(), self.known.subscribe());
        let mut known = changes.borrow().clone();
        if let Some(provider) = known.provider.as_ref().filter(|it| it.keys.settles(header)) {
            return Ok(Arc::clone(provider));
        }
        if known.last.may_fetch_again(asked_at) {
            self.wanted.notify_one();
            let fetched = changes.wait_for(|it| it.last.ended_at.is_some_and(|at| at > asked_at));
            if let Ok(Ok(fetched)) = timeout(KEYS_WITHIN, fetched).await {
                known = fetched.clone();
            }
        }
        match (known.provider, known.fault) {
            (Some(provider), None) => Ok(provider),
            (Some(provider), Some(_)) if provider.keys.settles(header) => Ok(provider),
            (_, fault) => {
                Err(Unverified::Unavailable(fault.unwrap_or_else(|| "it was not read yet".to_owned())))
            }
        }
    }

    fn discovered(&self) -> Result<Arc<Discovered>, Unverified> {
        let known = self.known.borrow();
        let missing = || known.fault.clone().unwrap_or_else(|| "it was not read yet".to_owned());
        known.provider.clone().ok_or_else(|| Unverified::Unavailable(missing()))
    }

    /// Begins a login that returns to this address.
    ///
    /// # Errors
    /// If the provider was never read, or the secret of the client cannot be read.
    pub(crate) fn begin(&self, redirect: &str, now: Timestamp) -> Result<(Login, Url), Unverified> {
        let provider = self.discovered()?;
        let secret = fetch::secret(&self.settings).map_err(Unverified::Unavailable)?;
        let login = Login::begin(self.login_key(secret.as_deref()), now);
        let scopes = self.settings.scopes.iter().map(String::as_str);
        let scopes: Vec<&str> =
            std::iter::once("openid").chain(scopes.filter(|it| *it != "openid")).collect();
        let mut url = provider.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.policy.client_id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", &login.state)
            .append_pair("nonce", &login.nonce)
            .append_pair("code_challenge", &login.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok((login, url))
    }

    /// The login that began with this record, if the provider returned with its state.
    pub(crate) fn resume(
        &self,
        record: &str,
        state: &str,
        now: Timestamp,
    ) -> Result<Option<Login>, Unverified> {
        let secret = fetch::secret(&self.settings).map_err(Unverified::Unavailable)?;
        Ok(Login::resume(self.login_key(secret.as_deref()), record, state, now))
    }

    /// The key that seals logins: a manager can finish a login that began on another one if both have the same client secret.
    fn login_key<'a>(&'a self, secret: Option<&'a str>) -> &'a [u8] {
        secret.map_or(&self.own_key, str::as_bytes)
    }

    /// Exchanges the code of a login for the identity of its user.
    pub(crate) async fn exchange(
        &self,
        login: &Login,
        (code, redirect): (&str, &str),
        now: Timestamp,
    ) -> Result<(Identity, Timestamp), Unverified> {
        let busy = || Unverified::Unavailable("too many logins wait for it".to_owned());
        let turn = timeout(TURN_WITHIN, self.exchanges.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(busy()) };
        let provider = self.discovered()?;
        let answer = fetch::exchange(&self.settings, &provider, &login.verifier, (code, redirect)).await;
        let answer = answer.map_err(Unverified::Unavailable)?;
        let Some(token) = answer.get("id_token").and_then(Value::as_str) else {
            return Err(
                OidcRefusal::Malformed("the response of the provider has no `id_token`".to_owned()).into()
            );
        };
        self.identify(token, Purpose::Login { nonce: &login.nonce }, now).await
    }
}
