//! Inventories: everything that a service holds.
//!
//! The obvious way sends every entry once a minute. Managers would then load and compare every row once a minute, although
//! in a healthy system no entry tells them anything new. Instead, a service sends a digest of each range of ids. The
//! database stores the digest of each observer's entry and adds them up; managers request the entries of a range only if
//! the two differ.

use super::{RunEvent, RunReport};
use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::ObserverId;
use crate::wire::inventory_range::InventoryRange;
use crate::wire::message::BATCH_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An inventory as digests. The ranges are in order and cover all ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryDigest {
    pub inventory: u64,
    pub ranges: Vec<RangeDigest>,
}

/// The digest of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RangeDigest {
    pub range: InventoryRange,
    pub total: RangeTotal,
}

/// The number of held observers in a range, and the sum of their digests. Each digest has 40 bits, so the sum of a range
/// is exact in JSON and in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RangeTotal {
    pub entries: u64,
    pub sum: u64,
}

/// One chunk of an inventory; each entry applies like an ordinary report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryChunk {
    pub inventory: u64,
    pub chunk: u32,
    pub chunks: u32,
    pub entries: Vec<RunReport>,
    /// Within this range of ids, the service holds exactly these entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<InventoryRange>,
}

impl InventoryDigest {
    /// The digest of these entries.
    #[must_use]
    pub fn of(inventory: u64, entries: Vec<RunReport>) -> Self {
        let digest = |(range, part): (InventoryRange, &[RunReport])| {
            let entries = part.len() as u64;
            RangeDigest {
                range,
                total: RangeTotal { entries, sum: part.iter().map(RunReport::digest).sum() },
            }
        };
        let entries = sorted(entries);
        Self { inventory, ranges: parts(InventoryRange::ALL, &entries).into_iter().map(digest).collect() }
    }
}

impl InventoryChunk {
    /// The entries in these ranges, in at least one chunk for each range. The obvious way lets a manager wait for all
    /// chunks, but another manager may get some. Instead, each chunk alone lists everything that its range contains.
    #[must_use]
    pub fn within(inventory: u64, ranges: &[InventoryRange], entries: Vec<RunReport>) -> Vec<Self> {
        let entries = sorted(entries);
        let inside = |range: &InventoryRange| {
            let start = entries.partition_point(|entry| range.after.is_some_and(|after| entry.id <= after));
            let end = entries.partition_point(|entry| range.upto.is_none_or(|upto| entry.id <= upto));
            parts(*range, entries.get(start..end).unwrap_or_default())
        };
        let parts: Vec<_> = ranges.iter().flat_map(inside).collect();
        let chunks = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let chunk = |(chunk, (range, part)): (u32, (InventoryRange, &[RunReport]))| Self {
            inventory,
            chunk,
            chunks,
            entries: part.to_vec(),
            range: Some(range),
        };
        (0..).zip(parts).map(chunk).collect()
    }
}

fn sorted(mut entries: Vec<RunReport>) -> Vec<RunReport> {
    entries.sort_by_key(|entry| entry.id);
    entries
}

/// Divides the sorted entries of a range into parts of a limited size, at least one. The ranges of the parts cover the
/// range.
fn parts(range: InventoryRange, entries: &[RunReport]) -> Vec<(InventoryRange, &[RunReport])> {
    let parts: Vec<&[RunReport]> =
        if entries.is_empty() { vec![&[]] } else { entries.chunks(BATCH_MAX).collect() };
    let (last, mut after) = (parts.len() - 1, range.after);
    let mut ranged = Vec::with_capacity(parts.len());
    for (number, part) in parts.into_iter().enumerate() {
        let upto = if number == last { range.upto } else { part.last().map(|entry| entry.id) };
        ranged.push((InventoryRange { after, upto }, part));
        after = upto;
    }
    ranged
}

/// The phase of a held observer, as far as an inventory tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldPhase<'a> {
    Held { reason: &'a str, refuses: bool },
    Starting { attempt: u32 },
    Running { attempt: u32 },
    Restarting { error: &'a str, next_at: Timestamp },
}

impl HeldPhase<'_> {
    /// The digest of an entry, as a number of 40 bits. Services and databases of different versions compare it, so it
    /// never changes.
    #[must_use]
    pub fn digest(self, id: ObserverId, epoch: Epoch) -> u64 {
        let hash = Fnv1a::new().add(id.0.as_bytes()).add(&u64::from(epoch).to_be_bytes());
        let hash = match self {
            Self::Held { reason, refuses } => hash.add(&[0, u8::from(refuses)]).add(reason.as_bytes()),
            Self::Running { attempt } => hash.add(&[1]).add(&attempt.to_be_bytes()),
            Self::Restarting { error, next_at } => {
                hash.add(&[2]).add(&next_at.0.to_be_bytes()).add(error.as_bytes())
            }
            Self::Starting { attempt } => hash.add(&[3]).add(&attempt.to_be_bytes()),
        };
        hash.finish() & ((1 << 40) - 1)
    }
}

