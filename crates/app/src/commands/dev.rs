//! `everwatch dev`: runs a manager and services in one process, to try Everwatch within a minute.

use super::demo;
use crate::client::Failure;
use crate::output::print;
use everwatch::Service;
use everwatch::dev::{DevError, Options};
use everwatch_core::wording::counted;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) fn run(config: Option<&Path>, options: &Options, demo: Option<Duration>) -> anyhow::Result<()> {
    if demo.is_some_and(|every| every < demo::EVERY_MIN) {
        let text = "the interval of --demo is at least 1s, as in --demo=60s";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    let greet = |address| {
        greet(address, options.services);
        if let Some(every) = demo {
            demo::start(format!("http://{address}"), every);
        }
    };
    // No observer is the cause of the deaths that the demo causes.
    let quarantine_after = demo.map(|_| u32::MAX).or(options.quarantine_after);
    let options = &Options { quarantine_after, ..options.clone() };
    let ended = Service::new().built_in().dev(config, options, greet);
    ended.map_err(|error| match error {
        DevError::Usage(text) => Failure::Usage(text).into(),
        DevError::Host(error) => error.into(),
        DevError::Manager(text) => Failure::Failed(with_flags(&text)).into(),
        error => error.into(),
    })
}

/// The text of a manager, with the flag of this command instead of the setting.
fn with_flags(text: &str) -> String {
    text.replace("[manager] listen", "--listen")
}

fn greet(address: SocketAddr, services: u32) {
    let program = started_as(std::env::args_os().next().as_deref());
    let here = if program.starts_with('/') || !program.contains('/') { "" } else { ", in this folder" };
    let export = server(address).map_or_else(String::new, |it| format!("  export EVERWATCH_SERVER={it}\n"));
    print(&format!(
        "Everwatch runs: one manager at http://{address} and {}. Open that address to see the console.

In another terminal{here}, try:

{export}  {program} observer create hello --kind ticker
  {program} service list
  {program} chaos kill service-1
  {program} observer list      # where its observers went

Ctrl-C stops everything.",
        counted(services, "service")
    ));
}

/// The manager's URL for the commands in the greeting, or `None` if it is the default of the commands.
fn server(address: SocketAddr) -> Option<String> {
    let asked_anyway =
        address.to_string() == "127.0.0.1:7700" && std::env::var_os("EVERWATCH_SERVER").is_none();
    (!asked_anyway).then(|| format!("http://{address}"))
}

/// The command that starts this program from a shell: the original argument if it was a path or if `PATH`
/// finds the program, otherwise the full path.
fn started_as(argument: Option<&OsStr>) -> String {
    let this = std::env::current_exe().ok();
    let by_path = |name: &Path| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|it| it.is_file());
        found.and_then(|it| it.canonicalize().ok()) == this.as_ref().and_then(|it| it.canonicalize().ok())
    };
    let path = match argument.map(Path::new) {
        Some(path) if path.components().count() > 1 || path.is_absolute() => path.to_owned(),
        Some(name) if by_path(name) => name.to_owned(),
        _ => this.unwrap_or_else(|| PathBuf::from("everwatch")),
    };
    quoted(&path.display().to_string())
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_names_the_flag() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 7700));
        let told = with_flags(&everwatch_manager::RunError::PortOccupied { addr }.to_string());
        assert!(told.ends_with("choose another address with --listen)"), "{told}");
    }
}
