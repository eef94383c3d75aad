//! An object from a manager: typed for commands and tables, and as the original JSON for JSON and YAML
//! output, so that members unknown to this version are shown too.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::ops::Deref;

/// One thing of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item<T> {
    it: T,
    sent: Value,
}

impl<T: Serialize> Item<T> {
    /// Wraps an object that did not come from a manager.
    pub(crate) fn new(it: T) -> anyhow::Result<Self> {
        let sent = serde_json::to_value(&it)?;
        Ok(Self { it, sent })
    }
}

impl<T> Item<T> {
    /// As the manager sent it.
    pub(crate) fn sent(&self) -> &Value {
        &self.sent
    }
}

impl<T> Deref for Item<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T> Serialize for Item<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sent.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = Value::deserialize(deserializer)?;
        let it = T::deserialize(&sent).map_err(D::Error::custom)?;
        Ok(Self { it, sent })
    }
}
