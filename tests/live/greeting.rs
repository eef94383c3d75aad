//! The greeting of `everwatch dev`: every command in it can be run unchanged, however `dev` was started.

use everwatch_tests::cluster::{everwatch, example, free_address};
use everwatch_tests::http::Api;
use everwatch_tests::said_by;
use everwatch_tests::wait::wait_for;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

struct Shell<'a> {
    folder: &'a Path,
    path: String,
}

impl Shell<'_> {
    /// Command lines as typed into a fresh terminal.
    fn runs(&self, lines: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", lines]).current_dir(self.folder).stdin(Stdio::null());
        shell.env_clear().env("PATH", &self.path).env("HOME", self.folder);
        shell
    }
}

struct Dev {
    process: Child,
    said: Arc<Mutex<String>>,
}

impl Dev {
    fn start(shell: &Shell<'_>, program: &str, more: &str) -> Self {
        let line = format!("exec {program} dev --services 2 {more}");
        let mut process = shell.runs(&line).stdout(Stdio::piped()).spawn().unwrap();
        let said = said_by(process.stdout.take().unwrap());
        Self { process, said }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

async fn every_command_works(shell: &Shell<'_>, program: &str, more: &str) {
    let dev = Dev::start(shell, program, more);
    let greeting = wait_for("the greeting", || async {
        let said = dev.said.lock().unwrap().clone();
        if said.contains("Ctrl-C stops everything.") { Ok(said) } else { Err(said) }
    })
    .await;
    // What is exported holds for the commands below it, and for nothing else.
    let (exports, commands): (Vec<&str>, Vec<&str>) = greeting
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .partition(|line| line.starts_with("export "));
    assert!(commands.len() >= 3 && exports.len() <= 1, "{greeting}");
    for command in commands {
        let typed: Vec<&str> = exports.iter().copied().chain([command]).collect();
        let ended = shell.runs(&typed.join("\n")).output().unwrap();
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        assert!(ended.status.success(), "{command}: {said}");
    }
}

#[tokio::test]
async fn every_command_that_dev_prints_works_as_it_stands() {
    let scratch = tempfile::Builder::new().prefix("it's here ").tempdir().unwrap();
    let bin = scratch.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::copy(everwatch(), bin.join("everwatch")).unwrap();
    let system = std::env::var("PATH").unwrap();
    let of_system = || Shell { folder: scratch.path(), path: system.clone() };
    let listen = |address: &str| format!("--listen {address}");
    let on_path = Shell { folder: scratch.path(), path: format!("{}:{system}", bin.display()) };
    every_command_works(&on_path, "everwatch", &listen(&free_address())).await;
    every_command_works(&of_system(), "bin/everwatch", &listen(&free_address())).await;
    every_command_works(
        &of_system(),
        "./bin/everwatch",
        &listen(&free_address().replace("127.0.0.1", "[::1]")),
    )
    .await;
    let whole = format!("\"{}\"", bin.join("everwatch").display());
    every_command_works(&of_system(), &whole, &listen(&free_address())).await;
}

#[tokio::test]
async fn every_command_that_a_program_with_its_own_kinds_prints_works_as_it_stands() {
    let scratch = tempfile::tempdir().unwrap();
    let program = example("file_watch");
    let shell = Shell { folder: scratch.path(), path: std::env::var("PATH").unwrap() };
    let more = format!("--listen {}", free_address());
    every_command_works(&shell, program.to_str().unwrap(), &more).await;
}

#[tokio::test]
async fn the_demo_kills_services_and_says_where_their_observers_went() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell { folder: folder.path(), path: std::env::var("PATH").unwrap() };
    let address = free_address();
    let program = everwatch();
    let dev = Dev::start(&shell, program.to_str().unwrap(), &format!("--demo=1s --listen {address}"));
    let said = wait_for("two kills with their moves", || async {
        let said = dev.said.lock().unwrap().clone();
        if said.matches(" observers run on service-").count() >= 2 { Ok(said) } else { Err(said) }
    })
    .await;
    assert!(said.contains("The demo created 20 observers."), "{said}");
    let line = said.lines().find(|line| line.contains(" run on service-")).unwrap();
    assert!(line.contains("killed service-") && line.contains("ms after the kill"), "{line}");
    let api = Api::new(format!("http://{address}"));
    assert_eq!(api.observers().await.len(), 20);
    api.until_status("waits", "Created").await;
    api.until_status("rests", "Paused").await;
}
