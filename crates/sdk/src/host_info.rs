//! The machine of a service: its name, its memory, its threads, the end of its process. A simulation provides another
//! one.

use std::fmt;
use std::time::Duration;

/// What a service needs from its machine.
#[derive(Clone)]
pub struct Machine {
    /// The host name, which the registration contains.
    pub host_name: String,
    /// Resident memory of this process, in bytes.
    pub resident_bytes: fn() -> u64,
    /// How the loop of the fence runs.
    pub fence: FenceOn,
    /// Ends the process at once with this exit code: code that cannot be stopped ends with it.
    pub end_process: fn(i32),
}

/// How the loop of the fence runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceOn {
    /// On a separate thread, so that blocked code cannot delay it.
    Thread,
    /// On the runtime of the control loop: only where time is simulated and nothing blocks.
    ControlRuntime,
}

impl Default for Machine {
    /// This machine.
    fn default() -> Self {
        Self { host_name: host_name(), resident_bytes, fence: FenceOn::Thread, end_process }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host_name, fence, .. } = self;
        f.debug_struct("Machine").field("host_name", host_name).field("fence", fence).finish_non_exhaustive()
    }
}

/// How long the orderly end of a process may take, its handlers of `exit` included.
const EXIT_WITHIN: Duration = Duration::from_millis(250);

/// Ends the process with this code. A handler of `exit` that blocks, as on a pipe that takes nothing, would let code
/// run on: then the process kills itself.
fn end_process(code: i32) {
    let killer = || {
        std::thread::sleep(EXIT_WITHIN);
        let _dead = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    };
    let started = std::thread::Builder::new().name("exit".to_owned()).spawn(killer);
    if started.is_err() {
        // No thread can be started that would enforce the end.
        let _dead = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
    std::process::exit(code)
}

/// The host's name, as the kernel knows it.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    resident.unwrap_or(0).saturating_mul(4096)
}
