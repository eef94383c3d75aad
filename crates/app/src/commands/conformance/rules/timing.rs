//! Ends that are known beforehand: the `attempt_timeout` of an attempt, and the `finish_at` or the window of an observer.

use super::{Rule, ensure, until_acked};
use crate::commands::conformance::facts::{Facts, word};
use crate::commands::conformance::stage::{Stage, Verdict};
use everwatch_core::clock;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::report::RunEvent;
use everwatch_core::wire::work::Work;
use serde_json::json;
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "attempt-timeout",
        text: "stops an attempt after its `attempt_timeout` and counts it as an error",
        check: |stage| Box::pin(attempt_timeout(stage)),
    },
    Rule {
        name: "finish-at",
        text: "ends observers at their `finish_at` by the clock that managers announce",
        check: |stage| Box::pin(finish_at(stage)),
    },
    Rule {
        name: "window",
        text: "ends a run at the `closes_at` of its message",
        check: |stage| Box::pin(window(stage)),
    },
];

/// How far the announced clock is ahead of the machine's.
const AHEAD: Duration = Duration::from_secs(3600);

fn came(facts: &Facts, id: ObserverId, name: &str) -> Option<Instant> {
    facts.events(id).iter().find(|(_, event, _)| word(event) == name).map(|(_, _, came)| *came)
}

async fn attempt_timeout(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = ObserverId(Uuid::now_v7());
    let limits = json!({
        "attempt_timeout": "1s",
        "retry": {"kind": "exponential", "first": "200ms", "max": "200ms", "attempts": 2, "reset_after": "500ms"},
    });
    stage.work(id, 1, json!({"do": "wait"}), limits).await?;
    stage.event(id, "failed").await?;
    until_acked(stage, 1).await?;
    let events = stage.facts.events(id);
    let story: Vec<_> = events.iter().map(|(_, event, _)| word(event)).collect();
    let expected = ["started", "errored", "started", "failed"];
    ensure(story == expected, || format!("it reported {story:?}, expected {expected:?}"))?;
    let took = events[1].2 - events[0].2;
    ensure((900..3000).contains(&took.as_millis()), || {
        format!("the attempt ended after {took:?}, expected its attempt_timeout of 1 s")
    })?;
    let text = "timed out after 1s (attempt_timeout)";
    let errors: Vec<&str> = events
        .iter()
        .filter_map(|(_, event, _)| match event {
            RunEvent::Errored { error, .. } | RunEvent::Failed { error, .. } => Some(error.as_str()),
            _ => None,
        })
        .collect();
    ensure(errors == [text, text], || format!("its errors are {errors:?}, expected {text:?} twice"))
}

async fn finish_at(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let announced = clock::now().plus(AHEAD);
    stage.command(None, Command::Time(announced)).await?;
    let said = Instant::now();
    // Commands and work arrive on different queues.
    stage.pass(Duration::from_millis(500)).await;
    let (runs, late) = (ObserverId(Uuid::now_v7()), ObserverId(Uuid::now_v7()));
    let finish = announced.plus(Duration::from_secs(3));
    let until = |at: clock::Timestamp| json!({"finish_at": at.to_string()});
    stage.work(runs, 1, json!({"do": "wait"}), until(finish)).await?;
    stage.work(late, 1, json!({"do": "wait"}), until(announced)).await?;
    stage.event(runs, "finished").await?;
    stage.event(late, "finished").await?;
    until_acked(stage, 2).await?;
    let story = stage.facts.story(runs);
    ensure(story == ["started 1.0", "finished 1.0"], || {
        format!("of the observer that ran until its finish_at it reported {story:?}")
    })?;
    let story = stage.facts.story(late);
    ensure(story == ["finished 1.0"], || {
        format!("of the observer whose finish_at had passed it reported {story:?}: it must not start")
    })?;
    let ended = came(&stage.facts, runs, "finished").map(|at| at.duration_since(said));
    ensure(ended.is_some_and(|took| (2800..5500).contains(&took.as_millis())), || {
        format!("it ended {ended:?} after the time was announced, expected 3 s")
    })?;
    let named =
        stage.facts.events(runs).iter().any(|(_, event, _)| **event == RunEvent::Finished { at: finish });
    ensure(named, || format!("`finished` does not name the finish_at of the message, {finish}"))
}

async fn window(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    stage.command(None, Command::Time(clock::now())).await?;
    stage.pass(Duration::from_millis(500)).await;
    let (id, closes_at) = (ObserverId(Uuid::now_v7()), clock::now().plus(Duration::from_secs(2)));
    // It has an end of its own, which is later.
    let finish_at = closes_at.plus(Duration::from_secs(60)).to_string();
    let work = Stage::written(id, 1, json!({"do": "wait"}), json!({"finish_at": finish_at}))?;
    let work = Work { closes_at: Some(closes_at), ..work };
    stage.deliver(&work).await?;
    stage.event(id, "finished").await?;
    until_acked(stage, 1).await?;
    let events = stage.facts.events(id);
    let named = events.iter().any(|(_, event, _)| **event == RunEvent::Finished { at: closes_at });
    ensure(named, || format!("`finished` does not name the closes_at of the message, {closes_at}"))?;
    let ran = events[1].2 - events[0].2;
    ensure((1000..4500).contains(&ran.as_millis()), || format!("it ran for {ran:?}, expected 2 s"))
}
