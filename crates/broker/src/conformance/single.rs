//! The checks of queues that serve one consumer at a time.

use super::steps::{
    DURABLE, block, bodies, body, nothing_comes, put, receive, receive_many, session, until_depth,
    until_ready, within,
};
use crate::port::{Broker, BrokerError, Consume, Declared, Depth, QueueKind, Session, Settle};
use std::sync::Arc;

fn queue(prefix: &str) -> String {
    format!("{prefix}single")
}

/// A session, and the single queue with `all` in it.
async fn filled(broker: &dyn Broker, prefix: &str, all: &[&str]) -> Arc<dyn Session> {
    let session = session(broker, "first").await;
    within("declare", session.declare(&queue(prefix), &QueueKind::SingleActive)).await.unwrap();
    put(&*session, &queue(prefix), all).await;
    session
}

/// The first consumer gets everything up to its prefetch; the others get nothing even while it is full.
pub async fn a_single_active_queue_serves_one_consumer_at_a_time(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a"]).await;
    let second = session(broker, "second").await;
    let mut active = block(&*first, &queue(prefix), 3).await;
    let mut held = vec![receive(&mut *active).await];
    let mut stands_by = block(&*second, &queue(prefix), 3).await;
    put(&*first, &queue(prefix), &["b", "c", "d"]).await;
    held.extend(receive_many(&mut *active, 2).await);
    assert_eq!(bodies(&held), ["a", "b", "c"]);
    nothing_comes(&mut *stands_by, "the first consumer is active").await;
    // Those that stand by are not counted.
    until_depth(&*first, &queue(prefix), Depth { ready: 1, consumers: 1 }).await;
    assert_eq!(first.ack(held[0].receipt).await, Settle::Done);
    assert_eq!(body(&receive(&mut *active).await), "d");
    assert_eq!(first.requeue(held[1].receipt).await, Settle::Done);
    assert_eq!(body(&receive(&mut *active).await), "b", "it has room for it again");
    nothing_comes(&mut *stands_by, "the first consumer is active").await;
    within("cancel", stands_by.cancel()).await.unwrap();
    put(&*second, &queue(prefix), &["e"]).await;
    nothing_comes(&mut *active, "three of three are held").await;
    first.close().await;
    second.close().await;
}

/// After a cancel, the next consumer is active at once, although the cancelled one still holds messages; what that one
/// gives back goes to the active one, and a consumer that begins again goes to the end of the line.
pub async fn a_cancel_makes_the_next_consumer_active(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a", "b"]).await;
    let (second, third) = (session(broker, "second").await, session(broker, "third").await);
    let mut active = block(&*first, &queue(prefix), 2).await;
    let held = receive_many(&mut *active, 2).await;
    let mut next = block(&*second, &queue(prefix), 9).await;
    let mut last = block(&*third, &queue(prefix), 9).await;
    within("cancel", active.cancel()).await.unwrap();
    assert!(within("the end", active.next()).await.is_none());
    put(&*first, &queue(prefix), &["c"]).await;
    assert_eq!(body(&receive(&mut *next).await), "c");
    let consume = Consume { queue: queue(prefix), prefetch: 2, priority: 0 };
    within("consume again", active.again(&consume)).await.unwrap();
    for delivery in &held {
        assert_eq!(first.requeue(delivery.receipt).await, Settle::Done);
    }
    assert_eq!(bodies(&receive_many(&mut *next, 2).await), ["a", "b"]);
    nothing_comes(&mut *last, "the second is active").await;
    nothing_comes(&mut *active, "it was cancelled before").await;
    for session in [first, second, third] {
        session.close().await;
    }
}

/// The messages of a lost session go to one other consumer, in their original order.
pub async fn a_loss_makes_the_next_consumer_active(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a", "b", "c", "d"]).await;
    let (second, third) = (session(broker, "second").await, session(broker, "third").await);
    let mut active = block(&*first, &queue(prefix), 3).await;
    receive_many(&mut *active, 3).await;
    let mut next = block(&*second, &queue(prefix), 9).await;
    let mut last = block(&*third, &queue(prefix), 9).await;
    first.close().await;
    assert_eq!(bodies(&receive_many(&mut *next, 4).await), ["a", "b", "c", "d"]);
    nothing_comes(&mut *last, "the second is active").await;
    drop(next);
    until_ready(&*third, &queue(prefix), 0).await;
    put(&*third, &queue(prefix), &["e"]).await;
    assert_eq!(body(&receive(&mut *last).await), "e", "a dropped consumer is not active");
    second.close().await;
    assert_eq!(bodies(&receive_many(&mut *last, 4).await), ["a", "b", "c", "d"]);
    third.close().await;
}

/// A queue keeps what it was declared with; a declaration with the other setting, and a `get`, are refused, and the
/// session goes on.
pub async fn a_single_active_queue_is_one_forever(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a"]).await;
    let again = within("declare", session.declare(&queue(prefix), &QueueKind::SingleActive)).await;
    assert_eq!(again.unwrap(), Declared::Existed);
    let plain = format!("{prefix}other");
    within("declare", session.declare(&plain, &DURABLE)).await.unwrap();
    for (name, kind) in [(queue(prefix), DURABLE), (plain, QueueKind::SingleActive)] {
        match within("declare", session.declare(&name, &kind)).await {
            Err(BrokerError::Refused(why)) => {
                let named = [name.as_str(), "x-single-active-consumer", "pool_single", "pool create"];
                assert!(named.iter().all(|part| why.contains(part)), "{why}");
            }
            unexpected => panic!("the other setting was not refused: {unexpected:?}"),
        }
    }
    let refused = within("get", session.get(&queue(prefix), 5)).await;
    assert!(matches!(refused, Err(BrokerError::Refused(_))), "{refused:?}");
    within("a probe after a refusal", session.probe()).await.unwrap();
    until_depth(&*session, &queue(prefix), Depth { ready: 1, consumers: 0 }).await;
    session.close().await;
}
