//! The deployment under test: a private broker and database, two managers, seven services in two pools, each
//! behind proxies, and the observers that users want to run.

use crate::broker::Broker;
use crate::faults::Fault;
use crate::log::Log;
use everwatch_api::Observer;
use everwatch_core::record::health::Health;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{As, Cluster, free_address};
use everwatch_tests::disk::SmallDisk;
use everwatch_tests::faketime::wrong_clock;
use everwatch_tests::http::{Api, holder};
use everwatch_tests::postgres::Server;
use everwatch_tests::proxy::{Proxy, host_and_port};
use everwatch_tests::wait::{wait_for, wait_within};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A service of the deployment.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pool: &'static str,
    /// The offset of its clock, in the notation of faketime.
    clock: Option<&'static str>,
    /// Whether its log is a pipe whose reader can be stopped.
    piped: bool,
}

const fn member(name: &'static str, pool: &'static str) -> Member {
    Member { name, pool, clock: None, piped: false }
}

pub(crate) const SERVICES: [Member; 7] = [
    Member { piped: true, ..member("s0", "default") },
    Member { piped: true, ..member("s1", "default") },
    member("s2", "default"),
    Member { clock: Some("+600s"), ..member("s3", "default") },
    member("e0", "edge"),
    member("e1", "edge"),
    member("e2", "edge"),
];
/// Three of the four services of one pool, and two of the three of the other, have enough slots for all
/// observers of their pool.
pub(crate) const CAPACITY: u32 = 15;
const OBSERVERS: usize = 28;
/// How long some of the code runs after it was told to stop.
const LINGERS: Duration = Duration::from_millis(700);

/// The current time, in ms as in beacons.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

pub(crate) struct World {
    // Dropped first: processes must end before the servers that they are connected to.
    pub(crate) cluster: Cluster,
    /// The proxies of each service, one for each node of the broker.
    pub(crate) proxies: BTreeMap<&'static str, Vec<Proxy>>,
    pub(crate) broker: Broker,
    /// `None`: on SQLite, with one manager.
    pub(crate) postgres: Option<Server>,
    /// `None`: on PostgreSQL.
    pub(crate) disk: Option<SmallDisk>,
    pub(crate) folder: PathBuf,
    pub(crate) other: Api,
    /// Names of the observers that users want to run.
    pub(crate) live: Vec<String>,
    /// Names of observers whose delete was confirmed to users, with the time.
    pub(crate) deleted: BTreeMap<String, i64>,
    /// The logs of the services that write to pipes.
    logs: BTreeMap<&'static str, Log>,
    made: usize,
    _scratch: TempDir,
}

/// Decides what each observer is, by its name: two thirds run in-process, one third as children; some forbid
/// overlap.
pub(crate) fn is_child(name: &str) -> bool {
    name.ends_with("-child") || name.ends_with("-child-alone")
}
pub(crate) fn lingers(name: &str) -> bool {
    name.ends_with("-slow")
}
fn is_on_edge(name: &str) -> bool {
    name.contains("-edge")
}
pub(crate) fn may_overlap(name: &str) -> bool {
    !name.ends_with("-alone")
}

