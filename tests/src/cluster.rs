//! A deployment of real processes with its own prefix and database. Dropping it kills all processes.

use crate::broker_users::BrokerUsers;
use crate::brokers::management_url_of;
pub use crate::brokers::{brokers, from_environment, further_brokers};
use crate::http::Api;
use crate::rabbitmq::Node;
use crate::script;
use crate::wait::wait_for;
use everwatch_core::record::service::ServiceState;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The secret of the first administrator.
pub const BOOTSTRAP: &str = "the bootstrap token of the tests, with more than 32 characters";

/// A deployment of Everwatch.
pub struct Cluster {
    /// The first manager.
    pub api: Api,
    pub scratch: TempDir,
    /// With the administrator of the broker; processes have users of their own.
    pub broker_url: String,
    broker_users: BrokerUsers,
    pub prefix: String,
    store_url: String,
    listen: String,
    processes: BTreeMap<String, Child>,
    /// The address of the health endpoint of each service.
    health: BTreeMap<String, String>,
    /// The program that services run.
    pub service_program: PathBuf,
    /// The programs of single processes, by name, where they are not those under test.
    pub programs: BTreeMap<String, PathBuf>,
    /// The token of the tests, where requests need one.
    token: Option<String>,
    /// More environment for every process, as `EVERWATCH_SECTION__KEY`.
    pub extra: Vec<(String, String)>,
}

/// The program under test.
pub fn everwatch() -> PathBuf {
    from_environment("EVERWATCH_BIN").into()
}

/// An example of the SDK: a program with kinds of its own.
pub fn example(name: &str) -> PathBuf {
    everwatch().with_file_name("examples").join(name)
}

/// The service that leaves beacons and misbehaves.
pub fn test_service() -> PathBuf {
    everwatch().with_file_name("everwatch-test-service")
}

/// A free loopback address, which no other test gets for 10 minutes: see `tests/free-port`.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", script("free-port", &[]).trim_end())
}

impl Cluster {
    /// Creates a deployment on the default broker and a SQLite file, without starting a process.
    pub fn new(name: &str) -> Self {
        let scratch = tempfile::Builder::new().prefix("everwatch-live").tempdir().unwrap();
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let listen = free_address();
        let prefix = format!("{name}-{}.", &unique[..8]);
        let broker_url = from_environment("EVERWATCH_TEST_AMQP_URL");
        Self {
            api: Api::new(format!("http://{listen}")),
            broker_users: BrokerUsers::new(management_url_of(&broker_url)),
            broker_url,
            prefix,
            store_url: format!("sqlite://{}", scratch.path().join("everwatch.db").display()),
            scratch,
            listen,
            processes: BTreeMap::new(),
            health: BTreeMap::new(),
            service_program: everwatch(),
            programs: BTreeMap::new(),
            token: None,
            extra: Vec::new(),
        }
    }

