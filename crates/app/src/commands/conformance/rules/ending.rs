//! How runs end: by revocations, by their code, and by another generation.

use super::{Rule, ensure, until_acked};
use crate::commands::conformance::facts::{Facts, word};
use crate::commands::conformance::stage::{HEARTBEAT, SOON, Stage, Verdict};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::report::RunEvent;
use serde_json::json;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "revocation",
        text: "stops a run below a revocation, settles it and acknowledges its message; others go on",
        check: |stage| Box::pin(revocation(stage)),
    },
    Rule {
        name: "revoked-never-starts",
        text: "settles a message below a known revocation without starting it",
        check: |stage| Box::pin(revoked_never_starts(stage)),
    },
    Rule {
        name: "confirm-before-ack",
        text: "acknowledges a message only after the broker has confirmed its settlement report",
        check: |stage| Box::pin(confirm_before_ack(stage)),
    },
    Rule {
        name: "completes",
        text: "settles as completed when the code returns, and as failed when it gives up",
        check: |stage| Box::pin(completes(stage)),
    },
    Rule {
        name: "retries",
        text: "starts failed code again as its retry policy says, then settles as failed",
        check: |stage| Box::pin(retries(stage)),
    },
    Rule {
        name: "grace",
        text: "aborts code that does not stop within its grace",
        check: |stage| Box::pin(grace(stage)),
    },
    Rule {
        name: "generations",
        text: "starts a later generation only after the earlier one is settled",
        check: |stage| Box::pin(generations(stage)),
    },
    Rule {
        name: "delivered-twice",
        text: "treats a second delivery of a message that it holds as the loss of its session",
        check: |stage| Box::pin(delivered_twice(stage)),
    },
    Rule {
        name: "overlap",
        text: "with overlap `forbid`, starts a redelivery only after twice the fence grace",
        check: |stage| Box::pin(overlap(stage)),
    },
];

async fn revocation(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let ids = stage.running(2).await?;
    // No run below its own epoch.
    stage.revoke(ids[0], Epoch::new(1, 0)).await?;
    stage.pass(Duration::from_millis(500)).await;
    let story = stage.facts.story(ids[0]);
    ensure(story == ["started 1.0"], || {
        format!("a revocation below 1.0 ended a run with that epoch: {story:?}")
    })?;
    stage.revoke(ids[0], Epoch::first_of(2)).await?;
    stage.event(ids[0], "stopped").await?;
    until_acked(stage, 1).await?;
    stage.pass(Duration::from_millis(300)).await;
    let (story, other) = (stage.facts.story(ids[0]), stage.facts.story(ids[1]));
    ensure(story == ["started 1.0", "stopped 1.0"] && other == ["started 1.0"], || {
        format!("of the revoked observer it reported {story:?}, of the other one {other:?}")
    })
}

async fn revoked_never_starts(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    stage.revoke(id, Epoch::first_of(2)).await?;
    stage.pass(Duration::from_millis(500)).await;
    stage.work(id, 1, json!({"do": "wait"}), json!({})).await?;
    stage.event(id, "stopped").await?;
    until_acked(stage, 1).await?;
    let story = stage.facts.story(id);
    ensure(story == ["stopped 1.0"], || format!("it reported {story:?}, expected one `stopped`"))?;
    stage.work(id, 2, json!({"do": "wait"}), json!({})).await?;
    stage.event(id, "started").await.map(drop)
}

async fn confirm_before_ack(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = stage.running(1).await?[0];
    stage.tap.hold_confirms(true);
    stage.revoke(id, Epoch::first_of(2)).await?;
    let settled = stage.event(id, "stopped").await;
    stage.pass(Duration::from_secs(1)).await;
    let queue = stage.work_queue();
    let early = stage.tap.ledger().acked(&queue);
    stage.tap.hold_confirms(false);
    settled?;
    ensure(early == 0, || {
        "it acknowledged the message before the broker had confirmed its report: after a crash, no manager would learn \
         that the observer has ended"
            .to_owned()
    })?;
    until_acked(stage, 1).await
}

async fn completes(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = stage.new_work(json!({"do": "complete"})).await?;
    stage.event(id, "completed").await?;
    let hopeless = stage.new_work(json!({"do": "give_up", "text": "useless"})).await?;
    stage.event(hopeless, "failed").await?;
    until_acked(stage, 2).await?;
    let failed = |(_, event, _): &(Epoch, &RunEvent, Instant)| match event {
        RunEvent::Failed { error, attempts } => Some((error.clone(), *attempts)),
        _ => None,
    };
    let found = stage.facts.events(hopeless).iter().find_map(failed);
    ensure(
        found.as_ref().is_some_and(|(error, attempts)| error.contains("useless") && *attempts == 1),
        || format!("code that gave up with the text `useless` was reported as {found:?}"),
    )
}

