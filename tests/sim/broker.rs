//! The broker: quorum queues with acquisition counts, consumers with prefetch in turn, exclusive command
//! queues, confirms. What is acknowledged here is judged by `check`.

use crate::net::{Lane, Loss};
use crate::world::{World, duration};
use everwatch_core::id::ServiceId;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueId {
    Work,
    State,
    Beats,
    Commands(ServiceId),
}

pub(crate) type Body = Rc<[u8]>;

/// A message in somebody's hands.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) receipt: u64,
    pub(crate) body: Body,
    pub(crate) acquisitions: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) body: Body,
    pub(crate) acquisitions: u32,
}

type Deliver = Rc<dyn Fn(&mut World, Delivery)>;

/// Who is to consume what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Consume {
    pub(crate) conn: usize,
    pub(crate) queue: QueueId,
    pub(crate) prefetch: usize,
    /// Those with a higher one are served first.
    pub(crate) priority: i32,
    /// As its peer calls it.
    pub(crate) block: u32,
}

struct Consumer {
    of: Consume,
    tag: u64,
    used: usize,
    deliver: Deliver,
}

pub(crate) struct Held {
    pub(crate) place: u64,
    pub(crate) stored: Stored,
    /// `None`: no channel owns it any more.
    pub(crate) conn: Option<usize>,
    /// `None`: it was fetched.
    pub(crate) tag: Option<u64>,
    /// Its delivery never arrives.
    astray: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    /// By the place that each got when it came in: what is given back is the head again.
    pub(crate) ready: BTreeMap<u64, Stored>,
    pub(crate) held: BTreeMap<u64, Held>,
    consumers: Vec<Consumer>,
    turn: usize,
    /// The connection that it belongs to and ends with.
    exclusive_of: Option<usize>,
}

pub(crate) struct Broker {
    pub(crate) up: bool,
    pub(crate) blocked: bool,
    /// So many of the next work messages are not accepted.
    pub(crate) rejects: u32,
    /// So many of the next deliveries of work never arrive.
    pub(crate) mislays: u32,
    /// The work queue was lost and nobody has made it anew.
    pub(crate) work_missing: bool,
    pub(crate) queues: BTreeMap<QueueId, Queue>,
    numbered: u64,
}

impl Default for Broker {
    fn default() -> Self {
        let durable = [QueueId::Work, QueueId::State, QueueId::Beats].map(|id| (id, Queue::default()));
        let queues = BTreeMap::from(durable);
        Self { up: true, blocked: false, rejects: 0, mislays: 0, work_missing: false, queues, numbered: 0 }
    }
}

impl Queue {
    pub(crate) fn give_back(&mut self, held: Held) {
        let Held { place, mut stored, tag, .. } = held;
        stored.acquisitions += 1;
        self.ready.insert(place, stored);
        self.free(tag);
    }
    fn free(&mut self, tag: Option<u64>) {
        if let Some(consumer) = self.consumers.iter_mut().find(|it| Some(it.tag) == tag) {
            consumer.used -= 1;
        }
    }
    /// Whose turn it is.
    fn next(&mut self) -> Option<usize> {
        let count = self.consumers.len();
        let takes = |index: &usize| self.consumers[*index].used < self.consumers[*index].of.prefetch;
        let by_turns = (0..count).map(|step| (self.turn + step) % count).filter(takes);
        let found = by_turns.min_by_key(|index| -self.consumers[*index].of.priority)?;
        self.turn = found + 1;
        Some(found)
    }
}

impl Broker {
    pub(crate) fn ready(&self, queue: QueueId) -> usize {
        self.queues.get(&queue).map_or(0, |queue| queue.ready.len())
    }
    /// Everything in the work queue that nobody holds.
    pub(crate) fn waiting_work(&self) -> impl Iterator<Item = &Body> {
        self.queues[&QueueId::Work].ready.values().map(|it| &it.body)
    }
    /// What is held and has arrived, with the connection that holds it.
    pub(crate) fn held_work(&self) -> impl Iterator<Item = (usize, &Body, u32)> {
        let held = self.queues[&QueueId::Work].held.values().filter(|it| !it.astray);
        held.filter_map(|it| Some((it.conn?, &it.stored.body, it.stored.acquisitions)))
    }
    /// Slots of consumers that hold what never arrived.
    pub(crate) fn wasted_slots(&self) -> usize {
        let work = &self.queues[&QueueId::Work];
        let astray = work.held.values().filter(|it| it.astray && it.conn.is_some());
        astray.filter(|held| work.consumers.iter().any(|it| Some(it.tag) == held.tag)).count()
    }
    pub(crate) fn consumers_of_work(&self) -> usize {
        self.queues[&QueueId::Work].consumers.len()
    }
    pub(crate) fn has_session(&self, service: ServiceId) -> bool {
        self.queues.contains_key(&QueueId::Commands(service))
    }
    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }
}

