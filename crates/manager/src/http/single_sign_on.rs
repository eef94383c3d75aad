//! Single sign-on: a login to the console at the identity provider, by an authorization code with PKCE.

use super::access::{entry_of, login_cookie, no_login_cookie, record, started_login, told};
use super::problem::{Code, Problem};
use super::query::Params;
use super::sessions;
use crate::context::Manager;
use crate::context::accounts::Denied;
use crate::context::oidc::{IdentityProvider, LOGIN_WITHIN, Unverified};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use everwatch_api::ProblemBody;
use everwatch_core::access::{AuditEntry, Identity, Principal};
use everwatch_core::clock::Timestamp;
use std::sync::Arc;
use url::Url;

/// Where the identity provider sends the browser after the login.
const CALLBACK: &str = "/v1/session/oidc/callback";
/// The longest code that a manager passes on, in bytes.
const CODE_MAX: usize = 4096;
/// The longest text of the provider that a problem repeats, in characters.
const SHOWN: usize = 200;

type Shared = State<Arc<Manager>>;

/// A page for a person whose login has failed.
const PAGE: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Login failed · Everwatch</title>\
    <link rel=\"stylesheet\" href=\"/console/style.css\"></head><body><main><section class=\"view login\">\
    <h1>Login failed</h1><p role=\"alert\">DETAIL</p><p><a class=\"button\" href=\"/\">Back to the console</a></p>\
    </section></main></body></html>";
/// What that page may load.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Begin a login to the console: redirects the browser to the identity provider.
#[utoipa::path(get, path = "/v1/session/oidc", tag = "access", security(()),
    responses((status = 303, description = "to the page of the identity provider"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 409, body = ProblemBody, description = "no-session"),
    (status = 503, body = ProblemBody, description = "identity-provider-unavailable")))]
pub(crate) async fn start(
    State(manager): Shared,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    params.finish()?;
    let provider = provider(&manager).await?;
    let callback = redirect_uri(&manager, &headers)?;
    let (login, url) = provider.begin(&callback, manager.records.clock.now())?;
    let cookie = (header::SET_COOKIE, login_cookie(&login.record, LOGIN_WITHIN));
    Ok(redirect(url.as_str(), vec![cookie]))
}

/// End a login to the console: the identity provider redirects the browser to this route.
#[utoipa::path(get, path = "/v1/session/oidc/callback", tag = "access", security(()), params(
    ("code" = Option<String>, Query, description = "what the manager exchanges for the token of the user"),
    ("state" = Option<String>, Query, description = "identifies the login"),
    ("iss" = Option<String>, Query, description = "the issuer"),
    ("error" = Option<String>, Query, description = "why the provider refuses the login"),
    ("error_description" = Option<String>, Query, description = "more about `error`, for people")),
    responses((status = 303, description = "to the console; the cookie is set"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 403, body = ProblemBody, description = "login-failed"),
    (status = 409, body = ProblemBody, description = "no-session, too-many-tokens"),
    (status = 503, body = ProblemBody, description = "identity-provider-unavailable, stopping")))]
pub(crate) async fn callback(
    State(manager): Shared,
    headers: HeaderMap,
    mut params: Params,
) -> Result<Response, Problem> {
    let provider = provider(&manager).await?;
    // Without the query, which contains the code.
    let entry = entry_of(&manager, &Method::GET, CALLBACK);
    let who = match identified(&manager, provider, &headers, &mut params).await {
        Ok(who) => who,
        Err(problem) => return Ok(refused(&manager, entry, shown(&headers, problem)).await),
    };
    let entry = record(&manager, AuditEntry { principal: Some(who.name.clone()), ..entry }).await?;
    // The session may outlive the token of the provider, which is often valid for minutes only.
    let response = match sessions::begin(&manager, &who, None).await {
        Ok(session) => {
            redirect("/", vec![(header::SET_COOKIE, session), (header::SET_COOKIE, no_login_cookie())])
        }
        Err(problem) => shown(&headers, problem),
    };
    Ok(told(&manager, Some(entry), response).await)
}

/// Writes a failed login to the audit log, up to the limit for refused tokens.
async fn refused(manager: &Manager, entry: AuditEntry, response: Response) -> Response {
    metrics::counter!(crate::metric::UNAUTHENTICATED).increment(1);
    let noted = if manager.accounts.notes_refusal() { record(manager, entry).await.ok() } else { None };
    let cookie = AppendHeaders([(header::SET_COOKIE, no_login_cookie())]);
    told(manager, noted, (cookie, response).into_response()).await
}