async fn retries(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    let retry = json!({"retry": {"kind": "fixed", "every": "700ms", "attempts": 3}});
    stage.work(id, 1, json!({"do": "fail", "text": "no way"}), retry).await?;
    stage.event(id, "failed").await?;
    until_acked(stage, 1).await?;
    let story: Vec<_> = stage.facts.events(id).iter().map(|(_, event, _)| word(event)).collect();
    let expected = ["started", "errored", "started", "errored", "started", "failed"];
    ensure(story == expected, || format!("it reported {story:?}, expected {expected:?}"))?;
    let starts: Vec<Instant> = started(&stage.facts, id);
    let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    ensure(pauses.iter().all(|pause| (500..2000).contains(&pause.as_millis())), || {
        format!("the pauses between its starts were {pauses:?}, expected 700 ms each")
    })?;
    let attempts: Vec<u32> =
        stage.facts.events(id).iter().filter_map(|(_, event, _)| attempt(event)).collect();
    ensure(attempts == [1, 1, 2, 2, 3, 3], || format!("the attempts are numbered {attempts:?}"))?;
    let error =
        stage.facts.events(id).iter().any(
            |(_, event, _)| matches!(event, RunEvent::Errored { error, .. } if error.contains("no way")),
        );
    ensure(error, || "the reported errors do not contain the text of the code's error".to_owned())
}

fn started(facts: &Facts, id: ObserverId) -> Vec<Instant> {
    let events = facts.events(id);
    events.iter().filter(|(_, event, _)| word(event) == "started").map(|(_, _, came)| *came).collect()
}

fn attempt(event: &RunEvent) -> Option<u32> {
    match event {
        RunEvent::Started { attempt, .. } | RunEvent::Errored { attempt, .. } => Some(*attempt),
        RunEvent::Failed { attempts, .. } => Some(*attempts),
        _ => None,
    }
}

async fn grace(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    stage.work(id, 1, json!({"do": "ignore_cancel"}), json!({"grace": "1s"})).await?;
    stage.event(id, "started").await?;
    let revoked = Instant::now();
    stage.revoke(id, Epoch::first_of(2)).await?;
    stage.event(id, "stopped").await?;
    let took = revoked.elapsed();
    ensure((900..3500).contains(&took.as_millis()), || {
        format!("code that ignores a cancel ended after {took:?}, expected its grace of 1 s")
    })
}

async fn generations(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = stage.running(1).await?[0];
    stage.work(id, 2, json!({"do": "wait"}), json!({})).await?;
    let second = |facts: &Facts| facts.story(id).contains(&"started 2.0".to_owned()).then_some(());
    stage.until("the second generation starts", SOON, second).await?;
    let story = stage.facts.story(id);
    let expected = ["started 1.0", "stopped 1.0", "started 2.0"];
    ensure(story == expected, || format!("it reported {story:?}, expected {expected:?}"))?;
    until_acked(stage, 1).await?;
    // An older generation that comes late.
    stage.work(id, 1, json!({"do": "wait"}), json!({})).await?;
    until_acked(stage, 2).await?;
    // The broker sees the settlement before the acknowledgement, but delivers it here later.
    let settled = |facts: &Facts| (facts.story(id).len() > expected.len()).then_some(());
    stage.until("the late message is settled", SOON, settled).await?;
    let story = stage.facts.story(id);
    ensure(story.last().is_some_and(|it| it == "stopped 1.0") && story.len() == 4, || {
        format!("after a late message of generation 1 it reported {story:?}")
    })
}

async fn delivered_twice(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let id = stage.running(1).await?[0];
    stage.work(id, 1, json!({"do": "wait"}), json!({})).await?;
    let again = stage.registered(2).await.map_err(|error| {
        format!(
            "the broker delivered a message of generation 1 while the service held that generation, so it has lost its \
             messages; it must come back as a new incarnation: {error}"
        )
    })?;
    ensure(again != service, || "it registers again under the same id".to_owned())?;
    let settled = stage.facts.story(id).iter().any(|it| it.starts_with("stopped"));
    ensure(!settled, || {
        "it settled one of the copies: that settles the generation of the other one, too".to_owned()
    })?;
    stage.revoke(id, Epoch::first_of(2)).await
}

async fn overlap(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    stage.work(id, 1, json!({"do": "wait"}), json!({"overlap": "forbid"})).await?;
    stage.event(id, "started").await?;
    stage.tap.close_connections();
    let held = |facts: &Facts| {
        let events = facts.events(id);
        events.iter().find(|(_, event, _)| word(event) == "held").map(|(epoch, _, came)| (*epoch, *came))
    };
    let (epoch, held) = stage.until("the redelivery is reported as held", HEARTBEAT * 5, held).await?;
    let began = |facts: &Facts| {
        let events = facts.events(id);
        events
            .iter()
            .find(|(of, event, _)| *of == epoch && word(event) == "started")
            .map(|(_, _, came)| *came)
    };
    let began = stage.until("the redelivery starts", SOON, began).await?;
    let waited = began - held;
    ensure(waited >= Duration::from_millis(800), || {
        format!("the redelivery started after {waited:?}; twice the fence grace is 1 s")
    })
}