impl World {
    pub(crate) fn declare_commands(&mut self, conn: usize, service: ServiceId) {
        let queue = Queue { exclusive_of: Some(conn), ..Queue::default() };
        self.broker.queues.insert(QueueId::Commands(service), queue);
    }

    pub(crate) fn consume(&mut self, of: Consume, deliver: impl Fn(&mut Self, Delivery) + 'static) {
        let tag = self.broker.number();
        let consumer = Consumer { of, tag, used: 0, deliver: Rc::new(deliver) };
        if let Some(queue) = self.broker.queues.get_mut(&of.queue) {
            queue.consumers.push(consumer);
        }
        self.dispatch(of.queue);
    }

    /// Cancels all consumers of a connection; what they hold stays held.
    pub(crate) fn cancel_consumers(&mut self, conn: usize, queue: QueueId) {
        if let Some(queue) = self.broker.queues.get_mut(&queue) {
            queue.consumers.retain(|it| it.of.conn != conn);
        }
    }

    /// Cancels one; what it holds stays held.
    pub(crate) fn cancel_consumer(&mut self, conn: usize, queue: QueueId, block: u32) {
        if let Some(queue) = self.broker.queues.get_mut(&queue) {
            queue.consumers.retain(|it| (it.of.conn, it.of.block) != (conn, block));
        }
    }

    fn dispatch(&mut self, id: QueueId) {
        loop {
            let receipt = self.broker.number();
            let Some(queue) = self.broker.queues.get_mut(&id).filter(|queue| !queue.ready.is_empty()) else {
                return;
            };
            let Some(next) = queue.next() else { return };
            let Some((place, stored)) = queue.ready.pop_first() else { return };
            let consumer = &mut queue.consumers[next];
            consumer.used += 1;
            let (conn, deliver) = (consumer.of.conn, Rc::clone(&consumer.deliver));
            let delivery =
                Delivery { receipt, body: Rc::clone(&stored.body), acquisitions: stored.acquisitions };
            let astray = id == QueueId::Work && self.broker.mislays > 0;
            let (conn_of, tag) = (Some(conn), Some(consumer.tag));
            queue.held.insert(receipt, Held { place, stored, conn: conn_of, tag, astray });
            if id == QueueId::Work {
                self.on_assigned(conn, &delivery.body, delivery.acquisitions);
            }
            if astray {
                self.broker.mislays -= 1;
                self.tell(|_| "that delivery never arrives".to_owned());
                continue;
            }
            self.down(conn, move |world| deliver(world, delivery));
        }
    }

    /// Puts a message into a queue; `false` if it was not accepted.
    pub(crate) fn enqueue(&mut self, id: QueueId, body: Body) -> bool {
        if id == QueueId::Work {
            if self.broker.rejects > 0 || self.broker.work_missing {
                self.broker.rejects = self.broker.rejects.saturating_sub(1);
                return false;
            }
            self.on_published(&body);
        } else if id == QueueId::State {
            self.on_told(&body);
        }
        let place = self.broker.number();
        if let Some(queue) = self.broker.queues.get_mut(&id) {
            queue.ready.insert(place, Stored { body, acquisitions: 0 });
            if id == QueueId::Beats && queue.ready.len() > 1000 {
                queue.ready.pop_first();
            }
        }
        self.dispatch(id);
        true
    }

    /// To the command queue of every service.
    pub(crate) fn fan_out(&mut self, body: &Body) {
        let everyone: Vec<QueueId> =
            self.broker.queues.keys().copied().filter(|id| matches!(id, QueueId::Commands(_))).collect();
        for queue in everyone {
            self.enqueue(queue, Rc::clone(body));
        }
    }

