//! The findings of the doctor over HTTP.

mod facts;

use super::problem::Problem;
use super::query::Params;
use crate::api::Listed;
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_core::doctor::{self as core, Severity, diagnose};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct Finding {
    /// Stable, for programs.
    #[schema(example = "too-big-to-lose")]
    code: String,
    /// info, warning, critical
    #[schema(value_type = String, example = "warning")]
    severity: Severity,
    /// The subject of the finding.
    #[schema(example = "service a")]
    subject: String,
    what: String,
    why: String,
    /// The command or setting that cures it.
    cure: String,
}

impl Finding {
    fn of(finding: core::Finding) -> Self {
        let core::Finding { code, severity, subject, what, why, cure } = finding;
        Self { code: code.to_owned(), severity, subject, what, why, cure }
    }
}

/// The problems of this deployment and their cures, the worst first.
///
/// A broker or a database that does not answer is itself a finding.
#[utoipa::path(get, path = "/v1/doctor", tag = "operations", responses((status = 200, body = Listed<Finding>)))]
pub(crate) async fn doctor(
    State(manager): State<Arc<Manager>>,
    params: Params,
) -> Result<Json<Listed<Finding>>, Problem> {
    params.finish()?;
    let items: Vec<Finding> = diagnose(&facts::facts(&manager).await).into_iter().map(Finding::of).collect();
    Ok(Json(Listed { total: items.len() as u64, items, next_cursor: None }))
}
