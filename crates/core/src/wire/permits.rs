//! Permits of rates: what services ask for, and what managers grant.

use crate::id::{RateKey, ServiceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most asks in one request.
pub const ASKS_MAX: usize = 20;
/// The most rates of one acquire.
pub const RATES_MAX: usize = 10;

/// A message of the rates queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatesMessage {
    Acquire(PermitRequest),
}

/// Everything that waits for permits in one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitRequest {
    pub service: ServiceId,
    /// Counts the requests of this service, from 1.
    pub number: u64,
    /// In the order in which they are to be granted; at most [`ASKS_MAX`].
    pub asks: Vec<PermitAsk>,
}

/// Acquires that need the same permits and were first asked for together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitAsk {
    /// The same in each request until all of them are granted: it keeps their place in line.
    pub turn: u64,
    /// The permits of one acquire by rate, which are granted together or not at all.
    pub permits: BTreeMap<RateKey, u32>,
    /// The number of acquires.
    pub count: u32,
}

/// The answer to one request. Asks that it does not mention wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitAnswers {
    pub service: ServiceId,
    /// The number of the request.
    pub request: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<PermitsGranted>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<PermitsRefused>,
}

impl PermitAnswers {
    /// Nothing is granted or refused.
    #[must_use]
    pub fn new(service: ServiceId, request: u64) -> Self {
        Self { service, request, granted: Vec::new(), refused: Vec::new() }
    }
}

/// So many acquires of an ask are granted, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitsGranted {
    pub turn: u64,
    pub count: u32,
}

/// No acquire of this ask can be granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitsRefused {
    pub turn: u64,
    /// Why, as a sentence.
    pub error: String,
}
