//! Keyset paging: `limit` and `cursor`. A cursor is base64url of JSON and means something only here.

use super::problem::Problem;
use super::query::{Params, bad};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// Which part of a list is wanted; `C` tells where it starts.
pub(crate) struct Part<C> {
    pub(crate) limit: usize,
    pub(crate) after: Option<C>,
}

impl<C: DeserializeOwned> Part<C> {
    pub(crate) fn read(params: &mut Params) -> Result<Self, Problem> {
        let limit = params.parsed::<usize>("limit")?.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(bad("limit", format_args!("1 to {LIMIT_MAX}")));
        }
        let after = params.one("cursor")?.map(|text| decode(&text)).transpose()?;
        Ok(Self { limit, after })
    }
}

fn decode<C: DeserializeOwned>(text: &str) -> Result<C, Problem> {
    let read = URL_SAFE_NO_PAD.decode(text).ok().and_then(|json| serde_json::from_slice(&json).ok());
    read.ok_or_else(|| bad("cursor", "not one that this list gave out"))
}

/// The cursor that starts the next page after `last`.
pub(crate) fn cursor<C: Serialize>(last: &C) -> Option<String> {
    serde_json::to_vec(last).ok().map(|json| URL_SAFE_NO_PAD.encode(json))
}
