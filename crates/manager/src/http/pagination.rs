//! Keyset paging: `limit` and `cursor`. A cursor is base64url of JSON. It names the query that it was made for: under
//! another filter or order the same place means something else.

use super::problem::Problem;
use super::query::{Params, bad};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// The requested part of a list; `C` is its start.
pub(crate) struct Part<C> {
    pub(crate) limit: usize,
    pub(crate) after: Option<C>,
    query: u64,
}

#[derive(Serialize, Deserialize)]
struct Cursor<C> {
    query: u64,
    after: C,
}

impl<C: DeserializeOwned> Part<C> {
    pub(crate) fn read(params: &mut Params) -> Result<Self, Problem> {
        let limit = params.parsed::<usize>("limit")?.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(bad("limit", format_args!("1 to {LIMIT_MAX}")));
        }
        let query = params.fingerprint();
        let after = params.one("cursor")?.map(|text| decode(&text, query)).transpose()?;
        Ok(Self { limit, after, query })
    }
}

impl<C> Part<C> {
    /// The cursor that starts the next page after `last`.
    pub(crate) fn cursor(&self, last: C) -> Option<String>
    where
        C: Serialize,
    {
        let cursor = Cursor { query: self.query, after: last };
        serde_json::to_vec(&cursor).ok().map(|json| URL_SAFE_NO_PAD.encode(json))
    }
}

fn decode<C: DeserializeOwned>(text: &str, query: u64) -> Result<C, Problem> {
    let read = URL_SAFE_NO_PAD.decode(text).ok().and_then(|json| serde_json::from_slice(&json).ok());
    let cursor: Cursor<C> = read.ok_or_else(|| bad("cursor", "unknown; start from the first page"))?;
    if cursor.query != query {
        return Err(bad("cursor", "belongs to another filter or order: start from the first page"));
    }
    Ok(cursor.after)
}
