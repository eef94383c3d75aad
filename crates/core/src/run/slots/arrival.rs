//! Messages as they arrive, and as they leave.

use super::Effect;
use crate::epoch::Epoch;
use crate::id::ObserverId;
use crate::wire::report::{RunEvent, RunReport};
use crate::wire::work::{DecodedWork, Work};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Arrival<R> {
    pub(super) receipt: R,
    pub(super) id: ObserverId,
    pub(super) epoch: Epoch,
    pub(super) work: Result<Arc<Work>, String>,
}

impl<R> Arrival<R> {
    /// Whether it counts towards limits; a message that cannot be read here may.
    pub(super) fn counts(&self) -> bool {
        self.work.as_ref().map_or(true, |work| !work.limits.is_empty())
    }
}

/// A message that is acknowledged once its end is confirmed.
#[derive(Debug)]
pub(super) struct Leftover<R> {
    pub(super) receipt: R,
    pub(super) counts: bool,
}

pub(super) fn arrival<R>(receipt: R, read: DecodedWork, acquisitions: u32) -> Arrival<R> {
    match read {
        DecodedWork::Ours(work) => {
            let epoch = Epoch::new(work.generation, acquisitions);
            Arrival { receipt, id: work.id, epoch, work: Ok(Arc::from(work)) }
        }
        DecodedWork::Foreign(label, why) => {
            let epoch = Epoch::new(label.generation, acquisitions);
            Arrival { receipt, id: label.id, epoch, work: Err(why) }
        }
    }
}

/// The last effect of a message: managers must know when one that counts towards limits is gone.
pub(super) fn acknowledge<R>((receipt, counts): (R, bool), id: ObserverId, epoch: Epoch) -> Effect<R> {
    if counts {
        Effect::Release(receipt, RunReport { id, epoch, event: RunEvent::Released })
    } else {
        Effect::Ack(receipt)
    }
}
