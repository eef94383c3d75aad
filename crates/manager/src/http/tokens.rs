//! Tokens, sessions, and the principal of a request.

use super::body::{JsonBody, OptionalJson, parsed};
use super::caller;
use super::namespaces;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{CreatedToken, Listed, NewToken, ProblemBody, Rotation, Token, Whoami};
use everwatch_core::access::{
    self, BuiltIn, Credential, Origin, Principal, Role, Secret, Target, TokenId, Verb,
};
use everwatch_core::clock::{Timestamp, parse_duration, show};
use everwatch_core::id::{Name, Namespace};
use everwatch_core::observer::definition::FieldError;
use everwatch_store::TokenAdded;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How long a token is valid if nothing is said.
const EXPIRES_IN: Duration = Duration::from_secs(90 * 86_400);
const EXPIRES_MIN: Duration = Duration::from_secs(60);
/// How long the secret before a rotation stays valid.
const OVERLAP: Duration = Duration::from_secs(3600);
const OVERLAP_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Others may change a token meanwhile.
const TRIES: usize = 5;

type Shared = State<Arc<Manager>>;

fn wrong(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail: detail.into() }])
}

pub(super) fn new_secret() -> Secret {
    Secret::new(rand::random(), rand::random())
}

/// The name of the sender, as the token shows it.
fn own_name() -> String {
    caller::principal().map_or_else(|| "anybody".to_owned(), |who| who.name.clone())
}

/// A role that exists.
fn role(manager: &Manager, name: &Name, pointer: &str) -> Result<Role, Problem> {
    let Some(role) = manager.accounts.accounts().role(name) else {
        let built_in = BuiltIn::ALL.map(BuiltIn::as_str).join(", ");
        let detail = format!(
            "there is no role {name}: built in are {built_in}; `everwatch role apply` defines others"
        );
        return Err(wrong(pointer, detail));
    };
    Ok(role)
}

/// The namespace of a new token. It must exist, so that a mistake does not make a token that can do nothing.
async fn namespace(manager: &Manager, name: Option<&str>) -> Result<Option<Namespace>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let name = Namespace::new(name).map_err(|error| wrong("/namespace", error.to_string()))?;
    if !name.is_default() && manager.records.store.namespace(&name).await?.is_none() {
        return Err(wrong("/namespace", namespaces::missing(&name)));
    }
    Ok(Some(name))
}

fn lifetime(manager: &Manager, text: Option<&str>) -> Result<Duration, Problem> {
    let most = manager.accounts.settings().token_ttl_max;
    let Some(text) = text else { return Ok(EXPIRES_IN.min(most)) };
    let lives = parse_duration(text).map_err(|error| wrong("/expires_in", error))?;
    if !(EXPIRES_MIN..=most).contains(&lives) {
        let detail =
            format!("is {text}: must be {} to {} (auth.token_ttl_max)", show(EXPIRES_MIN), show(most));
        return Err(wrong("/expires_in", detail));
    }
    Ok(lives)
}

/// Create a token. Only this response contains its secret.
#[utoipa::path(post, path = "/v1/tokens", tag = "access", request_body = NewToken, security(("token" = ["tokens:write"])),
    responses((status = 201, body = CreatedToken),
    (status = 409, body = ProblemBody, description = "name-exists, too-many-tokens"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn create(
    State(manager): Shared,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let NewToken { name, role: role_name, namespace, expires_in } = parsed(body)?;
    let name = Name::new(&name).map_err(|error| wrong("/name", error.to_string()))?;
    let role_name = Name::new(&role_name).map_err(|error| wrong("/role", error.to_string()))?;
    let role = role(&manager, &role_name, "/role")?;
    let namespace = self::namespace(&manager, namespace.as_deref()).await?;
    let rights = namespace.as_ref().map_or_else(|| role.rights(), |it| role.rights().within(it));
    // Its rights must be among those of the sender.
    caller::check_covers(&role.name, &rights)?;
    let lives = lifetime(&manager, expires_in.as_deref())?;
    let first = !manager.accounts.require_token();
    if first && namespace.is_some() && role.rights().permits(Verb::TokensWrite, Target::Deployment) {
        let detail = "must be absent: the first token must be valid in all namespaces";
        return Err(wrong("/namespace", detail));
    }
    if first && !rights.permits(Verb::TokensWrite, Target::Deployment) {
        let detail = "must permit tokens:write for the first token, as admin does: from then on every request needs a \
                      token";
        return Err(wrong("/role", detail));
    }
    let (secret, now) = (new_secret(), manager.records.clock.now());
    let token = access::Token {
        id: secret.id.clone(),
        name,
        role: role.name,
        namespace,
        origin: Origin::Created,
        created_at: now,
        created_by: own_name(),
        expires_at: now.plus(lives),
        digest: secret.digest(),
        previous: None,
        revoked_at: None,
    };
    add(&manager, &token, now).await?;
    info!(token = %token.id, name = %token.name, role = %token.role, "token created");
    Ok((StatusCode::CREATED, location(&token.id), shown(&secret, &token, now)).into_response())
}

pub(super) async fn add(manager: &Manager, token: &access::Token, now: Timestamp) -> Result<(), Problem> {
    let added = manager.records.store.add_token(token, now).await?;
    match added {
        TokenAdded::Done => {
            manager.accounts.refresh(manager.records.store.as_ref()).await?;
            Ok(())
        }
        TokenAdded::NameTaken => {
            let detail =
                format!("a valid token is named {}: rotate or revoke it, or choose another name", token.name);
            Err(Problem::new(Code::NameExists, detail))
        }
        TokenAdded::TooMany => {
            let detail = format!("{} tokens and sessions are valid: revoke some", access::TOKENS_MAX);
            Err(Problem::new(Code::TooManyTokens, detail))
        }
    }
}

fn location(id: &TokenId) -> [(header::HeaderName, String); 1] {
    [(header::LOCATION, format!("/v1/tokens/{id}"))]
}

fn shown(secret: &Secret, token: &access::Token, now: Timestamp) -> Json<CreatedToken> {
    let Token { id, name, role, namespace, expires_at, previous_until, .. } = Token::of(token, None, now);
    Json(CreatedToken { token: secret.text.clone(), id, name, role, namespace, expires_at, previous_until })
}

/// List tokens. Those that have ended are listed for a day.
#[utoipa::path(get, path = "/v1/tokens", tag = "access", security(("token" = ["tokens:read"])), params(
    ("sessions" = Option<bool>, Query, description = "whether sessions of the console are listed too"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<Token>)))]
