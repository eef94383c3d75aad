//! The console: files that are part of the program, served as they are. The page asks the API for
//! everything else; nothing here knows of observers.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use std::hash::{DefaultHasher, Hasher as _};

/// Only what this manager serves; no markup from text, no inline script or style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

struct File {
    path: &'static str,
    media_type: &'static str,
    body: &'static [u8],
}

macro_rules! files {
    ($($path:literal: $name:literal, $media_type:expr;)*) => {
        &[$(File { path: $path, media_type: $media_type, body: include_bytes!(concat!("../../console/", $name)) },)*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const FONT: &str = "font/woff2";
const TEXT: &str = "text/plain; charset=utf-8";

const FILES: &[File] = files! {
    "/": "index.html", HTML;
    "/console/css/tokens.css": "css/tokens.css", CSS;
    "/console/css/frame.css": "css/frame.css", CSS;
    "/console/css/parts.css": "css/parts.css", CSS;
    "/console/css/lanes.css": "css/lanes.css", CSS;
    "/console/icon.svg": "icon.svg", SVG;
    "/console/fonts/inter.woff2": "fonts/inter.woff2", FONT;
    "/console/fonts/jetbrains-mono.woff2": "fonts/jetbrains-mono.woff2", FONT;
    "/console/fonts/licences.txt": "fonts/licences.txt", TEXT;
    "/console/api.js": "api.js", SCRIPT;
    "/console/app.js": "app.js", SCRIPT;
    "/console/ask-sent.js": "ask-sent.js", SCRIPT;
    "/console/ask.js": "ask.js", SCRIPT;
    "/console/audit.js": "audit.js", SCRIPT;
    "/console/batches.js": "batches.js", SCRIPT;
    "/console/clock.js": "clock.js", SCRIPT;
    "/console/copy.js": "copy.js", SCRIPT;
    "/console/create-check.js": "create-check.js", SCRIPT;
    "/console/create-form.js": "create-form.js", SCRIPT;
    "/console/create-text.js": "create-text.js", SCRIPT;
    "/console/create.js": "create.js", SCRIPT;
    "/console/definition-fields.js": "definition-fields.js", SCRIPT;
    "/console/definition.js": "definition.js", SCRIPT;
    "/console/diff.js": "diff.js", SCRIPT;
    "/console/doctor.js": "doctor.js", SCRIPT;
    "/console/dom.js": "dom.js", SCRIPT;
    "/console/dry-run.js": "dry-run.js", SCRIPT;
    "/console/edit.js": "edit.js", SCRIPT;
    "/console/editor.js": "editor.js", SCRIPT;
    "/console/events.js": "events.js", SCRIPT;
    "/console/gap.js": "gap.js", SCRIPT;
    "/console/glyphs.js": "glyphs.js", SCRIPT;
    "/console/history.js": "history.js", SCRIPT;
    "/console/incident-text.js": "incident-text.js", SCRIPT;
    "/console/incidents.js": "incidents.js", SCRIPT;
    "/console/keys.js": "keys.js", SCRIPT;
    "/console/kinds.js": "kinds.js", SCRIPT;
    "/console/lanes-drag.js": "lanes-drag.js", SCRIPT;
    "/console/lanes-groups.js": "lanes-groups.js", SCRIPT;
    "/console/lanes-load.js": "lanes-load.js", SCRIPT;
    "/console/lanes-scale.js": "lanes-scale.js", SCRIPT;
    "/console/lanes.js": "lanes.js", SCRIPT;
    "/console/limits.js": "limits.js", SCRIPT;
    "/console/list-columns.js": "list-columns.js", SCRIPT;
    "/console/list-sort.js": "list-sort.js", SCRIPT;
    "/console/live.js": "live.js", SCRIPT;
    "/console/log-tail.js": "log-tail.js", SCRIPT;
    "/console/login.js": "login.js", SCRIPT;
    "/console/logs.js": "logs.js", SCRIPT;
    "/console/match.js": "match.js", SCRIPT;
    "/console/namespaces.js": "namespaces.js", SCRIPT;
    "/console/nav.js": "nav.js", SCRIPT;
    "/console/numbered.js": "numbered.js", SCRIPT;
    "/console/observer-actions.js": "observer-actions.js", SCRIPT;
    "/console/observer.js": "observer.js", SCRIPT;
    "/console/observers.js": "observers.js", SCRIPT;
    "/console/overview.js": "overview.js", SCRIPT;
    "/console/palette.js": "palette.js", SCRIPT;
    "/console/parked.js": "parked.js", SCRIPT;
    "/console/pool.js": "pool.js", SCRIPT;
    "/console/pools.js": "pools.js", SCRIPT;
    "/console/positions.js": "positions.js", SCRIPT;
    "/console/problems.js": "problems.js", SCRIPT;
    "/console/quick-actions.js": "quick-actions.js", SCRIPT;
    "/console/range.js": "range.js", SCRIPT;
    "/console/rates.js": "rates.js", SCRIPT;
    "/console/roles.js": "roles.js", SCRIPT;
    "/console/rollouts.js": "rollouts.js", SCRIPT;
    "/console/row-actions.js": "row-actions.js", SCRIPT;
    "/console/runs.js": "runs.js", SCRIPT;
    "/console/safe-mode.js": "safe-mode.js", SCRIPT;
    "/console/saved-views.js": "saved-views.js", SCRIPT;
    "/console/schema.js": "schema.js", SCRIPT;
    "/console/service.js": "service.js", SCRIPT;
    "/console/services.js": "services.js", SCRIPT;
    "/console/session.js": "session.js", SCRIPT;
    "/console/show.js": "show.js", SCRIPT;
    "/console/start.js": "start.js", SCRIPT;
    "/console/terms.js": "terms.js", SCRIPT;
    "/console/times.js": "times.js", SCRIPT;
    "/console/tokens.js": "tokens.js", SCRIPT;
    "/console/topology.js": "topology.js", SCRIPT;
    "/console/versions.js": "versions.js", SCRIPT;
    "/console/views.js": "views.js", SCRIPT;
    "/console/yaml.js": "yaml.js", SCRIPT;
};

/// Every file under its path. A browser that asks for another path gets the page of the console with that name.
pub(crate) fn routes() -> Router {
    let add = |router: Router, file: &'static File| {
        let tag = tag(file.body);
        router.route(file.path, get(async move |headers: HeaderMap| serve(file, &tag, &headers)))
    };
    FILES.iter().fold(Router::new(), add).fallback(page_of)
}

/// Redirects a person who types the path of a page, such as `/observers`, to that page; refuses everybody else.
async fn page_of(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let is_person =
        method == Method::GET && accepted.contains("text/html") && !uri.path().starts_with("/v1/");
    match uri.path_and_query() {
        Some(page) if is_person => Redirect::to(&format!("/#{page}")).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn tag(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    format!("\"{:016x}\"", hasher.finish())
}

fn serve(file: &File, tag: &str, headers: &HeaderMap) -> Response {
    // A browser asks each time whether its copy still holds: a new manager may have a new console.
    let always: [(HeaderName, &str); 5] = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let has = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|held| held.to_str().ok());
    if has.flat_map(|held| held.split(',')).any(|held| held.trim().trim_start_matches("W/") == tag) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    (always, [(header::CONTENT_TYPE, file.media_type)], file.body).into_response()
}
