//! Any program as an observer: in a process group of its own, under helpers that outlive this service just long
//! enough to kill everything that the program has started.
//!
//! The obvious approach is that the service kills its children when it ends. But a killed or frozen service kills
//! nothing, and killing the leader spares its children. So the program is started by a helper (this binary again),
//! whose standard input is a pipe from the service: silence or its end means death to all descendants.

mod cgroup;
mod channel;
mod checks;
mod confinement;
mod descendants;
mod descriptor;
mod ending;
mod family;
mod helper;
mod lines;
mod output;
mod permit;
mod run_as;
mod spawn;

pub use confinement::ResourceLimits;
pub use helper::run_helper_if_asked;
pub use permit::ExecSettings;

use super::spec::Count;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::{Context, Error, Exit, Observer, Readiness};
use channel::Channel;
use checks::{Live, Ready, Rules};
use ending::{After, ExitMeaning, Restart, Restarts};
use helper::NOT_STARTED;
use output::Output;
use schemars::JsonSchema;
use serde::Deserialize;
use spawn::Spawner;
use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

/// Set for a helper: which of the two it is, and the silence in ms that means death.
const HELPER: &str = "EVERWATCH_EXEC_HELPER";
/// Set for a program with a channel: the number of its descriptor.
const CHANNEL: &str = "EVERWATCH_FD";
/// How long a program that is not healthy may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a program and keeps its output as logs: `{"argv": ["/bin/program", "argument"]}`.
///
/// The program gets SIGTERM when the observer must stop, and SIGKILL with all of its descendants after the grace
/// period. A service starts only programs that its configuration allows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"argv": ["/bin/date"]}]))]
pub struct Exec {
    /// The program and its arguments. The program is an absolute path that `[service.exec] allow` lists; if `allow` contains `*`,
    /// any program, found by `PATH` if it is not an absolute path.
    #[schemars(length(min = 1, max = 1000), extend("examples" = [["/bin/date"]]))]
    argv: Vec<String>,
    /// Environment variables that `[service.exec] env_allow` lists.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Working directory, as an absolute path. Unset: the directory of the service.
    #[serde(default)]
    #[schemars(extend("pattern" = "^/"))]
    cwd: Option<String>,
    /// What follows an exit with code 0: `on-failure` completes the observer, `always` starts the program again.
    #[serde(default)]
    restart: Restart,
    /// With `"restart": "always"`: how often the program starts again within a minute at most; then it waits.
    #[serde(default = "restarts_per_minute")]
    restarts_per_minute: Count<1, 600>,
    /// What single exit codes mean: `done` (the observer is completed), `failed` (it fails, without a retry) or
    /// `retry` (an error, handled by its retry policy). Other codes than 0 mean `retry`.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": "^[0-9]{1,3}$" }))]
    exit_codes: BTreeMap<String, ExitMeaning>,
    /// Lines of output that are kept in a second; further lines of that second are dropped and counted in one line.
    #[serde(default = "lines_per_second")]
    lines_per_second: Count<1, 1_000_000>,
    /// How to tell that the program is ready. Unset: it is ready once it has started.
    #[serde(default)]
    ready: Option<Ready>,
    /// How to tell that the program still works. If it does not, it is stopped, and the attempt ends with an error.
    #[serde(default)]
    live: Option<Live>,
    /// Whether to give the program a descriptor, whose number is in `EVERWATCH_FD`. Each line that the program writes
    /// to it is a JSON object that emits a value, stores a checkpoint or announces something.
    #[serde(default)]
    channel: bool,
}

fn restarts_per_minute() -> Count<1, 600> {
    Count::new(10)
}
fn lines_per_second() -> Count<1, 1_000_000> {
    Count::new(10_000)
}

/// How one start of the program ended.
enum Ended {
    Stopped,
    Exited {
        status: ExitStatus,
        /// Why the program could not be started.
        not_started: Option<String>,
    },
    Unhealthy(String),
}

impl Observer for Exec {
    const KIND: &'static str = "exec";
    // The spec limits how long it may take.
    const READINESS: Readiness = Readiness::Announced;

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let (Some(settings), Some(pulses)) = (ctx.shared::<ExecSettings>(), ctx.shared::<ChildWatchdogs>())
        else {
            return Ok(Exit::Failed("exec is not set up on this service".to_owned()));
        };
        let spawner =
            ending::check(&self.exit_codes).and_then(|()| Spawner::new(&self, &settings, &pulses, &ctx));
        let spawner = match spawner {
            Ok(spawner) => spawner,
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        let rules = match Rules::new(&self, &spawner) {
            Ok(rules) => rules,
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        spawner.ensure_folder()?;
        let channel = if self.channel { Some(Arc::new(Channel::new(&ctx).await?)) } else { None };
        let mut restarts = Restarts::new(self.restarts_per_minute.size());
        loop {
            match self.once((&spawner, &rules), channel.as_ref(), &ctx).await? {
                Ended::Stopped => return Ok(Exit::Done),
                Ended::Unhealthy(reason) => return Err(reason.into()),
                Ended::Exited { status, not_started } => {
                    match ending::after(status, self.restart, &self.exit_codes) {
                        After::Done => return Ok(Exit::Done),
                        After::Failed(reason) => return Ok(Exit::Failed(not_started.unwrap_or(reason))),
                        After::Retry(error) => return Err(not_started.unwrap_or(error).into()),
                        After::StartAgain => {
                            let pause = restarts.pause(tokio::time::Instant::now());
                            ctx.log(&ending::announcement(pause, self.restarts_per_minute.get()));
                            if ctx.until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                                return Ok(Exit::Done);
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Exec {
    /// Starts the program once and waits for its end, which is the end of all of its descendants.
    async fn once(
        &self,
        (spawner, rules): (&Spawner<'_>, &Rules<'_>),
        channel: Option<&Arc<Channel>>,
        ctx: &Context,
    ) -> Result<Ended, Error> {
        let output = Arc::new(Output::new(ctx.clone(), self.lines_per_second.get(), rules.ready_line()));
        let mut family = spawner.program(&output, channel)?;
        let watched = {
            let watching = rules.watch(&output, channel, ctx);
            tokio::select! {
                status = family.ended() => {
                    let status = status?;
                    let not_started = output.not_started().filter(|_| status.code() == Some(NOT_STARTED));
                    return Ok(Ended::Exited { status, not_started });
                }
                () = ctx.cancelled() => Ended::Stopped,
                reason = watching => Ended::Unhealthy(reason),
            }
        };
        family.terminate();
        if let Ended::Unhealthy(reason) = &watched {
            output.say(&format!("{reason}; stopping the program"));
            let stopped = tokio::time::timeout(STOP_TIMEOUT, family.ended()).await;
            if stopped.is_err() {
                family.kill();
            }
        }
        family.ended().await?;
        Ok(watched)
    }
}
