//! The OpenAPI document: made from the handlers, completed here with what every route can answer.

use super::deprecations;
use super::examples::Examples;
use super::problem::{Code, MEDIA_TYPE};
use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use everwatch_api::ProblemBody;
use serde_json::json;
use utoipa::openapi::path::{HttpMethod, Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ContentBuilder, Deprecated, Info, License, OpenApi, Ref, RefOr, ResponseBuilder, ResponsesBuilder, Server,
};
use utoipa::{PartialSchema as _, ToSchema as _};

/// The OpenAPI document of this API.
#[utoipa::path(get, path = "/openapi.json", tag = "operations", security(()),
    responses((status = 200, body = Object, description = "this document")))]
pub(crate) async fn document(Extension(Written(text)): Extension<Written>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// The serialized document: it is large and never changes.
#[derive(Clone)]
pub(crate) struct Written(Bytes);

impl Written {
    pub(crate) fn new(document: &OpenApi) -> Self {
        Self(document.to_json().unwrap_or_default().into())
    }
}

const ABOUT: &str = "Everwatch runs tasks that never end, its observers, on several services. This API creates, changes and \
    deletes observers, shows where they run, and operates the services. Errors are problems of RFC 9457; each response has an \
    id in X-Request-Id.";

/// Every tag of an operation, in the order in which tools list them.
const TAGS: [(&str, &str); 10] = [
    ("observers", "Observers: create, read, change, delete and act on them, one or many at a time."),
    ("batches", "Observers that are created together, run a few at a time and are completed together."),
    ("rollouts", "One patch for many observers, a few at a time."),
    ("services", "The services that run observers, their pools and their kinds."),
    ("namespaces", "The parts of the deployment that belong to different teams: their quotas and pools."),
    ("limits", "How many observers that name a key run at once."),
    ("rates", "How many requests all services together send per second."),
    ("events", "What happened, as a list and as a stream."),
    ("operations", "Health, metrics, safe mode, parked messages and the diagnosis of the deployment."),
    ("access", "Tokens, roles, sessions and the audit log."),
];

/// What clients know of tokens.
const TOKEN: &str = "A token, or the cookie of a session of the console. The verb that an operation needs stands beside it. \
    A manager that listens on loopback only needs none until there is one.";

/// Adds title, licence, and the problems that do not depend on the handler.
pub(crate) fn complete(document: &mut OpenApi) {
    document.info = Info::new("Everwatch", env!("CARGO_PKG_VERSION"));
    document.info.license = Some(License::new("MIT OR Apache-2.0"));
    document.info.description = Some(ABOUT.to_owned());
    document.servers = Some(vec![Server::new("/")]);
    let tag = |(name, about): (&str, &str)| TagBuilder::new().name(name).description(Some(about)).build();
    document.tags = Some(TAGS.map(tag).to_vec());
    let examples = Examples::load();
    let components = document.components.get_or_insert_default();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(TOKEN)).build();
    components.security_schemes.insert("token".to_owned(), SecurityScheme::Http(token).into());
    components.schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            // The name of the handler is not unique.
            let words = format!("{} {path}", word(&method)).to_lowercase();
            let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            operation.operation_id = Some(words.collect::<Vec<_>>().join("-"));
            describe_access(operation);
            mark_deprecated(path, &method, operation);
            add_problems(path, &method, operation);
            examples.add_to(path, operation);
        }
    }
}

/// Adds what a request needs to the description, which tools show beside each operation.
fn describe_access(operation: &mut Operation) {
    let security = json!(operation.security.clone().unwrap_or_default());
    let requirements = security.as_array().into_iter().flatten();
    let verbs: Vec<String> = requirements
        .filter_map(|it| it.get("token")?.as_array().cloned())
        .flatten()
        .filter_map(|verb| Some(format!("`{}`", verb.as_str()?)))
        .collect();
    let needs = match (&operation.security, verbs.as_slice()) {
        (Some(security), _) if is_empty(security) => "Needs no token.".to_owned(),
        (_, []) => "Needs a valid token, with any role.".to_owned(),
        (_, verbs) => format!("Needs a token whose role permits {}.", verbs.join(" or ")),
    };
    let more = operation.description.take().map_or_else(String::new, |text| format!("{text}\n\n"));
    operation.description = Some(format!("{more}{needs}"));
}

