//! Which observers a list or a bulk action is about, and in which order.

use super::caller;
use super::lookup::holder;
use super::problem::Problem;
use super::query::{Params, bad};
use crate::context::records::Records;
use everwatch_core::id::{Kind, Pool};
use everwatch_core::observer::labels::Selector;
use everwatch_core::record::health::Health;
use everwatch_core::record::pool_obstacle::Obstacles;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_store::{Filter, Reasons, Sort};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;
use utoipa::IntoParams;

/// The statuses and health of the observers that a request is about.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `filter` reads")]
pub(super) struct StatusFilter {
    /// one or several, comma-separated; default all but Deleted
    status: Option<String>,
    /// one or several of running, restarting, waiting, moving, stopping, comma-separated
    health: Option<String>,
}

/// What else selects the observers that a request is about.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `filter` reads")]
pub(super) struct ObserverFilter {
    /// one or several, comma-separated
    reason_code: Option<String>,
    /// observers of this kind
    kind: Option<String>,
    /// observers of this namespace
    namespace: Option<String>,
    /// observers of this pool
    pool: Option<String>,
    /// id or name of the holder
    service: Option<String>,
    /// key=value; may be repeated, all must match
    label: Option<String>,
    /// labels: key=value, key!=value, key in (a, b), key notin (a, b), key, !key; comma-separated, all must match
    selector: Option<String>,
    /// part of the name, in any case
    q: Option<String>,
}

pub(super) fn sort_value(filter: &Filter, row: &Row) -> String {
    match filter.sort {
        Sort::Name => row.definition.name.to_string(),
        Sort::CreatedAt => row.created_at.0.to_string(),
    }
}

/// One or several comma-separated words.
fn words<T: FromStr<Err = String>>(params: &mut Params, name: &'static str) -> Result<Vec<T>, Problem> {
    let all = params.many(name);
    let words = all.iter().flat_map(|text| text.split(','));
    words.map(|word| word.trim().parse().map_err(|error| bad(name, error))).collect()
}

pub(super) async fn filter(records: &Records, params: &mut Params) -> Result<Filter, Problem> {
    let service = holder(records, params).await?;
    let codes = words::<ReasonCode>(params, "reason_code")?;
    let reasons = if codes.is_empty() {
        None
    } else {
        let obstacles = Obstacles::of(&records.services(Duration::ZERO).await?);
        Some(Reasons { codes, obstacles })
    };
    let status = words::<Status>(params, "status")?;
    let health = words::<Health>(params, "health")?;
    let mut labels = BTreeMap::new();
    for text in params.many("label") {
        let (key, value) = text.split_once('=').ok_or_else(|| bad("label", "write it as key=value"))?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    let sort = params.one("sort")?.unwrap_or_else(|| "name".to_owned());
    let (descending, field) = sort.strip_prefix('-').map_or((false, sort.as_str()), |field| (true, field));
    let sort = match field {
        "name" => Sort::Name,
        "created_at" => Sort::CreatedAt,
        _ => return Err(bad("sort", "name or created_at, with - in front for descending")),
    };
    Ok(Filter {
        status,
        health,
        reasons,
        kind: params.parsed::<Kind>("kind")?,
        namespace: params.given_namespace()?,
        pool: params.parsed::<Pool>("pool")?,
        service,
        labels,
        selector: params.parsed::<Selector>("selector")?.unwrap_or_default(),
        q: params.one("q")?,
        scope: caller::scope(),
        sort,
        descending,
    })
}
