//! Connections between hosts and the broker: the frames on them and the endpoints. A session has two
//! connections, one for each lane. The world moves the frames; `session` and `broker` implement the
//! endpoints.

use everwatch_broker::{
    BrokerError, Consume, Declared, Delivery, Depth, Message, OwnerLiveness, QueueKind, Receipt, Target,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::record::Loss;

/// Numbers the sessions of a history.
pub(crate) type ConnId = usize;

/// The two connections of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) enum Lane {
    Consume = 0,
    Publish = 1,
}

impl Lane {
    pub(crate) const BOTH: [Self; 2] = [Self::Consume, Self::Publish];
}

/// From a host to the broker.
#[derive(Debug)]
pub(crate) enum Up {
    Hello(String),
    Ask(u64, Ask),
    Ack(Receipt),
    Requeue(Receipt),
    /// The client has dropped this consumer.
    Dropped(u64),
    Heartbeat,
    Close,
}

#[derive(Debug)]
pub(crate) enum Ask {
    Declare(String, QueueKind),
    DeclareExchange(Target),
    Bind(String, Vec<Target>),
    Publish(Target, Message),
    Consume(u64, Consume),
    Get(String, usize),
    Probe,
    Depth(String),
    Delete(String),
    OwnerLiveness(String),
    Cancel(u64),
    Resume { cancelled: u64, next: u64, consume: Consume },
}

/// From the broker to a host.
#[derive(Debug)]
pub(crate) enum Down {
    Reply(u64, Result<Answer, BrokerError>),
    Delivery(u64, Delivery),
    /// The consumer has ended; the second value tells whether the client cancelled it.
    Ended(u64, Asked),
    Blocked(bool),
    Heartbeat,
    /// The broker closed a channel of the client; the connection stays.
    ChannelClosed(String),
    Lost(String),
}

/// Whether the end of a consumer was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    ByClient,
    ByNobody,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Declared(Declared),
    Got(Vec<Delivery>),
    Depth(Depth),
    OwnerLiveness(OwnerLiveness),
}

/// What the broker's endpoint of a lane receives: frames and orders.
#[derive(Debug)]
pub(crate) enum AtBroker {
    Arrived(Up),
    /// The broker closes this connection.
    Close(Loss),
    /// Closes the oldest open channel of the client, with all messages that it holds.
    CloseChannel,
    /// It closes the connection and leaves this many of its deliveries with no session.
    Abandon(usize),
    /// It hands this many of its deliveries out again, and the connection lives.
    GiveAway(usize),
    /// The connection breaks after the next publish, before its confirm.
    BreakAfterPublish,
    /// The connection breaks after the next report of a run's end, before its confirm.
    BreakAfterSettlement,
}

#[derive(Debug)]
pub(crate) enum Payload {
    Up(Up),
    Down(Down),
}

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) conn: ConnId,
    pub(crate) lane: Lane,
    pub(crate) payload: Payload,
}

/// A connection that a host opens: the ends of both.
pub(crate) struct Opening {
    pub(crate) conn: ConnId,
    pub(crate) host: usize,
    pub(crate) life: u32,
    /// To the client.
    pub(crate) client: UnboundedSender<Down>,
    /// To and for the broker's end, by lane.
    pub(crate) broker: [(UnboundedSender<AtBroker>, UnboundedReceiver<AtBroker>); 2],
}

#[derive(Default)]
struct Outbox {
    frames: Vec<Frame>,
    openings: Vec<Opening>,
    conns: ConnId,
}

/// The frames that hosts have sent; the world collects them from here.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<Outbox>>);

impl Network {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn up(&self, (conn, lane): (ConnId, Lane), up: Up) {
        self.outbox().frames.push(Frame { conn, lane, payload: Payload::Up(up) });
    }
    pub(crate) fn down(&self, (conn, lane): (ConnId, Lane), down: Down) {
        self.outbox().frames.push(Frame { conn, lane, payload: Payload::Down(down) });
    }
    /// Opens both connections of a session.
    pub(crate) fn open(&self, host: usize, life: u32) -> (ConnId, UnboundedReceiver<Down>) {
        let (client, frames) = unbounded_channel();
        let mut outbox = self.outbox();
        let conn = outbox.conns;
        outbox.conns += 1;
        let broker = [unbounded_channel(), unbounded_channel()];
        outbox.openings.push(Opening { conn, host, life, client, broker });
        (conn, frames)
    }
    pub(crate) fn take(&self) -> (Vec<Opening>, Vec<Frame>) {
        let mut outbox = self.outbox();
        (std::mem::take(&mut outbox.openings), std::mem::take(&mut outbox.frames))
    }
}
