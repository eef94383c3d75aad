//! No process that `exec` starts outlives its run, whichever process is killed and whatever a program does to
//! escape. No second copy of a program ever runs at the same time.

use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a killed service's children may live on: the default `fence_grace`, on a busy machine.
const FENCE_GRACE: Duration = Duration::from_millis(500);
/// Processes of the program below.
const PROCESSES: usize = 5;

/// A program that ignores signals, closes its descriptors, and has descendants in separate sessions: a child,
/// an orphan, and an orphan with an empty environment. Each process writes its id to `pids`. If a process of
/// an earlier start still runs, its id is written to `beside`.
const PROGRAM: &str = r#"
folder=$0
trap "" TERM HUP INT
for pid in $(cat "$folder/pids" 2>/dev/null); do
  state=$(sed 's/.*) \(.\).*/\1/' "/proc/$pid/stat" 2>/dev/null)
  case "$state" in ""|Z|X) ;; *) echo "$pid beside $$" >>"$folder/beside" ;; esac
done
echo $$ >>"$folder/pids"
on='trap "" TERM HUP INT; echo $$ >>"$0/pids"; while :; do sleep 0.2; done'
sh -c "$on" "$folder" &
setsid sh -c "$on" "$folder" </dev/null >/dev/null 2>&1 &
(setsid sh -c "$on" "$folder" </dev/null >/dev/null 2>&1 &)
(setsid env -i PATH="$PATH" sh -c 'echo $$ >>"$0/bare"; '"$on" "$folder" </dev/null >/dev/null 2>&1 &)
if [ -n "$1" ]; then
  while [ ! -e "$folder/leave" ]; do sleep 0.05; done
  exit 3
fi
exec </dev/null >/dev/null 2>&1
while :; do sleep 0.2; done
"#;

pub(crate) struct Escapes {
    pub(crate) cluster: Cluster,
    folder: PathBuf,
}

impl Escapes {
    async fn start(name: &str, argument: &str, overlap: &str) -> Self {
        Self::start_as(name, argument, overlap, &json!({})).await
    }

    /// With further settings of the service.
    pub(crate) async fn start_with(name: &str, settings: &[(String, String)]) -> Self {
        let mut cluster = Cluster::new(name);
        cluster.extra.extend_from_slice(settings);
        Self::start_on(cluster, "", "allow", &json!({})).await
    }

    /// With further members of the spec.
    async fn start_as(name: &str, argument: &str, overlap: &str, more: &Value) -> Self {
        Self::start_on(Cluster::new(name), argument, overlap, more).await
    }

    async fn start_on(mut cluster: Cluster, argument: &str, overlap: &str, more: &Value) -> Self {
        cluster.manager().await;
        cluster.service("a", 5).await;
        let folder = cluster.folder("escapes");
        let argv = json!(["/bin/sh", "-c", PROGRAM, folder, argument]);
        let retry = json!({"kind": "fixed", "every": "100ms", "attempts": null});
        let mut spec = json!({ "argv": argv });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let definition = json!({"name": "escapes", "kind": "exec", "spec": spec, "retry": retry,
            "overlap": overlap, "grace": "500ms"});
        cluster.api.create(definition).await;
        let this = Self { cluster, folder };
        this.until_started(1).await;
        this
    }

