//! Managers are down while reports accumulate. The next manager applies all reports before it is ready,
//! answers requests meanwhile, and needs no more memory for many reports than for few.

use everwatch_api::{Listed, Observer};
use everwatch_broker::{
    Broker as _, Consume, Message, QueueKind, RabbitBroker, Session, Settle, Target, Topology,
};
use everwatch_core::clock;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::message::encode;
use everwatch_core::wire::report::{Report, Reports, RunEvent, RunReport, SequencedReport, StateMessage};
use everwatch_tests::cluster::Cluster;
use futures::StreamExt as _;
use serde::Deserialize as _;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBSERVERS: usize = 1000;
const PUBLISHES: usize = 500;
/// The most that a manager may have taken at any time.
const RSS_MAX_KIB: u64 = 300 * 1024;
/// The time limit for API responses, regardless of the queue length.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

fn reports() -> usize {
    std::env::var("EVERWATCH_FLOOD_REPORTS").map_or(20_000, |text| text.parse().unwrap())
}

async fn made(cluster: &Cluster) -> Vec<ObserverId> {
    let create = |number: usize| async move {
        let body = json!({"name": format!("o{number:04}"), "kind": "ticker", "on_full": "queue"});
        ObserverId(cluster.api.create(body).await.id)
    };
    futures::stream::iter((0..OBSERVERS).map(create)).buffered(50).collect().await
}

/// The report with this number. Each observer starts, fails and starts again. At the end, one third
/// completes, one third fails for good and one third keeps running.
fn report(ids: &[ObserverId], number: usize, last_round: usize) -> RunReport {
    let (round, at) = (number / ids.len(), number % ids.len());
    let attempt = u32::try_from(round / 2 + 1).unwrap();
    let event = match (round == last_round, at % 3) {
        (true, 0) => RunEvent::Completed,
        (true, 1) => RunEvent::Failed { error: "flooded".to_owned(), attempts: attempt },
        (true, _) => RunEvent::Started { attempt: attempt + 1, started_at: clock::now() },
        (false, _) if round % 2 == 0 => RunEvent::Started { attempt, started_at: clock::now() },
        (false, _) => RunEvent::Errored { attempt, error: "flooded".to_owned(), next_at: clock::now() },
    };
    RunReport { id: ids[at], epoch: Epoch::new(1, 0), event }
}

async fn pour(session: &dyn Session, queue: &str, ids: &[ObserverId], count: usize) {
    let service = ServiceId(uuid::Uuid::new_v4());
    let target = Target::Queue(queue.to_owned());
    let publish = |number: usize| {
        let report = Report::Run(report(ids, number, count / ids.len() - 1));
        let entries = vec![SequencedReport::new(number as u64 + 1, clock::now(), report)];
        let body = encode(&StateMessage::Reports(Reports { service, entries })).unwrap();
        let target = target.clone();
        async move { session.publish(&target, Message { body: body.into(), headers: Vec::new() }).await.unwrap() }
    };
    futures::stream::iter((0..count).map(publish)).buffered(PUBLISHES).for_each(|()| async {}).await;
}

/// How long a plain consumer takes that acknowledges each message.
async fn drain(session: &dyn Session, queue: &str, count: usize) -> Duration {
    let begun = Instant::now();
    let consume = Consume { queue: queue.to_owned(), prefetch: 200, priority: 0 };
    let mut consumer = session.consume(&consume).await.unwrap();
    for _ in 0..count {
        let delivery = consumer.next().await.unwrap();
        assert_eq!(session.ack(delivery.receipt).await, Settle::Done);
    }
    begun.elapsed()
}

fn most_memory(cluster: &Cluster) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.family("manager")[0])).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Polls the API until the manager is ready. Returns the time until then, the slowest response, and the
/// number of responses.
async fn until_ready(cluster: &Cluster, limit: Duration) -> (Duration, Duration, usize) {
    let (begun, mut slowest, mut answers) = (Instant::now(), Duration::ZERO, 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        assert!(begun.elapsed() < limit, "not ready: {}", cluster.log("manager"));
        if let Ok((200, _)) = cluster.api.try_call("GET", "/readyz", None).await {
            return (begun.elapsed(), slowest, answers);
        }
        let asked = Instant::now();
        if let Ok((status, list)) = cluster.api.try_call("GET", "/v1/observers?limit=50", None).await {
            // It listens before it has opened its database.
            if status == 503
                && list["detail"].as_str().is_some_and(|it| it.starts_with("the manager is starting"))
            {
                continue;
            }
            assert_eq!(status, 200, "{list}");
            assert_eq!(Listed::<Observer>::deserialize(&list).unwrap().total, OBSERVERS as u64, "{list}");
            (slowest, answers) = (slowest.max(asked.elapsed()), answers + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_was_away_is_ready_once_it_has_applied_all_that_was_reported() {
    let mut cluster = Cluster::new("flood");
    cluster.manager().await;
    let ids = made(&cluster).await;
    assert_eq!(cluster.terminate("manager"), Some(0));
    let count = reports() / OBSERVERS * OBSERVERS;
    let topology = Topology::new(&cluster.prefix);
    let broker = RabbitBroker::new(&cluster.broker_url, &cluster.prefix, Duration::from_secs(10)).unwrap();
    let session: Arc<dyn Session> = broker.connect("flood").await.unwrap();
    // Publishes the same reports to a second queue, for a consumer that does nothing else.
    let bare = format!("{}bare", cluster.prefix);
    session.declare(&bare, &QueueKind::Durable { max_length: None }).await.unwrap();
    pour(session.as_ref(), &bare, &ids, count).await;
    pour(session.as_ref(), &topology.state(), &ids, count).await;
    let drained = drain(session.as_ref(), &bare, count).await;

    let limit = Duration::from_secs(60) + drained * 60;
    cluster.spawn_manager();
    let (took, slowest, answers) = until_ready(&cluster, limit).await;
    let third = |from: usize| (OBSERVERS - from).div_ceil(3);
    for (status, definition) in [("Completed", third(0)), ("Failed", third(1)), ("Processing", third(2))] {
        let path = format!("/v1/observers?status={status}&limit=1");
        let list: Listed<Observer> = cluster.api.read(&path).await;
        assert_eq!(list.total, definition as u64, "{status}, in the moment it is ready");
    }
    let last = cluster.api.observer("o0002").await;
    assert_eq!(last.attempt as usize, (count / OBSERVERS - 1) / 2 + 2, "{last:?}");
    let memory = most_memory(&cluster);
    println!(
        "MEASURED {count} reports: ready after {took:?}, a bare consumer takes {drained:?}: {:.1} times as long; \
         {answers} answers meanwhile, the slowest {slowest:?}; at most {} MiB",
        took.as_secs_f64() / drained.as_secs_f64(),
        memory / 1024
    );
    assert!(memory < RSS_MAX_KIB, "{memory} KiB");
    assert!(answers > 0 && slowest < ANSWERS_WITHIN, "{answers} answers, {slowest:?}");
}
