//! Notes in memory.

use super::{MemoryStore, Tables};
use crate::port::{KeyValue, StoreError};
use async_trait::async_trait;
use everwatch_core::clock;
use std::time::Duration;

impl Tables {
    /// The note's value, unless it has expired.
    pub(super) fn note(&self, name: &str) -> Option<&String> {
        self.notes.get(name).filter(|(_, until)| *until > clock::now()).map(|(value, _)| value)
    }
}

#[async_trait]
impl KeyValue for MemoryStore {
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError> {
        let mut tables = self.tables();
        match tables.note(name) {
            Some(stands) if stands != value => Ok(stands.clone()),
            _ => {
                tables.notes.insert(name.to_owned(), (value.to_owned(), clock::now().plus(keep)));
                Ok(value.to_owned())
            }
        }
    }
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(self.tables().note(name).cloned())
    }
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let (tables, now) = (self.tables(), clock::now());
        let from = tables.notes.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
        Ok(from
            .filter(|(_, (_, until))| *until > now)
            .map(|(name, (it, _))| (name.clone(), it.clone()))
            .collect())
    }
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
        self.tables().notes.insert(name.to_owned(), (value.to_owned(), clock::now().plus(keep)));
        Ok(())
    }
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let stood = tables.note(name).is_some_and(|stands| stands == before);
        if let Some((value, _)) = tables.notes.get_mut(name).filter(|_| stood) {
            after.clone_into(value);
        }
        Ok(stood)
    }
    async fn forget_notes(&self) -> Result<u64, StoreError> {
        let (mut tables, now) = (self.tables(), clock::now());
        let before = tables.notes.len();
        tables.notes.retain(|_, (_, until)| *until > now);
        Ok((before - tables.notes.len()) as u64)
    }
}
