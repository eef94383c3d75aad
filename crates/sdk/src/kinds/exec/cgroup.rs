//! A control group of its own for each program: the kernel limits all processes of a program together, and ends all of
//! them at once.
//!
//! The obvious approach is to find the processes of a program and to kill each. But where both helpers were killed, nothing
//! leads to a process with an empty environment. No process leaves its control group unless it may write to another one.

use super::HELPER;
use super::confinement::ResourceLimits;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;
use std::fs;
use std::io::{Error, ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Set for helpers whose program has a control group: its folder.
pub(super) const CGROUP: &str = "EVERWATCH_EXEC_CGROUP";
/// The value of [`HELPER`] for a process that joins the group and ends.
pub(super) const JOIN: &str = "join";
const DELEGATE: &str = "delegate the folder to the user of the service (systemd: Delegate=, see \"Control groups\" in docs/observers/exec.md)";
/// How the names of the groups begin.
const PREFIX: &str = "everwatch";
/// How long killed processes may take to leave their group, in all.
const DEATH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

const SWAP: &str = "memory.swap.max";

/// Numbers the groups that this process has created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The folder in which a service creates a group for each program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cgroups {
    folder: PathBuf,
    /// Keys of `[service.exec.limits]`, files of a group, and their content.
    limits: Vec<(&'static str, &'static str, String)>,
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
        Ok(Some(Self { folder: folder.into(), limits }))
    }

    /// Prepares the folder: lets the kernel limit the groups in it, and ends what killed services have left there.
    ///
    /// # Errors
    /// Names the cure, if groups cannot be created, limited, joined or killed here.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let folder = self.folder.display();
        let kind =
            statfs(&self.folder).map_err(|error| format!("`{folder}`: {}; {DELEGATE}", error.desc()))?;
        if kind.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(format!(
                "`{folder}` is not in a cgroup v2 file system; name a folder below a mount of type cgroup2, such as /sys/fs/cgroup"
            ));
        }
        self.enable_controllers()?;
        end_leftovers(&self.folder);
        let failed =
            |error: Error| format!("cannot create a control group in `{folder}`: {error}; {DELEGATE}");
        let tried = self.create().map_err(failed)?;
        let usable = if tried.0.join("cgroup.kill").exists() {
            tried.try_join().map_err(|why| {
                format!(
                    "cannot move a process into a group of `{folder}`: {why}; the service itself must run below that folder, or as \
                     root"
                )
            })
        } else {
            Err("the kernel cannot kill control groups; Linux 5.14 or later can".to_owned())
        };
        tried.end().map_err(|error| error.to_string())?;
        usable
    }

    fn enable_controllers(&self) -> Result<(), String> {
        let folder = self.folder.display();
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let (here, below) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
        for (key, file, _) in &self.limits {
            let controller = file.split_once('.').map_or(*file, |(controller, _)| controller);
            let lists = |text: &str| text.split_whitespace().any(|it| it == controller);
            if lists(&below) {
                continue;
            }
            if !lists(&here) {
                return Err(format!(
                    "`{folder}` has no controller `{controller}`, which service.exec.limits.{key} needs; enable it in the folder \
                     above (systemd: Delegate={controller}), or remove the limit"
                ));
            }
            fs::write(self.folder.join("cgroup.subtree_control"), format!("+{controller}")).map_err(|error| {
                format!(
                    "cannot enable the controller `{controller}` in `{folder}`: {error}; the folder must belong to the user of this \
                     service and contain no process itself"
                )
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
        for (_, file, limit) in &self.limits {
            match fs::write(group.0.join(file), limit) {
                // A kernel without swap, or one that does not count it.
                Err(error) if *file == SWAP && error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let _empty = group.end();
                    return Err(error);
                }
                Ok(()) => {}
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

    /// Lets another process join the group and end.
    fn try_join(&self) -> Result<(), String> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.env_clear().env(HELPER, JOIN).env(CGROUP, &self.0).stdin(std::process::Stdio::null());
        let ended = command.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        if ended.status.success() { Ok(()) } else { Err(said) }
    }

    /// Sends SIGKILL to all processes of the group, including those that they are starting.
    pub(super) fn kill(&self) {
        // A group that is gone has no process.
        let _gone = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Kills all processes of the group and removes it; waits for both, up to two seconds.
    ///
    /// # Errors
    /// If the group stays; the next service that starts ends it.
    pub(super) fn end(&self) -> IoResult<()> {
        self.kill();
        let mut waited = Duration::ZERO;
        loop {
            match remove(&self.0) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ResourceBusy && waited < DEATH => {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                Err(error) => {
                    let text = format!("the control group {} cannot be removed: {error}", self.0.display());
                    return Err(Error::new(error.kind(), text));
                }
                Ok(()) => return Ok(()),
            }
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
        if owner.is_some_and(Owner::has_ended)
            && let Err(error) = Cgroup(entry.path()).end()
        {
            tracing::warn!("{error}");
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
        if namespace() != Some(self.namespace) {
            return false;
        }
        match started(self.pid) {
            Some(started) => started != self.started,
            // Of other users, /proc may show nothing.
            None => {
                i32::try_from(self.pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
            }
        }
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
        assert!(refused("/tmp").contains("`/tmp` is not in a cgroup v2 file system"));
        assert!(
            refused("/no/such/folder")
                .contains("`/no/such/folder`: No such file or directory; delegate the folder")
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
        let expected = [
            ("program_memory", "memory.max", "1073741824"),
            ("program_memory", "memory.swap.max", "0"),
            ("program_memory", "memory.oom.group", "1"),
            ("program_processes", "pids.max", "10"),
        ];
        assert_eq!(groups.limits, expected.map(|(key, file, text)| (key, file, text.to_owned())));
    }
}
