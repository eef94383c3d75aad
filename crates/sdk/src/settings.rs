//! The settings of a service.

use everwatch_core::capacity::blocks::{BLOCK_MAX, CAPACITY_MAX};
use everwatch_core::id::{Kind, Name, Pool};
use everwatch_core::observer::definition::WEIGHT_MAX;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The capacity of a service.
///
/// ```
/// use everwatch::Capacity;
///
/// assert_eq!(Capacity::Fixed(500).slots(), 500);
/// assert!(Capacity::Auto.slots() > 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// A fixed number of slots.
    Fixed(u32),
    /// Derived from the machine: 1,000 slots per core, but at most one for each 256 KiB of a quarter of the memory;
    /// from 1 to 200,000.
    Auto,
}

impl Capacity {
    /// The number, on this machine.
    #[must_use]
    pub fn slots(self) -> u32 {
        match self {
            Self::Fixed(slots) => slots,
            Self::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                auto_slots(cores as u64, memory_bytes())
            }
        }
    }
}

fn auto_slots(cores: u64, memory: u64) -> u32 {
    let by_cores = cores.saturating_mul(1000);
    let by_memory = memory / 4 / (256 * 1024);
    u32::try_from(by_cores.min(by_memory).clamp(1, u64::from(CAPACITY_MAX))).unwrap_or(CAPACITY_MAX)
}

/// The smaller of the machine's memory and the control group's limit.
fn memory_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        kib.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
    });
    let group =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    machine.unwrap_or(1 << 30).min(group.unwrap_or(u64::MAX))
}

/// Settings of one service.
///
/// ```
/// use everwatch::{Capacity, ServiceSettings};
///
/// let mut settings = ServiceSettings::new("reader-1".parse().unwrap());
/// settings.capacity = Capacity::Fixed(500);
/// assert_eq!(settings.prefix, "everwatch.");
/// ```
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Its name, by which operators know it.
    pub name: Name,
    /// The pool whose observers it runs (default `default`).
    pub pool: Pool,
    /// Whether the pool was created as a single pool: one of its services runs all its observers, and the others stand
    /// by (default `false`). All services of the pool need the same value.
    pub pool_single: bool,
    /// Its slots: the most weight of observers that it runs at the same time (default: by cores and memory).
    pub capacity: Capacity,
    /// The greatest weight of an observer that it takes, 1 to 1000 and at most its slots (default 1).
    pub weight_max: u16,
    /// Labels that select it in requests and lists (default none).
    pub labels: BTreeMap<String, String>,
    /// Prefix of all queues (default `everwatch.`).
    pub prefix: String,
    /// The number of state queues over which the service spreads its reports (default 1); managers must read as many.
    pub state_queues: u16,
    /// Pause between heartbeats (default 5 s).
    pub heartbeat_interval: Duration,
    /// Pause between inventories (default 60 s).
    pub list_every: Duration,
    /// Silence of the broker after which the service stops every run: one heartbeat (default 5 s).
    pub fence_after: Duration,
    /// Time that code has to stop after a fence (default 500 ms).
    pub fence_grace: Duration,
    /// How long the service may take to hand over its observers when it stops (default 20 s).
    pub drain_timeout: Duration,
    /// Maximum number of starts per second, over all kinds; 0: no limit (default).
    pub start_rate: f64,
    /// The most starts per second of single kinds.
    pub start_rates: BTreeMap<Kind, f64>,
    /// If the code of an observer blocks a thread for this long, the service hands over all observers, and the process
    /// ends with exit code 70, so that its supervisor starts it again; `None`: never (default).
    pub stall_limit: Option<Duration>,
    /// If the process uses more memory than this, in bytes, the service does the same; `None`: no limit (default).
    pub memory_limit: Option<u64>,
    /// Maximum number of log lines to keep for each observer, and of KiB for them (default 100).
    pub log_lines: u32,
    /// The folder in which the service also keeps these lines, so that they outlive its process (default: none). Services on
    /// the same machine may share it.
    pub log_dir: Option<PathBuf>,
}

impl ServiceSettings {
    /// The number of slots on this machine; at most 1,000 in a single pool, whose work is held on one channel.
    #[must_use]
    pub fn slots(&self) -> u32 {
        let slots = self.capacity.slots();
        if self.pool_single { slots.min(BLOCK_MAX) } else { slots }
    }
    /// Defaults for a service of this name.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            pool: Pool::default(),
            pool_single: false,
            capacity: Capacity::Auto,
            weight_max: 1,
            labels: BTreeMap::new(),
            prefix: "everwatch.".to_owned(),
            state_queues: 1,
            heartbeat_interval: Duration::from_secs(5),
            list_every: Duration::from_secs(60),
            fence_after: Duration::from_secs(5),
            fence_grace: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(20),
            start_rate: 0.0,
            start_rates: BTreeMap::new(),
            stall_limit: None,
            memory_limit: None,
            log_lines: 100,
            log_dir: None,
        }
    }

    pub(crate) fn check_slots(&self) -> Result<(), String> {
        if self.pool_single && matches!(self.capacity, Capacity::Fixed(slots) if slots > BLOCK_MAX) {
            return Err(format!("service.capacity: must be at most {BLOCK_MAX} with service.pool_single"));
        }
        let (weight_max, slots) = (self.weight_max, self.slots());
        if !(1..=WEIGHT_MAX).contains(&weight_max) {
            return Err(format!("service.weight_max: {weight_max} must be from 1 to {WEIGHT_MAX}"));
        }
        if weight_max > 1 && self.pool_single {
            return Err(format!("service.weight_max: {weight_max} must be 1 with service.pool_single"));
        }
        if weight_max > 1 && u32::from(weight_max) > slots {
            return Err(format!(
                "service.weight_max: {weight_max} is above service.capacity, {slots}: no such observer would fit"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Capacity, ServiceSettings, auto_slots};

    #[test]
    fn the_greatest_weight_fits_into_the_slots() {
        let mut settings = ServiceSettings::new("s".parse().unwrap());
        let mut check = |weight_max, slots| {
            (settings.weight_max, settings.capacity) = (weight_max, Capacity::Fixed(slots));
            settings.check_slots()
        };
        assert_eq!((check(1, 0), check(4, 4)), (Ok(()), Ok(())));
        assert!(check(4, 3).unwrap_err().contains("4 is above service.capacity, 3"));
        assert!(check(0, 3).is_err() && check(1001, 2000).is_err());
        (settings.pool_single, settings.weight_max, settings.capacity) = (true, 2, Capacity::Fixed(10));
        assert!(settings.check_slots().unwrap_err().contains("2 must be 1 with service.pool_single"));
    }

    #[test]
    fn auto_follows_cores_and_memory() {
        assert_eq!(auto_slots(2, 24 << 30), 2000);
        assert_eq!(auto_slots(64, 1 << 30), 1024);
        assert_eq!(auto_slots(64, 1 << 40), 64_000);
        assert_eq!(auto_slots(1024, 1 << 50), super::CAPACITY_MAX);
        assert_eq!(auto_slots(1, 0), 1);
    }
}
