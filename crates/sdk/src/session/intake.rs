//! Work and commands as they arrive: read, or refused.

use super::{Incoming, ServiceSession};
use crate::metric;
use everwatch_broker::{Delivery, HeaderValue, Message, Receipt, Settle, Target};
use everwatch_core::capacity::blocks::BlockId;
use everwatch_core::run::machine::Input;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::message::decode;
use everwatch_core::wire::signature::{PARKED_AS, Refused};
use everwatch_core::wire::work::{DecodedWork, Work};
use std::time::Duration;

/// How long a message with an unknown key is held, so that it does not circulate between services without pause.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);

/// How often a message with an unknown key is delivered before it is parked: after about five minutes.
const GIVE_BACK_MOST: u32 = 30;

impl ServiceSession {
    pub(super) async fn on_work(&mut self, block: BlockId, delivery: Delivery) {
        if let Some(refused) = delivery.refused.clone() {
            return self.refuse_work((block, delivery), &refused).await;
        }
        match Work::read(&delivery.body) {
            Ok(read) => {
                if let DecodedWork::Ours(work) = &read {
                    self.traces.taken(work, &delivery);
                }
                let Delivery { receipt, acquisitions, .. } = delivery;
                self.step(Input::Delivered { block, receipt, read, acquisitions }).await;
            }
            Err(unreadable) => {
                self.step(Input::Unreadable { block }).await;
                let bytes = delivery.body.len();
                tracing::warn!(reason = unreadable.0, bytes, "an unreadable work message is parked");
                self.park((block, delivery), &unreadable.0);
            }
        }
    }

    pub(super) async fn on_command(&mut self, delivery: Delivery) {
        if let Some(refused) = &delivery.refused {
            let queue = self.topology.commands_of(&self.me.settings.pool, self.me.id);
            self.refusals.add(("command", queue), refused, None);
            return self.on_settle(self.me.session.ack(delivery.receipt).await);
        }
        match decode::<Command>(&delivery.body) {
            Ok(Command::Unknown(_)) => tracing::debug!("a command of a newer version is passed over"),
            Ok(command) => {
                self.step(Input::Command(command)).await;
                self.me.known_time.keep(self.machine.clock().announced(self.started.elapsed()));
            }
            Err(error) => {
                metrics::counter!(metric::UNREADABLE).increment(1);
                tracing::warn!(%error, "an unreadable command is dropped");
            }
        }
        self.on_settle(self.me.session.ack(delivery.receipt).await);
    }

    /// Such a message never reaches the machine: it could end the run of a genuine one.
    async fn refuse_work(&mut self, (block, delivery): (BlockId, Delivery), refused: &Refused) {
        let id = Work::read(&delivery.body).ok().map(|read| read.id());
        self.refusals.add(("work", self.topology.work(&self.me.settings.pool)), refused, id);
        self.step(Input::Unreadable { block }).await;
        match refused {
            // It may be genuine, and the file of this service out of date.
            Refused::UnknownKey(_) if delivery.acquisitions < GIVE_BACK_MOST => {
                self.give_back_later(block, delivery.receipt);
            }
            other => self.park((block, delivery), &format!("{PARKED_AS}{other}")),
        }
    }

    fn give_back_later(&self, block: BlockId, receipt: Receipt) {
        let (session, fence, freed) = (self.me.session.clone(), self.fence.clone(), self.arrivals.clone());
        self.helpers.spawn(async move {
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            match session.requeue(receipt).await {
                Settle::NotOurs => fence.trip("a message is no longer ours"),
                Settle::Done => drop(freed.send(Incoming::Freed(block)).await),
            }
        });
    }

    /// Parks a message unchanged, and acknowledges it only then.
    fn park(&self, (block, delivery): (BlockId, Delivery), reason: &str) {
        let (session, fence) = (self.me.session.clone(), self.fence.clone());
        let target = Target::Queue(self.topology.parked());
        let queue = self.topology.work(&self.me.settings.pool);
        let headers = vec![
            ("everwatch-reason".to_owned(), HeaderValue::Text(reason.chars().take(500).collect())),
            ("everwatch-queue".to_owned(), HeaderValue::Text(queue)),
        ];
        let freed = self.arrivals.clone();
        self.helpers.spawn(async move {
            match session.publish(&target, Message { body: delivery.body, headers }).await {
                Ok(()) if session.ack(delivery.receipt).await == Settle::NotOurs => {
                    fence.trip("a message is no longer ours");
                }
                Ok(()) => drop(freed.send(Incoming::Freed(block)).await),
                Err(error) => tracing::warn!(%error, "a message could not be parked; it stays held"),
            }
        });
    }
}
