//! What a session begins with: its queues, its blocks, its rules and its fence.

use super::{Incarnation, Unborn};
use crate::fence::{Fence, Watched};
use crate::unit::Units;
use everwatch_broker::{BrokerError, Declared, QueueKind, Topology};
use everwatch_core::blocks::{Blocks, block_sizes};
use everwatch_core::fence::limits;
use everwatch_core::rebirth::STEADY;
use everwatch_core::slots::SlotPolicy;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Starts the fence of a session.
pub(super) fn watch(
    me: &Incarnation,
    units: &Arc<Units>,
    tracker: &TaskTracker,
) -> Result<Arc<Fence>, Unborn> {
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
    Fence::watch(times, watched, (me.handle.machine.fence, tracker)).map_err(Unborn::Thread)
}

pub(super) fn blocks(me: &Incarnation, capacity: u32) -> Blocks {
    let mut blocks = Blocks::new(capacity);
    if me.comes_last {
        blocks.come_last(STEADY);
    }
    blocks
}

pub(super) fn policy(me: &Incarnation, capacity: u32) -> SlotPolicy {
    SlotPolicy {
        kinds: me.registry.kinds(),
        fence_grace: me.settings.fence_grace,
        consumers: u32::try_from(block_sizes(capacity).len()).unwrap_or(u32::MAX),
        refuse_first: Duration::from_secs(1),
        refuse_max: Duration::from_secs(60),
    }
}

pub(super) async fn declare(me: &Incarnation, topology: &Topology) -> Result<bool, BrokerError> {
    for (queue, kind) in topology.durable_queues() {
        me.session.declare(&queue, &kind).await?;
    }
    for exchange in topology.exchanges() {
        me.session.declare_exchange(&exchange).await?;
    }
    let commands = topology.commands_of(me.id);
    me.session.declare(&commands, &QueueKind::Exclusive).await?;
    me.session.bind(&commands, &topology.commands()).await?;
    let work = topology.work(&me.settings.pool);
    let declared = me.session.declare(&work, &QueueKind::Durable { max_length: None }).await?;
    Ok(declared == Declared::Created)
}
