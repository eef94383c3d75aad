//! Messages that no version could read.

use super::StoreError;
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;

/// A message that no version could read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// 0 until it is stored.
    pub id: i64,
    pub queue: String,
    pub reason: String,
    pub body: Vec<u8>,
    pub at: Timestamp,
}

/// The bytes of a parked message that a list shows.
pub const PARKED_HEAD: usize = 4096;

/// A parked message as a list shows it: the first [`PARKED_HEAD`] bytes of a body that may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedHead {
    pub id: i64,
    pub queue: String,
    pub reason: String,
    pub head: Vec<u8>,
    /// Of the whole body, in bytes.
    pub size: u64,
    pub at: Timestamp,
}

impl Parked {
    /// As a list shows it.
    #[must_use]
    pub fn head(&self) -> ParkedHead {
        ParkedHead {
            id: self.id,
            queue: self.queue.clone(),
            reason: self.reason.clone(),
            head: self.body[..self.body.len().min(PARKED_HEAD)].to_vec(),
            size: self.body.len() as u64,
            at: self.at,
        }
    }
}

/// Messages that no version could read.
#[async_trait]
pub trait ParkedMessages: Send + Sync + 'static {
    /// Stores unreadable messages.
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError>;
    /// One parked message.
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError>;
    /// Deletes one; returns whether it existed.
    async fn unpark(&self, id: i64) -> Result<bool, StoreError>;
    /// Deletes messages older than `before` and those beyond the newest `keep`; returns their number.
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError>;
    /// Newest first, ids below `before` (all if `None`).
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError>;
}