    /// All processes of all starts.
    fn pids(&self) -> Vec<i32> {
        self.listed("pids")
    }
    fn listed(&self, file: &str) -> Vec<i32> {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
    pub(crate) async fn until_started(&self, times: usize) -> Vec<i32> {
        wait_for(&format!("start {times}"), || async {
            let pids = self.pids();
            if pids.len() >= times * PROCESSES { Ok(pids) } else { Err(format!("{pids:?}")) }
        })
        .await
    }
    /// The processes that still run.
    pub(crate) fn running(&self) -> Vec<i32> {
        self.pids().into_iter().filter(|pid| runs(*pid)).collect()
    }
    /// The processes between the service and the program, the outermost first.
    pub(crate) fn helpers(&self) -> Vec<i32> {
        self.cluster.family("a").into_iter().skip(1).filter(|pid| is_helper(*pid)).collect()
    }
    pub(crate) fn none_beside(&self) {
        let beside = std::fs::read_to_string(self.folder.join("beside")).unwrap_or_default();
        assert_eq!(beside, "", "a second one ran beside the first");
    }
    async fn until_all_gone(&self, limit: Duration) {
        let begun = Instant::now();
        wait_for("all of its processes to be gone", || async {
            let left = self.running();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert!(begun.elapsed() <= limit, "gone only after {:?}", begun.elapsed());
    }
    /// Deletes the observer. The request returns once no process runs any more.
    pub(crate) async fn delete(&self) {
        let (status, it) = self.cluster.api.call("DELETE", "/v1/observers/escapes?wait=20s", None).await;
        assert_eq!(status, 200, "{it}");
        assert_eq!(self.running(), [0; 0], "deleted, and still there");
        self.none_beside();
    }
}

impl Drop for Escapes {
    fn drop(&mut self) {
        for pid in self.running() {
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

pub(crate) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn is_helper(pid: i32) -> bool {
    let exe = |path: &Path| std::fs::read_link(path.join("exe")).ok();
    exe(&Path::new("/proc").join(pid.to_string()))
        .is_some_and(|exe| exe == everwatch_tests::cluster::everwatch())
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

#[tokio::test]
async fn a_sigterm_to_helpers_and_program_leaves_no_program_behind() {
    let it = Escapes::start("group-term", "", "allow").await;
    for pid in it.cluster.family("a").into_iter().skip(1) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    // If no helper has adopted an orphan, it is no longer a descendant of the service.
    it.delete().await;
}

#[tokio::test]
async fn a_sigterm_to_the_whole_control_group_ends_everything() {
    let mut it = Escapes::start("all-term", "", "allow").await;
    for pid in it.cluster.family("a").into_iter().skip(1) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    assert_eq!(it.cluster.terminate("a"), Some(0), "{}", it.cluster.log("a"));
    it.until_all_gone(FENCE_GRACE).await;
}

#[tokio::test]
async fn a_killed_helper_takes_everything_along_before_the_program_starts_again() {
    helpers_are_killed(&Escapes::start("helper-kill", "", "allow").await).await;
}

#[tokio::test]
async fn a_killed_helper_takes_everything_along_that_has_a_channel() {
    let spec = json!({"channel": true});
    helpers_are_killed(&Escapes::start_as("helper-kill-channel", "", "allow", &spec).await).await;
}

async fn helpers_are_killed(it: &Escapes) {
    let mut starts = 1;
    assert_eq!(it.helpers().len(), 2);
    for one in 0..2 {
        let before = it.running();
        send(it.helpers()[one], Signal::SIGKILL);
        starts += 1;
        it.until_started(starts).await;
        let left: Vec<_> = before.into_iter().filter(|pid| runs(*pid)).collect();
        assert!(left.is_empty(), "left behind by start {}: {left:?}", starts - 1);
        it.none_beside();
    }
    it.delete().await;
}

#[tokio::test]
async fn what_two_helpers_that_are_killed_at_once_leave_is_found_by_its_environment() {
    let it = Escapes::start("helpers-kill", "", "allow").await;
    let (before, bare) = (it.running(), it.listed("bare"));
    // Stops both helpers first, so that neither can clean up before it is killed.
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        it.helpers().into_iter().for_each(|helper| send(helper, signal));
    }
    let all = it.until_started(2).await;
    // A process with an empty environment has no parent and no mark by which it could be found.
    let left: Vec<_> = before.into_iter().filter(|pid| runs(*pid) && !bare.contains(pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?} of {all:?}");
    let beside = std::fs::read_to_string(it.folder.join("beside")).unwrap_or_default();
    let beside: Vec<_> =
        beside.lines().filter(|line| !bare.iter().any(|pid| line.starts_with(&format!("{pid} ")))).collect();
    assert_eq!(beside, [""; 0], "a second one ran beside the first");
}

#[tokio::test]
async fn what_a_program_leaves_behind_when_it_ends_is_gone_before_it_starts_again() {
    let it = Escapes::start("leaves", "and leave", "allow").await;
    std::fs::write(it.folder.join("leave"), "").unwrap();
    it.until_started(4).await;
    it.delete().await;
}

#[tokio::test]
async fn what_ignores_its_end_is_gone_when_its_run_is_over() {
    let it = Escapes::start("deaf", "", "allow").await;
    it.delete().await;
}

#[tokio::test]
async fn a_killed_service_leaves_nothing_and_no_two_run_at_once() {
    service_is_killed(Escapes::start("service-kill", "", "forbid").await).await;
}

#[tokio::test]
async fn a_killed_service_leaves_nothing_that_has_a_channel() {
    let spec = json!({"channel": true});
    service_is_killed(Escapes::start_as("service-kill-channel", "", "forbid", &spec).await).await;
}

async fn service_is_killed(mut it: Escapes) {
    it.cluster.service("b", 5).await;
    let before = it.running();
    it.cluster.kill("a");
    it.until_started(2).await;
    let left: Vec<_> = before.into_iter().filter(|pid| runs(*pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    it.none_beside();
}

#[tokio::test]
async fn a_program_gets_none_of_the_service_s_environment_but_what_is_passed_on() {
    let mut cluster = Cluster::new("environment");
    cluster.extra.push(("EVERWATCH_SERVICE__EXEC__ENV_ALLOW".to_owned(), "MODE".to_owned()));
    cluster.manager().await;
    cluster.service("a", 5).await;
    let file = cluster.scratch.path().join("environment");
    let script = format!("env >{0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
    let spec = json!({"argv": ["/bin/sh", "-c", script], "env": {"MODE": "fast"}, "cwd": "/"});
    cluster.api.create(json!({"name": "o", "kind": "exec", "spec": spec})).await;
    let text = wait_for("the environment", || async {
        std::fs::read_to_string(&file).map_err(|error| error.to_string())
    })
    .await;
    let all: Vec<&str> = text.lines().collect();
    let has = |start: &str| all.iter().any(|line| line.starts_with(start));
    assert!(has("PATH=") && has("MODE=fast") && has("EVERWATCH_EPOCH=") && has("PWD=/"), "{text}");
    assert!(!text.contains("__") && !has("EVERWATCH_EXEC_HELPER"), "the service's settings: {text}");
    for (env, told) in [
        (json!({"OTHER": "x"}), "`OTHER` is not in [service.exec] env_allow"),
        (json!({"BASH_ENV": "x"}), "`BASH_ENV` can never be set"),
    ] {
        let spec = json!({"argv": ["/bin/sleep", "1000"], "env": env});
        let made = cluster.api.create(json!({"kind": "exec", "spec": spec})).await;
        let failed = cluster.api.until_status(&made.name, "Failed").await;
        assert!(failed.last_error.as_ref().is_some_and(|it| it.contains(told)), "{failed:?}");
    }
}

/// A program that says who it is, and tries to read and to end the processes above it and to get back to root.
const STRANGER: &str = r#"
above=$(sed 's/.*) . //' /proc/$PPID/stat | cut -d' ' -f1)
{ echo "user $(id -u) groups $(id -G)"
  grep NoNewPrivs /proc/self/status
  for pid in $PPID $above; do
    cat /proc/$pid/environ >/dev/null 2>&1 && echo "environment of $pid read"
    kill -9 $pid 2>/dev/null && echo "$pid killed"
  done
  cat "$1" >/dev/null 2>&1 && echo "file of the service read"
} >"$0/said.new"
mv "$0/said.new" "$0/said"
trap "" TERM
(setsid sh -c 'echo $$ >"$0/orphan"; while :; do sleep 0.2; done' "$0" &)
while :; do sleep 0.2; done
"#;

#[tokio::test]
async fn programs_of_another_user_reach_neither_the_service_nor_its_files_and_end_with_it() {
    let mut cluster = Cluster::new("stranger");
    cluster.extra.push(("EVERWATCH_SERVICE__EXEC__USER".to_owned(), "nobody".to_owned()));
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "of the service").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let spec = json!({"argv": ["/bin/sh", "-c", STRANGER, folder.path(), secret]});
    cluster.api.create(json!({"name": "o", "kind": "exec", "spec": spec, "grace": "500ms"})).await;
    let read = async |name: &str| {
        wait_for(name, || async {
            let text =
                std::fs::read_to_string(folder.path().join(name)).map_err(|error| error.to_string())?;
            if text.ends_with('\n') { Ok(text) } else { Err(text) }
        })
        .await
    };
    let said = read("said").await;
    assert_eq!(said, format!("user {} groups {}\nNoNewPrivs:\t1\n", nobody.uid, nobody.gid));
    let orphan: i32 = read("orphan").await.trim().parse().unwrap();
    assert!(runs(orphan));
    cluster.kill("a");
    wait_for("the end of an orphan of another user", || async {
        if runs(orphan) { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .await;
}

/// A program that exceeds each limit, then tries to raise one.
const GREEDY: &str = r#"
import os, resource, signal, sys
folder = sys.argv[1]
said = open(folder + "/said.new", "w")
def tell(*words): print(*words, file=said, flush=True)
try: [os.open("/dev/null", 0) for _ in range(1000)]
except OSError as error: tell("files", error.errno)
finally: os.closerange(said.fileno() + 1, 1000)
try: bytearray(2 << 30)
except MemoryError: tell("memory")
if os.fork() == 0:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with open(folder + "/big", "wb") as big:
        while True: big.write(bytes(1 << 16)); big.flush()
_, status = os.wait()
tell("file", os.WTERMSIG(status) == signal.SIGXFSZ, os.path.getsize(folder + "/big"))
children = []
try:
    while len(children) < 1000:
        child = os.fork()
        if child == 0: signal.pause()
        children.append(child)
except OSError as error: tell("processes", error.errno, 0 < len(children) < 40)
for child in children: os.kill(child, signal.SIGKILL)
try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
except ValueError: tell("not raised")
said.close()
os.rename(folder + "/said.new", folder + "/said")
signal.pause()
"#;

#[tokio::test]
async fn no_process_of_a_program_exceeds_its_limits_or_raises_them() {
    let mut cluster = Cluster::new("greedy");
    for (key, value) in [
        ("USER", "daemon"),
        ("LIMITS__OPEN_FILES", "40"),
        ("LIMITS__PROCESSES", "40"),
        ("LIMITS__FILE_SIZE", "1MiB"),
        ("LIMITS__MEMORY", "1GiB"),
    ] {
        cluster.extra.push((format!("EVERWATCH_SERVICE__EXEC__{key}"), value.to_owned()));
    }
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    // The interpreter that the virtual environment of the tests may be made of is not for everybody.
    let spec = json!({"argv": ["/usr/bin/python3", "-c", GREEDY, folder.path()]});
    cluster.api.create(json!({"name": "o", "kind": "exec", "spec": spec, "grace": "500ms"})).await;
    let said = wait_for("the program to have tried everything", || async {
        std::fs::read_to_string(folder.path().join("said")).map_err(|error| error.to_string())
    })
    .await;
    let (too_many_files, again) = (nix::libc::EMFILE, nix::libc::EAGAIN);
    let expected =
        format!("files {too_many_files}\nmemory\nfile True 1048576\nprocesses {again} True\nnot raised\n");
    assert_eq!(said, expected);
    let running = cluster.api.observer("o").await;
    assert_eq!((running.status, running.attempt), (Status::Processing, 1), "{running:?}");
}

#[tokio::test]
async fn a_user_that_does_not_exist_and_a_limit_that_cannot_hold_end_the_service_with_the_cure() {
    for (key, value, told) in [
        (
            "USER",
            "no-such-user",
            "service.exec.user: this machine has no user `no-such-user`; create it, or name another one",
        ),
        (
            "LIMITS__OPEN_FILES",
            "3",
            "service.exec.limits.open_files: at least 16, or 0 for the limit of the service",
        ),
        (
            "LIMITS__PROCESSES",
            "10",
            "service.exec.limits.processes: the kernel counts all processes of a user",
        ),
        ("LIMITS__MEMORY", "much", "`much` is not a size"),
        ("LIMITS__MEMORY", "1KiB", "service.exec.limits.memory: at least 16MiB"),
    ] {
        let mut cluster = Cluster::new("no-user");
        cluster.extra.push((format!("EVERWATCH_SERVICE__EXEC__{key}"), value.to_owned()));
        let (code, said) = cluster.command(&["run", "service"]);
        assert!(code == Some(2) && said.contains(told), "{key}: {code:?} {said}");
    }
}

#[tokio::test]
async fn http_and_websocket_connect_only_to_hosts_that_the_service_allows() {
    let mut cluster = Cluster::new("hosts");
    cluster.extra.extend(
        [
            ("ALLOW_PRIVATE", "false"),
            ("ALLOW_HOSTS", "*.example.org"),
            ("ALLOW_PRIVATE_HOSTS", "127.0.0.1,192.168.7.7"),
        ]
        .map(|(key, value)| (format!("EVERWATCH_SERVICE__HTTP__{key}"), value.to_owned())),
    );
    cluster.manager().await;
    cluster.service("a", 5).await;
    let target = cluster.api.url.strip_prefix("http://").unwrap().to_owned();
    let spec = json!({"url": format!("http://{target}/livez")});
    cluster.api.create(json!({"name": "named", "kind": "http", "spec": spec})).await;
    cluster.api.until_status("named", "Processing").await;
    for (kind, url, told) in [
        (
            "http",
            target.replace("127.0.0.1", "localhost"),
            "host `localhost` is not in [service.http] allow_hosts",
        ),
        ("websocket", "10.0.0.1".to_owned(), "host `10.0.0.1` is not in [service.http] allow_hosts"),
    ] {
        let url = format!("{}://{url}/", if kind == "http" { kind } else { "ws" });
        let made = cluster.api.create(json!({"kind": kind, "spec": {"url": url}})).await;
        let failed = cluster.api.until_status(&made.name, "Failed").await;
        assert!(failed.last_error.as_ref().is_some_and(|it| it.contains(told)), "{failed:?}");
    }
}
