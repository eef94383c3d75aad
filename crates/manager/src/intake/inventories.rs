//! Inventories: what services hold, and what they do not hold although the database says so.

use super::registrations;
use crate::commit::{change_row, change_service};
use crate::context::records::Records;
use crate::metric;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::report::{InventoryChunk, InventoryDigest, InventoryRange};
use everwatch_store::StoreError;
use std::collections::{BTreeMap, HashSet};
use tracing::warn;

/// One chunk of an inventory, without the phases of its entries.
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
            on_listed(records, part.service).await?;
        }
    }
    Ok(())
}

/// Compares digests with the database, once all reports before them are applied. Returns the ranges that differ, by
/// service. They may differ only because another manager is applying a report at this moment; their entries repair
/// nothing then.
pub(crate) async fn compare(
    records: &Records,
    digests: &[(ServiceId, InventoryDigest)],
) -> Result<BTreeMap<ServiceId, Vec<InventoryRange>>, StoreError> {
    let mut differing = BTreeMap::new();
    for (service, digest) in digests {
        let ranges: Vec<InventoryRange> = digest.ranges.iter().map(|it| it.range).collect();
        let totals = records.store.held_totals(*service, &ranges).await?;
        let other = digest.ranges.iter().zip(totals).filter(|(told, stored)| told.total != *stored);
        let other: Vec<InventoryRange> = other.map(|(told, _)| told.range).collect();
        if other.is_empty() {
            on_listed(records, *service).await?;
        } else {
            metrics::counter!(metric::RANGES_REQUESTED).increment(other.len() as u64);
            differing.insert(*service, other);
        }
    }
    Ok(differing)
}

/// The database contains what the service holds.
async fn on_listed(records: &Records, service: ServiceId) -> Result<(), StoreError> {
    let now = records.clock.now();
    let listed = change_service(records, service, |row| row.on_list(now)).await;
    registrations::pass_over(service, listed).map(drop)
}
