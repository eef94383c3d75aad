//! A control group of its own for each program: the kernel limits all processes of a program together, and ends all of
//! them at once.
//!
//! The obvious approach is to find the processes of a program and to kill each. But where both helpers were killed, nothing
//! leads to a process with an empty environment. No process leaves its control group unless it may write to another one.

use super::confinement::ResourceLimits;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs;
use std::io::{Error, ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Set for helpers whose program has a control group: its folder.
pub(super) const CGROUP: &str = "EVERWATCH_EXEC_CGROUP";
/// How the names of the groups begin.
const PREFIX: &str = "everwatch";
/// How long killed processes may take to leave their group, in all.
const DEATH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Numbers the groups that this process has created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The folder in which a service creates a group for each program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cgroups {
    folder: PathBuf,
    /// Files of a group and their content.
    limits: Vec<(&'static str, String)>,
}

impl Cgroups {
    /// `None` for an empty text: programs stay in the group of the service.
    ///
    /// # Errors
    /// Names the key of `[service.exec]` and the cure.
    pub(super) fn new(folder: &str, limits: ResourceLimits) -> Result<Option<Self>, String> {
        let limits = limits.of_group();
        if let (true, Some((key, ..))) = (folder.is_empty(), limits.first()) {
            return Err(format!(
                "limits.{key}: only a control group limits all processes of a program together; set service.exec.cgroup"
            ));
        }
        if folder.is_empty() {
            return Ok(None);
        }
        if !Path::new(folder).is_absolute() {
            return Err(format!(
                "cgroup: `{folder}` is not an absolute path; write one such as /sys/fs/cgroup/everwatch"
            ));
        }
        let limits = limits.into_iter().flat_map(|(_, files)| files).collect();
        Ok(Some(Self { folder: folder.into(), limits }))
    }

    /// Prepares the folder: lets the kernel limit the groups in it, and ends what services that were killed have left.
    ///
    /// # Errors
    /// Names the cure, if groups cannot be created, limited or killed here.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let folder = self.folder.display();
        let kind = statfs(&self.folder).map_err(|error| {
            format!("`{folder}`: {}; create it, and delegate it to this service", error.desc())
        })?;
        if kind.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(format!(
                "`{folder}` is not a control group of version 2; name a folder below a mount of type cgroup2"
            ));
        }
        self.enable_controllers()?;
        end_leftovers(&self.folder);
        let failed = |error: Error| {
            format!(
                "cannot create a control group in `{folder}`: {error}; delegate that folder to the user of this service"
            )
        };
        let tried = self.create().map_err(failed)?;
        let can_kill = tried.0.join("cgroup.kill").exists();
        tried.end();
        if can_kill {
            Ok(())
        } else {
            Err("the kernel cannot kill control groups; Linux 5.14 or later can".to_owned())
        }
    }

    fn enable_controllers(&self) -> Result<(), String> {
        let folder = self.folder.display();
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let (here, below) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
        for (file, _) in &self.limits {
            let controller = file.split_once('.').map_or(*file, |(controller, _)| controller);
            let lists = |text: &str| text.split_whitespace().any(|it| it == controller);
            if lists(&below) {
                continue;
            }
            if !lists(&here) {
                return Err(format!(
                    "`{folder}` has no controller `{controller}`, which a limit needs; enable it in cgroup.subtree_control of the folder above, or remove that limit"
                ));
            }
            fs::write(self.folder.join("cgroup.subtree_control"), format!("+{controller}")).map_err(|error| {
                format!("cannot enable the controller `{controller}` in `{folder}`: {error}; the folder must belong to this service and contain no process itself")
            })?;
        }
        Ok(())
    }

    /// A new group, with its limits and without a process.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn create(&self) -> IoResult<Cgroup> {
        let owner = Owner::this_process()?;
        let group = Cgroup(self.folder.join(owner.name(CREATED.fetch_add(1, Ordering::Relaxed))));
        fs::create_dir(&group.0)?;
        for (file, limit) in &self.limits {
            if let Err(error) = fs::write(group.0.join(file), limit) {
                group.end();
                return Err(error);
            }
        }
        Ok(group)
    }
}