/// A problem, as a page if a browser shows it to a person.
fn shown(headers: &HeaderMap, problem: Problem) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/html") {
        return problem.into_response();
    }
    let body = problem.body(CALLBACK);
    let detail = body.detail.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::FORBIDDEN);
    let always = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (status, always, PAGE.replace("DETAIL", &detail)).into_response()
}

fn failed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::LoginFailed, detail)
}

/// The provider, if this manager has one and requests need a token.
async fn provider(manager: &Manager) -> Result<&Arc<IdentityProvider>, Problem> {
    let has_none = |detail: &str| Problem::new(Code::NoSession, detail);
    let provider = manager.accounts.provider().filter(|it| it.has_login());
    let provider = provider.ok_or_else(|| {
        has_none("single sign-on is not configured: set auth.oidc.issuer and auth.oidc.client_id, or log in with a token")
    })?;
    match manager.accounts.check_open(manager.records.store.as_ref()).await {
        Ok(false) => Ok(provider),
        Ok(true) => Err(has_none("requests need no token here, so there is nothing to log in to")),
        Err(denied) => Err(problem_of(denied)),
    }
}

/// The principal that the provider identifies.
async fn identified(
    manager: &Manager,
    provider: &IdentityProvider,
    headers: &HeaderMap,
    params: &mut Params,
) -> Result<Principal, Problem> {
    let record = started_login(headers).unwrap_or_default();
    let state = params.one("state")?.unwrap_or_default();
    let now = manager.records.clock.now();
    // First of all: without the state, a page of another site may have made this request.
    let login = provider.resume(&record, &state, now)?.ok_or_else(|| {
        failed("this login was not started in this browser, has ended, or another one was started since: log in again")
    })?;
    if let Some(issuer) = params.one("iss")?
        && issuer != provider.settings().policy.issuer
    {
        return Err(failed("the response comes from another identity provider (iss): log in again"));
    }
    if let Some(error) = params.one("error")? {
        let why = params.one("error_description")?.unwrap_or_default();
        let text: String = format!("{error} {why}").chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        return Err(failed(format!("the identity provider refused the login: {}", text.trim())));
    }
    let code = params.one("code")?.filter(|code| code.len() <= CODE_MAX);
    let code = code.ok_or_else(|| failed("the identity provider returned no usable code: log in again"))?;
    let redirect = redirect_uri(manager, headers)?;
    let (identity, expires_at): (Identity, Timestamp) =
        provider.exchange(&login, (&code, &redirect), now).await?;
    let store = manager.records.store.as_ref();
    manager.accounts.identified(store, &identity, expires_at).await.map_err(problem_of)
}

fn problem_of(denied: Denied) -> Problem {
    match denied {
        Denied::Refused(why) => failed(why.to_string()),
        Denied::NoCredential => failed("the login has no credential"),
        Denied::NoProvider(why) => Problem::from(Unverified::Unavailable(why)),
        Denied::Unknown => {
            Problem::new(Code::DatabaseUnavailable, "the roles are not known: the database does not answer")
        }
    }
}

/// The address of the callback, by which this browser reaches the manager. Browsers keep the cookie of a session only over
/// HTTPS or on their own machine, so every other address is one with HTTPS, which a proxy may terminate.
fn redirect_uri(manager: &Manager, headers: &HeaderMap) -> Result<String, Problem> {
    let unknown = || Problem::new(Code::BadHeader, "the header host is missing or is not a name with a port");
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok()).ok_or_else(unknown)?;
    let url = |scheme: &str| Url::parse(&format!("{scheme}://{host}{CALLBACK}")).map_err(|_| unknown());
    let plain = url("http")?;
    let is_plain = manager.settings.tls.is_none() && everwatch_core::access::is_safe_url(&plain);
    Ok(if is_plain { plain } else { url("https")? }.into())
}

/// Redirects the browser. No cache stores the response.
fn redirect(place: &str, cookies: Vec<(HeaderName, String)>) -> Response {
    let always = [
        (header::LOCATION, place.to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    (StatusCode::SEE_OTHER, AppendHeaders(cookies), always).into_response()
}
