//! What a broker forgets: deliveries that nobody owns, work queues that are gone or as they were before.

use crate::broker::{Queue, QueueId, Stored};
use crate::net::{Lane, Loss};
use crate::sweeping::label;
use crate::world::World;
use std::collections::BTreeMap;
use std::mem::take;

/// The content of the work queue at some moment.
type Content = BTreeMap<u64, Stored>;

impl World {
    /// Drops the connection of a service; some of what it holds stays unacknowledged with nobody.
    pub(crate) fn orphan(&mut self, service: usize, count: usize) {
        let Some(conn) = self.live_conn(service, Lane::Consume) else { return };
        if let Some(work) = self.broker.queues.get_mut(&QueueId::Work) {
            let of_conn = work.held.values_mut().filter(|held| held.conn == Some(conn));
            for held in of_conn.take(count) {
                held.conn = None;
                let (id, generation) = label(&held.stored.body);
                self.check.orphaned.insert((id, generation));
            }
        }
        self.broker_closes(conn, Loss::Told);
    }

    /// After a restart the queue finds again what nobody owned.
    pub(crate) fn find_orphans(&mut self) {
        let Some(work) = self.broker.queues.get_mut(&QueueId::Work) else { return };
        let lost: Vec<u64> =
            work.held.iter().filter(|(_, held)| held.conn.is_none()).map(|(receipt, _)| *receipt).collect();
        for receipt in lost {
            if let Some(held) = work.held.remove(&receipt) {
                work.give_back(held);
            }
        }
    }

    /// The broker restarts; its work queue is not there any more.
    pub(crate) fn lose_work(&mut self, down_ms: u64) {
        self.restart_broker(down_ms);
        self.broker.queues.insert(QueueId::Work, Queue::default());
        self.broker.work_missing = true;
    }

    /// Whether this made the work queue.
    pub(crate) fn declare_work(&mut self) -> bool {
        let made = take(&mut self.broker.work_missing);
        if made {
            self.tell(|_| "the work queue is made anew".to_owned());
        }
        made
    }

    pub(crate) fn content_of_work(&self) -> Content {
        let Some(work) = self.broker.queues.get(&QueueId::Work) else { return Content::new() };
        let held = work.held.values().map(|held| {
            let Stored { body, acquisitions } = held.stored.clone();
            (held.place, Stored { body, acquisitions: acquisitions + 1 })
        });
        held.chain(work.ready.iter().map(|(place, stored)| (*place, stored.clone()))).collect()
    }

    /// The broker restarts with an older content. Its counts begin where they were, so that of these
    /// generations nothing about epochs can be promised.
    pub(crate) fn turn_back_work(&mut self, content: Content, down_ms: u64) {
        self.restart_broker(down_ms);
        for stored in content.values() {
            let (id, generation) = label(&stored.body);
            self.check.turn_back(id, generation);
        }
        self.broker.work_missing = false;
        let mut work = Queue::default();
        work.ready = content;
        self.broker.queues.insert(QueueId::Work, work);
    }
}
