//! Runs a chapter as a reader would: command by command in a separate folder, with real processes on a real
//! broker. The test replaces 127.0.0.1:7700 and port 5672 in the text with the addresses of its processes.
//!
//! A role (`dev`, `run`, the example) runs until the end of the chapter; a new manager replaces one that runs, with its
//! services. A command that follows changes must print something, then the test ends it. The comment "all managers
//! are stopped" stops the managers; "the service that runs NAME" replaces the service of its command by that one. Every
//! other command must exit with 0; the doctor may exit with 8, for warnings.

use super::chapter::{Block, blocks, says};
use super::links::chapters;
use super::root;
use everwatch_api::Stats;
use everwatch_core::clock;
use everwatch_tests::cluster::{everwatch, free_address, from_environment};
use everwatch_tests::faketime::wrong_clock;
use everwatch_tests::http::Api;
use everwatch_tests::terminal::Terminal;
use everwatch_tests::wait::wait_for;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::RefCell;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Commands that need a compiler and minutes.
const NOT_RUN: [&str; 2] = ["./tests/run", "(cd my-project && cargo test)"];
/// Commands that read. At the end of a block, such a command runs again, for at most `WITHIN`, until it shows what the page
/// shows: managers act a moment after a request.
const READS: [&str; 4] = [" describe ", " get ", " list", " logs "];
/// The comment behind a command about a service, before the name of an observer.
const RUNS: &str = "# the service that runs ";
const WITHIN: Duration = Duration::from_secs(10);
/// The page that shows what it says at a weekend, when the market is closed: its processes have such a time.
const AT_A_WEEKEND: &str = "docs/how-to/market-hours.md";
const BROKER: &str = "amqp://guest:guest@127.0.0.1:5672/%2f";

/// The service of the project that `everwatch new` creates, built as an example of this repository.
const OWN_SERVICE: &str = "EVERWATCH_SERVICE__NAME=mine my-project";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Manager,
    Service,
    Screen,
    Follow,
    Ends,
}

impl Way {
    fn of(command: &str) -> Self {
        let has = |part: &str| command.contains(part);
        let follows = [" -f", " --follow", " --watch"].iter().any(|flag| has(flag));
        let follows = follows && command.starts_with("everwatch ") && !has(" apply ");
        match () {
            () if has("everwatch dev") || has("everwatch run manager") => Self::Manager,
            () if has("everwatch run service") || command == OWN_SERVICE => Self::Service,
            () if has("everwatch top") => Self::Screen,
            () if follows => Self::Follow,
            () => Self::Ends,
        }
    }
}

/// A process group; dropping it ends the process with all its children.
struct Group(Child);

impl Group {
    fn end(&mut self, signal: Signal) {
        let _gone = killpg(Pid::from_raw(self.0.id().cast_signed()), signal);
        let _reaped = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end(Signal::SIGKILL);
    }
}

struct Reader {
    folder: TempDir,
    prefix: String,
    api: Api,
    address: String,
    managers: Vec<Group>,
    services: Vec<Group>,
    logs: u32,
    /// The environment that sets the wall clock of its processes.
    clock: Vec<(&'static str, String)>,
}

/// From now to Saturday, 12:00 UTC, in the notation of faketime.
fn until_saturday() -> String {
    const DAY: i64 = 24 * 60 * 60;
    // The first day of the epoch was a Thursday.
    let saturday = 2 * DAY + DAY / 2;
    format!("+{}s", (saturday - clock::now().0 / 1000).rem_euclid(7 * DAY))
}

impl Reader {
    fn new(page: &str) -> Self {
        let clock = if page == AT_A_WEEKEND { wrong_clock(&until_saturday()).to_vec() } else { Vec::new() };
        let folder = tempfile::Builder::new().prefix("everwatch-docs").tempdir().unwrap();
        for part in ["config", "crates", "deploy", "docs"] {
            std::os::unix::fs::symlink(root().join(part), folder.path().join(part)).unwrap();
        }
        let (address, unique) = (free_address(), uuid::Uuid::new_v4().simple().to_string());
        let (api, prefix) = (Api::new(format!("http://{address}")), format!("docs-{}.", &unique[..8]));
        Self { folder, prefix, api, address, managers: Vec::new(), services: Vec::new(), logs: 0, clock }
    }

