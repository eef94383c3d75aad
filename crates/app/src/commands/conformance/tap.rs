//! A TCP proxy between the worker and the broker. It reads the traffic into a [`Ledger`], and can hold confirms back,
//! fall silent, close a channel as a broker does, and close all connections.

use super::frames::{Frame, Said, channel_close, first, greeting};
use super::ledger::{Ledger, Side};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most bytes of one frame: RabbitMQ offers 128 KiB.
const FRAME_MAX: usize = 4 * 1024 * 1024;

/// What does not pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Gates {
    silent: bool,
    holds_confirms: bool,
}

/// The proxy of one worker.
pub(super) struct Tap {
    pub(super) address: String,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    over: CancellationToken,
}

struct Shared {
    ledger: Mutex<Ledger>,
    gates: watch::Sender<Gates>,
    /// The channels that were closed in the broker's name: the broker does not know it.
    closed: Mutex<BTreeSet<(u64, u16)>>,
    /// Frames for the worker, each with its connection.
    injected: Mutex<Vec<(u64, Vec<u8>)>>,
    injects: Notify,
    /// Cancelled to close the connections that are open.
    links: Mutex<CancellationToken>,
}

impl Tap {
    /// Listens on a free port of this machine, for the broker at `upstream` (host and port).
    pub(super) async fn open(upstream: String) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            gates: watch::Sender::new(Gates::default()),
            closed: Mutex::default(),
            injected: Mutex::default(),
            injects: Notify::new(),
            links: Mutex::default(),
        });
        let (tasks, over) = (TaskTracker::new(), CancellationToken::new());
        let (served, tracker, end) = (shared.clone(), tasks.clone(), over.clone());
        tasks.spawn(async move {
            let _over = end.run_until_cancelled(accept(listener, upstream, served, tracker)).await;
        });
        Ok(Self { address, shared, tasks, over })
    }

    /// The traffic so far.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.shared.ledger)
    }
    /// Passes nothing on in either direction, and keeps the connections open.
    pub(super) fn set_silent(&self, silent: bool) {
        self.shared.gates.send_modify(|gates| gates.silent = silent);
    }
    /// Holds back the broker's confirms, and what follows them on their connection.
    pub(super) fn hold_confirms(&self, holds: bool) {
        self.shared.gates.send_modify(|gates| gates.holds_confirms = holds);
    }
    /// Closes a channel on which the worker consumes this queue, as the broker does when its acknowledgement time-out
    /// fires. Answers whether there is one.
    pub(super) fn close_channel_of(&self, queue: &str) -> bool {
        let Some((link, channel)) = self.ledger().consuming(queue) else { return false };
        lock(&self.shared.closed).insert((link, channel));
        let text = "PRECONDITION_FAILED - delivery acknowledgement on a channel timed out";
        lock(&self.shared.injected).push((link, channel_close(channel, 406, text)));
        self.shared.injects.notify_waiters();
        true
    }
    /// Closes all connections; new ones are accepted.
    pub(super) fn close_connections(&self) {
        std::mem::take(&mut *lock(&self.shared.links)).cancel();
    }
    /// Ends the proxy.
    pub(super) async fn end(&self) {
        self.over.cancel();
        self.close_connections();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(listener: TcpListener, upstream: String, shared: Arc<Shared>, tasks: TaskTracker) {
    let mut last = 0;
    while let Ok((worker, _)) = listener.accept().await {
        last += 1;
        let (link, shared, upstream) = (last, shared.clone(), upstream.clone());
        let closed = lock(&shared.links).clone();
        tasks.spawn(async move {
            let _closed = closed.run_until_cancelled(serve(worker, &upstream, &shared, link)).await;
            lock(&shared.ledger).on_end(link);
        });
    }
}

async fn serve(worker: TcpStream, upstream: &str, shared: &Shared, link: u64) {
    let Ok(broker) = TcpStream::connect(upstream).await else { return };
    let ((from_worker, to_worker), (from_broker, to_broker)) = (worker.into_split(), broker.into_split());
    let up = Pump { shared, link, side: Side::Worker };
    let down = Pump { shared, link, side: Side::Broker };
    // Either end closes both.
    tokio::select! {
        _ended = up.run(from_worker, to_broker) => {}
        _ended = down.run(from_broker, to_worker) => {}
    }
}

/// One direction of a connection.
struct Pump<'a> {
    shared: &'a Shared,
    link: u64,
    side: Side,
}

impl Pump<'_> {
    async fn run(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.side == Side::Worker {
            while greeting(&bytes).is_none() {
                if from.read_buf(&mut bytes).await? == 0 {
                    return Ok(());
                }
            }
            let rest = bytes.split_off(greeting(&bytes).unwrap_or_default());
            to.write_all(&bytes).await?;
            bytes = rest;
        }
        loop {
            let mut passed = 0;
            while let Some(frame) = bytes.get(passed..).and_then(first) {
                self.wait_at_gates(&frame).await;
                lock(&self.shared.ledger).on_frame(self.link, self.side, &frame);
                if !lock(&self.shared.closed).contains(&(self.link, frame.channel)) {
                    to.write_all(bytes.get(passed..passed + frame.length).unwrap_or_default()).await?;
                }
                passed += frame.length;
            }
            bytes.drain(..passed);
            let injects = self.shared.injects.notified();
            tokio::select! {
                read = from.read_buf(&mut bytes) => if bytes.len() > FRAME_MAX || read? == 0 {
                    return Ok(());
                },
                () = injects, if self.side == Side::Broker => {
                    for frame in self.take_injected() {
                        to.write_all(&frame).await?;
                    }
                }
            }
        }
    }

    fn take_injected(&self) -> Vec<Vec<u8>> {
        let mut injected = lock(&self.shared.injected);
        let (mine, others) = injected.drain(..).partition(|(link, _)| *link == self.link);
        *injected = others;
        let mine: Vec<(u64, Vec<u8>)> = mine;
        mine.into_iter().map(|(_, frame)| frame).collect()
    }

    async fn wait_at_gates(&self, frame: &Frame) {
        let is_confirm = self.side == Side::Broker && matches!(frame.said, Said::Ack { .. });
        let passes = |gates: &Gates| !(gates.silent || gates.holds_confirms && is_confirm);
        // The sender lives as long as the proxy.
        let mut gates = self.shared.gates.subscribe();
        let _over = gates.wait_for(passes).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
