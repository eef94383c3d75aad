//! Rates as both databases store them: two documents under a key.

use crate::columns::read;
use crate::port::StoreError;
use everwatch_core::capacity::rate::{RateRow, grant};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use serde::Serialize;
use std::collections::BTreeSet;

/// Key, definition, bucket.
pub(crate) type Columns = (String, String, String);

pub(crate) fn row_of((key, definition, bucket): Columns) -> Result<RateRow, StoreError> {
    let key = RateKey::new(&key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(RateRow { key, rate: read(&definition)?, bucket: read(&bucket)? })
}

pub(crate) fn columns_of(row: &RateRow) -> Result<Columns, StoreError> {
    Ok((row.key.to_string(), written(&row.rate)?, written(&row.bucket)?))
}

fn written(document: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(document).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// The rows that can be read. Nothing is granted of the others, and they are left as they are.
pub(crate) fn readable(columns: Vec<Columns>) -> Vec<RateRow> {
    let row = |columns: Columns| {
        let key = columns.0.clone();
        row_of(columns).inspect_err(|error| tracing::warn!(key, %error, "a stored rate cannot be read")).ok()
    };
    columns.into_iter().filter_map(row).collect()
}

/// The keys that these requests name.
pub(crate) fn keys_of(requests: &[PermitRequest]) -> Vec<String> {
    let asks = requests.iter().flat_map(|request| &request.asks);
    let keys: BTreeSet<&RateKey> = asks.flat_map(|ask| ask.permits.keys()).collect();
    keys.into_iter().map(ToString::to_string).collect()
}

/// Grants what these requests ask for, one request after the other.
pub(crate) fn grant_all(
    rows: &mut [RateRow],
    requests: &[PermitRequest],
    now: Timestamp,
) -> Vec<PermitAnswers> {
    requests.iter().map(|request| grant(rows, request, now)).collect()
}
