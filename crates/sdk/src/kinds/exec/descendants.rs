//! Finds processes and ends them: all descendants of this process, or all that carry the marks of one run.

use super::HELPER;
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// The pause between two rounds, at first and at most: a process may need a while to die.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Kills every descendant of this process and returns once there is none: one that starts another meanwhile is met
/// in the next round. This process has to be the parent of orphans, and its children are reaped.
pub(super) fn end_all() {
    let mut pause = FIRST_PAUSE;
    while has_children() {
        let me = rustix::process::getpid();
        let family = family_of(me.as_raw_nonzero().get());
        for pid in &family {
            // An id that was given out again belongs to a stranger's child.
            kill(*pid, || {
                parent(*pid).is_some_and(|it| it == me.as_raw_nonzero().get() || family.contains(&it))
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Kills every process that has these entries in the environment that it was started with, except helpers; answers
/// how many there were.
pub(super) fn end_marked(marks: &[String]) -> usize {
    let marked = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let entries: HashSet<&[u8]> = environment.split(|byte| *byte == 0).collect();
        let helper = entries.iter().any(|entry| entry.starts_with(HELPER.as_bytes()));
        !helper && marks.iter().all(|mark| entries.contains(mark.as_bytes()))
    };
    let found: Vec<i32> = all().into_iter().filter(|pid| marked(*pid)).collect();
    for pid in &found {
        kill(*pid, || marked(*pid));
    }
    found.len()
}

/// Reaps children that have ended; whether any is left.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Err(Errno::ECHILD) => return false,
            Ok(_) | Err(_) => {}
        }
    }
}

/// Sends SIGKILL to the process, if it is still the one that is meant.
fn kill(pid: i32, is_meant: impl Fn() -> bool) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let _gone = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) if is_meant() => pidfd_send_signal(process, Signal::KILL),
        Ok(_) => Ok(()),
        // A kernel before 5.3, or a sandbox.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if is_meant() => {
            kill_process(pid, Signal::KILL)
        }
        Err(error) => Err(error),
    };
}

/// All descendants. What the kernel lists of a process's children is quick to read and may lack some while others
/// end: then the whole table is searched.
fn family_of(root: i32) -> HashSet<i32> {
    let listed = family(root, listed_children);
    if !listed.is_empty() {
        return listed;
    }
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    family(root, |pid| children.get(&pid).cloned().unwrap_or_default())
}

fn family(root: i32, children: impl Fn(i32) -> Vec<i32>) -> HashSet<i32> {
    let (mut found, mut next) = (HashSet::new(), vec![root]);
    while let Some(pid) = next.pop() {
        next.extend(children(pid).into_iter().filter(|child| found.insert(*child)));
    }
    found
}

fn listed_children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// All processes.
fn all() -> Vec<i32> {
    let entries = std::fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn a_family_has_every_generation_and_no_stranger() {
        let children = |pid: i32| match pid {
            1 => vec![2, 3],
            3 => vec![4],
            4 => vec![5],
            9 => vec![10],
            _ => Vec::new(),
        };
        assert_eq!(family(1, children), HashSet::from([2, 3, 4, 5]));
    }

    #[test]
    fn only_a_process_with_all_marks_that_is_no_helper_is_ended() {
        let mark = format!("EVERWATCH_TEST_MARK={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let sleep = |marked: bool, helper: bool| {
            let mut command = Command::new("sleep");
            command.arg("1000").env_remove(HELPER);
            if marked {
                command.env(name, value);
            }
            if helper {
                command.env(HELPER, "inner 5000");
            }
            command.spawn().unwrap()
        };
        let (mut stranger, mut helper, mut meant) =
            (sleep(false, false), sleep(true, true), sleep(true, false));
        // A process has the environment of its parent until it has become its program.
        let marks = [mark.clone(), "EVERWATCH_TEST_OTHER=1".to_owned()];
        assert_eq!(end_marked(&marks), 0);
        while end_marked(std::slice::from_ref(&mark)) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(meant.wait().unwrap().signal(), Some(9));
        for other in [&mut stranger, &mut helper] {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
