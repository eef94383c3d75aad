//! Injects faults that RabbitMQ causes to its clients.

use super::queue::{Queue, Stored};
use super::{MemoryBroker, State};
use crate::port::{QueueKind, Receipt};

/// The content of one queue at one moment.
#[derive(Debug, Clone)]
pub struct QueueBackup(Vec<Stored>);

impl QueueBackup {
    /// The bodies of its messages.
    pub fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Stored::body)
    }
}

impl MemoryBroker {
    /// Cuts every session whose name starts with `session_name_prefix`, as if its host were gone.
    pub fn cut(&self, session_name_prefix: &str) {
        let mut state = self.inner.state();
        for session in state.sessions_named(session_name_prefix) {
            state.end(session, "cut");
        }
    }

    /// Publishers wait from `block(true)` to `block(false)`, as during a memory alarm.
    pub fn block(&self, blocked: bool) {
        self.inner.blocked.send_replace(blocked);
    }

    /// The next `count` messages are stored, but their publishers wait until their session is lost.
    pub fn lose_next_confirms(&self, count: usize) {
        self.inner.state().confirms_to_lose = count;
    }

    /// Takes these deliveries from their session. They are neither ready nor held until
    /// [`MemoryBroker::recover_abandoned`].
    pub fn abandon(&self, receipts: &[Receipt]) {
        let mut state = self.inner.state();
        for receipt in receipts {
            if let Some(held) = state.release(*receipt) {
                state.abandoned.push((held.queue, held.stored));
            }
        }
    }

    /// Delivers these messages to another consumer while their session lives and is not told, as a cluster
    /// does when its nodes briefly lose contact with each other.
    pub fn give_away(&self, receipts: &[Receipt]) {
        let mut state = self.inner.state();
        for receipt in receipts {
            if let Some(queue) = state.give_back(*receipt) {
                state.dispatch(&queue);
            }
        }
    }

    /// Makes abandoned deliveries ready again, as a restart of the broker does.
    pub fn recover_abandoned(&self) {
        let mut state = self.inner.state();
        for (name, stored) in std::mem::take(&mut state.abandoned) {
            if let Some(queue) = state.queues.get_mut(&name) {
                queue.put_back(stored);
            }
            state.dispatch(&name);
        }
    }

    /// Every message in the queue, held or ready, as a backup of the broker's disk would contain it. After a
    /// restore, held messages are delivered as redeliveries.
    #[must_use]
    pub fn backup_queue(&self, name: &str) -> QueueBackup {
        let state = self.inner.state();
        let ready = state.queues.get(name).into_iter().flat_map(|queue| queue.ready_messages().cloned());
        let held = state.held.values().filter(|held| held.queue == name);
        let held = held.map(|held| held.stored.clone().redelivered());
        QueueBackup(ready.chain(held).collect())
    }

    /// Replaces the queue's content with an older one; creates the queue if it does not exist. No session may
    /// consume from it.
    pub fn restore_queue(&self, name: &str, backup: &QueueBackup) {
        let mut state = self.inner.state();
        state.forget_messages(name);
        let missing = || Queue::new(QueueKind::Durable { max_length: None }, None);
        state.queues.entry(name.to_owned()).or_insert_with(missing).replace(backup.0.clone());
    }

    /// Deletes the queue with all that is in it. No session may consume from it.
    pub fn delete_queue(&self, name: &str) {
        let mut state = self.inner.state();
        state.forget_messages(name);
        state.queues.remove(name);
    }
}

impl State {
    fn sessions_named(&self, prefix: &str) -> Vec<u64> {
        let named = self.sessions.iter().filter(|(_, (name, _))| name.starts_with(prefix));
        named.map(|(id, _)| *id).collect()
    }

    fn forget_messages(&mut self, queue: &str) {
        self.held.retain(|_, held| held.queue != queue);
        self.abandoned.retain(|(name, _)| name != queue);
    }
}
