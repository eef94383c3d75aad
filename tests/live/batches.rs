//! Batches: each member exists once, never more than `max_running` run at once, and the batch completes, whoever dies
//! meanwhile.

use everwatch_api::{Batch, BatchMember, Listed, Observer};
use everwatch_core::batch::BatchState;
use everwatch_core::record::status::Status;
use everwatch_core::wire::batch::{BatchCompleted, BatchMessage, COMPLETED};
use everwatch_core::wire::message::decode;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::http::Api;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

const MEMBERS: usize = 300;
const RUNNING: u32 = 20;
/// Each member whose number is a multiple of this one fails.
const FAILS: usize = 10;
/// The members of a batch whose request is cut off.
const CUT: usize = 3000;

/// Writes a beacon every 20 ms for about half a second; then it fails in the folder `fails`.
const SCRIPT: &str = r#"i=0; while [ $i -lt 20 ]; do echo "$EVERWATCH_EPOCH $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME"; sleep 0.02; i=$((i+1)); done; case $PWD in *fails) [ -e mended ] || exit 3;; esac"#;

/// The names of the batches whose completions arrive in a queue, each with its message.
struct Output {
    management: Management,
    queue: String,
}

impl Output {
    async fn of(cluster: &Cluster) -> Self {
        let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
        let queue = format!("{}heard", cluster.prefix);
        management.listen(&format!("{}output", cluster.prefix), &queue).await;
        Self { management, queue }
    }

    /// Waits for the completion with this number; others may be repeated before it.
    async fn until(&self, number: u32) -> BatchCompleted {
        wait_for("a completion in the output exchange", || async {
            let taken = self.management.take(&self.queue).await;
            let of_batches = taken.iter().filter(|it| it["routing_key"] == COMPLETED);
            let read =
                |it: &Value| decode::<BatchMessage>(it["payload"].as_str().unwrap().as_bytes()).unwrap();
            let mut read = of_batches.map(read).map(|BatchMessage::Completed(it)| it);
            read.find(|it| it.completion == number).ok_or_else(|| format!("{taken:?}"))
        })
        .await
    }
}

fn observers(folder: &Path, fails: &Path) -> Value {
    let member = |number: usize| {
        let cwd = if number.is_multiple_of(FAILS) { fails } else { Path::new("/") };
        json!({"name": format!("m{number}"), "spec": {"cwd": cwd}})
    };
    json!({"name": "jobs", "max_running": RUNNING, "observers": (0..MEMBERS).map(member).collect::<Vec<_>>(),
        "defaults": {"kind": "exec", "spec": {"argv": ["/bin/sh", "-c", SCRIPT, folder]},
            "retry": {"kind": "intervals", "delays": []}, "labels": {"app": "jobs"}}})
}

async fn until_state(api: &Api, name: &str, state: BatchState) -> Batch {
    wait_within(Duration::from_secs(240), "the state of the batch", || async {
        let batch: Batch = api.try_read(&format!("/v1/batches/{name}")).await?;
        if batch.state == state { Ok(batch) } else { Err(format!("{batch:?}")) }
    })
    .await
}

/// All members, page by page.
async fn members(api: &Api, name: &str, query: &str) -> Vec<BatchMember> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page: Listed<BatchMember> =
            api.read(&format!("/v1/batches/{name}/observers?limit=1000{query}{cursor}")).await;
        all.extend(page.items);
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => {
                assert_eq!(all.len() as u64, page.total);
                return all;
            }
        }
    }
}

fn judge_places(members: &[BatchMember], expected: usize) {
    let places: Vec<u32> = members.iter().map(|it| it.place).collect();
    assert_eq!(places, (0..u32::try_from(expected).unwrap()).collect::<Vec<_>>());
    let ids: BTreeSet<_> = members.iter().map(|it| it.id).collect();
    assert_eq!(ids.len(), expected);
}

