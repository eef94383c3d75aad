//! The conformance checks of the broker port. Each check panics and names the promise that the broker breaks.
//! Each takes a broker and a prefix of its own, and uses only [`QUEUES`] and [`EXCHANGES`].
#![expect(clippy::panic, clippy::unwrap_used, reason = "a broken promise ends the test that asked")]

mod single;
mod steps;

pub use single::*;

use crate::port::{
    Broker, BrokerError, Consume, Declared, Depth, HeaderValue, Message, OwnerLiveness, QueueKind, Receipt,
    Settle, Target,
};
use futures::future::join_all;
use std::sync::Arc;
use steps::{
    DURABLE, block, bodies, body, filled, message, nothing_comes, put, receive, receive_many, session,
    until_depth, until_gone, until_ready, within, work,
};

/// The names, after the prefix, of the durable queues that the checks create; the caller deletes them
/// afterwards.
pub const QUEUES: [&str; 4] = ["work", "other", "heartbeats", "single"];
/// The names, after the prefix, of the exchanges that the checks create.
pub const EXCHANGES: [&str; 5] = ["commands", "commands.pool", "output", "reports", "work"];

/// Every redelivery, after a requeue or after the loss of its session, raises `acquisitions`.
pub async fn redelivery_counts_up(broker: &dyn Broker, prefix: &str) {
    let keeper = filled(broker, prefix, &["a"]).await;
    let mut seen = Vec::new();
    for turn in 0..6 {
        let session = session(broker, "taker").await;
        let mut consumer = block(&*session, &work(prefix), 1).await;
        let delivery = receive(&mut *consumer).await;
        seen.push(delivery.acquisitions);
        assert_eq!(delivery.redelivered, turn > 0);
        if turn % 2 == 0 {
            session.close().await;
        } else {
            assert_eq!(session.requeue(delivery.receipt).await, Settle::Done);
            let again = receive(&mut *consumer).await;
            seen.push(again.acquisitions);
            session.close().await;
        }
    }
    assert_eq!(seen.first(), Some(&0), "a first delivery was acquired before");
    assert!(seen.is_sorted_by(|a, b| a < b), "acquisitions do not rise: {seen:?}");
    keeper.close().await;
}

/// A consumer never holds more than its prefetch; an ack makes room for one.
pub async fn prefetch_is_a_limit(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c", "d", "e"]).await;
    let mut consumer = block(&*session, &work(prefix), 2).await;
    let held = receive_many(&mut *consumer, 2).await;
    assert_eq!(bodies(&held), ["a", "b"]);
    nothing_comes(&mut *consumer, "two of two are held").await;
    assert_eq!(session.ack(held[0].receipt).await, Settle::Done);
    assert_eq!(body(&receive(&mut *consumer).await), "c");
    nothing_comes(&mut *consumer, "two of two are held again").await;
    until_depth(&*session, &work(prefix), Depth { ready: 2, consumers: 1 }).await;
    session.close().await;
}

/// A cancelled consumer, even a dropped one, keeps what it holds, and what it holds can be settled.
pub async fn many_messages_are_acknowledged_at_once(broker: &dyn Broker, prefix: &str) {
    let names: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let first = filled(broker, prefix, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut consumer = block(&*first, &work(prefix), 8).await;
    let mut other = block(&*first, &work(prefix), 1).await;
    let taken = receive_many(&mut *consumer, 8).await;
    let elsewhere = receive(&mut *other).await;
    let receipts: Vec<_> = taken.iter().map(|delivery| delivery.receipt).collect();
    assert_eq!(within("ack", first.ack_all(&[])).await, Settle::Done);
    assert_eq!(within("ack", first.ack_all(&receipts[..3])).await, Settle::Done, "all that came so far");
    assert_eq!(within("ack", first.ack_all(&receipts[..3])).await, Settle::NotOurs, "they are acknowledged");
    assert_eq!(
        within("ack", first.ack_all(&receipts[4..6])).await,
        Settle::Done,
        "an earlier one is still held"
    );
    assert_eq!(within("ack", first.ack_all(&receipts[6..7])).await, Settle::Done);
    let second = session(broker, "second").await;
    drop((consumer, other));
    within("close", first.close()).await;
    let mut consumer = block(&*second, &work(prefix), 9).await;
    let again = receive_many(&mut *consumer, 3).await;
    let mut left = [body(&taken[3]), body(&taken[7]), body(&elsewhere)];
    let mut found = bodies(&again);
    left.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, left);
    nothing_comes(&mut *consumer, "the others were acknowledged").await;
}

