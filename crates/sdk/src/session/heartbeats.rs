//! What a service sends about itself at intervals: heartbeats, and digests of its inventory.

use super::ServiceSession;
use crate::metric;
use crate::session::reporter::Say;
use everwatch_broker::{Message, Target};
use everwatch_core::clock;
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, StalledObserver};
use everwatch_core::wire::message::encode;
use everwatch_core::wire::report::{InventoryChunk, InventoryDigest, InventoryRange, Report};
use std::time::Duration;

/// How long the last heartbeat of a process may take.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// The numbers and contents of the newest heartbeat and inventory.
#[derive(Default)]
pub(super) struct Pulse {
    heartbeats: u64,
    /// The number of held messages in the newest heartbeat.
    pub(super) held: u32,
    inventories: u64,
    pub(super) loop_lag: Duration,
    /// The observers whose code blocks a thread, as managers are to show them.
    pub(super) stalled: Vec<StalledObserver>,
}

impl ServiceSession {
    /// Sends a heartbeat. Nothing waits for it: the next one repeats its content.
    ///
    /// A process that was frozen sends none before its fence trips: managers would count the gaps of its observers from that heartbeat.
    pub(super) fn heartbeat(&mut self) {
        if !self.fence.has_proofs() {
            return;
        }
        let Some((target, message)) = self.next_heartbeat() else { return };
        let session = self.me.session.clone();
        self.helpers.spawn(async move {
            if let Err(error) = session.publish(&target, message).await {
                tracing::debug!(%error, "a heartbeat was not accepted");
            }
        });
    }

    /// Sends a heartbeat and waits until the broker has it: none follows.
    pub(super) async fn last_heartbeat(&mut self) {
        let Some((target, message)) = self.next_heartbeat() else { return };
        let sent = self.me.session.publish(&target, message);
        if !matches!(tokio::time::timeout(LAST_WITHIN, sent).await, Ok(Ok(()))) {
            tracing::warn!("the last heartbeat was not accepted; managers show an earlier one");
        }
    }

    fn next_heartbeat(&mut self) -> Option<(Target, Message)> {
        self.pulse.heartbeats += 1;
        self.pulse.held = self.machine.held();
        let heartbeat = Heartbeat {
            service: self.me.id,
            seq: self.pulse.heartbeats,
            state: self.machine.intent(),
            capacity: self.machine.capacity(),
            held: self.pulse.held,
            loop_lag_ms: u32::try_from(self.pulse.loop_lag.as_millis()).unwrap_or(u32::MAX),
            rss_bytes: (self.me.handle.machine.resident_bytes)(),
            sent_at: Some(clock::now()),
            stalled: self.pulse.stalled.clone(),
        };
        metric::heartbeat(&heartbeat);
        let body = encode(&HeartbeatMessage::Heartbeat(heartbeat)).ok()?;
        let message = Message { body: body.into(), headers: Vec::new() };
        Some((Target::Queue(self.topology.heartbeats()), message))
    }

    /// Sends the digests of the inventory.
    pub(super) async fn digest(&mut self) {
        let digest = self.next_digest();
        self.reporter.say(Say::Tell(digest)).await;
    }

    pub(super) fn next_digest(&mut self) -> Report {
        self.pulse.inventories += 1;
        Report::InventoryDigest(InventoryDigest::of(self.pulse.inventories, self.machine.list()))
    }

    /// Sends these ranges of the inventory.
    pub(super) async fn list(&mut self, ranges: &[InventoryRange]) {
        for chunk in InventoryChunk::within(self.pulse.inventories, ranges, self.machine.list()) {
            self.reporter.say(Say::Tell(Report::Inventory(chunk))).await;
        }
    }
}