pub(crate) async fn list(State(manager): Shared, mut params: Params) -> Result<Json<Listed<Token>>, Problem> {
    let with_sessions = params.parsed::<bool>("sessions")?.unwrap_or(false);
    let part: Part<(Name, TokenId)> = Part::read(&mut params)?;
    params.finish()?;
    let now = manager.records.clock.now();
    let mut tokens = manager.records.store.tokens().await?;
    let last = last_of(&manager, &tokens, now);
    tokens.retain(|token| with_sessions || token.origin == Origin::Created);
    let total = tokens.len() as u64;
    let key = |token: &access::Token| (token.name.clone(), token.id.clone());
    tokens.sort_by_key(key);
    tokens.retain(|token| part.after.as_ref().is_none_or(|after| key(token) > *after));
    let more = tokens.len() > part.limit;
    tokens.truncate(part.limit);
    let next_cursor = tokens.last().filter(|_| more).and_then(|last| part.cursor(key(last)));
    let items = tokens.iter().map(|token| Token::of(token, last.as_ref(), now)).collect();
    Ok(Json(Listed { items, next_cursor, total }))
}

/// The token of this id, or the valid one of this name.
async fn find(manager: &Manager, key: &str) -> Result<access::Token, Problem> {
    let store = &manager.records.store;
    let by_id = match TokenId::new(key) {
        Some(id) => store.token(&id).await?,
        None => None,
    };
    let found = match by_id {
        Some(token) => Some(token),
        None => {
            let now = manager.records.clock.now();
            let is = |token: &access::Token| {
                token.origin == Origin::Created && token.name.as_str() == key && token.is_valid(now)
            };
            store.tokens().await?.into_iter().find(is)
        }
    };
    let shown: String = key.chars().take(140).collect();
    found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no token `{shown}`")))
}

/// Changes a token that may not have more rights than the sender.
pub(super) async fn change(
    manager: &Manager,
    key: &str,
    change: impl Fn(&access::Token) -> access::Token,
) -> Result<access::Token, Problem> {
    for _ in 0..TRIES {
        let before = find(manager, key).await?;
        // A role that was deleted has no rights.
        if let Some(role) = manager.accounts.accounts().role(&before.role) {
            caller::check_covers(&role.name, &before.rights(role.rights()))?;
        }
        let after = change(&before);
        if manager.records.store.change_token(&before, &after).await? {
            manager.accounts.refresh(manager.records.store.as_ref()).await?;
            return Ok(after);
        }
    }
    Err(Problem::new(Code::Contended, "others change this token at the same time: try again"))
}

/// Give a token a new secret. The current one stays valid for a while, so that its users can change over.
#[utoipa::path(post, path = "/v1/tokens/{key}/rotate", tag = "access", request_body = Option<Rotation>,
    security(("token" = ["tokens:write"])), params(("key" = String, Path, description = "id or name")),
    responses((status = 200, body = CreatedToken), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "token-not-valid, changed-too-often"),
    (status = 422, body = ProblemBody, description = "invalid")))]
