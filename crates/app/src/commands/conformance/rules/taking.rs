//! How a service registers, gives signs of life, takes work and starts it.

use super::{Rule, ensure};
use crate::commands::conformance::facts::Facts;
use crate::commands::conformance::ledger::Event;
use crate::commands::conformance::stage::{HEARTBEAT, KIND, NAME, SOON, Stage, Verdict};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::wire::command::{Command, Revocation, Welcome};
use everwatch_core::wire::heartbeat::Intent;
use everwatch_core::wire::message::WORK_VERSION;
use everwatch_core::wire::report::{Report, RunEvent};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "registers-first",
        text: "registers, and takes work only after the broker has confirmed the registration",
        check: |stage| Box::pin(registers_first(stage)),
    },
    Rule {
        name: "needs-no-manager",
        text: "works without a welcome: it waits for one for a second",
        check: |stage| Box::pin(needs_no_manager(stage)),
    },
    Rule {
        name: "welcome-revokes",
        text: "follows the revocations of its welcome before it takes work",
        check: |stage| Box::pin(welcome_revokes(stage)),
    },
    Rule {
        name: "state-queues",
        text: "with two state queues, waits for managers to create the second, and reports to the right one",
        check: |stage| Box::pin(state_queues(stage)),
    },
    Rule {
        name: "signs-of-life",
        text: "sends numbered heartbeats at its interval and a probe at least every second",
        check: |stage| Box::pin(signs_of_life(stage)),
    },
    Rule {
        name: "epoch",
        text: "reports each start with the epoch of its delivery; a redelivery has a higher one",
        check: |stage| Box::pin(epoch(stage)),
    },
    Rule {
        name: "capacity",
        text: "fills its capacity, never holds more, and takes work for freed slots",
        check: |stage| Box::pin(capacity(stage)),
    },
    Rule {
        name: "weights",
        text: "counts weights as slots: never uses more than its capacity, and fills it up to weight_max - 1",
        check: |stage| Box::pin(weights(stage)),
    },
    Rule {
        name: "crash-looping",
        text: "announces suspected observers before it starts them, one a minute",
        check: |stage| Box::pin(crash_looping(stage)),
    },
    Rule {
        name: "output",
        text: "publishes what code emits under the kind and name of the observer",
        check: |stage| Box::pin(output(stage)),
    },
];

async fn registers_first(stage: &mut Stage) -> Verdict {
    let id = stage.new_work(json!({"do": "wait"})).await?;
    stage.start_worker()?;
    let service = stage.registered(1).await?;
    let Some((_, registration)) = stage.facts.registrations().next() else { return Ok(()) };
    let capacity = stage.capacity;
    ensure(registration.name.as_str() == NAME, || {
        format!("it registers as {}, not under its configured name {NAME}", registration.name)
    })?;
    ensure(registration.capacity == capacity, || {
        format!("it registers a capacity of {}, not {capacity}", registration.capacity)
    })?;
    let kind = registration.kinds.iter().find(|kind| kind.name.as_str() == KIND);
    ensure(kind.is_some_and(|kind| kind.schema.is_object()), || {
        format!("its registration has no kind `{KIND}` with a JSON schema")
    })?;
    stage.event(id, "started").await?;
    let (state, work) = (stage.topology.state(), stage.work_queue());
    let events = stage.tap.ledger().events.clone();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted);
    let published = at(&|event| matches!(event, Event::Published { key, .. } if *key == state));
    let consumes = at(&|event| matches!(event, Event::Consumes(queue) if *queue == work));
    let commands = stage.topology.commands_of(&Pool::default(), service);
    let listens = at(&|event| matches!(event, Event::Consumes(queue) if *queue == commands));
    ensure(listens.is_some() && listens < consumes, || {
        format!("it does not consume its command queue {commands} before it takes work")
    })?;
    // Probes are confirmed too, but on another channel, or before the registration is sent.
    let confirmed = events.iter().enumerate().position(|(place, event)| {
        matches!(event, Event::Confirmed { .. }) && published.is_some_and(|published| place > published)
    });
    ensure(published.is_some() && confirmed.is_some() && confirmed < consumes, || {
        "it consumes the work queue before the broker has confirmed a report".to_owned()
    })?;
    stage.facts.wrong_number().map_or(Ok(()), Err)
}

