//! How a manager settles an observer that no service settles.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::observed::{Key, Settled, Settlement};
use crate::record::row::Row;
use uuid::Uuid;

impl Row {
    /// A service's own report of the end takes precedence.
    pub(crate) fn settle_by_manager(&mut self, how: Settlement, now: Timestamp) {
        let key = Key { acquisitions: self.epoch().acquisitions(), seq: u64::MAX };
        self.settle_at(key, how, now);
    }

    /// As if a report with this key had said so; reports with a later key still count.
    pub(super) fn settle_at(&mut self, key: Key, how: Settlement, now: Timestamp) {
        self.observed.settled = Some(Settled { key, service: ServiceId(Uuid::nil()), at: now, how });
        (self.commanded_at, self.waiting) = (Some(now), None);
        self.note_settled(now);
    }
}
