//! Rollouts with two managers that die in turn: each observer changes once, never more than `max_parallel` are changed and
//! not yet healthy, and the first that fails stops the rollout.

use everwatch_api::{DefinitionVersion, Event, Listed, Observer, Rollout, RolloutMember};
use everwatch_core::clock::Timestamp;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_core::rollout::{MemberState, RolloutState};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::time::Duration;

const OBSERVERS: usize = 12;
const PARALLEL: usize = 3;
const HEALTHY_FOR: Duration = Duration::from_secs(2);

/// Runs until it is stopped; after the patch, it fails in the folder `fails`.
const BEFORE: &str = "exec sleep 1000";
const AFTER: &str = "case $PWD in *fails) exit 3;; esac; exec sleep 1000";

struct Going {
    cluster: Cluster,
    /// The manager that was not killed last.
    api: Api,
    turn: usize,
}

impl Going {
    /// Two managers, two services, and observers that run; those with these numbers will fail.
    async fn new(name: &str, fail: &[usize]) -> Self {
        let mut cluster = Cluster::new(name).with_postgres();
        cluster.manager().await;
        cluster.another_manager("second").await;
        cluster.service("a", 20).await;
        cluster.service("b", 20).await;
        let (api, fails) = (cluster.api.clone(), cluster.folder("fails"));
        for number in 0..OBSERVERS {
            let cwd = if fail.contains(&number) { fails.to_str().unwrap() } else { "/" };
            let spec = json!({"argv": ["/bin/sh", "-c", BEFORE], "cwd": cwd});
            let body = json!({"name": named(number), "kind": "exec", "spec": spec, "labels": {"wave": "x"},
                "retry": {"kind": "fixed", "every": "1h"}});
            api.create(body).await;
        }
        api.until_total("/v1/observers?status=Processing&health=running", OBSERVERS as u64).await;
        Self { cluster, api, turn: 0 }
    }

    /// Kills one of the managers and starts it again; the other one goes on.
    async fn kill_a_manager(&mut self) {
        self.turn += 1;
        if self.turn % 2 == 1 {
            self.cluster.kill("second");
            self.api = self.cluster.api.clone();
            self.cluster.another_manager("second").await;
        } else {
            self.cluster.kill("manager");
            self.cluster.manager().await;
        }
    }

    async fn start(&self, on_failure: &str) -> Rollout {
        let body = json!({"name": on_failure, "selector": {"label_selector": "wave in (x, y)"},
            "patch": {"spec": {"argv": ["/bin/sh", "-c", AFTER]}}, "max_parallel": PARALLEL, "healthy_for": "2s",
            "timeout": "1m", "on_failure": on_failure});
        self.api.done("POST", "/v1/rollouts", Some(body), 201).await
    }

    /// Waits until at least `least` members are in one of these states; no look may show too many in progress.
    async fn until(&self, name: &str, states: &[MemberState], least: usize) {
        wait_within(Duration::from_secs(120), "members to change", || async {
            let rollout = look(&self.api, name).await?;
            let so_far: u32 = states.iter().map(|state| count(&rollout, *state)).sum();
            if so_far as usize >= least { Ok(()) } else { Err(format!("{rollout:?}")) }
        })
        .await;
    }

    async fn until_state(&self, name: &str, state: RolloutState) -> Rollout {
        wait_within(Duration::from_secs(120), "the state of the rollout", || async {
            let rollout = look(&self.api, name).await?;
            if rollout.state == state { Ok(rollout) } else { Err(format!("{rollout:?}")) }
        })
        .await
    }

    async fn members(&self, name: &str) -> Vec<RolloutMember> {
        self.api.list(&format!("/v1/rollouts/{name}/members?limit=1000")).await
    }

    async fn versions(&self, number: usize) -> Vec<DefinitionVersion> {
        self.api.list(&format!("/v1/observers/{}/versions", named(number))).await
    }
}

fn named(number: usize) -> String {
    format!("o{number:02}")
}

fn count(rollout: &Rollout, state: MemberState) -> u32 {
    rollout.counts[&state]
}

/// Reads a rollout; too many members in progress fail the test at once.
async fn look(api: &Api, name: &str) -> Result<Rollout, String> {
    let rollout: Rollout = api.try_read(&format!("/v1/rollouts/{name}")).await?;
    let in_progress = count(&rollout, MemberState::Changed) + count(&rollout, MemberState::Reverting);
    assert!(in_progress as usize <= PARALLEL, "{rollout:?}");
    Ok(rollout)
}

/// Judges without the rollout's own books: at the time of each change, fewer than `PARALLEL` others were changed and had
/// not run for `HEALTHY_FOR` since.
fn judge_parallel(changes: &[(Timestamp, Timestamp)]) {
    for (place, (at, _)) in changes.iter().enumerate() {
        let others = changes.iter().enumerate().filter(|(other, _)| *other != place);
        let open = others.filter(|(_, (changed, started))| changed <= at && started.plus(HEALTHY_FOR) > *at);
        assert!(open.count() < PARALLEL, "change {place} at {at}: {changes:?}");
    }
}

