//! Rates: how many permits of a key all services together may use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of a rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateSettings {
    /// From 1 to 1,000,000.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub permits: u32,
    /// The time for which `permits` counts, from 1s to 24h.
    #[schema(example = "1m")]
    pub per: String,
    /// At least 2 s of the rate, and one permit more; at most 10,000,000.
    #[schema(minimum = 2, maximum = 10_000_000)]
    pub burst: u32,
}

/// A rate: in any window of length w, all services together use at most `burst` + w × `permits` / `per` permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rate {
    /// The key that code names when it acquires permits.
    pub key: String,
    /// The permits that return evenly to the bucket within `per`; from 1 to 1,000,000.
    pub permits: u32,
    /// The time for which `permits` counts, from 1s to 24h, such as `1h 30m`.
    #[schema(example = "1m")]
    pub per: String,
    /// The permits that may be used at once, in addition to the even pace. The bucket holds fewer: see
    /// `at_once`.
    pub burst: u32,
    /// The most permits that one acquire can get: `burst` less 2 s of the rate.
    pub at_once: u32,
    /// Permits that could be granted now if nothing waited.
    pub available: u32,
    /// Permits for which code waits, as far as services have asked for them in the last 3 s.
    pub waiting: u64,
}