pub(crate) async fn rotate(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    params.finish()?;
    let Rotation { overlap, expires_in } = body.map(parsed).transpose()?.unwrap_or_default();
    let overlap = match overlap.as_deref() {
        None => OVERLAP,
        Some(text) => parse_duration(text).map_err(|error| wrong("/overlap", error))?,
    };
    if overlap > OVERLAP_MAX {
        return Err(wrong(
            "/overlap",
            format!("is {}: must be at most {}", show(overlap), show(OVERLAP_MAX)),
        ));
    }
    let lives = expires_in.as_deref().map(|text| lifetime(&manager, Some(text))).transpose()?;
    let now = manager.records.clock.now();
    let found = find(&manager, &key).await?;
    let why = match found.origin {
        Origin::Session { .. } => Some("is a session of the console: log in again"),
        Origin::Created if !found.is_valid(now) => Some("has expired or was revoked: create another one"),
        Origin::Created => None,
    };
    if let Some(why) = why {
        return Err(Problem::new(Code::TokenNotValid, format!("the token {} {why}", found.id)));
    }
    let secret = Secret::of(found.id.clone(), rand::random());
    let rotated = change(&manager, found.id.as_str(), |token| {
        let expires_at = lives.map_or(token.expires_at, |lives| now.plus(lives));
        token.rotated(secret.digest(), now.plus(overlap), expires_at)
    });
    let rotated = rotated.await?;
    info!(token = %rotated.id, name = %rotated.name, "token rotated");
    Ok(shown(&secret, &rotated, now).into_response())
}

/// Revoke a token. Within 5 s, all managers refuse it and close the streams that were opened with it.
#[utoipa::path(delete, path = "/v1/tokens/{key}", tag = "access", security(("token" = ["tokens:write"])),
    params(("key" = String, Path, description = "id or name")),
    responses((status = 204), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "last-token, changed-too-often")))]
pub(crate) async fn revoke(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let now = manager.records.clock.now();
    let token = find(&manager, &key).await?;
    if last_of(&manager, &manager.records.store.tokens().await?, now) == Some(token.id.clone()) {
        let detail = format!(
            "the token {} is the last one that may create tokens: create another one first, such as with `everwatch token \
             create NAME --role admin`, or set auth.bootstrap_token_file",
            token.name
        );
        return Err(Problem::new(Code::LastToken, detail));
    }
    let id = token.id;
    let revoked = change(&manager, id.as_str(), |token| token.revoked(now)).await?;
    info!(token = %revoked.id, name = %revoked.name, "token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// The last valid token that may create tokens, if no other way to log in as an administrator is configured.
fn last_of(manager: &Manager, tokens: &[access::Token], now: Timestamp) -> Option<TokenId> {
    let settings = manager.accounts.settings();
    if settings.bootstrap_token_file.is_some() || !settings.mtls_roles.is_empty() || settings.oidc.is_some() {
        return None;
    }
    let accounts = manager.accounts.accounts();
    let may_create = |it: &&access::Token| {
        let rights = accounts.role(&it.role).map(|role| it.rights(role.rights()));
        it.origin == Origin::Created
            && it.is_valid(now)
            && rights.is_some_and(|rights| rights.permits(Verb::TokensWrite, Target::Deployment))
    };
    let mut able = tokens.iter().filter(may_create);
    let first = able.next()?;
    able.next().is_none().then(|| first.id.clone())
}

/// The principal of this request, and what its role permits.
#[utoipa::path(get, path = "/v1/whoami", tag = "access", security(("token" = [])), responses((status = 200, body = Whoami)))]
pub(crate) async fn whoami(params: Params) -> Result<Json<Whoami>, Problem> {
    params.finish()?;
    let Some(who) = caller::principal() else {
        let verbs = Verb::ALL.iter().map(ToString::to_string).collect();
        return Ok(Json(Whoami {
            authentication: false,
            name: None,
            role: None,
            namespace: None,
            token: None,
            session: false,
            credential: None,
            expires_at: None,
            verbs,
        }));
    };
    Ok(Json(told(&who)))
}

/// A principal, as responses show it.
pub(super) fn told(who: &Principal) -> Whoami {
    let credential = match who.credential {
        Credential::Token(_) => "token",
        Credential::Session(_) => "session",
        Credential::Bootstrap(_) => "bootstrap",
        Credential::Certificate => "certificate",
        Credential::Oidc(_) => "oidc",
    };
    Whoami {
        authentication: true,
        name: Some(who.name.clone()),
        role: Some(who.role.to_string()),
        namespace: who.namespace().map(ToString::to_string),
        token: who.token().map(ToString::to_string),
        session: matches!(who.credential, Credential::Session(_)),
        credential: Some(credential.to_owned()),
        expires_at: who.expires_at,
        verbs: who.rights.verbs().iter().map(ToString::to_string).collect(),
    }
}
