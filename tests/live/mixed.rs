//! Managers and services of the previous release beside those under test: an upgrade in both orders, and services that go back.
//! Managers do not go back, because they refuse the schema of a newer version.
//!
//! `tests/run --long upgrade` builds the previous release. Without it, the program under test takes its place, and this is a
//! rolling restart.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, everwatch};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The greatest overlap of two runs, in ms: none is allowed, and the clock of a beacon has whole milliseconds.
const OVERLAP: i64 = 1;

fn previous() -> PathBuf {
    std::env::var_os("EVERWATCH_TEST_PREVIOUS").map_or_else(everwatch, PathBuf::from)
}

/// A deployment of which each process can be replaced.
struct Mixed {
    cluster: Cluster,
    second: Api,
    folder: PathBuf,
    created: usize,
}

impl Mixed {
    async fn new(mut cluster: Cluster) -> Self {
        cluster.extra.push(("EVERWATCH_MANAGER__ORPHAN_AFTER".to_owned(), "15s".to_owned()));
        for name in ["manager", "second", "a", "b"] {
            cluster.programs.insert(name.to_owned(), previous());
        }
        let folder = cluster.folder("beacons");
        cluster.manager().await;
        let second = cluster.another_manager("second").await;
        for name in ["a", "b"] {
            cluster.service(name, 40).await;
        }
        let mut mixed = Self { cluster, second, folder, created: 0 };
        mixed.grow().await;
        mixed
    }

    /// Two more observers through each manager, and actions on them.
    async fn grow(&mut self) {
        for api in [self.cluster.api.clone(), self.second.clone()] {
            for _ in 0..2 {
                let (name, spec) = (format!("o{}", self.created), beacons::exec_spec(&self.folder));
                let body = json!({"name": name, "kind": "exec", "spec": spec, "labels": {"by": "test"}});
                api.create(body).await;
                self.created += 1;
            }
        }
        self.until_all_run().await;
        let last = format!("/v1/observers/o{}", self.created - 1);
        for (api, action, status) in
            [(&self.second, "pause", Status::Paused), (&self.cluster.api, "resume", Status::Processing)]
        {
            let (code, answer) = api.call("POST", &format!("{last}/{action}"), None).await;
            assert!(code < 300, "{code} {answer}");
            let name = last.rsplit('/').next().unwrap();
            self.cluster.api.until_observer(name, |it: &Observer| it.status == status).await;
        }
    }

    async fn until_all_run(&self) {
        wait_for(&format!("{} observers to run", self.created), || async {
            let all = self.cluster.api.processing().await;
            let running = all.iter().filter(|it| it.service.is_some()).count();
            if running == self.created { Ok(()) } else { Err(format!("{running}: {all:?}")) }
        })
        .await;
    }

    async fn replace_managers(&mut self, program: &Path) {
        for name in ["manager", "second"] {
            self.cluster.programs.insert(name.to_owned(), program.to_path_buf());
            self.cluster.kill(name);
            if name == "manager" {
                self.cluster.manager().await;
            } else {
                self.second = self.cluster.another_manager(name).await;
            }
            self.grow().await;
        }
    }

    /// The first service hands over, the other one is killed.
    async fn replace_services(&mut self, program: &Path) {
        for name in ["a", "b"] {
            self.cluster.programs.insert(name.to_owned(), program.to_path_buf());
            if name == "a" {
                assert_eq!(self.cluster.terminate(name), Some(0), "{}", self.cluster.log(name));
            } else {
                self.cluster.kill(name);
            }
            self.until_all_run().await;
            self.cluster.service(name, 40).await;
            self.grow().await;
        }
    }

    async fn judge(self, what: &str) {
        for name in ["manager", "second"] {
            let log = self.cluster.full_log(name);
            assert!(!log.contains("panicked"), "{what}: {log}");
        }
        assert!(self.cluster.api.parked().await.is_empty(), "{what}: something was parked");
        // A program that has just started may end before it writes.
        wait_for("each observer to write that it runs", || async {
            let written = beacons::read(&self.folder).len();
            if written == self.created { Ok(()) } else { Err(format!("{written} of {}", self.created)) }
        })
        .await;
        let all = format!("/v1/observers?label=by%3Dtest&expect={}", self.created);
        let (code, answer) = self.cluster.api.call("DELETE", &all, None).await;
        assert!(code < 300, "{what}: {code} {answer}");
        self.cluster.api.until_total("/v1/observers?status=Processing,OnDeleting,Created", 0).await;
        beacons::judge(what, &self.folder, |_| OVERLAP);
        let runs = beacons::read(&self.folder);
        assert_eq!(runs.len(), self.created, "{what}: each observer has run");
    }
}

#[tokio::test]
async fn managers_are_upgraded_first_and_services_go_back() {
    let mut mixed = Mixed::new(Cluster::new("managers-first").with_postgres()).await;
    mixed.replace_managers(&everwatch()).await;
    mixed.replace_services(&everwatch()).await;
    mixed.replace_services(&previous()).await;
    mixed.judge("managers first").await;
}

#[tokio::test]
async fn services_are_upgraded_first_and_go_back() {
    let mut mixed = Mixed::new(Cluster::new("services-first").with_postgres()).await;
    mixed.replace_services(&everwatch()).await;
    mixed.replace_managers(&everwatch()).await;
    mixed.replace_services(&previous()).await;
    mixed.judge("services first").await;
}
