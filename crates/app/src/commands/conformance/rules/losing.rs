//! How a service behaves when it loses its connection to the broker.

use super::{Rule, ensure};
use crate::commands::conformance::facts::{Facts, word};
use crate::commands::conformance::stage::{HEARTBEAT, SOON, Stage, Verdict};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::report::Report;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The fence grace of the worker, and the time that its probes and its machine may take.
const GRACE: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_millis(1800);
/// An observer's code writes to its beacon about every 50 ms.
const QUIET: Duration = Duration::from_millis(700);

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "closed-connection",
        text: "when its connections are closed, stops its runs and returns as a new incarnation",
        check: |stage| Box::pin(closed_connection(stage)),
    },
    Rule {
        name: "closed-channel",
        text: "when the broker closes a channel with messages, stops its runs and returns as a new incarnation",
        check: |stage| Box::pin(closed_channel(stage)),
    },
    Rule {
        name: "ended-consumer",
        text: "when the broker ends a consumer, stops its runs and returns as a new incarnation",
        check: |stage| Box::pin(ended_consumer(stage)),
    },
    Rule {
        name: "silent-broker",
        text: "stops all code when the broker has not answered for one heartbeat",
        check: |stage| Box::pin(silent_broker(stage)),
    },
    Rule {
        name: "missing-confirms",
        text: "stops all code when the broker has not confirmed for one heartbeat",
        check: |stage| Box::pin(missing_confirms(stage)),
    },
    Rule {
        name: "connection-rules",
        text: "never reuses a consumer tag; sets a prefetch; publishes persistent messages with confirms",
        check: |stage| Box::pin(connection_rules(stage)),
    },
];

struct Running {
    service: ServiceId,
    id: ObserverId,
    epoch: Epoch,
    beacon: PathBuf,
}

async fn with_beacon(stage: &mut Stage) -> Result<Running, String> {
    let service = stage.serving().await?;
    let beacon = stage.beacon();
    let id = stage.new_work(json!({"do": "wait", "beacon": beacon})).await?;
    let epoch = stage.event(id, "started").await?;
    let deadline = Instant::now() + SOON;
    while size(&beacon) == 0 {
        ensure(Instant::now() < deadline, || {
            "the code does not write to the file that `beacon` in its spec names".to_owned()
        })?;
        stage.pass(Duration::from_millis(50)).await;
    }
    Ok(Running { service, id, epoch, beacon })
}

fn size(beacon: &Path) -> u64 {
    std::fs::metadata(beacon).map_or(0, |data| data.len())
}

/// When the code last wrote, once it has been quiet for a while; an error if it goes on after `limit`.
async fn until_quiet(stage: &mut Stage, beacon: &Path, limit: Duration) -> Result<Duration, String> {
    let (began, mut last, mut wrote) = (Instant::now(), size(beacon), Instant::now());
    loop {
        stage.pass(Duration::from_millis(20)).await;
        let now = size(beacon);
        if now != last {
            (last, wrote) = (now, Instant::now());
        }
        if wrote.elapsed() >= QUIET {
            return Ok(wrote - began);
        }
        ensure(wrote - began <= limit, || {
            format!("the code still runs {:?} after the fault; it must end within {limit:?}", wrote - began)
        })?;
    }
}

/// The service is back: another id, with its predecessor, and the observer runs with a higher epoch.
async fn returned(stage: &mut Stage, running: &Running) -> Verdict {
    let again = stage.registered(2).await?;
    ensure(again != running.service, || {
        "it registered under the same id: a manager cannot tell its new runs from those that it lost"
            .to_owned()
    })?;
    let registration = stage.facts.registrations().nth(1).and_then(|(_, it)| it.predecessor.clone());
    let predecessor = registration.map(|it| it.service);
    ensure(predecessor == Some(running.service), || {
        format!("its registration names the predecessor {predecessor:?}, expected {}", running.service)
    })?;
    let (id, epoch) = (running.id, running.epoch);
    let higher = |facts: &Facts| {
        let events = facts.events(id);
        events.iter().any(|(of, event, _)| *of > epoch && word(event) == "started").then_some(())
    };
    stage.until("the observer starts with a higher epoch", HEARTBEAT * 5, higher).await?;
    let late = stage.facts.reports.iter().skip_while(|told| told.service != again);
    ensure(late.filter(|told| told.service == running.service).count() == 0, || {
        "the lost incarnation reported after its successor had registered".to_owned()
    })
}

async fn closed_connection(stage: &mut Stage) -> Verdict {
    let running = with_beacon(stage).await?;
    stage.tap.close_connections();
    until_quiet(stage, &running.beacon, GRACE + SLACK).await?;
    returned(stage, &running).await
}

async fn closed_channel(stage: &mut Stage) -> Verdict {
    let running = with_beacon(stage).await?;
    let queue = stage.work_queue();
    ensure(stage.tap.close_channel_of(&queue), || "it does not consume its work queue".to_owned())?;
    until_quiet(stage, &running.beacon, GRACE + SLACK).await?;
    returned(stage, &running).await
}

async fn ended_consumer(stage: &mut Stage) -> Verdict {
    let running = with_beacon(stage).await?;
    stage.delete_work_queue().await?;
    until_quiet(stage, &running.beacon, GRACE + SLACK).await?;
    let again = stage.registered(2).await?;
    ensure(again != running.service, || "it registered under the same id".to_owned())?;
    let created =
        stage.facts.reports.iter().find(|told| {
            told.service == again && matches!(told.entry.report, Report::WorkQueueCreated { .. })
        });
    ensure(created.is_some(), || {
        "it created its work queue again and did not report work_queue_created: managers would not republish"
            .to_owned()
    })
}

async fn silent_broker(stage: &mut Stage) -> Verdict {
    let running = with_beacon(stage).await?;
    stage.tap.set_silent(true);
    let quiet = until_quiet(stage, &running.beacon, HEARTBEAT + GRACE + SLACK).await;
    // The broker closes its end after two to three heartbeats.
    stage.pass(HEARTBEAT).await;
    stage.tap.close_connections();
    stage.tap.set_silent(false);
    let took = quiet?;
    ensure(took >= Duration::from_millis(1000), || {
        format!("the code ended {took:?} after the broker fell silent; a short pause must not end it")
    })?;
    returned(stage, &running).await
}

async fn missing_confirms(stage: &mut Stage) -> Verdict {
    let running = with_beacon(stage).await?;
    stage.tap.hold_confirms(true);
    let quiet = until_quiet(stage, &running.beacon, HEARTBEAT + GRACE + SLACK).await;
    stage.tap.hold_confirms(false);
    quiet?;
    returned(stage, &running).await
}

async fn connection_rules(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let ids = stage.running(10).await?;
    for id in &ids[..5] {
        stage.revoke(*id, Epoch::first_of(2)).await?;
    }
    for id in &ids[..5] {
        stage.event(*id, "stopped").await?;
    }
    stage.running(5).await?;
    stage.tap.close_connections();
    stage.registered(2).await?;
    stage.pass(Duration::from_secs(3)).await;
    let breaches = stage.tap.ledger().breaches.clone();
    ensure(breaches.is_empty(), || breaches.into_iter().collect::<Vec<_>>().join("; "))
}
