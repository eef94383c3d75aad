//! Lists: what services hold, and what they do not although the database says so.

use super::registrations;
use crate::commit::{change_row, change_service};
use crate::context::records::Records;
use crate::metric;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::report::{InventoryChunk, InventoryRange};
use everwatch_store::StoreError;
use std::collections::HashSet;
use tracing::warn;

/// One part of a list, without what it says of each entry.
#[derive(Debug)]
pub(crate) struct Part {
    service: ServiceId,
    seq: u64,
    range: Option<InventoryRange>,
    named: HashSet<ObserverId>,
    is_last: bool,
}

impl Part {
    pub(crate) fn of(service: ServiceId, seq: u64, chunk: &InventoryChunk) -> Self {
        let named = chunk.entries.iter().map(|entry| entry.id).collect();
        Self { service, seq, range: chunk.range, named, is_last: chunk.chunk + 1 >= chunk.chunks }
    }
}

/// Once the entries are applied. Each part may come twice.
pub(crate) async fn apply(records: &Records, parts: &[Part]) -> Result<(), StoreError> {
    for part in parts {
        if let Some(range) = part.range {
            let mut held = records.store.held_by(part.service, range).await?;
            held.retain(|id| !part.named.contains(id));
            let mut missing = 0;
            for id in held {
                let (now, mut news) = (records.clock.now(), false);
                let unlisted = |row: &mut everwatch_core::record::row::Row| {
                    news = row.on_unlisted(part.service, part.seq, now);
                    news
                };
                // One that cannot be read is passed over, as nothing may be concluded about it.
                match change_row(records, id, unlisted).await {
                    Err(StoreError::Corrupt(_)) => metrics::counter!(metric::PASSED_OVER).increment(1),
                    changed => drop(changed?),
                }
                missing += usize::from(news);
            }
            if missing > 0 {
                warn!(service = %part.service, missing, "observers are missing from the inventory of their service");
            }
        }
        if part.is_last {
            let now = records.clock.now();
            let listed = change_service(records, part.service, |row| row.on_list(now)).await;
            registrations::pass_over(part.service, listed)?;
        }
    }
    Ok(())
}
