//! A deployment under attack: a broker and a database of its own, two managers, four services each behind a
//! proxy, and what people want of it.

use crate::broker::{Broker, host_and_port};
use crate::faults::Fault;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, free_address};
use everwatch_tests::disk::SmallDisk;
use everwatch_tests::http::{Api, wait_for};
use everwatch_tests::postgres::Server;
use everwatch_tests::proxy::Proxy;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) const SERVICES: [&str; 4] = ["s0", "s1", "s2", "s3"];
pub(crate) const CAPACITY: u32 = 15;
const OBSERVERS: usize = 24;

/// Now, in ms as beacons have it.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

pub(crate) struct World {
    // The processes go before what they are connected to.
    pub(crate) cluster: Cluster,
    /// Of each service: one to each node of the broker.
    pub(crate) proxies: BTreeMap<&'static str, Vec<Proxy>>,
    pub(crate) broker: Broker,
    /// `None`: on SQLite, with one manager.
    pub(crate) postgres: Option<Server>,
    /// `None`: on PostgreSQL.
    pub(crate) disk: Option<SmallDisk>,
    pub(crate) folder: PathBuf,
    pub(crate) other: Api,
    /// Names that people want to run.
    pub(crate) live: Vec<String>,
    /// Names that people were told are deleted, and when.
    pub(crate) deleted: BTreeMap<String, i64>,
    made: usize,
    _scratch: TempDir,
}

/// What each name is: two thirds in-process, one third children; some may not overlap.
pub(crate) fn is_child(name: &str) -> bool {
    name.ends_with("-child") || name.ends_with("-child-alone")
}
pub(crate) fn may_overlap(name: &str) -> bool {
    !name.ends_with("-alone")
}

