//! Messages that no version could read, in memory.

use super::MemoryStore;
use crate::columns::without_nul;
use crate::port::{Parked, ParkedHead, ParkedMessages, StoreError};
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;

#[async_trait]
impl ParkedMessages for MemoryStore {
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for one in parked {
            tables.last_parked += 1;
            let id = tables.last_parked;
            let (queue, reason) = (without_nul(&one.queue), without_nul(&one.reason));
            tables.parked.push(Parked { id, queue, reason, ..one.clone() });
        }
        Ok(())
    }
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError> {
        Ok(self.tables().parked.iter().find(|it| it.id == id).cloned())
    }
    async fn unpark(&self, id: i64) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let held = tables.parked.len();
        tables.parked.retain(|it| it.id != id);
        Ok(tables.parked.len() < held)
    }
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let (held, newest) = (tables.parked.len(), tables.parked.last().map_or(0, |it| it.id));
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        tables.parked.retain(|it| it.at >= before && it.id > newest.saturating_sub(keep));
        Ok((held - tables.parked.len()) as u64)
    }
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError> {
        let tables = self.tables();
        let shown = tables.parked.iter().rev().filter(|it| before.is_none_or(|before| it.id < before));
        Ok((shown.take(limit).map(Parked::head).collect(), tables.parked.len() as u64))
    }
}