    fn bash(&mut self, text: &str) -> Command {
        let programs = everwatch().parent().unwrap().to_path_buf();
        let path = [programs.clone(), programs.join("examples")].map(|it| it.display().to_string()).join(":");
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", text]).current_dir(self.folder.path());
        command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()));
        // Where `everwatch login` writes.
        command.env("XDG_CONFIG_HOME", self.folder.path());
        command.env("EVERWATCH_SERVER", &self.api.url).env("EVERWATCH_MANAGER__LISTEN", &self.address);
        command.env("EVERWATCH_BROKER__URL", from_environment("EVERWATCH_TEST_AMQP_URL"));
        command.env("EVERWATCH_BROKER__PREFIX", &self.prefix).env("NO_COLOR", "1");
        command.envs(self.clock.clone());
        self.logs += 1;
        let log = std::fs::File::create(self.log(self.logs)).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        command
    }

    fn log(&self, number: u32) -> std::path::PathBuf {
        self.folder.path().join(format!(".said-{number}"))
    }

    fn said(&self, number: u32) -> String {
        std::fs::read_to_string(self.log(number)).unwrap_or_default()
    }

    async fn block(&mut self, page: &str, block: &Block) {
        let (mut said, mut last) = (String::new(), None);
        for command in &block.commands {
            let place = format!("{page}, block of line {}: {command}", block.line);
            if command.contains("all managers are stopped") {
                self.managers.drain(..).for_each(|mut it| it.end(Signal::SIGTERM));
            }
            if NOT_RUN.iter().any(|it| command.starts_with(it)) || command.starts_with('#') {
                continue;
            }
            let text = self.filled(command).await;
            let text = text
                .replace("127.0.0.1:7700", &self.address)
                .replace(BROKER, &from_environment("EVERWATCH_TEST_AMQP_URL"))
                .replace("cargo run --release -- ", "everwatch ")
                .replace("cargo run --manifest-path my-project/Cargo.toml", "my-project");
            said += &self.command(&place, &text).await;
            let reads = Way::of(&text) == Way::Ends && READS.iter().any(|it| text.contains(it));
            last = reads.then_some((place, text));
        }
        let shown = || block.shown.iter().filter(|line| !line.trim().is_empty());
        let deadline = Instant::now() + WITHIN;
        while let Some(line) = shown().find(|line| !says(&said, line)) {
            let again = last.as_ref().filter(|_| Instant::now() < deadline);
            assert!(again.is_some(), "{page}, block of line {}: `{line}` is not said in\n{said}", block.line);
            let Some((place, text)) = again else { return };
            said += &self.command(place, text).await;
        }
    }

    /// Names the service that runs the observer of the comment: a reader takes it from the list.
    async fn filled(&self, command: &str) -> String {
        let Some((command, observer)) = command.split_once(RUNS) else { return command.to_owned() };
        let what = format!("{observer} to run");
        let service = wait_for(&what, || async {
            let row: Value = self.api.try_read(&format!("/v1/observers/{observer}")).await?;
            row["service"]["name"].as_str().map(str::to_owned).ok_or_else(|| row.to_string())
        });
        let service = service.await;
        command
            .split_whitespace()
            .map(|it| if it.starts_with("service-") { &*service } else { it })
            .collect::<Vec<_>>()
            .join(" ")
    }

    async fn command(&mut self, place: &str, text: &str) -> String {
        match Way::of(text) {
            Way::Manager => self.manager(place, text).await,
            Way::Service => self.service(place, text).await,
            Way::Screen => {
                let terminal = Terminal::open(&self.api.url, (120, 40)).await;
                terminal.runs(text);
                terminal.until(place, |screen| screen.contains("live  ")).await
            }
            Way::Follow => {
                let _ended_at_the_end = Group(self.bash(text).spawn().unwrap());
                let number = self.logs;
                wait_for(&format!("{place} to say something"), || async {
                    let said = self.said(number);
                    if said.is_empty() { Err(said) } else { Ok(said) }
                })
                .await
            }
            Way::Ends => {
                let running = RefCell::new(Group(self.bash(text).spawn().unwrap()));
                let number = self.logs;
                let what = format!("{place} to end");
                let code = wait_for(&what, || {
                    let ended = running.borrow_mut().0.try_wait().unwrap();
                    std::future::ready(ended.ok_or_else(|| self.said(number)))
                });
                let code = code.await.code();
                let said = self.said(number);
                let is_well = code == Some(0) || text.contains("everwatch doctor") && code == Some(8);
                assert!(is_well, "{place}: ended with {code:?}:\n{said}");
                said
            }
        }
    }

    async fn manager(&mut self, place: &str, text: &str) -> String {
        // Services outlive their managers: a manager that starts after all were stopped finds them.
        if !self.managers.is_empty() {
            self.services.clear();
        }
        self.managers.drain(..).for_each(|mut it| it.end(Signal::SIGTERM));
        let process = self.bash(text).spawn().unwrap();
        self.managers.push(Group(process));
        let (number, services) = (self.logs, u64::from(text.contains("everwatch dev")) * 3);
        self.until_active(place, number, services).await;
        if services > 0 {
            // `dev` prints its greeting once its services are active.
            wait_for(&format!("{place} to greet"), || async {
                let said = self.said(number);
                if said.contains("Ctrl-C") { Ok(()) } else { Err(said) }
            })
            .await;
        }
        self.said(number)
    }

    async fn service(&mut self, place: &str, text: &str) -> String {
        let there = self.active().await.unwrap_or_default();
        let process = self.bash(text).spawn().unwrap();
        self.services.push(Group(process));
        self.until_active(place, self.logs, there + 1).await;
        self.said(self.logs)
    }

    async fn active(&self) -> Result<u64, String> {
        let stats: Stats = self.api.try_read("/v1/stats").await?;
        Ok(["active", "standby"].iter().filter_map(|state| stats.services.get(*state)).sum())
    }

    async fn until_active(&self, place: &str, number: u32, services: u64) {
        wait_for(&format!("{place} to be up"), || async {
            let ready = matches!(self.api.try_call("GET", "/readyz", None).await, Ok((200, _)));
            match self.active().await {
                Ok(active) if ready && active >= services => Ok(()),
                other => Err(format!("ready {ready}, active {other:?}: {}", self.said(number))),
            }
        })
        .await;
    }
}

