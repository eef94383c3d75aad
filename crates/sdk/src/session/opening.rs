//! What a session begins with: its blocks, its rules and its fence.

use super::{Incarnation, StartError};
use crate::safety::fence::{Fence, Watched};
use crate::tasks::task::Units;
use everwatch_broker::Receipt;
use everwatch_core::capacity::blocks::{Blocks, block_sizes};
use everwatch_core::failure::fence::limits;
use everwatch_core::failure::reconnect::STEADY;
use everwatch_core::run::machine::Machine;
use everwatch_core::run::slots::{Pace, SlotPolicy, Slots};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Starts the fence of a session.
pub(super) fn watch(
    me: &Incarnation,
    units: &Arc<Units>,
    tracker: &TaskTracker,
) -> Result<Arc<Fence>, StartError> {
    let watched = Watched {
        session: me.session.clone(),
        units: units.clone(),
        pulses: me.pulses.clone(),
        end_process: me.handle.machine.end_process,
    };
    let times = limits((me.settings.fence_after, me.settings.fence_grace), me.session.heartbeat());
    if times.0 < me.settings.fence_after {
        let (configured, agreed) = (me.settings.fence_after, times.0);
        tracing::warn!(?configured, ?agreed, "the broker's heartbeat is shorter: using it as fence_after");
    }
    me.pulses.set_silence(times.0);
    Fence::watch(times, watched, (me.handle.machine.fence, tracker)).map_err(StartError::Thread)
}

/// The machine of a new incarnation.
pub(super) fn machine(me: &Incarnation) -> Machine<Receipt> {
    let (capacity, weight_max) = (me.settings.slots(), me.settings.weight_max);
    let single = me.settings.pool_single;
    let messages = capacity / u32::from(weight_max);
    let policy = SlotPolicy {
        kinds: me.registry.kinds(),
        announce_readiness: me.registry.announce_readiness(),
        weight_max,
        fence_grace: me.settings.fence_grace,
        consumers: if single { 1 } else { u32::try_from(block_sizes(messages).len()).unwrap_or(u32::MAX) },
        refuse_first: Duration::from_secs(1),
        refuse_max: Duration::from_secs(60),
    };
    let pace = Pace::new(me.settings.start_rate, &me.settings.start_rates);
    let blocks = if single { Blocks::single(capacity) } else { Blocks::new(capacity) };
    let mut blocks = blocks.with_weight_max(weight_max);
    if me.comes_last {
        blocks.defer(STEADY);
    }
    Machine::new(me.id, Slots::new(policy).with_pace(pace).with_clock(me.known_time.clock()), blocks)
}