impl World {
    pub(crate) async fn start() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let broker = Broker::from_environment(scratch.path());
        let mut cluster = Cluster::new("chaos").on(&broker.urls.join(",")).with_test_kinds();
        let on_sqlite = std::env::var("EVERWATCH_CHAOS_STORE").is_ok_and(|store| store == "sqlite");
        let postgres = (!on_sqlite).then(|| Server::start(&scratch.path().join("postgres")));
        if let Some(server) = &postgres {
            cluster = cluster.with_postgres_at(&server.url);
        }
        let disk = on_sqlite.then(|| SmallDisk::mount(&cluster.folder("disk"), "32m"));
        if let Some(disk) = &disk {
            let database = format!("sqlite://{}", disk.path.join("everwatch.db").display());
            cluster.extra.push(("EVERWATCH_STORE__URL".to_owned(), database));
        }
        cluster.extra.push(("EVERWATCH_BROKER__HEARTBEAT".to_owned(), "3s".to_owned()));
        cluster.manager().await;
        let other = match &postgres {
            Some(_) => cluster.another_manager("other").await,
            None => cluster.api.clone(),
        };
        let folder = cluster.folder("beacons");
        let mut proxies = BTreeMap::new();
        for name in SERVICES {
            let mut own = Vec::new();
            for url in &broker.urls {
                own.push(Proxy::listen(&free_address(), host_and_port(url)).await);
            }
            proxies.insert(name, own);
        }
        let mut world = Self {
            cluster,
            proxies,
            broker,
            postgres,
            disk,
            folder,
            other,
            live: Vec::new(),
            deleted: BTreeMap::new(),
            made: 0,
            _scratch: scratch,
        };
        for name in SERVICES {
            world.start_service(name);
        }
        for name in SERVICES {
            world.cluster.until_active(name).await;
        }
        for _ in 0..OBSERVERS {
            world.create().await;
        }
        world.until_all_run(Fault::Kill).await;
        world
    }

    pub(crate) fn can_make(&self, fault: Fault) -> bool {
        match fault {
            Fault::CloseAll | Fault::BrokerKill | Fault::Alarm => self.broker.own.is_some(),
            Fault::NodeKill | Fault::LeadersMove => self.broker.command.is_some(),
            Fault::DatabaseKill => self.postgres.is_some(),
            Fault::DiskFull => self.disk.is_some(),
            _ => true,
        }
    }

    /// A service that holds something.
    pub(crate) async fn victim(&self, dice: &mut StdRng) -> &'static str {
        let services = self.cluster.api.items("/v1/observers?limit=1000").await;
        let holds = |name: &&&str| services.iter().any(|it| it["service"]["name"] == **name);
        let candidates: Vec<&str> = SERVICES.iter().filter(holds).copied().collect();
        candidates.choose(dice).copied().unwrap_or(SERVICES[0])
    }

    pub(crate) fn start_service(&mut self, name: &str) {
        let through = |proxy: &Proxy| format!("amqp://guest:guest@{}/%2f", proxy.address);
        let urls: Vec<_> = self.proxies[name].iter().map(through).collect();
        self.cluster.spawn_service_at(name, CAPACITY, &urls.join(","));
    }

    async fn create(&mut self) {
        let kind = ["", "-alone", "-child", "", "-child-alone", ""][self.made % 6];
        let name = format!("o{}{kind}", self.made);
        self.made += 1;
        let (kind, spec) = if is_child(&name) {
            ("exec", beacons::exec_spec(&self.folder))
        } else {
            ("beacon", json!({ "folder": self.folder }))
        };
        let overlap = if may_overlap(&name) { "allow" } else { "forbid" };
        let body = json!({"name": name, "kind": kind, "spec": spec, "overlap": overlap, "on_full": "queue"});
        self.insist("POST", "/v1/observers", Some(body), 201).await;
        self.live.push(name);
    }

    /// One is deleted and one is created, through either manager, whatever is going on.
    pub(crate) async fn people_act(&mut self, dice: &mut StdRng) {
        let name = self.live.swap_remove(dice.random_range(0..self.live.len()));
        self.insist("DELETE", &format!("/v1/observers/{name}?wait=30s"), None, 200).await;
        self.deleted.insert(name, now());
        self.create().await;
    }

    /// Asks one manager, then the other, until the answer is as it must be; an answer lost with its manager is
    /// asked for again, and a name that exists by then is the answer.
    async fn insist(&self, method: &str, path: &str, body: Option<Value>, status: u16) {
        wait_for(&format!("{method} {path} to be answered by {status}"), || async {
            let mut seen = Vec::new();
            for api in [&self.cluster.api, &self.other] {
                match api.try_call(method, path, body.clone()).await {
                    Ok((got, _)) if got == status || (method == "POST" && got == 409) => return Ok(()),
                    Ok((got, answer)) => seen.push(format!("{got} {answer}")),
                    Err(error) => seen.push(error.to_string()),
                }
            }
            Err(seen.join("; "))
        })
        .await;
    }

    /// Every observer that is wanted shows a beacon younger than a moment ago.
    pub(crate) async fn until_all_run(&self, fault: Fault) {
        let from = now();
        wait_for(&format!("all to run after {fault:?}"), || async {
            let runs = beacons::read(&self.folder);
            let runs_now = |name: &&String| {
                runs.get(*name).is_some_and(|runs| runs.iter().any(|run| run.last > from.max(now() - 500)))
            };
            let missing: Vec<_> = self.live.iter().filter(|name| !runs_now(name)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} do not run")) }
        })
        .await;
    }

    /// The books of the managers agree with what runs, nothing is over capacity, nobody is lost.
    pub(crate) async fn check_end(&self) {
        wait_for("the managers' books to come true", || async {
            let observers = self.cluster.api.items("/v1/observers?limit=1000").await;
            let services = self.cluster.api.items("/v1/services?limit=1000").await;
            let runs = |it: &&Value| it["status"] == "Processing" && it["service"].is_object();
            let running = observers.iter().filter(runs).count();
            let active: Vec<_> = services.iter().filter(|it| it["state"] == "active").collect();
            let held: u64 = active.iter().map(|it| it["held"].as_u64().unwrap()).sum();
            let over = active.iter().any(|it| it["held"].as_u64() > Some(u64::from(CAPACITY)));
            let all = self.live.len();
            let told = format!("{running} of {all} run, {} services active, {held} held", active.len());
            let true_now = running == all && observers.len() == all && held == all as u64 && !over;
            if true_now && active.len() == SERVICES.len() { Ok(()) } else { Err(told) }
        })
        .await;
    }
}