pub async fn cancel_keeps_what_is_held(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c"]).await;
    let mut consumer = block(&*session, &work(prefix), 2).await;
    let held = receive_many(&mut *consumer, 2).await;
    within("cancel", consumer.cancel()).await.unwrap();
    assert!(within("the end", consumer.next()).await.is_none(), "a cancelled consumer goes on");
    assert!(within("the end", consumer.next()).await.is_none(), "the end is not the end");
    assert!(consumer.cancelled_here());
    drop(consumer);
    until_ready(&*session, &work(prefix), 1).await;
    assert_eq!(session.ack(held[0].receipt).await, Settle::Done);
    assert_eq!(session.ack(held[0].receipt).await, Settle::NotOurs, "acked twice");
    until_ready(&*session, &work(prefix), 1).await;
    assert_eq!(session.requeue(held[1].receipt).await, Settle::Done);
    until_ready(&*session, &work(prefix), 2).await;
    session.close().await;
}

/// A dropped consumer returns the messages that were not read to the queue, and keeps those that were.
pub async fn a_dropped_consumer_gives_back_what_was_not_read(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c"]).await;
    let mut consumer = block(&*session, &work(prefix), 3).await;
    let held = receive(&mut *consumer).await;
    until_ready(&*session, &work(prefix), 0).await;
    drop(consumer);
    until_ready(&*session, &work(prefix), 2).await;
    assert_eq!(session.ack(held.receipt).await, Settle::Done);
    let rest = within("get", session.get(&work(prefix), 9)).await.unwrap();
    assert_eq!(bodies(&rest), ["b", "c"]);
    session.close().await;
}

/// A requeued message goes at once to another consumer that has room.
pub async fn requeue_goes_to_another(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a"]).await;
    let second = session(broker, "second").await;
    let mut here = block(&*first, &work(prefix), 1).await;
    let held = receive(&mut *here).await;
    within("cancel", here.cancel()).await.unwrap();
    let mut there = block(&*second, &work(prefix), 1).await;
    nothing_comes(&mut *there, "the first holds it").await;
    assert_eq!(first.requeue(held.receipt).await, Settle::Done);
    let moved = receive(&mut *there).await;
    assert_eq!((body(&moved), moved.redelivered), ("a", true));
    assert_eq!(second.ack(moved.receipt).await, Settle::Done);
    first.close().await;
    second.close().await;
}

/// The broker redelivers the messages of a lost session in their original order, before newer messages.
pub async fn a_lost_session_gives_everything_back_in_order(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a", "b", "c", "d", "e", "f"]).await;
    let second = session(broker, "second").await;
    let mut consumer = block(&*first, &work(prefix), 4).await;
    receive_many(&mut *consumer, 2).await;
    first.close().await;
    within("lost", first.lost()).await;
    assert!(within("the end", consumer.next()).await.is_none(), "a lost session delivers");
    assert!(!consumer.cancelled_here(), "a loss looks like a cancel");
    until_depth(&*second, &work(prefix), Depth { ready: 6, consumers: 0 }).await;
    let mut consumer = block(&*second, &work(prefix), 10).await;
    let again = receive_many(&mut *consumer, 6).await;
    assert_eq!(bodies(&again), ["a", "b", "c", "d", "e", "f"]);
    assert!(again[0].acquisitions > 0 && again[5].acquisitions == 0);
    second.close().await;
}

/// A delivery of a lost session cannot be settled any more, and nothing else can be done with it.
pub async fn a_lost_session_settles_nothing(broker: &dyn Broker, prefix: &str) {
    let first = filled(broker, prefix, &["a"]).await;
    let second = session(broker, "second").await;
    let mut consumer = block(&*first, &work(prefix), 1).await;
    let held = receive(&mut *consumer).await;
    first.close().await;
    assert_eq!(first.ack(held.receipt).await, Settle::NotOurs);
    assert_eq!(first.requeue(held.receipt).await, Settle::NotOurs);
    assert_eq!(second.ack(Receipt(u64::MAX)).await, Settle::NotOurs, "a receipt that never was");
    assert!(matches!(first.probe().await, Err(BrokerError::Lost(_))));
    assert!(matches!(first.declare(&work(prefix), &DURABLE).await, Err(BrokerError::Lost(_))));
    let refused = first.publish(&Target::Queue(work(prefix)), message("b")).await;
    assert!(matches!(refused, Err(BrokerError::Lost(_))));
    assert!(matches!(first.get(&work(prefix), 1).await, Err(BrokerError::Lost(_))));
    until_depth(&*second, &work(prefix), Depth { ready: 1, consumers: 0 }).await;
    within("probe", second.probe()).await.unwrap();
    second.close().await;
}

