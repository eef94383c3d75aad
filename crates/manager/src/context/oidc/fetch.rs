//! Requests to the identity provider, each with limits of time and size.

use super::Discovered;
use super::keys::{Keys, shown};
use crate::settings::OidcSettings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_core::access::is_safe_url;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Certificate, Client, RequestBuilder, redirect};
use serde_json::Value;
use std::error::Error;
use std::time::Duration;
use url::{Url, form_urlencoded};

/// How long one request may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The largest response, in bytes.
const ANSWER_MAX: usize = 512 * 1024;
/// The largest secret of a client, in bytes.
const SECRET_MAX: usize = 4096;

/// Reads the endpoints and keys of the provider.
///
/// # Errors
/// What failed, at which address or file.
pub(super) async fn discover(settings: &OidcSettings) -> Result<Discovered, String> {
    let issuer = &settings.policy.issuer;
    let client = client(settings)?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let url: Url = url.parse().map_err(|error| format!("auth.oidc.issuer: {error}"))?;
    let found = answer(client.get(url.clone()), &url).await?;
    let text = |name: &str| found.get(name).and_then(Value::as_str);
    if text("issuer") != Some(issuer) {
        let other = shown(text("issuer").unwrap_or_default());
        return Err(format!("{url} is of the issuer `{other}`: set auth.oidc.issuer to exactly this text"));
    }
    let endpoint = |name: &str| -> Result<Url, String> {
        let url = text(name).and_then(|it| it.parse().ok()).filter(is_safe_url);
        url.ok_or_else(|| format!("the configuration of {issuer} has no `{name}` with https"))
    };
    let methods = found.get("token_endpoint_auth_methods_supported").and_then(Value::as_array);
    let uses_basic = methods.is_none_or(|all| all.iter().any(|it| it == "client_secret_basic"));
    let (authorization_endpoint, token_endpoint) =
        (endpoint("authorization_endpoint")?, endpoint("token_endpoint")?);
    let keys_at = endpoint("jwks_uri")?;
    let keys = answer(client.get(keys_at.clone()), &keys_at).await?;
    let keys = Keys::read(&keys).map_err(|why| format!("{keys_at}: {why}"))?;
    Ok(Discovered { authorization_endpoint, token_endpoint, uses_basic, keys })
}

/// Exchanges the code of a login.
///
/// # Errors
/// What failed. No text has the code or the secret.
pub(super) async fn exchange(
    settings: &OidcSettings,
    provider: &Discovered,
    verifier: &str,
    (code, redirect): (&str, &str),
) -> Result<Value, String> {
    let id = settings.policy.client_id.as_str();
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect),
        ("code_verifier", verifier),
    ];
    let mut request = client(settings)?.post(provider.token_endpoint.clone());
    let secret = secret(settings)?;
    match &secret {
        Some(secret) if provider.uses_basic => {
            // Section 2.3.1 of RFC 6749.
            let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
            request = request.header(AUTHORIZATION, format!("Basic {pair}"));
        }
        Some(secret) => form.extend([("client_id", id), ("client_secret", secret.as_str())]),
        None => form.push(("client_id", id)),
    }
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
    answer(request, &provider.token_endpoint).await
}

/// The secret of the client. It is read each time, so that a new one needs no restart.
pub(super) fn secret(settings: &OidcSettings) -> Result<Option<String>, String> {
    let Some(file) = &settings.client_secret_file else { return Ok(None) };
    let named = |why: String| format!("auth.oidc.client_secret_file {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let secret = text.trim();
    if secret.is_empty() || secret.len() > SECRET_MAX {
        return Err(named(format!("must contain a secret of 1 to {SECRET_MAX} bytes")));
    }
    Ok(Some(secret.to_owned()))
}

/// A client that follows no redirect: the addresses of a provider are final.
fn client(settings: &OidcSettings) -> Result<Client, String> {
    let mut builder = Client::builder().redirect(redirect::Policy::none()).timeout(WITHIN);
    if let Some(file) = &settings.ca_file {
        let named = |why: String| format!("auth.oidc.ca_file {}: {why}", file.display());
        let text = std::fs::read(file).map_err(|error| named(error.to_string()))?;
        let authorities = Certificate::from_pem_bundle(&text).unwrap_or_default();
        if authorities.is_empty() {
            let why = "contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)";
            return Err(named(why.to_owned()));
        }
        builder = builder.tls_certs_only(authorities);
    }
    builder
        .build()
        .map_err(|error| format!("no HTTP client for the identity provider: {}", innermost(&error)))
}

/// The JSON of a successful response.
async fn answer(request: RequestBuilder, url: &Url) -> Result<Value, String> {
    let failed = |error: reqwest::Error| format!("{url}: {}", innermost(&error.without_url()));
    let mut response = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > ANSWER_MAX {
            return Err(format!("{url}: the response is larger than {ANSWER_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    let status = response.status();
    let json = serde_json::from_slice::<Value>(&body);
    if !status.is_success() {
        let json = json.unwrap_or_default();
        let text = |name: &str| json.get(name).and_then(Value::as_str).map(shown).unwrap_or_default();
        let why = format!("{} {}", text("error"), text("error_description"));
        return Err(format!("{url}: the response is {} {}", status.as_u16(), why.trim()).trim().to_owned());
    }
    json.map_err(|_| format!("{url}: the response is not JSON"))
}

/// The last cause of an error.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
