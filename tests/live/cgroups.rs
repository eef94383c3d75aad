//! A program with a control group of its own: all of its processes end with its run, also those that nothing else leads to,
//! and the kernel limits them together. Where control groups cannot be created, the tests say so and do nothing.

use crate::confinement::{Escapes, runs, send};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// A control group for one test, as an administrator delegates it.
struct Delegated(PathBuf);

impl Delegated {
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|it| it[2] == "cgroup2").map(|it| PathBuf::from(it[1]))?;
        let folder = mount.join(format!("everwatch-test-{name}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            println!("not tested: {}: {error}", folder.display());
            return None;
        }
        Some(Self(folder))
    }

    fn has(&self, controller: &str) -> bool {
        let all = fs::read_to_string(self.0.join("cgroup.controllers")).unwrap();
        all.split_whitespace().any(|it| it == controller)
    }

    fn setting(&self) -> (String, String) {
        ("EVERWATCH_SERVICE__EXEC__CGROUP".to_owned(), self.0.display().to_string())
    }

    /// The groups of programs, each with its processes.
    fn groups(&self) -> Vec<(String, Vec<i32>)> {
        let entries = fs::read_dir(&self.0).unwrap().flatten().filter(|it| it.path().is_dir());
        let processes = |path: &Path| {
            let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            text.lines().map(|pid| pid.parse().unwrap()).collect()
        };
        entries.map(|it| (it.file_name().into_string().unwrap(), processes(&it.path()))).collect()
    }

    async fn until_empty(&self) {
        wait_for("no group to be left", || async {
            let left = self.groups();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for (name, _) in self.groups() {
            let _gone = fs::write(self.0.join(&name).join("cgroup.kill"), "1");
            let _busy = fs::remove_dir(self.0.join(name));
        }
        let _busy = fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn what_two_killed_helpers_leave_ends_even_without_an_environment_by_which_to_find_it() {
    let Some(groups) = Delegated::new("helpers") else { return };
    let it = Escapes::start_with("cgroup-helpers", &[groups.setting()]).await;
    let before = it.running();
    let [(_, inside)] = groups.groups().try_into().unwrap();
    assert!(before.iter().all(|pid| inside.contains(pid)), "{before:?} in {inside:?}");
    assert!(it.helpers().iter().all(|pid| !inside.contains(pid)), "{:?} in {inside:?}", it.helpers());
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        it.helpers().into_iter().for_each(|helper| send(helper, signal));
    }
    it.until_started(2).await;
    let left: Vec<_> = before.into_iter().filter(|pid| runs(*pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    it.none_beside();
    assert_eq!(groups.groups().len(), 1, "{:?}", groups.groups());
    it.delete().await;
    groups.until_empty().await;
}

#[tokio::test]
async fn what_a_service_leaves_that_is_killed_with_its_helpers_ends_when_the_next_service_starts() {
    let Some(groups) = Delegated::new("service") else { return };
    let mut it = Escapes::start_with("cgroup-service", &[groups.setting()]).await;
    let before = it.running();
    // All are stopped first, so that none can clean up.
    let helpers = it.helpers();
    send(it.cluster.family("a")[0], Signal::SIGSTOP);
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        helpers.iter().for_each(|helper| send(*helper, signal));
    }
    it.cluster.kill("a");
    assert!(before.iter().any(|pid| runs(*pid)), "nothing was left: the test shows nothing");
    it.cluster.service("b", 5).await;
    let left: Vec<_> = before.into_iter().filter(|pid| runs(*pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    it.until_started(2).await;
    it.none_beside();
    it.delete().await;
    groups.until_empty().await;
}

/// Starts processes without end, each in a session of its own: the next one before the last one can be killed.
const RABBIT: &str = r#"
import os, sys
folder = sys.argv[1]
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(folder + "/last", "w") as file: print(os.getpid(), file=file)
"#;

#[tokio::test]
async fn a_program_that_always_replaces_its_process_ends_with_its_service() {
    let Some(groups) = Delegated::new("rabbit") else { return };
    let mut cluster = Cluster::new("cgroup-rabbit");
    cluster.extra.push(groups.setting());
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = cluster.folder("rabbit");
    // What began it stays, so that the run goes on.
    let script = "python3 -c \"$0\" \"$1\"; while :; do sleep 1; done";
    let spec = json!({"argv": ["/bin/sh", "-c", script, RABBIT, folder]});
    cluster.api.create(json!({"name": "o", "kind": "exec", "spec": spec, "grace": "100ms"})).await;
    wait_for("the program", || async {
        fs::read_to_string(folder.join("last")).map_err(|error| error.to_string())
    })
    .await;
    cluster.kill("a");
    groups.until_empty().await;
}

#[tokio::test]
async fn the_kernel_limits_all_processes_of_a_program_together() {
    let Some(groups) = Delegated::new("limits") else { return };
    for (controller, key, limit) in [("pids", "PROCESSES", "20"), ("memory", "MEMORY", "64MiB")] {
        let mut cluster = Cluster::new("cgroup-limits");
        cluster.extra.push(groups.setting());
        cluster.extra.push((format!("EVERWATCH_SERVICE__EXEC__LIMITS__PROGRAM_{key}"), limit.to_owned()));
        if !groups.has(controller) {
            // As on a machine whose controllers belong to version 1.
            let (code, said) = cluster.command(&["run", "service"]);
            let told = format!(
                "has no controller `{controller}`, which service.exec.limits.program_{} needs",
                key.to_lowercase()
            );
            assert!(code == Some(2) && said.contains(&told), "{code:?} {said}");
            continue;
        }
        cluster.manager().await;
        cluster.service("a", 5).await;
        let script = if controller == "pids" {
            "for i in $(seq 40); do sleep 1000 & done; wait"
        } else {
            "for i in 1 2 3 4; do python3 -c 'import time; it = bytearray(30 << 20); time.sleep(1000)' & done; wait"
        };
        let spec = json!({"argv": ["/bin/sh", "-c", script]});
        let retry = json!({"kind": "fixed", "every": "100ms", "attempts": 2});
        let definition = json!({"name": "o", "kind": "exec", "spec": spec, "retry": retry});
        cluster.api.create(definition).await;
        let failed = cluster.api.until_status("o", "Failed").await;
        let told = if controller == "pids" { "exited with code" } else { "ended by signal 9" };
        assert!(failed.last_error.as_ref().is_some_and(|it| it.contains(told)), "{failed:?}");
        groups.until_empty().await;
    }
}

#[tokio::test]
async fn a_folder_that_is_no_control_group_ends_the_service_with_the_cure() {
    for (folder, told) in [
        ("/tmp", "service.exec.cgroup: `/tmp` is not in a cgroup v2 file system; name a folder"),
        (
            "/sys/fs/cgroup/no/such",
            "service.exec.cgroup: `/sys/fs/cgroup/no/such`: No such file or directory",
        ),
    ] {
        let mut cluster = Cluster::new("no-cgroup");
        cluster.extra.push(("EVERWATCH_SERVICE__EXEC__CGROUP".to_owned(), folder.to_owned()));
        let (code, said) = cluster.command(&["run", "service"]);
        assert!(code == Some(2) && said.contains(told), "{code:?} {said}");
        // The same file may be for a manager, on another machine.
        let (code, said) = cluster.command(&["config", "print"]);
        assert_eq!(code, Some(0), "{said}");
    }
    let mut cluster = Cluster::new("no-cgroup");
    cluster.extra.push(("EVERWATCH_SERVICE__EXEC__CGROUP".to_owned(), "programs".to_owned()));
    let (code, said) = cluster.command(&["config", "print"]);
    let told = "service.exec.cgroup: `programs` is not an absolute path; write one such as";
    assert!(code == Some(2) && said.contains(told), "{code:?} {said}");
}
