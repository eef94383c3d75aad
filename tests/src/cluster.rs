//! Real processes under a prefix, a database schema and names of their own; all killed on drop.

use crate::http::{Api, wait_for};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A deployment of Everwatch.
pub struct Cluster {
    pub api: Api,
    pub scratch: TempDir,
    pub broker_url: String,
    pub prefix: String,
    store_url: String,
    listen: String,
    processes: BTreeMap<String, Child>,
    /// More environment for every process, as `EVERWATCH_SECTION__KEY`.
    pub extra: Vec<(String, String)>,
}

/// A URL from the environment that `tests/run` prepares.
pub fn from_environment(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run ./tests/run"))
}

fn binary() -> PathBuf {
    from_environment("EVERWATCH_BIN").into()
}

impl Cluster {
    /// Nothing runs yet.
    pub fn new(name: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let scratch = tempfile::Builder::new().prefix("everwatch-live").tempdir().unwrap();
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let listen = format!("127.0.0.1:{port}");
        Self {
            api: Api::new(format!("http://{listen}")),
            broker_url: from_environment("EVERWATCH_TEST_AMQP_URL"),
            prefix: format!("{name}-{}.", &unique[..8]),
            store_url: format!("sqlite://{}", scratch.path().join("everwatch.db").display()),
            scratch,
            listen,
            processes: BTreeMap::new(),
            extra: Vec::new(),
        }
    }

    /// Starts a process under `name`; its log is `<name>.log` in the scratch folder.
    fn start(&mut self, name: &str, role: &str, own: &[(&str, &str)]) {
        let file = self.scratch.path().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(file).unwrap();
        let child = Command::new(binary())
            .args(["run", role])
            .env("EVERWATCH_BROKER__URL", &self.broker_url)
            .env("EVERWATCH_BROKER__PREFIX", &self.prefix)
            .env("EVERWATCH_STORE__URL", &self.store_url)
            .env("EVERWATCH_MANAGER__LISTEN", &self.listen)
            .env("EVERWATCH_SERVICE__EXEC__ALLOW", "*")
            .env("EVERWATCH_LOG__FILTER", "info")
            .envs(self.extra.iter().map(|(key, value)| (key, value)))
            .envs(own.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes.insert(name.to_owned(), child);
    }

    /// Starts the manager and waits until it is ready.
    pub async fn manager(&mut self) {
        self.start("manager", "manager", &[]);
        wait_for("the manager to be ready", || async {
            match self.api.try_call("GET", "/readyz", None).await {
                Ok((200, _)) => Ok(()),
                Ok((status, body)) => Err(format!("{status} {body}; {}", self.log("manager"))),
                Err(error) => Err(format!("{error}; {}", self.log("manager"))),
            }
        })
        .await;
    }

    /// Starts a service and waits until the manager knows it.
    pub async fn service(&mut self, name: &str, capacity: u32) {
        self.spawn_service(name, capacity);
        let id = self.processes[name].id();
        wait_for(&format!("service {name} (process {id}) to be active"), || async {
            let services = self.api.items("/v1/services").await;
            let active = services.iter().any(|it| it["name"] == name && it["state"] == "active");
            if active { Ok(()) } else { Err(format!("{services:?}; {}", self.log(name))) }
        })
        .await;
    }

    /// Starts a service without waiting.
    pub fn spawn_service(&mut self, name: &str, capacity: u32) {
        let capacity = capacity.to_string();
        let own = [("EVERWATCH_SERVICE__NAME", name), ("EVERWATCH_SERVICE__CAPACITY", &*capacity)];
        self.start(name, "service", &own);
    }

    /// `kill -9`, reaped.
    pub fn kill(&mut self, name: &str) {
        let mut child = self.processes.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; answers the exit code.
    pub fn terminate(&mut self, name: &str) -> Option<i32> {
        let mut child = self.processes.remove(name).unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        child.wait().unwrap().code()
    }

    /// The end of a process's log.
    pub fn log(&self, name: &str) -> String {
        let text =
            std::fs::read_to_string(self.scratch.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (name, mut child) in std::mem::take(&mut self.processes) {
            if std::thread::panicking() {
                let text = std::fs::read_to_string(self.scratch.path().join(format!("{name}.log")));
                let text = text.unwrap_or_default();
                let tail: Vec<_> = text.lines().rev().take(25).collect();
                let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                std::io::Write::write_all(&mut std::io::stderr(), format!("--- {name}\n{tail}\n").as_bytes())
                    .unwrap();
            }
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}
