//! `everwatch dev` as a separate process, and commands that talk to it.

use crate::cluster::{everwatch, free_address};
use crate::http::Api;
use crate::said_by;
use crate::wait::wait_for;
use everwatch_api::Stats;
use std::process::{Child, Command, Stdio};

/// A running `everwatch dev`; dropping it kills the process.
pub struct Dev {
    pub api: Api,
    pub process: Child,
}

impl Dev {
    /// Starts it and waits until its services are active.
    pub async fn start(services: u32, capacity: u32) -> Self {
        Self::start_at(&free_address(), (services, capacity)).await
    }

    /// Like [`Dev::start`], at a given address.
    pub async fn start_at(address: &str, (services, capacity): (u32, u32)) -> Self {
        Self::start_by(Command::new(everwatch()), address, (services, capacity)).await
    }

    /// Like [`Dev::start_at`], with a command that starts the program.
    pub async fn start_by(mut command: Command, address: &str, (services, capacity): (u32, u32)) -> Self {
        command.args(["dev", "--listen", address]);
        command.args(["--services", &services.to_string(), "--capacity", &capacity.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let said = said_by(process.stderr.take().unwrap());
        let dev = Self { api: Api::new(format!("http://{address}")), process };
        wait_for("the services to be active", || async {
            match dev.api.try_read::<Stats>("/v1/stats").await {
                Ok(stats) if stats.services.get("active") == Some(&u64::from(services)) => Ok(()),
                other => Err(format!("{other:?}; it said: {}", said.lock().unwrap())),
            }
        })
        .await;
        dev
    }

    /// A command that asks this manager.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(everwatch());
        command.args(arguments).env("EVERWATCH_SERVER", &self.api.url).env_remove("NO_COLOR");
        // No contexts of the user who runs the tests.
        command.env("XDG_CONFIG_HOME", "/nonexistent");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end. Returns its exit code, its standard output and its standard error.
    pub fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let arguments: Vec<&str> = words.split(' ').collect();
        let ended = self.command(&arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}
