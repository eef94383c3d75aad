//! The help of `everwatch` lists its commands by what they are for.

use clap::Command;

/// Every command that the help shows, in groups.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Try it", &["dev", "demo", "chaos", "new"]),
    ("Monitor", &["status", "top", "events", "timeline", "doctor"]),
    ("Observers", &["observer", "batch", "rollout", "kind"]),
    (
        "Services and capacity",
        &["service", "pool", "rebalance", "limit", "rate", "namespace", "safe-mode", "parked"],
    ),
    ("Access", &["login", "logout", "whoami", "context", "token", "role", "audit"]),
    (
        "Set up",
        &[
            "run",
            "health",
            "config",
            "broker",
            "migrate",
            "completion",
            "man",
            "bench",
            "conformance",
            "help",
        ],
    ),
];
/// Bold and underlined, and bold, as clap writes headings and commands; clap removes them where the output has no colors.
const STYLES: [&str; 3] = ["\u{1b}[1m\u{1b}[4m", "\u{1b}[1m", "\u{1b}[0m"];

/// The command with this help.
pub(crate) fn grouped(mut command: Command) -> Command {
    // Adds the command `help`, so that it is hidden below as well.
    command.build();
    let [heading, name_style, reset] = STYLES;
    let line = |name: &&str| {
        let about = match command.find_subcommand(name).and_then(Command::get_about) {
            Some(about) => about.to_string(),
            None => "Show the help of a command".to_owned(),
        };
        format!(
            "  {name_style}{name}{reset}{:blank$}{about}",
            "",
            blank = 13_usize.saturating_sub(name.len())
        )
    };
    let groups = GROUPS.map(|(title, names)| {
        let lines: Vec<String> = names.iter().map(line).collect();
        format!("{heading}{title}:{reset}\n{}", lines.join("\n"))
    });
    let usage = format!("{name_style}everwatch{reset} [OPTIONS] <COMMAND>");
    let template = format!(
        "{{about}}\n\n{heading}Usage:{reset} {usage}\n\n{}\n\n{{all-args}}{{after-help}}",
        groups.join("\n\n")
    );
    command.override_usage(usage).help_template(template).mut_subcommands(|it| it.hide(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name);
        let shown: BTreeSet<&str> = shown.chain(["help"]).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(grouped.len(), shown.len(), "a command is in two groups");
    }

    #[test]
    fn the_help_fits_80_columns() {
        let help = grouped(Cli::command()).render_help().to_string();
        let groups = help.split("Options:").next().unwrap();
        for line in groups.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(groups.contains("\nTry it:\n  dev          Run a manager"), "{groups}");
    }
}
