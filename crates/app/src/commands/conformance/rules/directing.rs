//! How a service follows its operators: cordon, resize, hand over, stop.

use super::{Rule, ensure};
use crate::commands::conformance::facts::{Facts, word};
use crate::commands::conformance::stage::{SOON, Stage, Verdict};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::command::{Cause, Command, HandOver, ServiceDirectives};
use everwatch_core::wire::heartbeat::Intent;
use everwatch_core::wire::report::{Report, RunEvent};
use serde_json::json;
use std::time::Duration;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "cordon",
        text: "while cordoned or draining, keeps what it holds, takes no more and says so",
        check: |stage| Box::pin(cordon(stage)),
    },
    Rule {
        name: "revision",
        text: "ignores directives of an older revision and of other services",
        check: |stage| Box::pin(revision(stage)),
    },
    Rule {
        name: "resize",
        text: "hands over the surplus when its capacity is reduced, and takes more when it is raised",
        check: |stage| Box::pin(resize(stage)),
    },
    Rule {
        name: "hand-over",
        text: "hands over the named observers, and those beyond `down_to`, with the cause",
        check: |stage| Box::pin(hand_over(stage)),
    },
    Rule {
        name: "stop",
        text: "after SIGTERM hands everything over, reports service_gone last and exits with 0",
        check: |stage| Box::pin(stop(stage)),
    },
];

async fn direct(stage: &mut Stage, service: ServiceId, directives: ServiceDirectives) -> Verdict {
    stage.command(Some(service), Command::Directives { service, directives }).await
}

fn cordoned(revision: u64, cordoned: bool) -> ServiceDirectives {
    ServiceDirectives { revision, cordoned, ..ServiceDirectives::default() }
}

async fn until_state(stage: &mut Stage, service: ServiceId, state: Intent) -> Verdict {
    let told = |facts: &Facts| facts.heartbeat(service).filter(|it| it.state == state).map(drop);
    stage.until(&format!("a heartbeat with the state {state:?}"), SOON, told).await
}

async fn cordon(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let id = stage.running(1).await?[0];
    direct(stage, service, cordoned(1, true)).await?;
    until_state(stage, service, Intent::Cordoned).await?;
    // The heartbeat may arrive before the broker has carried out the cancel of the last block.
    stage.until_unconsumed(SOON).await?;
    let new = stage.new_work(json!({"do": "wait"})).await?;
    stage.pass(Duration::from_secs(1)).await;
    let (held, added) = (stage.facts.story(id), stage.facts.story(new));
    let waiting = stage.waiting().await?;
    ensure(held == ["started 1.0"] && added.is_empty() && waiting == 1, || {
        format!(
            "while cordoned, it reported {held:?} of the observer that it held and {added:?} of a new one; \
             {waiting} of 1 messages wait in the queue"
        )
    })?;
    direct(stage, service, cordoned(2, false)).await?;
    stage.event(new, "started").await?;
    until_state(stage, service, Intent::Active).await?;
    let draining = ServiceDirectives { revision: 3, draining: true, ..ServiceDirectives::default() };
    direct(stage, service, draining).await?;
    until_state(stage, service, Intent::Draining).await
}

async fn revision(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    direct(stage, service, cordoned(5, false)).await?;
    direct(stage, service, cordoned(4, true)).await?;
    let other = ServiceId(uuid::Uuid::new_v4());
    let directives = cordoned(9, true);
    stage.command(None, Command::Directives { service: other, directives }).await?;
    stage.pass(Duration::from_secs(2)).await;
    let state = stage.facts.heartbeat(service).map(|it| it.state);
    ensure(state == Some(Intent::Active), || {
        format!("its state is {state:?}, but no directive for it is valid")
    })?;
    stage.running(1).await.map(drop)
}

async fn resize(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let ids = stage.running(4).await?;
    let smaller = ServiceDirectives { revision: 1, capacity: Some(1), ..ServiceDirectives::default() };
    direct(stage, service, smaller).await?;
    let gone = |facts: &Facts| ids.iter().filter(|id| was_handed_over(facts, **id, Cause::Resize)).count();
    stage
        .until("three observers are handed over", SOON * 2, |facts| (gone(facts) == 3).then_some(()))
        .await?;
    stage.until_waiting(3, SOON).await?;
    let told =
        |facts: &Facts| facts.heartbeat(service).filter(|it| it.capacity == 1 && it.held == 1).map(drop);
    stage.until("a heartbeat with 1 of 1 slots in use", SOON, told).await?;
    let larger = ServiceDirectives { revision: 2, capacity: Some(6), ..ServiceDirectives::default() };
    direct(stage, service, larger).await?;
    stage.until_waiting(0, SOON).await
}

fn was_handed_over(facts: &Facts, id: ObserverId, of: Cause) -> bool {
    let events = facts.events(id);
    events.iter().any(|(_, event, _)| matches!(event, RunEvent::HandedOverFor { cause } if *cause == of))
}

async fn hand_over(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let ids = stage.running(5).await?;
    let asked = |ids: Vec<ObserverId>, down_to, cause| {
        Command::HandOver(HandOver { service, ids, down_to, rest: Duration::from_secs(2), cause })
    };
    stage.command(Some(service), asked(vec![ids[0]], None, Cause::Move)).await?;
    let moved = |facts: &Facts| was_handed_over(facts, ids[0], Cause::Move).then_some(());
    stage.until("the named observer is handed over with the cause `move`", SOON, moved).await?;
    let queue = stage.work_queue();
    stage.until_traffic("its message is given back", SOON, |ledger| ledger.given_back(&queue) >= 1).await?;
    // No other service takes it, so it comes back here, as the next run.
    let returned = |facts: &Facts| {
        let story = facts.story(ids[0]);
        story.iter().any(|it| it.starts_with("started") && it != "started 1.0").then_some(())
    };
    stage
        .until("it starts again with a higher epoch, as no other service has room", SOON * 2, returned)
        .await?;
    stage.command(Some(service), asked(Vec::new(), Some(2), Cause::Rebalance)).await?;
    let count =
        |facts: &Facts| ids.iter().filter(|id| was_handed_over(facts, **id, Cause::Rebalance)).count();
    stage
        .until("three are handed over to hold at most 2", SOON * 2, |facts| (count(facts) == 3).then_some(()))
        .await?;
    let acked = stage.tap.ledger().acked(&queue);
    ensure(acked == 0, || format!("it acknowledged {acked} messages that it must give back"))
}

async fn stop(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let ids = stage.running(3).await?;
    let Some(mut worker) = stage.worker.take() else { return Err("no worker runs".to_owned()) };
    worker.terminate();
    let status = worker.ended(Duration::from_secs(10)).await;
    let code = status.and_then(|status| status.code());
    ensure(code == Some(0), || {
        format!("it ended with {status:?} within 10 s after SIGTERM, expected the exit code 0")
    })?;
    stage.until_waiting(3, SOON).await?;
    let gone = |facts: &Facts| {
        let last = facts.reports.last()?;
        (last.service == service && last.entry.report == Report::ServiceGone).then_some(())
    };
    stage.until("its last report is service_gone", SOON, gone).await?;
    for id in ids {
        let events = stage.facts.events(id);
        let last = events.last().map(|(_, event, _)| word(event));
        ensure(last == Some("handed_over"), || {
            format!("the last report about an observer that it held is {last:?}, expected handed_over")
        })?;
    }
    let acked = stage.tap.ledger().acked(&stage.work_queue());
    ensure(acked == 0, || {
        format!("it acknowledged {acked} messages of observers that must run on elsewhere")
    })?;
    stage.facts.wrong_number().map_or(Ok(()), Err)
}
