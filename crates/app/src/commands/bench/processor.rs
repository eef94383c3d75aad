//! Processor time and memory of processes, from `/proc`.

use super::deployment::Process;
use anyhow::Context as _;

/// Linux reports processor time to programs in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE: f64 = 4096.0;
/// The name of PostgreSQL's processes.
const DATABASE: &str = "postgres";

/// The processor time of a manager and of the database server that it uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    manager: f64,
    database: f64,
}

impl Spent {
    /// Seconds of processor time so far. The database server counts only if it runs on this machine; SQLite is a part
    /// of the manager.
    pub(super) fn by(manager: &Process) -> anyhow::Result<Self> {
        Ok(Self { manager: processor(manager)?, database: processor_of_all(DATABASE)? })
    }

    /// Microseconds for each of `count` operations since `before`.
    pub(super) fn per_operation(self, before: Self, count: u32) -> f64 {
        (self.manager - before.manager + self.database - before.database) * 1e6 / f64::from(count)
    }
}

/// The resident memory of the process, in bytes.
pub(super) fn resident(process: &Process) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", process.pid()?))?;
    let pages: f64 = text.split(' ').nth(1).context("/proc/PID/statm")?.parse()?;
    Ok(pages * PAGE)
}

/// Seconds of processor time since the process began.
pub(super) fn processor(process: &Process) -> anyhow::Result<f64> {
    seconds(&std::fs::read_to_string(format!("/proc/{}/stat", process.pid()?))?)
}

/// Seconds of processor time of all processes of this name, with that of their children that have ended.
fn processor_of_all(name: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for entry in std::fs::read_dir("/proc")? {
        // A process may end at any moment.
        let Ok(text) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
        if text.contains(&format!("({name})")) {
            sum += seconds(&text)?;
        }
    }
    Ok(sum)
}

/// The processor time in the text of `/proc/PID/stat`.
fn seconds(stat: &str) -> anyhow::Result<f64> {
    // The second field, the program's name, may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks = times.sum::<Result<f64, _>>().context("/proc/PID/stat")?;
    Ok(ticks / TICKS_PER_SECOND)
}