async fn read(page: &str) {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (blocks, mut reader) = (blocks(&text), Reader::new(page));
    assert!(!blocks.is_empty(), "{page} has no commands: take it from the list");
    for block in &blocks {
        reader.block(page, block).await;
    }
}

macro_rules! chapters {
    ($($test:ident: $page:literal,)+) => {
        $(#[tokio::test]
        async fn $test() {
            read($page).await;
        })+
        const CHAPTERS: &[&str] = &[$($page),+];
    };
}

chapters! {
    the_commands_of_the_readme_run: "README.md",
    the_commands_of_the_tutorial_run: "docs/first-observer.md",
    the_commands_of_concepts_run: "docs/concepts.md",
    the_commands_of_limits_run: "docs/limits.md",
    the_commands_of_secrets_run: "docs/secrets.md",
    the_commands_of_single_pools_run: "docs/single-pools.md",
    the_commands_of_weight_run: "docs/weight.md",
    the_commands_of_access_run: "docs/access.md",
    the_commands_of_namespaces_run: "docs/namespaces.md",
    the_commands_of_scheduling_run: "docs/scheduling.md",
    the_commands_of_batches_run: "docs/batches.md",
    the_commands_of_rollouts_run: "docs/rollouts.md",
    the_commands_of_operating_run: "docs/operating.md",
    the_commands_of_monitoring_run: "docs/monitoring.md",
    the_commands_of_failures_run: "docs/failures.md",
    the_commands_of_configuration_run: "docs/configuration.md",
    the_commands_of_migrating_run: "docs/migrating.md",
    the_commands_of_the_tour_run: "docs/tour.md",
    the_commands_of_websocket_feed_run: "docs/how-to/websocket-feed.md",
    the_commands_of_device_fleet_run: "docs/how-to/device-fleet.md",
    the_commands_of_process_keeper_run: "docs/how-to/process-keeper.md",
    the_commands_of_tenant_limits_run: "docs/how-to/tenant-limits.md",
    the_commands_of_market_hours_run: "docs/how-to/market-hours.md",
    the_commands_of_rolling_deploy_run: "docs/how-to/rolling-deploy.md",
    the_commands_of_disaster_run: "docs/how-to/disaster.md",
    the_commands_of_first_administrator_run: "docs/how-to/first-administrator.md",
    the_commands_of_pools_run: "docs/how-to/pools.md",
    the_commands_of_why_not_running_run: "docs/how-to/why-not-running.md",
}

#[test]
fn no_chapter_with_commands_is_left_out() {
    for page in chapters().into_iter().chain(["README.md".to_owned()]) {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        assert!(blocks(&text).is_empty() || CHAPTERS.contains(&&*page), "{page} is not in the list");
    }
}
