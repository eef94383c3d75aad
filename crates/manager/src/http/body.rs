//! Request bodies: JSON with a JSON content type, of limited size, received within a limited time.

use super::BODY_MAX;
use super::problem::{Code, Problem};
use crate::context::Manager;
use axum::body::HttpBody as _;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::wording::parser::{self, Wrong};
use everwatch_door::json::{self, TooMuch};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The time limit from the head of a request to the end of its body.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The deepest nesting that the JSON reader accepts.
const DEPTH_MAX: usize = 127;
/// The most values in a body. One takes 32 bytes in memory and more in an object.
const VALUES_MAX: usize = 1_000_000;

/// Any JSON value; `core` checks its members.
pub(crate) struct JsonBody(pub(crate) Value);

impl FromRequest<Arc<Manager>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, manager: &Arc<Manager>) -> Result<Self, Problem> {
        read(request, &manager.requests.limits.bodies, BODY_MAX).await.map(Self)
    }
}

/// Reads a body of at most `most` bytes; the bodies that are arriving share `room`.
pub(super) async fn read(request: Request, room: &Semaphore, most: usize) -> Result<Value, Problem> {
    if !is_json(&request) {
        let detail = "send the body with `content-type: application/json`";
        return Err(Problem::new(Code::NotJson, detail));
    }
    let received = tokio::time::timeout(BODY_WITHIN, receive(request, room, most)).await;
    let bytes = received.unwrap_or_else(|_| {
        let within = BODY_WITHIN.as_secs();
        Err(Problem::new(Code::SlowBody, format!("the body did not arrive within {within} s")))
    })?;
    json::within(&bytes, DEPTH_MAX, VALUES_MAX).map_err(|limit| {
        let detail = match limit {
            TooMuch::Depth => format!("nests deeper than {DEPTH_MAX} levels: make it flatter"),
            TooMuch::Values => format!("has more than {VALUES_MAX} values: send it in parts"),
        };
        Problem::invalid(vec![FieldError { pointer: String::new(), detail }])
    })?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))
}

/// The bytes of a body that have arrived take up room until the whole body has arrived.
async fn receive(request: Request, room: &Semaphore, most: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || Problem::new(Code::TooLarge, format!("the body is larger than {most} bytes"));
    if request.body().size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut parts = request.into_body().into_data_stream();
    let (mut bytes, mut taken) = (Vec::new(), None::<SemaphorePermit<'_>>);
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| Problem::new(Code::MalformedJson, "the body is incomplete"))?;
        if bytes.len() + part.len() > most {
            return Err(too_large());
        }
        let permit = u32::try_from(part.len()).ok().and_then(|size| room.try_acquire_many(size).ok());
        let permit = permit.ok_or_else(|| {
            Problem::new(Code::TooManyBodies, "too many bodies are arriving; send it again in a moment")
        })?;
        match &mut taken {
            Some(taken) => taken.merge(permit),
            None => taken = Some(permit),
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// The members of an object.
pub(super) fn parsed<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    let wrong = |pointer: String, detail: String| Problem::invalid(vec![FieldError { pointer, detail }]);
    // serde would read an array as the members in their order.
    if !body.is_object() {
        return Err(wrong(String::new(), "the body must be a JSON object".to_owned()));
    }
    parser::read(body).map_err(|Wrong { pointer, detail, .. }| {
        let subject = if pointer.is_empty() { "the body " } else { "" };
        wrong(pointer, format!("{subject}{detail}"))
    })
}

/// An optional body.
pub(crate) struct OptionalJson(pub(crate) Option<Value>);

impl FromRequest<Arc<Manager>> for OptionalJson {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<Manager>) -> Result<Self, Problem> {
        if request.body().size_hint().exact() == Some(0) {
            return Ok(Self(None));
        }
        JsonBody::from_request(request, state).await.map(|JsonBody(value)| Self(Some(value)))
    }
}

fn is_json(request: &Request) -> bool {
    let Some(given) = request.headers().get(header::CONTENT_TYPE) else { return false };
    let media_type = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let media_type = media_type.to_ascii_lowercase();
    media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}