async fn needs_no_manager(stage: &mut Stage) -> Verdict {
    stage.start_worker()?;
    stage.registered(1).await?;
    let id = stage.new_work(json!({"do": "wait"})).await?;
    stage.pass(Duration::from_millis(500)).await;
    ensure(stage.facts.events(id).is_empty(), || {
        "it takes work within half a second: it does not wait for the welcome, which may revoke this work"
            .to_owned()
    })?;
    stage.event(id, "started").await.map(drop)
}

async fn welcome_revokes(stage: &mut Stage) -> Verdict {
    let id = stage.new_work(json!({"do": "wait"})).await?;
    stage.start_worker()?;
    let service = stage.registered(1).await?;
    let revocation = Revocation { id, below: Epoch::first_of(2), cause: None };
    let welcome = Welcome::new(service, vec![revocation]);
    stage.command(Some(service), Command::Welcome(Box::new(welcome))).await?;
    stage.event(id, "stopped").await?;
    let story = stage.facts.story(id);
    ensure(story == ["stopped 1.0"], || {
        format!("it reported {story:?} of revoked work, expected one `stopped`")
    })
}

async fn state_queues(stage: &mut Stage) -> Verdict {
    stage.set_state_queues(2);
    stage.capacity = 20;
    stage.start_worker()?;
    stage.pass(SOON).await;
    ensure(stage.facts.reports.is_empty(), || {
        "it registered before its second state queue exists: no manager reads that queue".to_owned()
    })?;
    stage.add_state_queue().await?;
    stage.registered(1).await?;
    // Enough that both queues have some of them: the ids are random, and choose the queue.
    let ids = stage.running(20).await?;
    let wrong = stage.facts.reports.iter().find(|told| {
        let queue = match &told.entry.report {
            Report::Run(run) => stage.topology.state_of(run.id),
            _ => 0,
        };
        told.queue != queue
    });
    ensure(wrong.is_none(), || format!("a report is in the wrong state queue: {wrong:?}"))?;
    let queues: BTreeSet<u16> = ids.iter().map(|id| stage.topology.state_of(*id)).collect();
    ensure(queues.len() == 2, || "all observers belong to one queue: check this rule again".to_owned())?;
    stage.facts.wrong_number().map_or(Ok(()), Err)
}

async fn signs_of_life(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    stage.running(2).await?;
    let (before, probes) = (stage.facts.heartbeats.len(), stage.facts.probes.len());
    stage.pass(Duration::from_millis(4500)).await;
    let heartbeats: Vec<_> =
        stage.facts.heartbeats.iter().skip(before).map(|(heartbeat, _)| heartbeat.clone()).collect();
    ensure(heartbeats.len() >= 3, || {
        format!("{} heartbeats in 4.5 s; its interval is 1 s", heartbeats.len())
    })?;
    let wrong = heartbeats
        .iter()
        .find(|it| it.service != service || it.capacity != 10 || it.held != 2 || it.state != Intent::Active);
    ensure(wrong.is_none(), || format!("a heartbeat says {wrong:?}; it holds 2 of 10 and is active"))?;
    ensure(heartbeats.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1), || {
        "the numbers of its heartbeats are not consecutive".to_owned()
    })?;
    let probes = stage.facts.probes.iter().skip(probes).filter(|(of, _)| *of == service).count();
    ensure(probes >= 3, || format!("{probes} probes in 4.5 s, expected one a second"))
}

async fn epoch(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = stage.running(1).await?[0];
    let first = stage.event(id, "started").await?;
    ensure(first == Epoch::new(1, 0), || format!("the first run has the epoch {first}, expected 1.0"))?;
    if let Some(worker) = stage.worker.take() {
        worker.kill();
    }
    stage.start_worker()?;
    stage.registered(2).await?;
    let higher = |facts: &Facts| {
        let events = facts.events(id);
        events
            .iter()
            .find(|(epoch, event, _)| *epoch > first && matches!(event, RunEvent::Started { .. }))
            .map(|it| it.0)
    };
    let second = stage.until("the observer starts with a higher epoch", HEARTBEAT * 4, higher).await?;
    ensure(second.generation() == 1 && second.acquisitions() >= 1, || {
        format!("the second run has the epoch {second}, expected 1.1 or higher")
    })
}