/// The existence of an exclusive queue tells other sessions whether its owner is alive.
pub async fn an_exclusive_queue_tells_the_fate_of_its_session(broker: &dyn Broker, prefix: &str) {
    let owner = session(broker, "owner").await;
    let other = session(broker, "other").await;
    let queue = format!("{prefix}commands.one");
    assert_eq!(within("fate", other.fate(&queue)).await.unwrap(), OwnerLiveness::Gone);
    let declared = within("declare", owner.declare(&queue, &QueueKind::Exclusive)).await.unwrap();
    assert_eq!(declared, Declared::Created);
    assert_eq!(within("fate", other.fate(&queue)).await.unwrap(), OwnerLiveness::Alive);
    assert_eq!(within("fate", owner.fate(&queue)).await.unwrap(), OwnerLiveness::Alive);
    let refused = within("declare", other.declare(&queue, &QueueKind::Exclusive)).await;
    assert!(matches!(refused, Err(BrokerError::Refused(_))), "{refused:?}");
    put(&*other, &queue, &["to you"]).await;
    let mut consumer = block(&*owner, &queue, 1).await;
    assert_eq!(body(&receive(&mut *consumer).await), "to you");
    owner.close().await;
    until_gone(&*other, &queue).await;
    other.close().await;
}

/// Publishing to a queue that does not exist fails; other publishes of the session are not affected.
pub async fn a_publish_without_a_queue_is_unroutable(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &[]).await;
    let (there, nowhere) = (Target::Queue(work(prefix)), Target::Queue(format!("{prefix}nowhere")));
    let publishes = (0..200).map(|n| {
        let (session, target) = (&session, if n % 3 == 0 { &nowhere } else { &there });
        async move { (n % 3 == 0, session.publish(target, message("a")).await) }
    });
    for (missing, published) in within("200 publishes", join_all(publishes)).await {
        match published {
            Ok(()) => assert!(!missing, "a message for no queue was confirmed"),
            Err(BrokerError::Unroutable(queue)) => {
                assert!(missing && queue == format!("{prefix}nowhere"), "{queue} is there");
            }
            Err(other) => panic!("{other}"),
        }
    }
    until_depth(&*session, &work(prefix), Depth { ready: 133, consumers: 0 }).await;
    session.close().await;
}

/// Every bound queue gets a copy; a publish without a bound queue succeeds, for topics too.
pub async fn fanout_reaches_every_queue_and_may_have_none(broker: &dyn Broker, prefix: &str) {
    let (first, second) = (session(broker, "first").await, session(broker, "second").await);
    let commands = Target::Fanout(format!("{prefix}commands"));
    let output = Target::Topic { exchange: format!("{prefix}output"), key: "kind.name".to_owned() };
    for exchange in [&commands, &output] {
        within("declare", first.declare_exchange(exchange)).await.unwrap();
        within("declare again", second.declare_exchange(exchange)).await.unwrap();
        within("publish without a queue", first.publish(exchange, message("unrouted"))).await.unwrap();
    }
    let mut consumers = Vec::new();
    for (name, session) in [("one", &first), ("two", &second)] {
        let queue = format!("{prefix}commands.pool.{name}");
        within("declare", session.declare(&queue, &QueueKind::Exclusive)).await.unwrap();
        within("bind", session.bind(&queue, std::slice::from_ref(&commands))).await.unwrap();
        consumers.push(block(&**session, &queue, 10).await);
    }
    within("publish", first.publish(&commands, message("all"))).await.unwrap();
    for consumer in &mut consumers {
        assert_eq!(body(&receive(&mut **consumer).await), "all");
    }
    second.close().await;
    within("publish", first.publish(&commands, message("the rest"))).await.unwrap();
    assert_eq!(body(&receive(&mut *consumers[0]).await), "the rest");
    first.close().await;
}

