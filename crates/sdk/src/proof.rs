//! Proofs of life: round trips on the consume connection and confirmed publishes, every second. The fence
//! judges them; this file only makes them.

use crate::fence::{Fence, boottime};
use everwatch_broker::{BrokerError, Message, Session, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The longest pause between two proofs; three of them fit into the silence that fences.
const PROBE: Duration = Duration::from_secs(1);

/// Until the session is lost.
pub(crate) async fn prove_life(
    session: Arc<dyn Session>,
    fence: Arc<Fence>,
    (beats, body): (Target, Vec<u8>),
) {
    let losses = async { fence.fall(&session.lost().await) };
    futures::future::join3(
        answers(session.as_ref(), &fence),
        confirms(session.as_ref(), &fence, (&beats, body)),
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
            Err(error) => return fence.fall(&error.to_string()),
        }
    }
}

async fn confirms(session: &dyn Session, fence: &Fence, (beats, body): (&Target, Vec<u8>)) {
    let mut ticks = ticks(fence);
    loop {
        ticks.tick().await;
        let sent = boottime();
        let message = Message { body: body.clone().into(), headers: Vec::new() };
        match session.publish(beats, message).await {
            Ok(()) => fence.confirmed(sent),
            Err(BrokerError::Lost(reason)) => return fence.fall(&reason),
            Err(error) => tracing::warn!(%error, "a probe was not accepted"),
        }
    }
}

fn ticks(fence: &Fence) -> Interval {
    let mut ticks = interval(PROBE.min(fence.fence_after() / 3));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