impl World {
    pub(crate) async fn start() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let broker = Broker::from_environment(scratch.path());
        let cluster = Cluster::new("chaos").with_test_kinds();
        let mut cluster = match &broker.own {
            Some(node) => cluster.on_node(node),
            None => cluster.on(&broker.urls.join(",")),
        };
        let on_sqlite = std::env::var("EVERWATCH_CHAOS_STORE").is_ok_and(|store| store == "sqlite");
        let postgres = (!on_sqlite).then(|| Server::start(&scratch.path().join("postgres")));
        if let Some(server) = &postgres {
            cluster = cluster.with_postgres_at(&server.url);
        }
        let disk = on_sqlite.then(|| SmallDisk::mount(&cluster.folder("disk"), 128));
        if let Some(disk) = &disk {
            let database = format!("sqlite://{}", disk.path.join("everwatch.db").display());
            cluster.extra.push(("EVERWATCH_STORE__URL".to_owned(), database));
        }
        cluster.extra.push(("EVERWATCH_BROKER__HEARTBEAT".to_owned(), "3s".to_owned()));
        cluster.extra.push(("EVERWATCH_MANAGER__POOLS".to_owned(), "default,edge".to_owned()));
        // No observer of this test kills its services, but the campaign kills a service every few seconds,
        // which makes observers look crash-looping. By design, suspects start a minute apart; `live::poison`
        // and the simulation test that.
        cluster.extra.push(("EVERWATCH_MANAGER__QUARANTINE_AFTER".to_owned(), "50".to_owned()));
        cluster.manager().await;
        let other = match &postgres {
            Some(_) => cluster.another_manager("other").await,
            None => cluster.api.clone(),
        };
        let folder = cluster.folder("beacons");
        let mut proxies = BTreeMap::new();
        for Member { name, .. } in SERVICES {
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
            logs: BTreeMap::new(),
            made: 0,
            _scratch: scratch,
        };
        for Member { name, .. } in SERVICES {
            world.start_service(name);
        }
        for Member { name, .. } in SERVICES {
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
            Fault::NodeKill => self.broker.command.is_some(),
            Fault::LeadersMove => self.broker.command.is_some() && self.broker.urls.len() > 1,
            Fault::Partition => self.broker.command.is_some() && self.broker.urls.len() > 2,
            Fault::DatabaseKill | Fault::KillInOutage | Fault::DatabaseLong | Fault::DamagedRow => {
                self.postgres.is_some()
            }
            Fault::DiskFull | Fault::PowerLoss => self.disk.is_some(),
            _ => true,
        }
    }

    /// A service that holds something.
    pub(crate) async fn victim(&self, dice: &mut StdRng) -> &'static str {
        let observers = self.cluster.api.observers().await;
        let holds = |name: &str| observers.iter().any(|it| holder(it) == Some(name));
        let candidates: Vec<&str> = self.services().into_iter().filter(|name| holds(name)).collect();
        candidates.choose(dice).copied().unwrap_or("s0")
    }

    pub(crate) fn services(&self) -> Vec<&'static str> {
        SERVICES.map(|it| it.name).to_vec()
    }

    /// Another service of the same pool without which the pool still has enough slots.
    pub(crate) fn other_than(&self, victim: &str, dice: &mut StdRng) -> &'static str {
        let others = ["s0", "s1", "s2", "s3"];
        let others: Vec<_> = others.into_iter().filter(|name| *name != victim).collect();
        others.choose(dice).copied().unwrap_or("s0")
    }

    pub(crate) fn server(&self) -> &Server {
        self.postgres.as_ref().expect("chosen only where there is one")
    }

    pub(crate) fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("chosen only where there is one")
    }

    pub(crate) fn pass(&self, victim: &str, (up, down): (bool, bool)) {
        self.proxies[victim].iter().for_each(|proxy| proxy.pass(up, down));
    }

    pub(crate) fn kill_managers(&mut self) {
        self.cluster.kill("manager");
        if self.postgres.is_some() {
            self.cluster.kill("other");
        }
    }

    pub(crate) async fn start_managers(&mut self) {
        self.cluster.manager().await;
        self.other = match &self.postgres {
            Some(_) => self.cluster.another_manager("other").await,
            None => self.cluster.api.clone(),
        };
    }

    /// Stops reading the log of the service that this returns.
    pub(crate) fn stall_a_log(&self, dice: &mut StdRng) -> &'static str {
        let names: Vec<&'static str> = self.logs.keys().copied().collect();
        let name = names.choose(dice).copied().expect("some are pipes");
        self.logs[name].stall();
        name
    }

    pub(crate) fn let_logs_go_on(&self) {
        self.logs.values().for_each(Log::go_on);
    }

    /// Makes the stored state of an observer invalid while a manager starts, then restores it and retries the
    /// reports that were parked meanwhile.
    pub(crate) async fn damage_a_row(&mut self, dice: &mut StdRng) {
        let name = self.live.choose(dice).unwrap();
        self.cluster
            .sql(&format!("create table kept as select s.* from observer_states s join observers o on o.id = s.id where o.name = '{name}'"));
        self.cluster.sql("update observer_states set state = substr(state, 1, length(state) - 1) where id = (select id from kept)");
        self.cluster.kill("manager");
        self.cluster.manager().await;
        self.cluster.sql(
            "update observer_states set state = kept.state from kept where observer_states.id = kept.id",
        );
        self.cluster.sql("drop table kept");
        for message in self.cluster.api.parked().await {
            self.insist("POST", &format!("/v1/parked/{}/retry", message.id), None, &[202, 404]).await;
        }
    }

    /// Waits until the managers know the newest incarnation of this service. Users may have drained it in the
    /// meantime.
    pub(crate) async fn until_back(&self, name: &str) {
        wait_for(&format!("service {name} to be known"), || async {
            let services = self.cluster.api.services().await;
            let lives = |state: ServiceState| state != ServiceState::Suspect && !state.is_over();
            let back = services.iter().any(|it| it.name == name && lives(it.state));
            if back { Ok(()) } else { Err(format!("{services:?}; {}", self.cluster.log(name))) }
        })
        .await;
    }

    pub(crate) fn start_service(&mut self, name: &str) {
        let through = |proxy: &Proxy| format!("amqp://guest:guest@{}/%2f", proxy.address);
        let urls = self.proxies[name].iter().map(through).collect::<Vec<_>>().join(",");
        let member = SERVICES.into_iter().find(|it| it.name == name).expect("it is one of them");
        let clock = member.clock.map(wrong_clock);
        let mut environment = vec![("EVERWATCH_SERVICE__POOL", member.pool)];
        environment.extend(clock.iter().flatten().map(|(name, value)| (*name, value.as_str())));
        let mut how = As { broker_url: &urls, environment: &environment, stderr: None };
        if member.piped {
            let (log, end) = Log::new(&self.cluster.scratch.path().join(format!("{name}.log")));
            self.logs.insert(member.name, log);
            how.stderr = Some(end);
        }
        self.cluster.spawn_service_as(name, CAPACITY, how);
    }

    pub(crate) async fn create(&mut self) {
        const KINDS: [&str; 9] =
            ["", "-alone", "-child", "-slow", "-edge", "-child-alone", "", "-edge-child", "-edge-slow"];
        let kind = KINDS[self.made % KINDS.len()];
        let name = format!("o{}{kind}", self.made);
        self.made += 1;
        let (kind, spec) = if is_child(&name) {
            ("exec", beacons::exec_spec(&self.folder))
        } else {
            let lingers = if lingers(&name) { LINGERS } else { Duration::ZERO };
            ("beacon", json!({ "folder": self.folder, "lingers": lingers.as_millis() }))
        };
        let pool = if is_on_edge(&name) { "edge" } else { "default" };
        let overlap = if may_overlap(&name) { "allow" } else { "forbid" };
        let body = json!({"name": name, "kind": kind, "spec": spec, "overlap": overlap, "on_full": "queue",
            "pool": pool});
        self.insist("POST", "/v1/observers", Some(body), &[201]).await;
        self.live.push(name);
    }

    /// Sends a request to one manager, then to the other, until the status is as expected. If an answer is
    /// lost with its manager, the request is repeated; for a create, the status 409 then counts as success.
    pub(crate) async fn insist(&self, method: &str, path: &str, body: Option<Value>, right: &[u16]) {
        wait_for(&format!("{method} {path} to be answered by {right:?}"), || async {
            let mut seen = Vec::new();
            for api in [&self.cluster.api, &self.other] {
                match api.try_call(method, path, body.clone()).await {
                    Ok((got, _)) if right.contains(&got) || (method == "POST" && got == 409) => return Ok(()),
                    Ok((got, answer)) => seen.push(format!("{got} {answer}")),
                    Err(error) => seen.push(error.to_string()),
                }
            }
            Err(seen.join("; "))
        })
        .await;
    }

    /// Waits until every observer that should run has written a recent beacon.
    pub(crate) async fn until_all_run(&self, fault: Fault) {
        let from = now();
        wait_within(fault.over_within(), &format!("all to run after {fault:?}"), || async {
            let runs = beacons::read(&self.folder);
            let runs_now = |name: &&String| {
                runs.get(*name).is_some_and(|runs| runs.iter().any(|run| run.last > from.max(now() - 500)))
            };
            let missing: Vec<_> = self.live.iter().filter(|name| !runs_now(name)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} do not run")) }
        })
        .await;
    }

    /// The managers have carried out the requests of users.
    pub(crate) async fn until_managers_are_done(&self) {
        wait_for("every observer to be shown as running", || async {
            let observers = self.cluster.api.observers().await;
            // The run that a restart ends is still shown as Processing; its health is `stopping`.
            let runs = |it: &Observer| matches!(it.health, Some(Health::Running | Health::Restarting));
            let others: Vec<_> = observers.iter().filter(|it| !runs(it)).collect();
            if others.is_empty() { Ok(()) } else { Err(format!("{others:?}")) }
        })
        .await;
    }

    /// Checks that the rows agree with what runs, no service exceeds its capacity, and no service is lost.
    pub(crate) async fn check_end(&self) {
        wait_for("the managers' books to come true", || async {
            let (observers, services) =
                (self.cluster.api.observers().await, self.cluster.api.services().await);
            let runs = |it: &&Observer| it.status == Status::Processing && it.service.is_some();
            let running = observers.iter().filter(runs).count();
            let active: Vec<_> = services.iter().filter(|it| it.state == ServiceState::Active).collect();
            let held = active.iter().map(|it| it.held as usize).sum::<usize>();
            let over = active.iter().any(|it| it.held > CAPACITY);
            let all = self.live.len();
            let told = format!("{running} of {all} run, {} services active, {held} held", active.len());
            let true_now = running == all && observers.len() == all && held == all && !over;
            if true_now && active.len() == SERVICES.len() { Ok(()) } else { Err(told) }
        })
        .await;
    }
}
