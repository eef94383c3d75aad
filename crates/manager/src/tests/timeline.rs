//! The timeline of a service that is lost: what it held, what stands still, and what one observer sees of it.

use super::*;
use crate::intake::heartbeats::gather;
use everwatch_api::{Incident, Timeline};
use everwatch_core::record::events::EventKind;

fn most(timeline: &Timeline, part: impl Fn(&everwatch_api::TimelineSegment) -> u64) -> Vec<(&str, u64)> {
    let lanes = timeline.lanes.iter();
    lanes.map(|lane| (lane.service.as_str(), lane.segments.iter().map(&part).max().unwrap_or(0))).collect()
}

fn open(timeline: &Timeline) -> Vec<&Incident> {
    timeline.incidents.iter().filter(|it| it.waiting > 0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_of_a_lost_service_are_a_gap_until_they_start() {
    let stage = Stage::new().await;
    let mut first = stage.service(2).await;
    let mut works = Vec::new();
    for name in ["one", "two"] {
        stage.create(json!({"kind": "ticker", "name": name})).await;
        let (_, work, epoch) = first.take().await;
        first.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
        works.push((work, epoch));
    }
    stage.until_read("/v1/timeline", |it: &Timeline| most(it, |part| part.held_max) == [("s1", 2)]).await;
    // It is killed before the second in which it began to hold them is over.
    first.session.close().await;
    let second = stage.service(2).await;
    let lost = stage.until_read("/v1/timeline", |it: &Timeline| open(it).iter().any(|it| it.cause == "lost"));
    let lost = lost.await;
    assert_eq!(most(&lost, |part| part.held_max), [("s1", 2)]);
    assert_eq!(most(&lost, |part| part.gap), [("s1", 2)]);
    let [incident] = open(&lost)[..] else { panic!("{:?}", lost.incidents) };
    assert_eq!((incident.waiting, incident.moved, incident.until), (2, 0, None));
    // One of them starts on the next service.
    let mut second = second;
    let (_, work, epoch) = second.take().await;
    second.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
    let moved = |it: &Timeline| it.incidents.iter().any(|it| it.moved == 1);
    let one = stage.until_read("/v1/timeline", moved).await;
    let [incident] = open(&one)[..] else { panic!("{:?}", one.incidents) };
    assert_eq!(
        (incident.waiting, incident.until, incident.to.clone()),
        (1, None, [("s1".to_owned(), 1)].into())
    );

    // Each observer has its own timeline, by name and by id.
    let path = format!("/v1/timeline?observer={}", work.id);
    let of_it: Timeline = stage.read(&path).await;
    let by_name: Timeline = stage.read(&format!("/v1/timeline?observer={}", work.name)).await;
    assert_eq!(of_it.incidents, by_name.incidents);
    assert_eq!(most(&of_it, |part| part.gap), [("s1", 1)]);
    assert_eq!((of_it.incidents.len(), of_it.incidents[0].moved, of_it.incidents[0].waiting), (1, 1, 0));
    let kinds: Vec<EventKind> = of_it.marks.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds, [EventKind::Created, EventKind::ServiceLost]);
    let (other, _) = works.iter().find(|(it, _)| it.id != work.id).unwrap();
    let of_other: Timeline = stage.read(&format!("/v1/timeline?observer={}", other.name)).await;
    assert_eq!(of_other.incidents[0].waiting, 1, "{:?}", of_other.incidents);
    stage.get("/v1/timeline?observer=none").await.refused(404, "not-found");
    // The other is deleted: nothing stands still any more.
    assert_eq!(
        stage.send("DELETE", &format!("/v1/observers/{}", other.name), None).await.status,
        StatusCode::ACCEPTED
    );
    let (delivery, work, epoch) = second.take().await;
    second.run_event(&work, epoch, RunEvent::Stopped).await;
    second.session.ack(delivery.receipt).await;
    stage.until_read("/v1/timeline", |it: &Timeline| open(it).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_reads_late_knows_what_ran_before_the_first_event() {
    let stage = Stage::new().await;
    let mut service = stage.service(2).await;
    stage.create(json!({"kind": "ticker", "name": "one"})).await;
    let (_, work, epoch) = service.take().await;
    service.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
    stage.until_observer("one", |it| it.status == Status::Processing).await;
    stage
        .until_read("/v1/events?type=started", |events: &Listed<everwatch_api::Event>| events.total == 1)
        .await;
    // The events of the start and of the registration are deleted; the newest event always stays.
    stage.create(json!({"kind": "ticker", "name": "later", "on_full": "queue"})).await;
    stage
        .until_read("/v1/events?type=created", |events: &Listed<everwatch_api::Event>| events.total == 2)
        .await;
    stage.manager.records.store.forget_events(Timestamp(i64::MAX), 0).await.unwrap();
    let it: Timeline = stage.read("/v1/timeline").await;
    assert_eq!(most(&it, |part| part.held_max), [("s1", 1)]);
    assert_eq!(it.lanes[0].segments[0].since.0 / 1000, it.since.0 / 1000, "{:?}", it.lanes);
    assert!(it.complete_since.unwrap() > it.since);
    // Events that it has not read yet are deleted, too.
    service.run_event(&work, epoch, RunEvent::HandedOver).await;
    stage
        .until_read("/v1/events?type=handed_over", |events: &Listed<everwatch_api::Event>| events.total == 1)
        .await;
    stage.send("POST", "/v1/observers/later/pause", None).await;
    stage
        .until_read("/v1/events?type=pause_requested", |events: &Listed<everwatch_api::Event>| {
            events.total == 1
        })
        .await;
    stage.manager.records.store.forget_events(Timestamp(i64::MAX), 0).await.unwrap();
    let it: Timeline = stage.read("/v1/timeline").await;
    assert_eq!(most(&it, |part| part.held_max), [("s1", 0)], "{:?}", it.lanes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_counts_from_a_heartbeat_that_is_still_being_gathered() {
    let stage = Stage::new().await;
    let (one, two) = (stage.named_service("one", 1).await, stage.named_service("two", 1).await);
    let session = stage.broker.connect("manager").await.unwrap();
    let queue = "gathered".to_owned();
    session.declare(&queue, &QueueKind::Exclusive).await.unwrap();
    let consume = Consume { queue: queue.clone(), prefetch: 10, priority: 0 };
    let mut consumer = session.consume(&consume).await.unwrap();
    one.heartbeat_to(queue.clone(), 1, (Intent::Active, 1, 0)).await;
    let first = consumer.next().await.unwrap();
    two.heartbeat_to(queue, 1, (Intent::Active, 1, 0)).await;
    let (records, now) = (&stage.manager.records, clock::now().plus(Duration::from_secs(60)));
    let in_an_hour = tokio::time::Instant::now() + Duration::from_secs(3600);
    let gathering = gather(records, session.as_ref(), consumer.as_mut(), (first, now), in_an_hour);
    let heard = async {
        while records.events.known.heard_at(two.id) != Some(now) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        batch = gathering => panic!("it has not waited: {batch:?}"),
        heard = tokio::time::timeout(SOON, heard) => heard.expect("the heartbeat counts before it is applied"),
    }
    assert_eq!(records.events.known.heard_at(one.id), Some(now));
}
