//! Sessions of the console.

use super::access::{cookie, no_cookie};
use super::caller;
use super::problem::{Code, Problem};
use super::query::Params;
use super::tokens::{add, change, new_secret, told};
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{LoginMethods, ProblemBody, Whoami};
use everwatch_core::access::{self, Credential, Login, Origin, Principal};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Name;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// The stored name of sessions whose principal has a name that no token can have.
const UNNAMED: &str = "oidc";

type Shared = State<Arc<Manager>>;

/// List the ways in which users can log in to the console in addition to tokens.
#[utoipa::path(get, path = "/v1/session", tag = "access", security(()), responses((status = 200, body = LoginMethods)))]
pub(crate) async fn methods(State(manager): Shared, params: Params) -> Result<Json<LoginMethods>, Problem> {
    params.finish()?;
    let provider = manager.accounts.provider();
    Ok(Json(LoginMethods { single_sign_on: provider.is_some_and(|it| it.has_login()) }))
}

/// Log in to the console: exchanges the token of this request for the cookie of a session.
#[utoipa::path(post, path = "/v1/session", tag = "access", security(("token" = [])),
    responses((status = 201, body = Whoami, description = "the cookie is set"),
    (status = 409, body = ProblemBody, description = "no-session, too-many-tokens")))]
pub(crate) async fn log_in(State(manager): Shared, params: Params) -> Result<Response, Problem> {
    params.finish()?;
    let Some(who) = caller::principal() else {
        return Err(Problem::new(
            Code::NoSession,
            "requests need no token here, so there is nothing to log in to",
        ));
    };
    // The session of such a token ends with it.
    let cookie = [(header::SET_COOKIE, begin(&manager, &who, who.expires_at).await?)];
    Ok((StatusCode::CREATED, cookie, Json(told(&who))).into_response())
}

/// Begins a session that ends after `auth.session_ttl`, at the latest at this time; returns its cookie.
pub(super) async fn begin(
    manager: &Manager,
    who: &Principal,
    latest: Option<Timestamp>,
) -> Result<String, Problem> {
    let of = match &who.credential {
        Credential::Token(id) => Login::Token(id.clone()),
        Credential::Bootstrap(digest) => Login::Bootstrap(digest.clone()),
        Credential::Oidc(identity) => Login::Oidc(identity.clone()),
        Credential::Session(_) => {
            return Err(Problem::new(Code::NoSession, "a session cannot begin another one: send a token"));
        }
        Credential::Certificate => {
            let detail =
                "a client certificate needs no session: every request of its connection is authenticated";
            return Err(Problem::new(Code::NoSession, detail));
        }
    };
    let now = manager.records.clock.now();
    let lives = manager.accounts.settings().session_ttl;
    let (secret, expires_at) = (new_secret(), session_end(latest, now, lives));
    let stored_name = if matches!(of, Login::Oidc(_)) { UNNAMED } else { &who.name };
    let name = Name::new(stored_name).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let token = access::Token {
        id: secret.id.clone(),
        name,
        role: who.role.clone(),
        namespace: manager.accounts.accounts().namespace_of(who),
        origin: Origin::Session { of },
        created_at: now,
        created_by: who.name.clone(),
        expires_at,
        digest: secret.digest(),
        previous: None,
        revoked_at: None,
    };
    add(manager, &token, now).await?;
    info!(session = %token.id, name = token.principal(), "session begun");
    Ok(cookie(&secret, expires_at.since(now)))
}

fn session_end(latest: Option<Timestamp>, now: Timestamp, lives: Duration) -> Timestamp {
    latest.map_or(now.plus(lives), |at| at.min(now.plus(lives)))
}

/// End the session of this request.
#[utoipa::path(delete, path = "/v1/session", tag = "access", security(("token" = [])),
    responses((status = 204, description = "the cookie is removed"),
    (status = 409, body = ProblemBody, description = "no-session, changed-too-often")))]
pub(crate) async fn log_out(State(manager): Shared, params: Params) -> Result<Response, Problem> {
    params.finish()?;
    let Some(Credential::Session(id)) = caller::principal().map(|who| who.credential.clone()) else {
        return Err(Problem::new(Code::NoSession, "this request belongs to no session"));
    };
    let now = manager.records.clock.now();
    change(&manager, id.as_str(), |token| token.revoked(now)).await?;
    info!(session = %id, "session ended");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, no_cookie())]).into_response())
}
