//! Rates, in memory.

use super::MemoryStore;
use crate::port::{RatePage, Rates, StoreError};
use crate::rates::grant_all;
use async_trait::async_trait;
use everwatch_core::capacity::rate::{Bucket, Rate, RateRow};
use everwatch_core::clock;
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use std::collections::BTreeMap;

pub(super) type Table = BTreeMap<RateKey, RateRow>;

#[async_trait]
impl Rates for MemoryStore {
    async fn set_rate(&self, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError> {
        let (mut tables, now) = (self.tables(), clock::now());
        let row = match tables.rates.remove(key) {
            Some(row) => row.changed(rate, now),
            None => RateRow::new(key.clone(), rate, now),
        };
        tables.rates.insert(key.clone(), row.clone());
        Ok(row)
    }
    async fn rate(&self, key: &RateKey) -> Result<Option<RateRow>, StoreError> {
        Ok(self.tables().rates.get(key).cloned())
    }
    async fn rates(&self, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError> {
        let tables = self.tables();
        let rows = tables.rates.values().filter(|row| after.is_none_or(|after| row.key > *after));
        Ok(RatePage { rows: rows.take(most).cloned().collect(), total: tables.rates.len() as u64 })
    }
    async fn delete_rate(&self, key: &RateKey) -> Result<bool, StoreError> {
        Ok(self.tables().rates.remove(key).is_some())
    }
    async fn grant_permits(&self, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError> {
        let mut tables = self.tables();
        let mut rows: Vec<RateRow> = tables.rates.values().cloned().collect();
        let answers = grant_all(&mut rows, requests, clock::now());
        tables.rates = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        Ok(answers)
    }
    async fn empty_rates(&self) -> Result<(), StoreError> {
        let now = clock::now();
        self.tables().rates.values_mut().for_each(|row| row.bucket = Bucket::empty(now));
        Ok(())
    }
}