/// A direct exchange reaches the queues that are bound with the key of the message, and there may be none.
pub async fn a_direct_exchange_reaches_the_queues_of_its_key(broker: &dyn Broker, prefix: &str) {
    let (first, second) = (session(broker, "first").await, session(broker, "second").await);
    let exchange = format!("{prefix}commands.pool");
    let to = |key: &str| Target::Direct { exchange: exchange.clone(), key: key.to_owned() };
    within("publish without a queue", first.publish(&to("all"), message("unrouted"))).await.unwrap();
    let mut consumers = Vec::new();
    for (name, session) in [("one", &first), ("two", &second)] {
        let queue = format!("{prefix}commands.pool.{name}");
        within("declare", session.declare(&queue, &QueueKind::Exclusive)).await.unwrap();
        within("bind", session.bind(&queue, &[to("all"), to(name)])).await.unwrap();
        consumers.push(block(&**session, &queue, 10).await);
    }
    for (key, body) in [("two", "for two"), ("other", "for nobody"), ("all", "for all")] {
        within("publish", second.publish(&to(key), message(body))).await.unwrap();
    }
    let own = Target::Queue(format!("{prefix}commands.pool.one"));
    within("publish", second.publish(&own, message("for one"))).await.unwrap();
    let of_two = receive_many(&mut *consumers[1], 2).await;
    assert_eq!(bodies(&of_two), ["for two", "for all"]);
    let of_one = receive_many(&mut *consumers[0], 2).await;
    assert_eq!(bodies(&of_one), ["for all", "for one"]);
    first.close().await;
    until_gone(&*second, &format!("{prefix}commands.pool.one")).await;
    let gone = within("publish", second.publish(&own, message("too late"))).await;
    assert!(matches!(gone, Err(BrokerError::Unroutable(_))), "{gone:?}");
    within("publish", second.publish(&to("all"), message("the rest"))).await.unwrap();
    assert_eq!(body(&receive(&mut *consumers[1]).await), "the rest");
    second.close().await;
}

/// A declaration reports whether the queue existed; if it exists with other arguments, the refusal names
/// them.
pub async fn declare_tells_existed_or_created(broker: &dyn Broker, prefix: &str) {
    let (first, second) = (session(broker, "first").await, session(broker, "second").await);
    for (name, kind) in
        [("work", DURABLE), ("heartbeats", QueueKind::Heartbeats), ("rates", QueueKind::Rates)]
    {
        let queue = format!("{prefix}{name}");
        assert_eq!(within("declare", first.declare(&queue, &kind)).await.unwrap(), Declared::Created);
        assert_eq!(within("declare", first.declare(&queue, &kind)).await.unwrap(), Declared::Existed);
        assert_eq!(within("declare", second.declare(&queue, &kind)).await.unwrap(), Declared::Existed);
    }
    let other = QueueKind::Durable { max_length: Some(7) };
    match within("declare", second.declare(&work(prefix), &other)).await {
        Err(BrokerError::Refused(why)) => assert!(why.contains(&work(prefix)), "{why}"),
        unexpected => panic!("other arguments were not refused: {unexpected:?}"),
    }
    within("a probe after a refusal", second.probe()).await.unwrap();
    first.close().await;
    second.close().await;
}

/// Messages that are fetched and then requeued return to their places in the queue.
pub async fn get_and_requeue_keep_order(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c", "d", "e"]).await;
    let seen = within("get", session.get(&work(prefix), 2)).await.unwrap();
    assert_eq!(bodies(&seen), ["a", "b"]);
    let missing = within("get", session.get(&format!("{prefix}nowhere"), 2)).await;
    assert!(matches!(missing, Err(BrokerError::NoQueue(_))), "{missing:?}");
    for delivery in &seen {
        assert_eq!(session.requeue(delivery.receipt).await, Settle::Done);
    }
    until_depth(&*session, &work(prefix), Depth { ready: 5, consumers: 0 }).await;
    let all = within("get", session.get(&work(prefix), 9)).await.unwrap();
    assert_eq!(bodies(&all), ["a", "b", "c", "d", "e"]);
    session.close().await;
}

