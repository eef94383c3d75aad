//! A broker in the memory of this process, which keeps the same promises as RabbitMQ and injects faults on
//! demand. For tests and for trying things out: its content is lost when the process ends.

mod faults;
mod queue;
mod session;

pub use self::faults::QueueBackup;

use crate::loss::Loss;
use crate::port::{
    Broker, BrokerError, ConnectError, Message, QueueKind, Receipt, Session, Target, explain_refusal,
};
use async_trait::async_trait;
use everwatch_core::doctor::Server;
use queue::{Queue, Stored};
use session::MemorySession;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Shared by all its clones.
#[derive(Clone, Default)]
pub struct MemoryBroker {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    blocked: watch::Sender<bool>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { state: Mutex::default(), blocked: watch::Sender::new(false) }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    queues: HashMap<String, Queue>,
    /// The queues that are bound to each fan-out exchange.
    exchanges: HashMap<String, BTreeSet<String>>,
    /// The queues that are bound to each direct exchange, by its name and the key.
    directs: HashMap<(String, String), BTreeSet<String>>,
    sessions: BTreeMap<u64, (String, Loss)>,
    held: BTreeMap<Receipt, Held>,
    last_id: u64,
    confirms_to_lose: usize,
    /// Deliveries that belong to no session, by queue.
    abandoned: Vec<(String, Stored)>,
}

struct Held {
    session: u64,
    queue: String,
    consumer: Option<u64>,
    stored: Stored,
}

/// Whether the publish is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confirm {
    Sent,
    Lost,
}

impl MemoryBroker {
    /// An empty broker.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError> {
        let mut state = self.inner.state();
        let (session, loss) = (state.next_id(), Loss::default());
        state.sessions.insert(session, (name.to_owned(), loss.clone()));
        Ok(Arc::new(MemorySession::new(session, loss, Arc::clone(&self.inner))))
    }
    async fn version(&self) -> Option<String> {
        None
    }
    async fn inspect(&self, _queues: &[(String, QueueKind)]) -> Option<Server> {
        None
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Ends a session: the messages that it held return to their queues, and its exclusive queues are
    /// deleted.
    fn end(&mut self, session: u64, why: &str) {
        let Some((_, loss)) = self.sessions.remove(&session) else { return };
        loss.lose(why);
        let mut touched = BTreeSet::new();
        for (name, queue) in &mut self.queues {
            queue.consumers.retain(|consumer| consumer.session != session);
            if queue.kind == QueueKind::SingleActive {
                touched.insert(name.clone());
            }
        }
        let held: Vec<Receipt> = self
            .held
            .iter()
            .filter(|(_, held)| held.session == session)
            .map(|(receipt, _)| *receipt)
            .collect();
        for receipt in held {
            touched.extend(self.give_back(receipt));
        }
        self.queues.retain(|_, queue| queue.owner != Some(session));
        for bound in self.exchanges.values_mut().chain(self.directs.values_mut()) {
            bound.retain(|queue| self.queues.contains_key(queue));
        }
        // Dispatches only after all messages have returned, so that the next owner receives them in order.
        for queue in touched {
            self.dispatch(&queue);
        }
    }

    /// Removes a delivery from its holder and returns the credit to the consumer.
    fn release(&mut self, receipt: Receipt) -> Option<Held> {
        let held = self.held.remove(&receipt)?;
        if let Some(queue) = self.queues.get_mut(&held.queue) {
            queue.credit(held.consumer);
        }
        Some(held)
    }

    /// Returns a delivery to its queue without dispatching. Returns the queue that the caller must dispatch.
    fn give_back(&mut self, receipt: Receipt) -> Option<String> {
        let held = self.release(receipt)?;
        self.queues.get_mut(&held.queue)?.put_back(held.stored);
        Some(held.queue)
    }

    /// Delivers ready messages to consumers with room.
    fn dispatch(&mut self, name: &str) {
        while let Some(queue) = self.queues.get_mut(name) {
            let Some((stored, at)) = queue.next_handout() else { return };
            let (session, consumer, out) = {
                let consumer = &queue.consumers[at];
                (consumer.session, consumer.id, consumer.out.clone())
            };
            let receipt = Receipt(self.next_id());
            let delivery = stored.delivery(receipt);
            self.held
                .insert(receipt, Held { session, queue: name.to_owned(), consumer: Some(consumer), stored });
            // A dropped consumer leaves the queue under this lock, so every consumer found here can receive.
            if out.send(delivery).is_err() {
                self.give_back(receipt);
                return;
            }
        }
    }

    fn publish(&mut self, target: &Target, message: &Message) -> Result<Confirm, BrokerError> {
        let to: Vec<String> = match target {
            Target::Queue(queue) if self.queues.contains_key(queue) => vec![queue.clone()],
            Target::Queue(queue) => return Err(BrokerError::Unroutable(queue.clone())),
            Target::Fanout(exchange) => self.bound(exchange)?.iter().cloned().collect(),
            Target::Direct { exchange, key } => {
                let bound = self.directs.get(&(exchange.clone(), key.clone()));
                bound.into_iter().flatten().cloned().collect()
            }
            Target::Topic { exchange, .. } => {
                self.bound(exchange)?;
                Vec::new()
            }
        };
        for name in &to {
            let number = self.next_id();
            if let Some(queue) = self.queues.get_mut(name)
                && !queue.push(number, message.clone())
            {
                return Err(BrokerError::NotAccepted(name.clone()));
            }
            self.dispatch(name);
        }
        if self.confirms_to_lose > 0 {
            self.confirms_to_lose -= 1;
            return Ok(Confirm::Lost);
        }
        Ok(Confirm::Sent)
    }

    fn bound(&self, exchange: &str) -> Result<&BTreeSet<String>, BrokerError> {
        self.exchanges.get(exchange).ok_or_else(|| BrokerError::Refused(format!("no exchange '{exchange}'")))
    }

    /// The queue, if it is there and not exclusive to another session.
    fn reach(&mut self, session: u64, name: &str) -> Result<&mut Queue, BrokerError> {
        let queue = self.queues.get_mut(name).ok_or_else(|| BrokerError::NoQueue(name.to_owned()))?;
        if queue.owner.is_some_and(|owner| owner != session) {
            return Err(BrokerError::Refused(format!("{name}: exclusive to another connection")));
        }
        queue.expire();
        Ok(queue)
    }

    fn declare(
        &mut self,
        session: u64,
        name: &str,
        kind: &QueueKind,
    ) -> Result<crate::port::Declared, BrokerError> {
        use crate::port::Declared;
        match self.reach(session, name) {
            Ok(queue) if queue.kind == *kind => Ok(Declared::Existed),
            Ok(queue) => {
                let single = [&queue.kind, kind].contains(&&QueueKind::SingleActive);
                let argument = if single { "x-single-active-consumer" } else { "argument" };
                let why = format!("{name}: inequivalent {argument}, it is {:?}, not {kind:?}", queue.kind);
                Err(BrokerError::Refused(explain_refusal(&why)))
            }
            Err(BrokerError::NoQueue(_)) => {
                let owner = (*kind == QueueKind::Exclusive).then_some(session);
                self.queues.insert(name.to_owned(), Queue::new(kind.clone(), owner));
                Ok(Declared::Created)
            }
            Err(other) => Err(other),
        }
    }
}