/// The greatest number of members that ran at once.
fn most_at_once(folder: &Path) -> usize {
    let all = beacons::read(folder);
    let mut changes = Vec::new();
    for (name, runs) in &all {
        let awake = runs.iter().flat_map(|run| &run.awake);
        for (from, until) in awake.filter(|(from, until)| from < until) {
            changes.extend([(*from, true, name.as_str()), (*until, false, name.as_str())]);
        }
    }
    beacons::most_at_once(changes).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_completes_while_services_and_managers_are_killed() {
    let mut cluster = Cluster::new("batches").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    for service in ["a", "b"] {
        cluster.service(service, 40).await;
    }
    let (api, folder, fails) = (cluster.api.clone(), cluster.folder("runs"), cluster.folder("fails"));
    let output = Output::of(&cluster).await;
    let batch: Batch = api.done("POST", "/v1/batches", Some(observers(&folder, &fails)), 201).await;
    assert_eq!((batch.members as usize, batch.state), (MEMBERS, BatchState::Running));
    let taken = api.refused("POST", "/v1/batches", Some(observers(&folder, &fails))).await;
    assert_eq!((taken.status, taken.code.as_str()), (422, "invalid"), "{taken:?}");
    assert!(taken.detail.contains("an observer named m0 exists already"), "{}", taken.detail);
    let mut look = second.clone();
    for (least, victim) in [(20, "a"), (60, "second"), (110, "b"), (160, "manager"), (210, "a")] {
        wait_within(Duration::from_secs(120), "members to end", || async {
            let batch: Batch = look.try_read("/v1/batches/jobs").await?;
            if batch.settled >= least { Ok(()) } else { Err(format!("{batch:?}")) }
        })
        .await;
        cluster.kill(victim);
        match victim {
            "second" => {
                look = {
                    drop(cluster.another_manager("second").await);
                    api.clone()
                }
            }
            "manager" => cluster.manager().await,
            service => cluster.spawn_service(service, 40),
        }
    }
    let failed = MEMBERS / FAILS;
    let batch = until_state(&api, "jobs", BatchState::Completed).await;
    let counted = |batch: &Batch, status: Status| batch.counts[&status] as usize;
    assert_eq!(
        (counted(&batch, Status::Completed), counted(&batch, Status::Failed)),
        (MEMBERS - failed, failed)
    );
    assert_eq!((batch.settled as usize, batch.completions), (MEMBERS, 1));
    judge_places(&members(&api, "jobs", "").await, MEMBERS);
    assert_eq!(api.read::<Listed<Observer>>("/v1/observers?label=app=jobs").await.total, MEMBERS as u64);
    let completed = output.until(1).await;
    assert_eq!((completed.batch.0, completed.counts["Failed"] as usize), (batch.id, failed));
    let errors = members(&api, "jobs", "&status=Failed").await;
    assert!(errors.iter().all(|it| it.error.contains("exited with code 3")), "{errors:?}");

    std::fs::write(fails.join("mended"), "").unwrap();
    let (code, said) = cluster.command(&["batch", "retry-failed", "jobs"]);
    assert!(code == Some(0) && said.contains("batch jobs retries"), "{said}");
    let batch = until_state(&api, "jobs", BatchState::Completed).await;
    assert_eq!((counted(&batch, Status::Completed), batch.completions), (MEMBERS, 2));
    assert_eq!(output.until(2).await.counts["Completed"] as usize, MEMBERS);
    let (code, said) = cluster.command(&["batch", "retry-failed", "jobs"]);
    assert!(code == Some(0) && said.contains("batch jobs has no failed observer"), "{said}");
    let most = most_at_once(&folder);
    assert_eq!(most, RUNNING as usize, "ran at once");

    api.done::<Batch>("DELETE", "/v1/batches/jobs", None, 202).await;
    // A killed service may not have said that a message is gone: then managers conclude it after `orphan_after`.
    wait_within(Duration::from_secs(240), "the end of the batch", || async {
        match api.try_read::<Batch>("/v1/batches/jobs").await {
            Ok(batch) => Err(format!("{batch:?}")),
            Err(said) if said.starts_with("Ok((404") => Ok(()),
            Err(said) => Err(said),
        }
    })
    .await;
    let left = "/v1/observers?label=app=jobs&status=Completed,Failed,Deleted";
    assert_eq!(api.read::<Listed<Observer>>(left).await.total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_off_is_continued_at_another_manager() {
    let mut cluster = Cluster::new("batch-cut").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    cluster.service("a", 10).await;
    let names: Vec<Value> = (0..CUT).map(|number| json!({"name": format!("m{number}")})).collect();
    let body =
        json!({"name": "cut", "defaults": {"kind": "ticker", "desired": "paused"}, "observers": names});
    let key = [("idempotency-key", "cut-1".to_owned())];
    let (first, sent, with) = (cluster.api.clone(), body.clone(), key.clone());
    let mut request = JoinSet::new();
    request
        .spawn(async move { first.try_call_with("POST", "/v1/batches", &with, Some(sent)).await.is_err() });
    wait_for("some members to exist", || async {
        let batch: Batch = second.try_read("/v1/batches/cut").await?;
        if batch.counts[&Status::Paused] > 0 { Ok(()) } else { Err(format!("{batch:?}")) }
    })
    .await;
    cluster.kill("manager");
    assert!(
        request.join_next().await.unwrap().unwrap(),
        "the request came to its end before the manager was killed"
    );
    let cut = until_state(&second, "cut", BatchState::Incomplete).await;
    assert!((1..CUT).contains(&(cut.counts[&Status::Paused] as usize)), "{cut:?}");
    let refused = second.refused("POST", "/v1/batches/cut/retry-failed", None).await;
    assert_eq!((refused.status, refused.code.as_str()), (409, "batch-incomplete"), "{refused:?}");

    // Two requests at once continue it.
    cluster.manager().await;
    let (one, two) = tokio::join!(
        second.call_with("POST", "/v1/batches", &key, Some(body.clone())),
        cluster.api.call_with("POST", "/v1/batches", &key, Some(body.clone()))
    );
    assert_eq!((one.0, two.0), (201, 201), "{} {}", one.1, two.1);
    let batch: Batch = second.read("/v1/batches/cut").await;
    assert_eq!(
        (batch.id, batch.state, batch.counts[&Status::Paused] as usize),
        (cut.id, BatchState::Running, CUT)
    );
    judge_places(&members(&second, "cut", "").await, CUT);

    let (code, said) = cluster.command(&["batch", "cancel", "cut"]);
    assert!(code == Some(0) && said.contains("batch cut is Cancelling"), "{said}");
    cluster.kill("second");
    let api = cluster.api.clone();
    let cancelled = until_state(&api, "cut", BatchState::Cancelled).await;
    assert_eq!(cancelled.counts[&Status::Deleted] as usize, CUT);
    // The key is that of the cancelled batch.
    let (status, told) = api.call_with("POST", "/v1/batches", &key, Some(body)).await;
    assert_eq!((status, &told["code"]), (409, &json!("batch-over")), "{told}");
    let (code, said) = cluster.command(&["batch", "delete", "cut"]);
    assert_eq!(code, Some(0), "{said}");
    api.until("/v1/batches/cut", |status, _| status == 404).await;
}
