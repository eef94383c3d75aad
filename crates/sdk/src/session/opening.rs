//! What a session begins with: its queues, its blocks, its rules and its fence.

use super::{Incarnation, StartError};
use crate::safety::fence::{Fence, Watched};
use crate::tasks::task::Units;
use everwatch_broker::{BrokerError, Declared, QueueKind, Receipt, Topology};
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
    let capacity = me.settings.capacity.slots();
    let policy = SlotPolicy {
        kinds: me.registry.kinds(),
        fence_grace: me.settings.fence_grace,
        consumers: u32::try_from(block_sizes(capacity).len()).unwrap_or(u32::MAX),
        refuse_first: Duration::from_secs(1),
        refuse_max: Duration::from_secs(60),
    };
    let pace = Pace::new(me.settings.start_rate, &me.settings.start_rates);
    let mut blocks = Blocks::new(capacity);
    if me.comes_last {
        blocks.defer(STEADY);
    }
    Machine::new(me.id, Slots::new(policy).with_pace(pace), blocks)
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
