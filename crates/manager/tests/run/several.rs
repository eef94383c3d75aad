//! Two managers on one PostgreSQL, ended as hard as a process.

use crate::service::Service;
use crate::stage::Stage;
use everwatch_api::{Listed, Observer, ProblemBody};
use everwatch_core::record::status::Status;
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Asks one manager after the other until one answers.
async fn either(apis: &[Api], turn: usize, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    wait_for(path, || async {
        for offset in 0..apis.len() {
            let api = &apis[(turn + offset) % apis.len()];
            match api.try_call(method, path, body.clone()).await {
                Ok((503, _)) | Err(_) => {}
                Ok(answer) => return Ok(answer),
            }
        }
        Err("no manager answers".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_managers_may_be_killed_and_nothing_is_lost_or_doubled() {
    let stage = Stage::new().on_postgres().await;
    let mut one = Some(stage.ready_manager().await);
    let mut two = Some(stage.ready_manager().await);
    let service = Service::new(&stage, "s", 300).await;
    let mut apis = vec![one.as_ref().unwrap().api.clone(), two.as_ref().unwrap().api.clone()];
    for number in 0..200 {
        if number == 60 {
            drop(one.take());
        }
        if number == 90 {
            let again = stage.ready_manager().await;
            apis[0] = again.api.clone();
            one = Some(again);
        }
        if number == 130 {
            drop(two.take());
        }
        if number == 160 {
            let again = stage.ready_manager().await;
            apis[1] = again.api.clone();
            two = Some(again);
        }
        let body = json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue"});
        let (status, made) = either(&apis, number, "POST", "/v1/observers", Some(body)).await;
        // A manager that was killed before its answer may have created it: then the name is taken.
        let is_taken = |problem: ProblemBody| problem.code == "name-exists";
        assert!(status == 201 || ProblemBody::deserialize(&made).is_ok_and(is_taken), "{status} {made}");
        if number % 2 == 1 {
            let path = format!("/v1/observers/o{}", number - 1);
            let (status, deleted) = either(&apis, number + 1, "DELETE", &path, None).await;
            assert!(status == 200 || status == 202, "{status} {deleted}");
        }
    }
    let api = &apis[0];
    api.until_total("/v1/observers?status=Deleted", 100).await;
    let all_run = |all: &Listed<Observer>| all.items.iter().all(|it| it.status == Status::Processing);
    let alive = api.until_read("/v1/observers?limit=1000", all_run).await.items;
    let mut expected = BTreeMap::new();
    for observer in alive {
        let number: usize = observer.name[1..].parse().unwrap();
        assert_eq!(number % 2, 1, "{observer:?}");
        expected.insert(observer.id.to_string(), observer.epoch);
    }
    assert_eq!(expected.len(), 100);
    wait_for("exactly the living ones to run", || async {
        let running: BTreeMap<String, u64> = service
            .running
            .lock()
            .unwrap()
            .iter()
            .map(|(id, epoch)| (id.to_string(), (*epoch).into()))
            .collect();
        if running == expected { Ok(()) } else { Err(format!("{} run", running.len())) }
    })
    .await;
    drop((one, two));
}
