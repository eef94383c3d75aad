//! The results of completed observers.

use super::lookup::find;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use everwatch_api::{ObserverResult, ProblemBody};
use std::sync::Arc;

type Shared = State<Arc<Manager>>;

/// The result of a completed observer.
#[utoipa::path(get, path = "/v1/observers/{key}/result", tag = "observers", security(("token" = ["observers:read"])),
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = ObserverResult),
        (status = 404, body = ProblemBody, description = "not-found: no such observer, or it has no result")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<ObserverResult>, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let Some(result) = manager.records.store.result(row.id).await? else {
        let (name, status) = (&row.definition.name, row.verdict().status);
        let detail = format!(
            "observer {name} is {status} and has no result; code completes with one by Exit::done_with"
        );
        return Err(Problem::new(Code::NotFound, detail));
    };
    // A service of another language may have sent text that is not JSON.
    let value = serde_json::from_str(&result.value).unwrap_or(serde_json::Value::String(result.value));
    let (epoch, epoch_string) = (result.epoch.into(), result.epoch.to_string());
    Ok(Json(ObserverResult { epoch, epoch_string, value }))
}
