//! Faults between a client and a broker: refused logins, cut connections, alarms, missing confirms. The tests
//! use the RabbitMQ at EVERWATCH_TEST_AMQP_URL.
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use everwatch_broker::{
    Broker, BrokerError, ConnectError, Consume, MemoryBroker, Message, OwnerLiveness, QueueKind,
    RabbitBroker, Session, Settle, Target,
};
use lapin::uri::AMQPUri;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(20);
const HEARTBEAT: Duration = Duration::from_secs(5);

fn url() -> AMQPUri {
    std::env::var("EVERWATCH_TEST_AMQP_URL")
        .unwrap_or_else(|_| panic!("EVERWATCH_TEST_AMQP_URL is not set: run the tests with ./tests/run"))
        .parse()
        .unwrap()
}

fn prefix() -> String {
    format!("test.{}.", uuid::Uuid::new_v4().simple())
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(WAIT, work).await.expect("it takes too long")
}

async fn refusal(url: &AMQPUri) -> ConnectError {
    let broker = RabbitBroker::new(&url.to_string(), &prefix(), HEARTBEAT).unwrap();
    within(broker.connect("tester")).await.err().expect("it was let in")
}

#[tokio::test]
async fn a_wrong_password_is_refused_with_the_cure_and_without_the_password() {
    let mut url = url();
    url.authority.userinfo.password = "opensesame".to_owned();
    let error = refusal(&url).await;
    assert!(matches!(error, ConnectError::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("check user and password") && !text.contains("opensesame"), "{text}");
}

#[tokio::test]
async fn an_unknown_vhost_is_refused_with_the_cure() {
    let mut url = url();
    url.vhost = "nowhere".to_owned();
    let error = refusal(&url).await;
    assert!(matches!(error, ConnectError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("rabbitmqctl add_vhost nowhere"), "{error}");
}

#[tokio::test]
async fn a_silent_port_is_unreachable_and_the_next_node_is_tried() {
    let (good, mut bad) = (url(), url());
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    (bad.authority.host, bad.authority.port) = ("127.0.0.1".to_owned(), free.port());
    let error = refusal(&bad).await;
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
    let broker = RabbitBroker::new(&format!("{bad},{good}"), &prefix(), HEARTBEAT).unwrap();
    within(broker.connect("tester")).await.unwrap().close().await;
}

/// A proxy to the broker whose connections can be cut. Runs one task for each connection, in the order in
/// which they open.
async fn carry(listener: TcpListener, to: String, cut: Arc<tokio::sync::Notify>) {
    let mut ways = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut near, _) = accepted.unwrap();
                let mut far = TcpStream::connect(&to).await.unwrap();
                ways.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
            () = cut.notified() => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_ends_the_session_at_once() {
    let (direct, prefix) = (url(), prefix());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut cuttable = direct.clone();
    cuttable.authority.host = "127.0.0.1".to_owned();
    cuttable.authority.port = listener.local_addr().unwrap().port();
    let cut = Arc::new(tokio::sync::Notify::new());
    let mut tasks = JoinSet::new();
    let to = format!("{}:{}", direct.authority.host, direct.authority.port);
    tasks.spawn(carry(listener, to, Arc::clone(&cut)));

    let broker = RabbitBroker::new(&cuttable.to_string(), &prefix, HEARTBEAT).unwrap();
    let session = within(broker.connect("tester")).await.unwrap();
    let queue = format!("{prefix}commands.one");
    within(session.declare(&queue, &QueueKind::Exclusive)).await.unwrap();
    session.publish(&Target::Queue(queue.clone()), Message::default()).await.unwrap();
    let mut consumer = within(session.consume(&Consume { queue, prefetch: 1, priority: 0 })).await.unwrap();
    let held = within(consumer.next()).await.unwrap();
    cut.notify_one();
    let why = timeout(Duration::from_secs(2), session.lost()).await.expect("the loss goes unseen");
    assert!(!why.is_empty());
    assert!(within(consumer.next()).await.is_none());
    assert!(!consumer.cancelled_here());
    assert_eq!(session.ack(held.receipt).await, Settle::NotOurs);
    assert!(matches!(session.probe().await, Err(BrokerError::Lost(_))));
    timeout(Duration::from_secs(4), session.close()).await.expect("closing takes more than 2 s");
    // dropping the last owner of the runtime inside a runtime must not panic
    drop((session, consumer, broker));
}

async fn in_memory() -> (MemoryBroker, Arc<dyn Session>, Target) {
    let broker = MemoryBroker::new();
    let session = broker.connect("a/1").await.unwrap();
    session.declare("work", &QueueKind::Durable { max_length: None }).await.unwrap();
    (broker, session, Target::Queue("work".to_owned()))
}

#[tokio::test]
async fn memory_cuts_sessions_by_name() {
    let (broker, session, target) = in_memory().await;
    let other = broker.connect("b/1").await.unwrap();
    session.publish(&target, Message::default()).await.unwrap();
    let held = session.get("work", 1).await.unwrap();
    broker.cut("a/");
    assert_eq!(within(session.lost()).await, "cut");
    assert_eq!(session.ack(held[0].receipt).await, Settle::NotOurs);
    assert_eq!(other.get("work", 1).await.unwrap()[0].acquisitions, 1);
}

#[tokio::test]
async fn memory_blocks_publishers_and_loses_confirms() {
    let (broker, session, target) = in_memory().await;
    broker.block(true);
    assert!(session.is_blocked());
    let publish = session.publish(&target, Message::default());
    let unblock = async { broker.block(false) };
    within(async { tokio::join!(publish, unblock) }).await.0.unwrap();
    broker.lose_next_confirms(1);
    let publish = session.publish(&target, Message::default());
    let cut = async {
        tokio::task::yield_now().await;
        broker.cut("a/");
    };
    let (published, ()) = within(async { tokio::join!(publish, cut) }).await;
    assert!(matches!(published, Err(BrokerError::Lost(_))));
    let other = broker.connect("b").await.unwrap();
    assert_eq!(other.depth("work").await.unwrap().ready, 2);
}

/// Each such query uses up one channel of its connection for good, and a connection has 2,047 channels.
#[tokio::test]
async fn a_session_outlives_thousands_of_questions_about_others() {
    let broker = RabbitBroker::new(&url().to_string(), &prefix(), HEARTBEAT).unwrap();
    let (session, other) = (broker.connect("asks").await.unwrap(), broker.connect("lives").await.unwrap());
    let queue = format!("{}commands.x", prefix());
    other.declare(&queue, &QueueKind::Exclusive).await.unwrap();
    let (missing, foreign) = (format!("{}work.missing", prefix()), format!("{}work.foreign", prefix()));
    other.declare(&foreign, &QueueKind::Heartbeats).await.unwrap();
    for round in 0..1100 {
        let gone = format!("{queue}.gone");
        let (alive, gone, depth, declared) = tokio::join!(
            session.fate(&queue),
            session.fate(&gone),
            session.depth(&missing),
            session.declare(&foreign, &QueueKind::SingleActive),
        );
        let fates = (alive.unwrap(), gone.unwrap());
        assert_eq!(fates, (OwnerLiveness::Alive, OwnerLiveness::Gone), "round {round}");
        assert!(matches!(depth, Err(BrokerError::NoQueue(_))), "round {round}: {depth:?}");
        assert!(matches!(declared, Err(BrokerError::Refused(_))), "round {round}: {declared:?}");
    }
    within(session.probe()).await.unwrap();
    within(session.depth(&queue)).await.unwrap_err();
    other.close().await;
    assert_eq!(within(session.fate(&queue)).await.unwrap(), OwnerLiveness::Gone);
}
