//! Proofs of life: a round trip on the consume connection and a confirmed publish, every second. The fence judges them.

use crate::boot_clock::boottime;
use crate::safety::fence::Fence;
use everwatch_broker::{BrokerError, Message, Session, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The longest pause between two proofs; three of them fit into the silence that fences.
const PROBE: Duration = Duration::from_secs(1);

/// Runs until the session is lost.
pub(crate) async fn prove_life(
    session: Arc<dyn Session>,
    fence: Arc<Fence>,
    (heartbeats, body): (Target, Vec<u8>),
) {
    let losses = async { fence.trip(&session.lost().await) };
    futures::future::join3(
        answers(session.as_ref(), &fence),
        confirms(session.as_ref(), &fence, (&heartbeats, body)),
        losses,
    )
    .await;
}

async fn answers(session: &dyn Session, fence: &Fence) {
    let mut ticks = ticks(fence);
    loop {
        ticks.tick().await;
        let sent = boottime();
        match session.probe().await {
            Ok(()) => fence.answered(sent),
            Err(error) => return fence.trip(&error.to_string()),
        }
    }
}

/// A process that was frozen for longer than the fence permits publishes nothing before the fence trips: managers would take it for a
/// sign of life of code that stood still.
async fn confirms(session: &dyn Session, fence: &Fence, (heartbeats, body): (&Target, Vec<u8>)) {
    let mut ticks = ticks(fence);
    loop {
        ticks.tick().await;
        if !fence.has_proofs() {
            continue;
        }
        let sent = boottime();
        let message = Message { body: body.clone().into(), headers: Vec::new() };
        match session.publish(heartbeats, message).await {
            Ok(()) => fence.confirmed(sent),
            Err(BrokerError::Lost(reason)) => return fence.trip(&reason),
            Err(error) => tracing::warn!(%error, "a probe was not accepted"),
        }
    }
}

fn ticks(fence: &Fence) -> Interval {
    let mut ticks = interval(PROBE.min(fence.fence_after() / 3));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
