//! What a service does with messages that it cannot run or read.

use super::{Rule, ensure};
use crate::commands::conformance::facts::Facts;
use crate::commands::conformance::stage::{SOON, Stage, Verdict};
use everwatch_broker::Target;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::wire::report::RunEvent;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "unknown-kind",
        text: "refuses an unknown kind: reports it and gives it back, ever more slowly",
        check: |stage| Box::pin(unknown_kind(stage)),
    },
    Rule {
        name: "unknown-version",
        text: "refuses an unknown version of a message, and settles it when it is revoked",
        check: |stage| Box::pin(unknown_version(stage)),
    },
    Rule {
        name: "garbage",
        text: "parks unreadable work unchanged with the reason, and drops unreadable commands",
        check: |stage| Box::pin(garbage(stage)),
    },
];

fn refusals(facts: &Facts, id: ObserverId) -> Vec<Instant> {
    let events = facts.events(id);
    let refused = |event: &RunEvent| matches!(event, RunEvent::Refused { .. });
    events.iter().filter(|(_, event, _)| refused(event)).map(|(_, _, came)| *came).collect()
}

async fn refused(stage: &mut Stage, message: &Value) -> Result<ObserverId, String> {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    let mut message = message.clone();
    message["id"] = json!(id);
    let queue = Target::Queue(stage.work_queue());
    stage.publish(&queue, message.to_string().into_bytes()).await?;
    let first = |facts: &Facts| (!refusals(facts, id).is_empty()).then_some(());
    stage.until("the message is refused", SOON, first).await?;
    let held =
        |(_, event, _): &(Epoch, &RunEvent, Instant)| matches!(event, RunEvent::Held { refuses: true, .. });
    ensure(stage.facts.events(id).iter().any(held), || {
        "before `refused`, it must report `held` with `refuses: true`".to_owned()
    })?;
    stage.pass(Duration::from_secs(6)).await;
    let at = refusals(&stage.facts, id);
    // Ten slots are five consumers. The message passes each of them at once, then it waits for a second between rounds.
    let (count, longest) = (at.len(), at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default());
    ensure((3..=60).contains(&count) && longest >= Duration::from_millis(800), || {
        format!(
            "it refused the message {count} times in 6 s, with a longest pause of {longest:?}; expected 1 s"
        )
    })?;
    let queue = stage.work_queue();
    let acked = stage.tap.ledger().acked(&queue);
    ensure(acked == 0, || "it acknowledged a message that it cannot run: the observer is lost".to_owned())?;
    stage.revoke(id, Epoch::first_of(2)).await?;
    stage.event(id, "stopped").await?;
    stage
        .until_traffic("the revoked message is acknowledged", SOON, |ledger| ledger.acked(&queue) == 1)
        .await?;
    Ok(id)
}

async fn unknown_kind(stage: &mut Stage) -> Verdict {
    let message =
        json!({"v": 1, "generation": 1, "kind": "unheard-of", "name": "x", "spec": {}, "grace": "1s"});
    refused(stage, &message).await.map(drop)
}

async fn unknown_version(stage: &mut Stage) -> Verdict {
    let message = json!({"v": 99, "generation": 1, "kind": "conformance", "news": true});
    refused(stage, &message).await.map(drop)
}

async fn garbage(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let work = Target::Queue(stage.work_queue());
    let bodies: [&[u8]; 3] = [b"\xff\xfe\x00", br#"{"v": 1, "kind": "conformance"}"#, b""];
    for body in bodies {
        stage.publish(&work, body.to_vec()).await?;
    }
    let all = |facts: &Facts| (facts.parked.len() == bodies.len()).then_some(());
    stage.until("three unreadable messages are parked", SOON, all).await?;
    let unchanged = bodies.iter().all(|body| stage.facts.parked.iter().any(|it| it.body == *body));
    ensure(unchanged, || "a parked message has another body than the unreadable message".to_owned())?;
    let queue = stage.work_queue();
    let marked = |it: &crate::commands::conformance::facts::Parked| {
        it.reason.as_ref().is_some_and(|reason| !reason.is_empty()) && it.queue.as_ref() == Some(&queue)
    };
    ensure(stage.facts.parked.iter().all(marked), || {
        "parked messages need the headers everwatch-reason and everwatch-queue".to_owned()
    })?;
    stage.until_traffic("they are acknowledged", SOON, |ledger| ledger.acked(&queue) == bodies.len()).await?;
    let commands = Target::Queue(stage.topology.commands_of(&Pool::default(), service));
    for body in [&b"?!"[..], br#"{"v":1,"body":{"dance":{}}}"#, br#"{"v":7,"body":{}}"#] {
        stage.publish(&commands, body.to_vec()).await?;
    }
    let id = stage.running(1).await?[0];
    stage.revoke(id, Epoch::first_of(2)).await?;
    stage.event(id, "stopped").await.map(drop)
}
