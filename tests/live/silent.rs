//! A queue that answers no request, like a queue that has lost its leader.

use everwatch_broker::{Broker as _, BrokerError, Message, QueueKind, RabbitBroker, Target};
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn a_queue_without_a_leader_keeps_a_session_neither_waiting_nor_its_messages() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["consumer_timeout=315360000000"]);
    let broker = RabbitBroker::new(&node.url, "silent.", Duration::from_secs(5)).unwrap();
    let session = broker.connect("taker").await.unwrap();
    let queue = "silent.work.default".to_owned();
    session.declare(&queue, &QueueKind::Durable { max_length: None }).await.unwrap();
    for body in ["a", "b", "c"] {
        let message = Message { body: body.into(), headers: Vec::new() };
        session.publish(&Target::Queue(queue.clone()), message).await.unwrap();
    }
    let leader = |verb: &str| node.ctl(&["eval", &format!("sys:{verb}(whereis('%2F_{queue}')).")]);
    leader("suspend");
    let taken = tokio::time::timeout(Duration::from_secs(20), session.get(&queue, 9)).await;
    let taken = taken.expect("the session waits for an answer");
    assert!(matches!(taken, Err(BrokerError::Silent(_))), "{taken:?}");
    session.probe().await.unwrap();
    leader("resume");
    let (seen, session) = (&AtomicUsize::new(0), &session);
    wait_for("all messages to be there again", || async {
        let found = session.get(&queue, 9).await.map_err(|error| error.to_string())?;
        let seen = seen.fetch_add(found.len(), Ordering::Relaxed) + found.len();
        if seen == 3 { Ok(()) } else { Err(format!("{seen} of 3")) }
    })
    .await;
}