impl RunReport {
    /// The digest of this entry of an inventory; 0 if the event ends the hold.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let phase = match &self.event {
            RunEvent::Held { reason, refuses } => HeldPhase::Held { reason, refuses: *refuses },
            RunEvent::Starting { attempt, .. } => HeldPhase::Starting { attempt: *attempt },
            RunEvent::Started { attempt, .. } => HeldPhase::Running { attempt: *attempt },
            RunEvent::Errored { error, next_at, .. } => HeldPhase::Restarting { error, next_at: *next_at },
            RunEvent::Progress { .. }
            | RunEvent::HandedOver
            | RunEvent::HandedOverFor { .. }
            | RunEvent::Refused { .. }
            | RunEvent::Stopped
            | RunEvent::Completed
            | RunEvent::CompletedWith { .. }
            | RunEvent::Finished { .. }
            | RunEvent::Failed { .. }
            | RunEvent::Released => return 0,
        };
        phase.digest(self.id, self.epoch)
    }
}

/// The hash FNV-1a with 64 bits.
struct Fnv1a(u64);

impl Fnv1a {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
    fn add(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
    /// The low bits of FNV-1a depend on few input bits: folding the high ones in makes each bit depend on all.
    fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(number: usize) -> ObserverId {
        ObserverId(Uuid::from_u128(number as u128))
    }
    fn entry(number: usize) -> RunReport {
        let event = RunEvent::Started { attempt: 1, started_at: Timestamp(0) };
        RunReport { id: id(number), epoch: Epoch::new(1, 0), event }
    }
    fn range(after: Option<usize>, upto: Option<usize>) -> InventoryRange {
        InventoryRange { after: after.map(id), upto: upto.map(id) }
    }

    #[test]
    fn the_ranges_of_a_digest_cover_all_ids() {
        let none = InventoryDigest::of(1, Vec::new());
        let nothing = RangeDigest { range: InventoryRange::ALL, total: RangeTotal::default() };
        assert_eq!(none, InventoryDigest { inventory: 1, ranges: vec![nothing] });
        let all = InventoryDigest::of(7, (0..=BATCH_MAX * 2).rev().map(entry).collect());
        let ranges: Vec<InventoryRange> = all.ranges.iter().map(|it| it.range).collect();
        let (first, second) = (Some(BATCH_MAX - 1), Some(BATCH_MAX * 2 - 1));
        assert_eq!(ranges, [range(None, first), range(first, second), range(second, None)]);
        assert_eq!(all.ranges.iter().map(|it| it.total.entries).collect::<Vec<_>>(), [500, 500, 1]);
    }

    #[test]
    fn chunks_contain_the_entries_of_the_requested_ranges_and_no_others() {
        let entries = || (0..BATCH_MAX * 3).rev().map(entry).collect::<Vec<_>>();
        let asked = [range(Some(9), Some(11)), range(Some(20), Some(20)), range(Some(499), None)];
        let chunks = InventoryChunk::within(7, &asked, entries());
        let told: Vec<_> = chunks.iter().map(|it| (it.range.unwrap(), it.entries.len())).collect();
        assert_eq!(
            told,
            [
                (range(Some(9), Some(11)), 2),
                (range(Some(20), Some(20)), 0),
                (range(Some(499), Some(999)), 500),
                (range(Some(999), None), 500),
            ]
        );
        assert_eq!(
            chunks.iter().map(|it| (it.chunk, it.chunks)).collect::<Vec<_>>(),
            [(0, 4), (1, 4), (2, 4), (3, 4)]
        );
        for chunk in &chunks {
            assert!(chunk.entries.iter().all(|entry| chunk.range.unwrap().contains(entry.id)));
        }
        assert_eq!(InventoryChunk::within(1, &[InventoryRange::ALL], Vec::new())[0].entries, []);
        assert_eq!(InventoryChunk::within(1, &[], entries()), []);
    }

    #[test]
    fn every_part_of_an_entry_changes_its_digest() {
        let epoch = Epoch::new(1, 1);
        let held = |reason| HeldPhase::Held { reason, refuses: false };
        let restarting = |error, at| HeldPhase::Restarting { error, next_at: Timestamp(at) };
        let running = |attempt| HeldPhase::Running { attempt };
        let digests = [
            running(1).digest(id(1), epoch),
            running(1).digest(id(2), epoch),
            running(1).digest(id(1), Epoch::new(1, 2)),
            running(1).digest(id(1), Epoch::new(2, 1)),
            running(2).digest(id(1), epoch),
            held("a").digest(id(1), epoch),
            held("b").digest(id(1), epoch),
            HeldPhase::Held { reason: "a", refuses: true }.digest(id(1), epoch),
            restarting("a", 1).digest(id(1), epoch),
            restarting("b", 1).digest(id(1), epoch),
            restarting("a", 2).digest(id(1), epoch),
        ];
        assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), digests.len());
        // The digest is a part of the protocol.
        assert_eq!(digests[0], 1_085_913_248_453);
        let ended = RunReport { event: RunEvent::Stopped, ..entry(1) };
        assert_eq!((ended.digest(), entry(1).digest() > 0), (0, true));
    }
}
