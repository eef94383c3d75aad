//! Request bodies: JSON, of limited size, said to be JSON.

use super::BODY_MAX;
use super::problem::{Code, Problem};
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use everwatch_core::observer::FieldError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Any JSON value; its members are judged in `core`.
pub(crate) struct JsonBody(pub(crate) Value);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        read(request, BODY_MAX).await.map(Self)
    }
}

/// A body of at most `most` bytes, which the route's own limit is to be.
pub(super) async fn read(request: Request, most: usize) -> Result<Value, Problem> {
    if !is_json(&request) {
        let detail = "send the body with `content-type: application/json`";
        return Err(Problem::new(Code::NotJson, detail));
    }
    let bytes = Bytes::from_request(request, &()).await.map_err(|rejection| {
        match rejection.into_response().status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(Code::TooLarge, format!("a body has at most {most} bytes"))
            }
            _ => Problem::new(Code::MalformedJson, "the body did not arrive whole"),
        }
    })?;
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(value),
        // The reader gives no other sign of this one.
        Err(error) if error.to_string().starts_with("recursion limit exceeded") => {
            let detail = "nests deeper than JSON can be read here (127 levels): make it flatter";
            Err(Problem::invalid(vec![FieldError { pointer: String::new(), detail: detail.to_owned() }]))
        }
        Err(error) => Err(Problem::new(Code::MalformedJson, error.to_string())),
    }
}

/// The members of an object.
pub(super) fn parsed<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    let wrong = |detail: String| Problem::invalid(vec![FieldError { pointer: String::new(), detail }]);
    // Naively, an array is read as the members in their order.
    if !body.is_object() {
        return Err(wrong("must be a JSON object".to_owned()));
    }
    serde_json::from_value(body).map_err(|error| wrong(error.to_string()))
}

/// A body that may be left out.
pub(crate) struct OptionalJson(pub(crate) Option<Value>);

impl<S: Send + Sync> FromRequest<S> for OptionalJson {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
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