    /// Ends a message, if this connection holds it.
    pub(crate) fn ack(&mut self, conn: usize, id: QueueId, receipt: u64) {
        let Some(held) = self.take_held(conn, id, receipt) else { return };
        if id == QueueId::Work {
            self.on_acked(conn, &held.stored.body, held.stored.acquisitions);
        }
        if let Some(queue) = self.broker.queues.get_mut(&id) {
            queue.free(held.tag);
        }
        self.dispatch(id);
    }

    pub(crate) fn requeue(&mut self, conn: usize, id: QueueId, receipt: u64) {
        let Some(held) = self.take_held(conn, id, receipt) else { return };
        if id == QueueId::Work {
            self.on_requeued(conn, &held.stored.body);
            self.on_taken_away(conn, &held.stored.body, held.stored.acquisitions, Loss::Closed);
        }
        if let Some(queue) = self.broker.queues.get_mut(&id) {
            queue.give_back(held);
        }
        self.dispatch(id);
    }

    fn take_held(&mut self, conn: usize, id: QueueId, receipt: u64) -> Option<Held> {
        let queue = self.broker.queues.get_mut(&id)?;
        if queue.held.get(&receipt)?.conn != Some(conn) {
            return None;
        }
        queue.held.remove(&receipt)
    }

    /// Takes up to `most` messages off the head of the work queue.
    pub(crate) fn fetch(&mut self, conn: usize, most: usize) -> Vec<Delivery> {
        let mut fetched = Vec::new();
        while fetched.len() < most {
            let receipt = self.broker.number();
            let Some(queue) = self.broker.queues.get_mut(&QueueId::Work) else { break };
            let Some((place, stored)) = queue.ready.pop_first() else { break };
            let body = Rc::clone(&stored.body);
            fetched.push(Delivery { receipt, body, acquisitions: stored.acquisitions });
            let conn = Some(conn);
            queue.held.insert(receipt, Held { place, stored, conn, tag: None, astray: false });
        }
        fetched
    }

    /// What a connection held goes back; what was its own goes with it.
    pub(crate) fn broker_forgets(&mut self, conn: usize, loss: Loss) {
        let lane = self.net.conns[conn].lane;
        if lane == Lane::Publish {
            return;
        }
        let mut emptied = Vec::new();
        let mut taken = Vec::new();
        for (id, queue) in &mut self.broker.queues {
            queue.consumers.retain(|it| it.of.conn != conn);
            let lost: Vec<u64> = queue
                .held
                .iter()
                .filter(|(_, held)| held.conn == Some(conn))
                .map(|(receipt, _)| *receipt)
                .collect();
            for receipt in lost {
                let Some(held) = queue.held.remove(&receipt) else { continue };
                if *id == QueueId::Work {
                    taken.push((Rc::clone(&held.stored.body), held.stored.acquisitions));
                }
                queue.give_back(held);
            }
            emptied.push(*id);
        }
        for (body, acquisitions) in taken {
            self.on_taken_away(conn, &body, acquisitions, loss);
        }
        self.broker.queues.retain(|_, queue| queue.exclusive_of != Some(conn));
        for id in emptied {
            self.dispatch(id);
        }
    }

    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        self.broker.blocked = blocked;
        for conn in 0..self.net.conns.len() {
            let it = &self.net.conns[conn];
            if it.lane == Lane::Publish && it.broker_open {
                self.down(conn, move |world| world.net.conns[conn].blocked = blocked);
            }
        }
        if !blocked {
            self.open_doors();
        }
    }

    /// Every session drops, everything held is ready again; nobody connects for `down_ms`.
    pub(crate) fn restart_broker(&mut self, down_ms: u64) {
        self.broker.up = false;
        for queue in self.broker.queues.values_mut() {
            queue.consumers.clear();
        }
        for conn in 0..self.net.conns.len() {
            self.broker_closes(conn, Loss::Told);
        }
        self.find_orphans();
        self.tell(|_| format!("the broker restarts, back in {:?}", duration(down_ms)));
        self.later(down_ms, |world| world.broker.up = true);
    }
}
