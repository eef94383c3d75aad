//! What proves that a queue has accepted an acknowledgement: the broker is killed right after it.

use everwatch_broker::{
    Broker as _, Consume, Delivery, Message, QueueKind, RabbitBroker, Session, Settle, Target,
};
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const MESSAGES: usize = 600;
const ENDED: usize = 400;
const QUEUE: &str = "acceptance.work";

async fn session(node: &Node) -> Arc<dyn Session> {
    let broker = RabbitBroker::new(&node.url, "acceptance.", Duration::from_secs(10)).unwrap();
    wait_for("a session", || async { broker.connect("acceptance").await.map_err(|error| error.to_string()) })
        .await
}

async fn take(session: &dyn Session, count: usize) -> (Box<dyn everwatch_broker::Consumer>, Vec<Delivery>) {
    let consume = Consume { queue: QUEUE.to_owned(), prefetch: 1000, priority: 0 };
    let mut consumer = session.consume(&consume).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(consumer.next().await.unwrap());
    }
    (consumer, taken)
}

/// Without the proof, the broker forgets many of them: a channel that has 32 acknowledgements in progress keeps the others.
#[tokio::test]
async fn an_accepted_acknowledgement_survives_the_death_of_the_broker() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &[]);
    let before = session(&node).await;
    before.declare(QUEUE, &QueueKind::Durable { max_length: None }).await.unwrap();
    let target = Target::Queue(QUEUE.to_owned());
    let put = (0..MESSAGES).map(|number| {
        let body = number.to_string().into_bytes().into();
        before.publish(&target, Message { body, headers: Vec::new() })
    });
    assert!(join_all(put).await.into_iter().all(|sent| sent.is_ok()));
    let (_consumer, taken) = take(before.as_ref(), MESSAGES).await;
    node.until_kept(QUEUE).await;
    let ended = &taken[..ENDED];
    let accepted = join_all(ended.iter().map(|it| before.ack_accepted(it.receipt))).await;
    node.kill();
    assert!(accepted.iter().all(|settle| *settle == Settle::Done), "{accepted:?}");
    node.start_again();
    let after = session(&node).await;
    let (_consumer, again) = take(after.as_ref(), MESSAGES - ENDED).await;
    let bodies = |them: &[Delivery]| them.iter().map(|it| it.body.clone()).collect::<BTreeSet<_>>();
    let back: Vec<_> = bodies(&again).intersection(&bodies(ended)).cloned().collect();
    assert!(back.is_empty(), "{} of {ENDED} came back", back.len());
}
