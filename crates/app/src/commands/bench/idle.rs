//! Measures the cost of idle observers: memory in the service, processor time in the service and the manager.

use super::deployment::{Deployment, Place, Process};
use super::outcome::{Aim, Outcome};
use anyhow::Context as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// After this time, the work of starting the observers is done.
const SETTLE: Duration = Duration::from_secs(20);
/// A service sends its inventory once a minute, so each window contains one inventory.
const WINDOW: Duration = Duration::from_secs(60);
/// Linux reports processor time to programs in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE: f64 = 4096.0;

pub(super) async fn measure(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let mut deployment = Deployment::new(place)?;
    let manager = deployment.manager().await?;
    let (service, id) = deployment.service(count).await?;
    let empty = resident(&service)?;
    deployment.create(count).await?;
    deployment.until_running(&id, count).await?;
    sleep(SETTLE).await;
    let full = resident(&service)?;
    let before = (Instant::now(), processor(&service)?, processor(&manager)?);
    sleep(WINDOW).await;
    let seconds = before.0.elapsed().as_secs_f64();
    let percent = |now: f64, before: f64| (now - before) / seconds * 100.0;
    let (of_service, of_manager) =
        (percent(processor(&service)?, before.1), percent(processor(&manager)?, before.2));
    deployment.leave(count).await?;
    let per_observer = (full - empty) / f64::from(count) / 1024.0;
    let idle = |what: &str| format!("{what}, {count} idle observers");
    Ok(vec![
        Outcome::alone(idle("memory per observer in the service"), "KiB", per_observer).aim(Aim::AtMost(3.0)),
        Outcome::alone(idle("processor, service"), "% of a core", of_service).aim(Aim::AtMost(0.5)),
        Outcome::alone(idle("processor, manager"), "% of a core", of_manager).aim(Aim::AtMost(0.5)),
    ])
}

/// The resident memory of the process, in bytes.
fn resident(process: &Process) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", process.pid()?))?;
    let pages: f64 = text.split(' ').nth(1).context("/proc/PID/statm")?.parse()?;
    Ok(pages * PAGE)
}

/// Seconds of processor time since the process began.
fn processor(process: &Process) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()?))?;
    // The second field, the program's name, may contain spaces.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks = times.sum::<Result<f64, _>>().context("/proc/PID/stat")?;
    Ok(ticks / TICKS_PER_SECOND)
}