/// The depth counts the ready messages and the consumers. If the queue does not exist, the error names it.
pub async fn depth_counts_messages_and_consumers(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c"]).await;
    until_depth(&*session, &work(prefix), Depth { ready: 3, consumers: 0 }).await;
    let mut consumer = block(&*session, &work(prefix), 1).await;
    receive(&mut *consumer).await;
    until_depth(&*session, &work(prefix), Depth { ready: 2, consumers: 1 }).await;
    let nowhere = format!("{prefix}nowhere");
    match within("depth", session.depth(&nowhere)).await {
        Err(BrokerError::NoQueue(queue)) => assert_eq!(queue, nowhere),
        unexpected => panic!("{unexpected:?}"),
    }
    let consume = Consume { queue: nowhere, prefetch: 1, priority: 0 };
    let refused = within("consume", session.consume(&consume)).await.err();
    assert!(matches!(refused, Some(BrokerError::NoQueue(_))), "{refused:?}");
    within("a probe after a refusal", session.probe()).await.unwrap();
    session.close().await;
}

/// Thousands of passive declarations of queues that are missing or belong to others do not change the answers
/// about other queues.
pub async fn refusals_leave_no_trace(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a"]).await;
    let nowhere = format!("{prefix}nowhere");
    for _ in 0..20 {
        assert_eq!(within("fate", session.fate(&nowhere)).await.unwrap(), OwnerLiveness::Gone);
    }
    for _ in 0..2100 {
        let seen = within("depth", session.depth(&work(prefix))).await.unwrap();
        assert_eq!(seen, Depth { ready: 1, consumers: 0 });
    }
    session.close().await;
}

/// Thousands of publishes at once are all confirmed, and arrive in the order of their task.
pub async fn many_publishes_at_once_keep_their_order(broker: &dyn Broker, prefix: &str) {
    const TASKS: usize = 8;
    const EACH: usize = 500;
    let session = filled(broker, prefix, &[]).await;
    let target = Target::Queue(work(prefix));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (session, target) = (Arc::clone(&session), target.clone());
        tasks.spawn(async move {
            let bodies: Vec<String> = (0..EACH).map(|n| format!("{task} {n:04}")).collect();
            join_all(bodies.iter().map(|body| session.publish(&target, message(body)))).await
        });
    }
    let confirmed = within("4,000 publishes", tasks.join_all()).await.into_iter().flatten();
    assert_eq!(confirmed.filter(Result::is_ok).count(), TASKS * EACH);
    let mut consumer = block(&*session, &work(prefix), 1000).await;
    let mut next = [0; TASKS];
    for _ in 0..TASKS * EACH {
        let delivery = receive(&mut *consumer).await;
        let (task, n) = body(&delivery).split_once(' ').unwrap();
        let (task, n): (usize, usize) = (task.parse().unwrap(), n.parse().unwrap());
        assert_eq!(n, next[task], "task {task} is out of order");
        next[task] += 1;
        assert_eq!(session.ack(delivery.receipt).await, Settle::Done);
    }
    session.close().await;
}

/// The consumer of the higher priority is filled before the other gets anything.
pub async fn a_higher_priority_is_served_first(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &[]).await;
    let mut normal = block(&*session, &work(prefix), 10).await;
    let consume = Consume { queue: work(prefix), prefetch: 2, priority: 5 };
    let mut preferred = within("consume", session.consume(&consume)).await.unwrap();
    until_depth(&*session, &work(prefix), Depth { ready: 0, consumers: 2 }).await;
    put(&*session, &work(prefix), &["a", "b", "c"]).await;
    assert_eq!(bodies(&receive_many(&mut *preferred, 2).await), ["a", "b"]);
    assert_eq!(body(&receive(&mut *normal).await), "c");
    session.close().await;
}

/// The consumer of a priority below zero gets what no other has room for.
pub async fn a_lower_priority_is_served_last(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &[]).await;
    let consume = Consume { queue: work(prefix), prefetch: 10, priority: -1 };
    let mut last = within("consume", session.consume(&consume)).await.unwrap();
    let mut normal = block(&*session, &work(prefix), 2).await;
    until_depth(&*session, &work(prefix), Depth { ready: 0, consumers: 2 }).await;
    put(&*session, &work(prefix), &["a", "b", "c"]).await;
    assert_eq!(bodies(&receive_many(&mut *normal, 2).await), ["a", "b"]);
    assert_eq!(body(&receive(&mut *last).await), "c");
    session.close().await;
}