/// The control group of one program.
#[derive(Debug, Clone)]
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// The group that a service has created for the program of this helper.
    pub(super) fn given() -> Option<Self> {
        std::env::var_os(CGROUP).map(|folder| Self(folder.into()))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Moves this process into the group.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn join(&self) -> IoResult<()> {
        fs::write(self.0.join("cgroup.procs"), "0").map_err(|error| {
            Error::new(error.kind(), format!("its control group {}: {error}", self.0.display()))
        })
    }

    /// Sends SIGKILL to all processes of the group, including those that they are starting.
    pub(super) fn kill(&self) {
        // A group that is gone has no process.
        let _gone = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Kills all processes of the group and removes it; waits for both, up to two seconds.
    pub(super) fn end(&self) {
        self.kill();
        let mut waited = Duration::ZERO;
        while let Err(error) = remove(&self.0) {
            // What stays is ended when the next service starts.
            if error.kind() != ErrorKind::ResourceBusy || waited >= DEATH {
                return;
            }
            std::thread::sleep(PAUSE);
            waited += PAUSE;
        }
    }
}

/// Removes a group with the groups that its processes have created in it.
fn remove(folder: &Path) -> IoResult<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// Ends the groups of services that have ended.
fn end_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(Owner::of);
        if owner.is_some_and(|it| it.has_ended()) {
            Cgroup(entry.path()).end();
        }
    }
}

/// The service that has created a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    /// The inode of its namespace of process ids: an id means nothing outside.
    namespace: u64,
    pid: u32,
    /// When the process started, in ticks since the machine did: ids are used again.
    started: u64,
}

impl Owner {
    fn this_process() -> IoResult<Self> {
        let pid = std::process::id();
        let missing = || Error::other("/proc does not show this process");
        Ok(Self {
            namespace: namespace().ok_or_else(missing)?,
            pid,
            started: started(pid).ok_or_else(missing)?,
        })
    }

    fn name(self, number: u64) -> String {
        let Self { namespace, pid, started } = self;
        format!("{PREFIX}-{namespace}-{pid}-{started}-{number}")
    }

    /// The inverse of [`Owner::name`].
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let owner = Self { namespace: number()?, pid: number()?.try_into().ok()?, started: number()? };
        number()?;
        parts.next().is_none().then_some(owner)
    }

    /// `false` as well where this process cannot know.
    fn has_ended(self) -> bool {
        namespace() == Some(self.namespace) && started(self.pid) != Some(self.started)
    }
}

fn namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything. The 22nd field is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit_text::SizeLimitText;

    #[test]
    fn the_name_of_a_group_tells_whether_its_service_still_runs() {
        let mine = Owner::this_process().unwrap();
        assert_eq!((Owner::of(&mine.name(7)), mine.has_ended()), (Some(mine), false));
        assert!(Owner { started: mine.started + 1, ..mine }.has_ended());
        assert!(!Owner { namespace: mine.namespace + 1, pid: 0, ..mine }.has_ended());
        for stranger in
            ["", "everwatch", "everwatch-1-2-3", "everwatch-1-2-3-4-5", "everwatch-1-2-x-4", "other-1-2-3-4"]
        {
            assert_eq!(Owner::of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_folder_without_control_groups_and_limits_without_a_folder_name_the_key_and_the_cure() {
        let limits = ResourceLimits { program_processes: 10, ..Default::default() };
        let refused = Cgroups::new("", limits).unwrap_err();
        assert!(
            refused.starts_with("limits.program_processes: ") && refused.ends_with("set service.exec.cgroup"),
            "{refused}"
        );
        assert!(
            Cgroups::new("sys/fs", limits)
                .unwrap_err()
                .starts_with("cgroup: `sys/fs` is not an absolute path")
        );
        assert_eq!(Cgroups::new("", ResourceLimits::default()), Ok(None));
        let refused = |folder| Cgroups::new(folder, limits).unwrap().unwrap().prepare().unwrap_err();
        assert!(refused("/tmp").contains("`/tmp` is not a control group of version 2"));
        assert!(
            refused("/no/such/folder").contains("`/no/such/folder`: No such file or directory; create it")
        );
    }

    #[test]
    fn limits_become_files_of_the_group() {
        let limits = ResourceLimits {
            program_processes: 10,
            program_memory: SizeLimitText(Some(1 << 30)),
            ..Default::default()
        };
        let groups = Cgroups::new("/sys/fs/cgroup/x", limits).unwrap().unwrap();
        let expected = [("memory.max", "1073741824"), ("memory.oom.group", "1"), ("pids.max", "10")];
        assert_eq!(groups.limits, expected.map(|(file, text)| (file, text.to_owned())));
    }
}
