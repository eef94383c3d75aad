//! What confines the processes of a program: another user, and limits of the kernel.

use super::run_as::RunAs;
use crate::limit_text::SizeLimitText;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::process::Command;

/// Fewer than a shell needs.
const OPEN_FILES_MIN: u64 = 16;
/// Less than an interpreter needs to start.
const MEMORY_MIN: u64 = 16 << 20;
/// Stands for no user.
const NONE: &str = "-";

/// `[service.exec.limits]`: what the kernel lets every process of a program have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLimits {
    /// Open file descriptors of one process; 0 is no limit.
    pub open_files: u64,
    /// Processes and threads that the user of the programs has on this machine; 0 is no limit.
    pub processes: u64,
    /// The size of a file that a process writes.
    pub file_size: SizeLimitText,
    /// The address space of one process.
    pub memory: SizeLimitText,
    /// Memory that all processes of a program use together.
    pub program_memory: SizeLimitText,
    /// Processes and threads of one program; 0 is no limit.
    pub program_processes: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let none = SizeLimitText(None);
        Self {
            open_files: 0,
            processes: 0,
            file_size: none,
            memory: none,
            program_memory: none,
            program_processes: 0,
        }
    }
}

impl ResourceLimits {
    /// # Errors
    /// Names the key below `limits` and the cure.
    pub(super) fn check(self, has_user: bool) -> Result<(), String> {
        if (1..OPEN_FILES_MIN).contains(&self.open_files) {
            return Err(format!("open_files: at least {OPEN_FILES_MIN}, or 0 for the limit of the service"));
        }
        if self.memory.0.is_some_and(|limit| limit < MEMORY_MIN) {
            return Err("memory: at least 16MiB, or \"off\"".to_owned());
        }
        if self.program_memory.0.is_some_and(|limit| limit < MEMORY_MIN) {
            return Err("program_memory: at least 16MiB, or \"off\"".to_owned());
        }
        if self.processes > 0 && !has_user {
            return Err("processes: the kernel counts all processes of a user, also the threads of this service; set \
                        service.exec.user to a user of its own"
                .to_owned());
        }
        Ok(())
    }

    /// The limits that only a control group has: their keys, the files of the group, and the content of these.
    pub(super) fn of_group(self) -> Vec<(&'static str, &'static str, String)> {
        let mut all = Vec::new();
        if let Some(limit) = self.program_memory.0 {
            let key = "program_memory";
            all.push((key, "memory.max", limit.to_string()));
            all.push((key, "memory.swap.max", "0".to_owned()));
            // Out of memory, the kernel ends the whole program and not only one of its processes.
            all.push((key, "memory.oom.group", "1".to_owned()));
        }
        if self.program_processes > 0 {
            all.push(("program_processes", "pids.max", self.program_processes.to_string()));
        }
        all
    }

    fn set(self) -> impl Iterator<Item = (Resource, u64)> {
        [
            (Resource::RLIMIT_NOFILE, self.open_files),
            (Resource::RLIMIT_NPROC, self.processes),
            (Resource::RLIMIT_FSIZE, self.file_size.0.unwrap_or(0)),
            (Resource::RLIMIT_AS, self.memory.0.unwrap_or(0)),
        ]
        .into_iter()
        .filter(|(_, limit)| *limit > 0)
    }
}

/// The user of one program, and the limits of each of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confinement {
    user: Option<RunAs>,
    limits: ResourceLimits,
}

impl Confinement {
    /// # Errors
    /// Names the key of `[service.exec]` and the cure, if the user does not exist or a limit cannot hold.
    pub(super) fn new(user: &str, limits: ResourceLimits) -> Result<Self, String> {
        let user = RunAs::named(user).map_err(|why| format!("user: {why}"))?;
        limits.check(user.is_some()).map_err(|why| format!("limits.{why}"))?;
        Ok(Self { user, limits })
    }

    /// Refuses what this process may not do.
    ///
    /// # Errors
    /// Names the key of `[service.exec]` and the cure.
    pub(super) fn check(self) -> Result<(), String> {
        self.user.map_or(Ok(()), RunAs::check).map_err(|why| format!("user: {why}"))
    }

    /// Whether a process must limit itself before it becomes the program.
    pub(super) fn has_limits(self) -> bool {
        self.limits.set().next().is_some()
    }

    /// Limits this process for as long as it lives, and everything that it starts.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn limit_this_process(self) -> std::io::Result<()> {
        for (resource, limit) in self.limits.set() {
            let (_, most) = getrlimit(resource)?;
            // A process without privileges may not raise its limits.
            let limit = if most == RLIM_INFINITY { limit } else { limit.min(most) };
            setrlimit(resource, limit, limit)?;
        }
        Ok(())
    }

    /// Lets a command run as the user.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn apply_user(self, command: &mut Command) -> std::io::Result<()> {
        self.user.map_or(Ok(()), |user| user.apply(command))
    }

    /// For the value of an environment variable, without spaces; without the limits of a control group.
    pub(super) fn written(self) -> String {
        let user = self.user.map_or_else(|| NONE.to_owned(), RunAs::written);
        let ResourceLimits { open_files, processes, file_size, memory, .. } = self.limits;
        let [file_size, memory] = [file_size, memory].map(|size| size.0.unwrap_or(0));
        format!("{user},{open_files},{processes},{file_size},{memory}")
    }

    /// The inverse of [`Confinement::written`].
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let user = match parts.next()? {
            NONE => None,
            user => Some(RunAs::read(user)?),
        };
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (open_files, processes) = (number()?, number()?);
        let mut size = || number().map(|bytes| SizeLimitText(Some(bytes).filter(|bytes| *bytes > 0)));
        let limits = ResourceLimits {
            open_files,
            processes,
            file_size: size()?,
            memory: size()?,
            ..Default::default()
        };
        Some(Self { user, limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_for_the_helpers_is_read_by_them() {
        let some =
            ResourceLimits { open_files: 64, memory: SizeLimitText(Some(1 << 30)), ..Default::default() };
        for (user, limits, written) in [
            ("", ResourceLimits::default(), "-,0,0,0,0"),
            ("root", some, "0:0,64,0,0,1073741824"),
            (
                "root",
                ResourceLimits { processes: 9, file_size: SizeLimitText(Some(7)), ..some },
                "0:0,64,9,7,1073741824",
            ),
        ] {
            let it = Confinement::new(user, limits).unwrap();
            assert_eq!((it.written().as_str(), Confinement::read(written)), (written, Some(it)));
        }
        assert_eq!(["", "-", "-,1,2,3", "-,a,0,0,0", "x,0,0,0,0"].map(Confinement::read), [None; 5]);
    }

    #[test]
    fn limits_that_cannot_hold_name_the_key_and_the_cure() {
        let refused = |limits| Confinement::new("", limits).unwrap_err();
        let files = refused(ResourceLimits { open_files: 3, ..Default::default() });
        assert_eq!(files, "limits.open_files: at least 16, or 0 for the limit of the service");
        let processes = refused(ResourceLimits { processes: 5, ..Default::default() });
        assert!(
            processes.starts_with("limits.processes:") && processes.contains("service.exec.user"),
            "{processes}"
        );
    }
}
