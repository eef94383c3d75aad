//! Steps that the conformance checks share: connect, publish, receive, wait. This file asserts no promise of
//! the port.

use crate::port::{
    Broker, Consume, Consumer, Delivery, Depth, Message, OwnerLiveness, QueueKind, Session, Target,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const WAIT: Duration = Duration::from_secs(20);
/// How long a check waits before it concludes that no message arrives. A broker on the same machine delivers
/// sooner.
const QUIET: Duration = Duration::from_millis(150);
pub(super) const DURABLE: QueueKind = QueueKind::Durable { max_length: None };

pub(super) async fn session(broker: &dyn Broker, name: &str) -> Arc<dyn Session> {
    within("connect", broker.connect(name)).await.unwrap_or_else(|e| panic!("{name} cannot connect: {e}"))
}

pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(WAIT, work).await.unwrap_or_else(|_| panic!("{what} took more than {WAIT:?}"))
}

pub(super) fn work(prefix: &str) -> String {
    format!("{prefix}work")
}

pub(super) fn message(body: &str) -> Message {
    Message { body: Bytes::copy_from_slice(body.as_bytes()), headers: Vec::new() }
}

pub(super) fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.body).unwrap()
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(body).collect()
}

pub(super) async fn put(session: &dyn Session, queue: &str, all: &[&str]) {
    for one in all {
        within("publish", session.publish(&Target::Queue(queue.to_owned()), message(one))).await.unwrap();
    }
}

/// A session, and its work queue with `all` in it.
pub(super) async fn filled(broker: &dyn Broker, prefix: &str, all: &[&str]) -> Arc<dyn Session> {
    let session = session(broker, "first").await;
    within("declare", session.declare(&work(prefix), &DURABLE)).await.unwrap();
    put(&*session, &work(prefix), all).await;
    session
}

pub(super) async fn block(session: &dyn Session, queue: &str, prefetch: u16) -> Box<dyn Consumer> {
    let consume = Consume { queue: queue.to_owned(), prefetch, priority: 0 };
    within("consume", session.consume(&consume)).await.unwrap()
}

pub(super) async fn receive(consumer: &mut dyn Consumer) -> Delivery {
    within("a delivery", consumer.next()).await.expect("the consumer ended before its delivery")
}

pub(super) async fn receive_many(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        all.push(receive(consumer).await);
    }
    all
}

pub(super) async fn nothing_comes(consumer: &mut dyn Consumer, why: &str) {
    if let Ok(Some(delivery)) = timeout(QUIET, consumer.next()).await {
        panic!("{why}, but {} came", body(&delivery));
    }
}

/// Polls until the queue has the wanted depth: brokers may report a change with a short delay.
pub(super) async fn until_depth(session: &dyn Session, queue: &str, wanted: Depth) {
    until(session, queue, |seen| seen == wanted).await;
}

/// Like [`until_depth`], but ignores the number of consumers: RabbitMQ still counts a cancelled consumer that
/// holds messages.
pub(super) async fn until_ready(session: &dyn Session, queue: &str, ready: u32) {
    until(session, queue, |seen| seen.ready == ready).await;
}

async fn until(session: &dyn Session, queue: &str, wanted: impl Fn(Depth) -> bool) {
    let deadline = Instant::now() + WAIT;
    loop {
        let seen = within("depth", session.depth(queue)).await.unwrap();
        if wanted(seen) {
            return;
        }
        assert!(Instant::now() < deadline, "{queue} is {seen:?}");
        tokio::task::yield_now().await;
    }
}

pub(super) async fn until_gone(session: &dyn Session, queue: &str) {
    let deadline = Instant::now() + WAIT;
    while within("fate", session.fate(queue)).await.unwrap() == OwnerLiveness::Alive {
        assert!(Instant::now() < deadline, "{queue} outlives its session");
        tokio::task::yield_now().await;
    }
}