/// Marks a deprecated route, and names its replacement in the description.
fn mark_deprecated(path: &str, method: &HttpMethod, operation: &mut Operation) {
    if let Some(it) = deprecations::ALL.iter().find(|it| it.is_of(word(method), path)) {
        operation.deprecated = Some(Deprecated::True);
        let text = operation.description.take().unwrap_or_default();
        operation.description = Some(format!("Deprecated: {}.\n\n{text}", it.text()));
    }
}

fn operations(item: &mut PathItem) -> Vec<(HttpMethod, &mut Operation)> {
    let all = [
        (HttpMethod::Get, &mut item.get),
        (HttpMethod::Post, &mut item.post),
        (HttpMethod::Put, &mut item.put),
        (HttpMethod::Patch, &mut item.patch),
        (HttpMethod::Delete, &mut item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_mut().map(|it| (method, it))).collect()
}

fn add_problems(path: &str, method: &HttpMethod, operation: &mut Operation) {
    let mut codes = vec![Code::Internal, Code::UnknownHost, Code::ForeignPage, Code::TooManyRequests];
    if path.starts_with("/v1") {
        codes.push(Code::BadQuery);
    }
    // These two answer without it.
    if path.starts_with("/v1") && !matches!(path, "/v1/version" | "/v1/doctor") {
        codes.push(Code::DatabaseUnavailable);
    }
    let needs_token = operation.security.as_ref().is_some_and(|it| !is_empty(it));
    if needs_token {
        codes.extend([Code::Unauthenticated, Code::ProviderUnavailable]);
    }
    if operation.security.as_ref().is_some_and(|it| names_verbs(it)) {
        codes.push(Code::Forbidden);
    }
    if path.contains('{') {
        codes.push(Code::BadRequest);
    }
    if operation.request_body.is_some() {
        codes.extend([Code::MalformedJson, Code::TooLarge, Code::NotJson, Code::Invalid]);
        codes.extend([Code::SlowBody, Code::TooManyBodies]);
        debug_assert!(*method != HttpMethod::Get && *method != HttpMethod::Delete, "a body on {path}");
    }
    for code in codes {
        let (status, word) = (code.status().as_u16().to_string(), code.word());
        let response = operation.responses.responses.entry(status).or_insert_with(|| RefOr::T(empty()));
        if let RefOr::T(response) = response
            && !response.description.split([' ', ',', ':']).any(|known| known == word)
        {
            let glue = if response.description.is_empty() { "" } else { ", " };
            response.description = format!("{}{glue}{word}", response.description);
        }
    }
    let mut sorted = ResponsesBuilder::new();
    for (status, response) in std::mem::take(&mut operation.responses.responses) {
        sorted = sorted.response(status, as_problem(response));
    }
    operation.responses = sorted.build();
}

fn is_empty(security: &[SecurityRequirement]) -> bool {
    security.iter().all(|it| json!(it) == json!({}))
}

fn names_verbs(security: &[SecurityRequirement]) -> bool {
    security.iter().any(|it| json!(it)["token"].as_array().is_some_and(|verbs| !verbs.is_empty()))
}

fn empty() -> utoipa::openapi::Response {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    ResponseBuilder::new().content(MEDIA_TYPE, body).build()
}

/// A handler says `body = ProblemBody`; it travels under the media type of problems.
fn as_problem(response: RefOr<utoipa::openapi::Response>) -> RefOr<utoipa::openapi::Response> {
    let RefOr::T(mut response) = response else { return response };
    // OpenAPI wants a description of everything.
    if response.description.is_empty() {
        "done".clone_into(&mut response.description);
    }
    let name = ProblemBody::name();
    let is_problem = |content: &RefOr<utoipa::openapi::Content>| match content {
        RefOr::T(content) => {
            matches!(&content.schema, Some(RefOr::Ref(it)) if it.ref_location.ends_with(&*name))
        }
        RefOr::Ref(_) => false,
    };
    if response.content.get("application/json").is_some_and(is_problem)
        && let Some(content) = response.content.shift_remove("application/json")
    {
        response.content.insert(MEDIA_TYPE.to_owned(), content);
    }
    RefOr::T(response)
}

fn word(method: &HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Put => "put",
        HttpMethod::Patch => "patch",
        HttpMethod::Delete => "delete",
        HttpMethod::Options | HttpMethod::Head | HttpMethod::Trace => "other",
    }
}