async fn capacity(stage: &mut Stage) -> Verdict {
    stage.capacity = 3;
    stage.serving().await?;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(stage.new_work(json!({"do": "wait"})).await?);
    }
    stage.until_waiting(3, SOON).await?;
    stage.pass(Duration::from_millis(700)).await;
    let (queue, waiting) = (stage.work_queue(), stage.waiting().await?);
    let most = stage.tap.ledger().most_held(&queue);
    ensure(most == 3 && waiting == 3, || {
        format!("with 3 slots and 6 observers it held {most} at once, and {waiting} wait in the queue")
    })?;
    let runs = |facts: &Facts| ids.iter().copied().find(|id| !facts.events(*id).is_empty());
    let one = stage.until("an observer starts", SOON, runs).await?;
    stage.revoke(one, Epoch::first_of(2)).await?;
    stage.until_waiting(2, SOON).await?;
    let most = stage.tap.ledger().most_held(&queue);
    ensure(most == 3, || format!("it held {most} messages at once with 3 slots"))
}

async fn weights(stage: &mut Stage) -> Verdict {
    (stage.capacity, stage.weight_max) = (7, 3);
    let service = stage.serving().await?;
    let registered =
        stage.facts.registrations().next().map_or((1, 1), |(_, it)| (it.weight_max, it.message_version));
    ensure(registered.0 == 3 && registered.1 >= WORK_VERSION, || {
        format!("with a weight_max of 3, it registers weight_max and message_version as {registered:?}")
    })?;
    let mut weights = Vec::new();
    for weight in [1_u16, 1, 1, 3, 1, 2, 3, 3] {
        let id = ObserverId(Uuid::now_v7());
        stage.work(id, 1, json!({"do": "wait"}), json!({"weight": weight})).await?;
        weights.push((id, u32::from(weight)));
    }
    let used = |facts: &Facts| -> u32 {
        let runs = weights.iter().filter(|(id, _)| !facts.events(*id).is_empty());
        runs.map(|(_, weight)| weight).sum()
    };
    stage.until("it uses more than 4 of its 7 slots", SOON, |facts| (used(facts) > 4).then_some(())).await?;
    stage.pass(Duration::from_millis(2500)).await;
    let sum = used(&stage.facts);
    ensure((5..=7).contains(&sum), || format!("it uses {sum} of 7 slots"))?;
    let held = |facts: &Facts| facts.heartbeat(service).filter(|it| it.held == sum).map(drop);
    stage.until("a heartbeat counts the slots in use", HEARTBEAT * 2, held).await?;
    let heavy = ObserverId(Uuid::now_v7());
    for (id, _) in &weights {
        stage.revoke(*id, Epoch::first_of(2)).await?;
    }
    stage.until_waiting(0, SOON).await?;
    stage.work(heavy, 1, json!({"do": "wait"}), json!({"weight": 4})).await?;
    stage.event(heavy, "refused").await.map(drop)
}

async fn crash_looping(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let ids = [(), ()].map(|()| ObserverId(Uuid::now_v7()));
    stage.command(Some(service), Command::CrashLooping(ids.to_vec())).await?;
    stage.pass(Duration::from_millis(300)).await;
    for id in ids {
        stage.work(id, 1, json!({"do": "wait"}), json!({})).await?;
        stage.event(id, "held").await?;
    }
    let started = |facts: &Facts| {
        ids.iter().filter(|id| facts.story(**id).iter().any(|it| it.starts_with("started"))).count()
    };
    stage.until("one of two suspects starts", SOON, |facts| (started(facts) == 1).then_some(())).await?;
    stage.pass(Duration::from_secs(3)).await;
    let count = started(&stage.facts);
    ensure(count == 1, || format!("{count} suspects started within 3 s; they start a minute apart"))?;
    stage.command(Some(service), Command::CrashLooping(Vec::new())).await?;
    let all = |facts: &Facts| (started(facts) == 2).then_some(());
    stage.until("the other one starts once it is not suspected any longer", SOON, all).await
}

async fn output(stage: &mut Stage) -> Verdict {
    stage.serving().await?;
    let id = stage.new_work(json!({"do": "emit", "text": "a value"})).await?;
    stage.event(id, "started").await?;
    let (exchange, key) = (stage.topology.output(), format!("{KIND}.o-{}", id.0.simple()));
    let emitted = Event::Published { exchange, key: key.clone() };
    let what = format!("the code's value is published to the output exchange with the key {key}");
    stage.until_traffic(&what, SOON, |ledger| ledger.events.contains(&emitted)).await?;
    let running =
        stage.facts.reports.iter().filter(|told| matches!(told.entry.report, Report::Run(_))).count();
    ensure(running >= 1, || "the observer was not reported".to_owned())
}