    /// With managers whose requests need a token: those of the cluster have the bootstrap token.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        let file = self.scratch.path().join("bootstrap-token");
        std::fs::write(&file, BOOTSTRAP).unwrap();
        let file = file.display().to_string();
        self.extra.push(("EVERWATCH_AUTH__MODE".to_owned(), "required".to_owned()));
        self.extra.push(("EVERWATCH_AUTH__BOOTSTRAP_TOKEN_FILE".to_owned(), file.clone()));
        self.extra.push(("EVERWATCH_TOKEN_FILE".to_owned(), file));
        self.api = self.api.with_token(BOOTSTRAP);
        self.token = Some(BOOTSTRAP.to_owned());
        self
    }

    /// On another broker.
    #[must_use]
    pub fn on(mut self, broker_url: &str) -> Self {
        broker_url.clone_into(&mut self.broker_url);
        self.broker_users = BrokerUsers::new(management_url_of(broker_url));
        self
    }

    /// Without users of their own, as in a small deployment: every process has the permissions to do everything.
    #[must_use]
    pub fn with_one_broker_user(mut self) -> Self {
        self.broker_users = BrokerUsers::new(None);
        self
    }

    /// On a node of the test's own.
    #[must_use]
    pub fn on_node(mut self, node: &Node) -> Self {
        self.broker_url.clone_from(&node.url);
        self.broker_users = BrokerUsers::new(Some(node.management_url.clone()));
        self
    }

    /// With services that offer the kinds of the tests.
    #[must_use]
    pub fn with_test_kinds(mut self) -> Self {
        self.service_program = test_service();
        self
    }

    /// On a fresh PostgreSQL database.
    #[must_use]
    pub fn with_postgres(self) -> Self {
        let server = from_environment("EVERWATCH_TEST_POSTGRES_URL");
        self.with_postgres_at(&server)
    }

    /// On a fresh database of this server.
    #[must_use]
    pub fn with_postgres_at(mut self, server: &str) -> Self {
        let database = self.prefix.trim_end_matches('.').replace('-', "_");
        let create = format!("create database {database}");
        let made = Command::new("psql").args([server, "-qc", &create]).status().unwrap();
        assert!(made.success(), "psql cannot create {database}");
        let (base, _) = server.rsplit_once('/').unwrap();
        self.store_url = format!("{base}/{database}");
        self
    }

    /// The URL of the database.
    #[must_use]
    pub fn store_url(&self) -> &str {
        &self.store_url
    }

    /// Runs a statement on the database, which must be PostgreSQL.
    pub fn sql(&self, statement: &str) {
        let done = Command::new("psql").args([&self.store_url, "-qc", statement]).status().unwrap();
        assert!(done.success(), "psql: {statement}");
    }

    /// Creates a folder that is deleted with the cluster.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// The environment of every process but services, which have another broker user.
    pub fn environment(&self) -> Vec<(String, String)> {
        let broker_url = self.broker_users.url_of_managers(&self.prefix, &self.broker_url);
        let mut all: Vec<(String, String)> = [
            ("EVERWATCH_BROKER__URL", broker_url.as_str()),
            ("EVERWATCH_BROKER__PREFIX", &self.prefix),
            ("EVERWATCH_STORE__URL", &self.store_url),
            ("EVERWATCH_MANAGER__LISTEN", &self.listen),
            ("EVERWATCH_SERVICE__EXEC__ALLOW", "*"),
            ("EVERWATCH_SERVICE__HTTP__ALLOW_PRIVATE", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        all.extend(self.extra.iter().cloned());
        all
    }

    /// Starts a process under `name`; its log is `<name>.log` in the scratch folder.
    fn start(&mut self, name: &str, (program, arguments): (&Path, &[&str]), own: &[(&str, &str)]) {
        let file = self.log_file(name);
        let log = std::fs::File::options().create(true).append(true).open(file).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        self.start_command(name, command, own);
    }

    /// Starts a process with the cluster's environment below `own`.
    fn start_command(&mut self, name: &str, mut command: Command, own: &[(&str, &str)]) {
        command.envs(self.environment()).envs(own.iter().copied()).stdin(Stdio::null());
        self.processes.insert(name.to_owned(), command.spawn().unwrap());
    }

    /// Starts the first manager and waits until it is ready.
    pub async fn manager(&mut self) {
        let listen = self.listen.clone();
        self.manager_at("manager", &listen).await;
    }

    /// Starts the first manager without waiting.
    pub fn spawn_manager(&mut self) {
        let listen = self.listen.clone();
        let program = self.program("manager", everwatch());
        self.start("manager", (&program, &["run", "manager"]), &[("EVERWATCH_MANAGER__LISTEN", &listen)]);
    }

    fn program(&self, name: &str, under_test: PathBuf) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or(under_test)
    }

    /// Runs a command to its end. Returns its exit code and its output.
    pub fn command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(everwatch());
        command.args(arguments).envs(self.environment()).env("EVERWATCH_SERVER", &self.api.url);
        let ended = command.stdin(Stdio::null()).output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Keeps a copy of the database; no manager may run.
    pub fn back_up(&self) {
        self.copy_database(Way::BackUp);
    }

    /// Replaces the database with the copy; no manager may run.
    pub fn restore(&self) {
        self.copy_database(Way::Restore);
    }

    fn copy_database(&self, way: Way) {
        if let Some(file) = self.store_url.strip_prefix("sqlite://") {
            let _not_there = std::fs::remove_file(format!("{file}-shm"));
            for suffix in ["", "-wal"] {
                let (here, kept) = (format!("{file}{suffix}"), format!("{file}.kept{suffix}"));
                let (from, to) = if way == Way::BackUp { (here, kept) } else { (kept, here) };
                let bytes = std::fs::read(from).unwrap_or_default();
                std::fs::write(to, bytes).unwrap();
            }
            return;
        }
        let (server, database) = self.store_url.rsplit_once('/').unwrap();
        let kept = format!("{database}_kept");
        let (from, to) = if way == Way::BackUp { (database, &*kept) } else { (&*kept, database) };
        for statement in
            [format!("drop database if exists {to}"), format!("create database {to} template {from}")]
        {
            let mut psql = Command::new("psql");
            let done = psql.args([&format!("{server}/postgres"), "-qc", &statement]).status().unwrap();
            assert!(done.success(), "psql: {statement}");
        }
    }

    /// Starts one more manager and waits until it is ready.
    pub async fn another_manager(&mut self, name: &str) -> Api {
        self.manager_at(name, &free_address()).await
    }

    async fn manager_at(&mut self, name: &str, listen: &str) -> Api {
        let program = self.program(name, everwatch());
        self.start(name, (&program, &["run", "manager"]), &[("EVERWATCH_MANAGER__LISTEN", listen)]);
        let api = Api::new(format!("http://{listen}"));
        let api = self.token.as_ref().map_or(api.clone(), |token| api.with_token(token));
        wait_for(&format!("{name} to be ready"), || async {
            match api.try_call("GET", "/readyz", None).await {
                Ok((200, _)) => Ok(()),
                Ok((status, body)) => Err(format!("{status} {body}; {}", self.log(name))),
                Err(error) => Err(format!("{error}; {}", self.log(name))),
            }
        })
        .await;
        api
    }

    /// Starts a service and waits until the manager knows it.
    pub async fn service(&mut self, name: &str, capacity: u32) {
        self.spawn_service(name, capacity);
        self.until_active(name).await;
    }

    /// Waits until the manager knows the service.
    pub async fn until_active(&self, name: &str) {
        let pid = self.processes[name].id();
        wait_for(&format!("service {name} (process {pid}) to be active"), || async {
            let services = self.api.services().await;
            let active = services.iter().any(|it| it.name == name && it.state == ServiceState::Active);
            if active { Ok(()) } else { Err(format!("{services:?}; {}", self.log(name))) }
        })
        .await;
    }

    /// The address of the health endpoint and the metrics of a service.
    #[must_use]
    pub fn health_address(&self, name: &str) -> String {
        self.health[name].clone()
    }

    /// Waits until the service reports that it is ready to use all its slots.
    pub async fn until_ready(&self, name: &str) {
        let health = Api::new(format!("http://{}", self.health[name]));
        wait_for(&format!("service {name} to be ready"), || async {
            match health.try_call("GET", "/readyz", None).await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}; {}", self.log(name))),
            }
        })
        .await;
    }

    /// Starts a service without waiting.
    pub fn spawn_service(&mut self, name: &str, capacity: u32) {
        self.spawn_service_at(name, capacity, &self.broker_url.clone());
    }

    /// Starts a service that reaches the broker at another URL, without waiting.
    pub fn spawn_service_at(&mut self, name: &str, capacity: u32, broker_url: &str) {
        self.spawn_service_as(name, capacity, As { broker_url, ..As::default() });
    }

    /// The same, with a pipe of the caller's as standard error instead of a log file.
    pub fn spawn_service_into(&mut self, name: &str, capacity: u32, broker_url: &str, stderr: PipeWriter) {
        self.spawn_service_as(name, capacity, As { broker_url, stderr: Some(stderr), ..As::default() });
    }

    /// Starts a service that differs from the others, without waiting.
    pub fn spawn_service_as(&mut self, name: &str, capacity: u32, how: As<'_>) {
        let (capacity, listen) = (capacity.to_string(), free_address());
        let pool = self.pool_of(how.environment);
        let broker_url = self.broker_users.url_of_services(&self.prefix, &pool, how.broker_url);
        let mut own = service_environment(name, &capacity, &listen, &broker_url).to_vec();
        own.extend_from_slice(how.environment);
        self.health.insert(name.to_owned(), listen.clone());
        let program = self.program(name, self.service_program.clone());
        let has_roles = program.file_name() == everwatch().file_name();
        let arguments: &[&str] = if has_roles { &["run", "service"] } else { &[] };
        let Some(stderr) = how.stderr else {
            return self.start(name, (&program, arguments), &own);
        };
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(stderr);
        self.start_command(name, command, &own);
    }

    /// The pool of a service with this environment.
    fn pool_of(&self, own: &[(&str, &str)]) -> String {
        let common = self.extra.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let given = own.iter().copied().chain(common).find(|(key, _)| *key == "EVERWATCH_SERVICE__POOL");
        given.map_or("default", |(_, pool)| pool).to_owned()
    }

    /// Sends `kill -9` and waits for the process to end.
    pub fn kill(&mut self, name: &str) {
        let mut child = self.processes.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Whether the process has ended by itself; then it may be started again under its name.
    pub fn has_ended(&mut self, name: &str) -> bool {
        let ended = self.processes.get_mut(name).unwrap().try_wait().unwrap().is_some();
        if ended {
            self.processes.remove(name);
        }
        ended
    }

    /// Waits until the process has ended by itself; answers its exit code. It may be started again under its name.
    pub async fn ended(&mut self, name: &str) -> Option<i32> {
        let process = RefCell::new(self.processes.remove(name).unwrap());
        wait_for(&format!("{name} to end by itself"), || async {
            let ended = process.borrow_mut().try_wait().unwrap();
            ended.map(|status| status.code()).ok_or_else(|| "it runs".to_owned())
        })
        .await
    }

    /// `kill -9` of everything that runs.
    pub fn kill_all(&mut self) {
        for name in self.processes.keys().cloned().collect::<Vec<_>>() {
            self.kill(&name);
        }
    }

    /// SIGTERM; answers the exit code.
    pub fn terminate(&mut self, name: &str) -> Option<i32> {
        self.signal(name, nix::sys::signal::Signal::SIGTERM);
        self.processes.remove(name).unwrap().wait().unwrap().code()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.processes[name].id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    /// The process and everything that it has started.
    pub fn family(&self, name: &str) -> Vec<i32> {
        let mut family = vec![i32::try_from(self.processes[name].id()).unwrap()];
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            for thread in threads {
                let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                family.extend(children.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()));
            }
            next += 1;
        }
        family
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(format!("{name}.log"))
    }

    /// Everything a process has logged.
    pub fn full_log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_file(name)).unwrap_or_default()
    }

    /// The end of a process's log.
    pub fn log(&self, name: &str) -> String {
        let text = self.full_log(name);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

/// How a service differs from the others of its cluster.
#[derive(Debug, Default)]
pub struct As<'a> {
    pub broker_url: &'a str,
    pub environment: &'a [(&'a str, &'a str)],
    /// Standard error of the process; `None`: its log file.
    pub stderr: Option<PipeWriter>,
}

fn service_environment<'a>(
    name: &'a str,
    capacity: &'a str,
    listen: &'a str,
    broker_url: &'a str,
) -> [(&'static str, &'a str); 4] {
    [
        ("EVERWATCH_SERVICE__LISTEN", listen),
        ("EVERWATCH_SERVICE__NAME", name),
        ("EVERWATCH_SERVICE__CAPACITY", capacity),
        ("EVERWATCH_BROKER__URL", broker_url),
    ]
}

/// The direction in which a database is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    BackUp,
    Restore,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (name, mut child) in std::mem::take(&mut self.processes) {
            if std::thread::panicking() {
                let text = format!("--- {name}\n{}\n", self.log(&name));
                std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
            }
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}