/// A cancelled consumer can consume again on its channel, while it holds messages from before.
pub async fn a_cancelled_consumer_can_consume_again(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a", "b", "c", "d", "e"]).await;
    let mut consumer = block(&*session, &work(prefix), 2).await;
    let consume = Consume { queue: work(prefix), prefetch: 1, priority: 0 };
    let held = receive_many(&mut *consumer, 2).await;
    let early = within("consume again", consumer.again(&consume)).await;
    assert!(matches!(early, Err(BrokerError::Refused(_))), "{early:?}");
    within("cancel", consumer.cancel()).await.unwrap();
    assert!(within("the end", consumer.next()).await.is_none());
    within("consume again", consumer.again(&consume)).await.unwrap();
    let more = receive(&mut *consumer).await;
    assert_eq!(body(&more), "c");
    nothing_comes(&mut *consumer, "the new prefetch is 1").await;
    assert_eq!(session.ack(held[0].receipt).await, Settle::Done);
    nothing_comes(&mut *consumer, "a slot of the cancelled one is not the new one's").await;
    assert_eq!(session.ack(more.receipt).await, Settle::Done);
    assert_eq!(body(&receive(&mut *consumer).await), "d");
    assert_eq!(session.requeue(held[1].receipt).await, Settle::Done);
    session.close().await;
    let other = self::session(broker, "second").await;
    until_depth(&*other, &work(prefix), Depth { ready: 3, consumers: 0 }).await;
    other.close().await;
}

/// The headers of a publish arrive with every delivery of the message.
pub async fn headers_travel(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &[]).await;
    let headers = vec![
        ("everwatch-reason".to_owned(), HeaderValue::Text("why".to_owned())),
        ("everwatch-epoch".to_owned(), HeaderValue::Number(7 << 32)),
    ];
    let message = Message { body: "a".into(), headers: headers.clone() };
    within("publish", session.publish(&Target::Queue(work(prefix)), message)).await.unwrap();
    let mut consumer = block(&*session, &work(prefix), 1).await;
    for _ in 0..2 {
        let delivery = receive(&mut *consumer).await;
        assert_eq!(delivery.text("everwatch-reason"), Some("why"));
        assert!(headers.iter().all(|header| delivery.headers.contains(header)), "{:?}", delivery.headers);
        assert_eq!(delivery.text("everwatch-epoch"), None, "not a text");
        assert_eq!(session.requeue(delivery.receipt).await, Settle::Done);
    }
    session.close().await;
}

/// A queue is deleted only when it has no messages and no consumers. It can be declared again, empty.
pub async fn only_an_idle_queue_is_deleted(broker: &dyn Broker, prefix: &str) {
    let session = filled(broker, prefix, &["a"]).await;
    let queue = work(prefix);
    let delete = || within("delete", session.delete(&queue));
    match delete().await {
        Err(BrokerError::Refused(why)) => assert!(why.contains("1 ready messages"), "{why}"),
        other => panic!("a queue with a message: {other:?}"),
    }
    let mut consumer = block(&*session, &work(prefix), 1).await;
    let held = receive(&mut *consumer).await;
    assert_eq!(session.ack(held.receipt).await, Settle::Done);
    until_depth(&*session, &work(prefix), Depth { ready: 0, consumers: 1 }).await;
    match delete().await {
        Err(BrokerError::Refused(why)) => assert!(why.contains("1 consumers"), "{why}"),
        other => panic!("a queue with a consumer: {other:?}"),
    }
    within("cancel", consumer.cancel()).await.unwrap();
    assert!(within("the end", consumer.next()).await.is_none());
    drop(consumer);
    until_depth(&*session, &work(prefix), Depth { ready: 0, consumers: 0 }).await;
    delete().await.unwrap();
    let missing = |outcome| match outcome {
        Err(BrokerError::NoQueue(name)) => assert_eq!(name, work(prefix)),
        other => panic!("a deleted queue: {other:?}"),
    };
    missing(within("depth", session.depth(&work(prefix))).await.map(drop));
    missing(delete().await);
    let target = Target::Queue(work(prefix));
    match within("publish", session.publish(&target, message("b"))).await {
        Err(BrokerError::Unroutable(name)) => assert_eq!(name, work(prefix)),
        other => panic!("a publish to a deleted queue: {other:?}"),
    }
    let declared = within("declare", session.declare(&work(prefix), &DURABLE)).await.unwrap();
    assert_eq!(declared, Declared::Created);
    put(&*session, &work(prefix), &["c"]).await;
    until_depth(&*session, &work(prefix), Depth { ready: 1, consumers: 0 }).await;
    session.close().await;
}