async fn kinds_of_events(api: &Api, kinds: &str) -> Vec<EventKind> {
    let events: Vec<Event> = api.list(&format!("/v1/events?type={kinds}")).await;
    events.iter().rev().map(|it| it.kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_observer_changes_once_while_managers_die_in_turn() {
    let mut going = Going::new("rollouts", &[]).await;
    let started = going.start("pause").await;
    assert_eq!((started.members as usize, started.state), (OBSERVERS, RolloutState::Running));
    let busy = json!({"selector": {"q": "o1"}, "patch": {"priority": 1}});
    let refused = going.api.refused("POST", "/v1/rollouts", Some(busy)).await;
    assert_eq!((refused.status, refused.code.as_str()), (409, "in-rollout"), "{refused:?}");
    assert!(refused.detail.contains("rollout pause"), "{refused:?}");
    // The last two are edited and deleted before it is their turn.
    let edit = json!({"priority": 7});
    going.api.done::<Observer>("PATCH", "/v1/observers/o10", Some(edit), 200).await;
    assert_eq!(going.api.call("DELETE", "/v1/observers/o11?wait=20s", None).await.0, 200);
    let kills = [1, 3, 5, 8];
    for least in kills {
        going.until("pause", &[MemberState::Changed, MemberState::Done], least).await;
        going.kill_a_manager().await;
    }
    let rollout = going.until_state("pause", RolloutState::Completed).await;
    assert_eq!(
        (count(&rollout, MemberState::Done), count(&rollout, MemberState::Skipped)),
        (10, 2),
        "{rollout:?}"
    );
    let members = going.members("pause").await;
    assert!(members[10].reason.starts_with("it was edited"), "{:?}", members[10]);
    assert_eq!(members[11].reason, "it was deleted");
    let (mut changes, mut published_again) = (Vec::new(), 0);
    for number in 0..10 {
        let versions = going.versions(number).await;
        assert_eq!(versions.len(), 2, "{versions:?}");
        assert_eq!(versions[0].by.as_deref(), Some("rollout pause"));
        assert_eq!(versions[0].definition["spec"]["argv"][2], AFTER);
        let runs = going.api.observer(&named(number)).await;
        assert_eq!(runs.status, Status::Processing, "{runs:?}");
        // A manager that is killed before it records a publish leads to one more of the same version.
        published_again += usize::try_from(runs.generation.checked_sub(2).unwrap()).unwrap();
        changes.push((versions[0].at, runs.started_at.unwrap()));
        // A manager that is killed may lose events; it never tells one twice.
        let events: Vec<Event> = going.api.events_of(&named(number)).await;
        let changed: Vec<&Event> = events.iter().filter(|it| it.kind == EventKind::Changed).collect();
        assert!(changed.len() <= 1, "{changed:?}");
        let by = |it: &&Event| it.by.as_ref().and_then(|by| by.who.as_deref()) == Some("rollout pause");
        assert!(changed.iter().all(by), "{changed:?}");
    }
    assert!(published_again <= kills.len(), "{published_again} more publishes");
    judge_parallel(&changes);
    assert_eq!(going.versions(10).await.len(), 2, "only the edit");
    assert_eq!(going.api.observer("o10").await.spec["argv"][2], BEFORE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_failure_pauses_and_a_revert_restores_all() {
    let mut going = Going::new("rollout-fails", &[5]).await;
    going.start("pause").await;
    let paused = going.until_state("pause", RolloutState::Paused).await;
    assert!(paused.reason.starts_with("observer o05: an attempt failed: "), "{}", paused.reason);
    let (code, said) = going.cluster.command(&["rollout", "describe", "pause"]);
    assert!(code == Some(0) && said.contains("observer o05: an attempt failed"), "{said}");
    let members = going.members("pause").await;
    let changed = members.iter().filter(|it| it.changed_to.is_some()).count();
    assert!((6..=8).contains(&changed), "{members:?}");
    assert_eq!(members[5].state, MemberState::Failed);
    going.kill_a_manager().await;
    let (code, said) = going.cluster.command(&["rollout", "revert", "pause"]);
    assert!(code == Some(0) && said.contains("rollout pause is Reverting"), "{said}");
    for least in [1, 4] {
        going.until("pause", &[MemberState::Reverting, MemberState::Reverted], least).await;
        going.kill_a_manager().await;
    }
    let reverted = going.until_state("pause", RolloutState::Reverted).await;
    assert_eq!(count(&reverted, MemberState::Reverted) as usize, changed, "{reverted:?}");
    for number in 0..OBSERVERS {
        let versions = going.versions(number).await;
        let expected = if number < changed { 3 } else { 1 };
        assert_eq!(versions.len(), expected, "{number}: {versions:?}");
        assert_eq!(versions[0].definition["spec"]["argv"][2], BEFORE, "{number}");
    }
    let all = "/v1/observers?status=Processing&health=running";
    wait_for("all to run again", || async {
        let running: Listed<Value> = going.api.try_read(all).await?;
        if running.total as usize == OBSERVERS { Ok(()) } else { Err(format!("{} run", running.total)) }
    })
    .await;
    let (code, said) = going.cluster.command(&["rollout", "list"]);
    assert!(code == Some(0) && said.contains("Reverted"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_reverts_by_itself() {
    let going = Going::new("rollout-reverts", &[4]).await;
    going.start("revert").await;
    let reverted = going.until_state("revert", RolloutState::Reverted).await;
    assert!(reverted.reason.starts_with("observer o04: an attempt failed: "), "{}", reverted.reason);
    for number in 0..OBSERVERS {
        let versions = going.versions(number).await;
        assert!(versions.len() == 3 || versions.len() == 1 && number > 4, "{number}: {versions:?}");
        assert_eq!(versions[0].definition["spec"]["argv"][2], BEFORE, "{number}");
    }
    let kinds = "rollout_started,rollout_paused,rollout_reverting,rollout_finished,rollout_reverted";
    let expected = [EventKind::RolloutStarted, EventKind::RolloutReverting, EventKind::RolloutReverted];
    wait_for("the events of the rollout", || async {
        let told = kinds_of_events(&going.api, kinds).await;
        if told == expected { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let text = going.api.get("/metrics").await;
    assert!(text.to_string().contains("everwatch_rollouts{state=\\\"Running\\\"} 0"), "{text}");
}
