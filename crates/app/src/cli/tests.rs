//! Tests of the help of every command, and of the arguments that are refused before any request is sent.

use super::*;
use clap::CommandFactory as _;

/// Collects the words of `command` and of all its subcommands.
fn paths(command: &clap::Command, path: &[&str], told: &mut Vec<Vec<String>>) {
    told.push(path.iter().map(|&word| word.to_owned()).collect());
    for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        paths(inner, &[path, &[inner.get_name()]].concat(), told);
    }
}

#[test]
fn help_of_every_command() {
    let mut all = Vec::new();
    paths(&Cli::command(), &["everwatch"], &mut all);
    let help = |words: Vec<String>| {
        let asked = words.iter().cloned().chain(["--help".to_owned()]);
        let help = Cli::command().term_width(100).try_get_matches_from(asked).unwrap_err();
        format!("$ {} --help\n{help}", words.join(" "))
    };
    insta::assert_snapshot!(all.into_iter().map(help).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// clap keeps the values of global arguments and of those of a command by their ids: equal ids are one value.
#[test]
fn no_argument_of_a_command_has_the_id_of_a_global_one() {
    fn look(command: &clap::Command, global: &[String]) {
        for inner in command.get_subcommands() {
            for argument in inner.get_arguments() {
                let id = argument.get_id().to_string();
                assert!(
                    !global.contains(&id),
                    "{} has an argument with the global id {id}",
                    inner.get_name()
                );
            }
            look(inner, global);
        }
    }
    let root = Cli::command();
    let global = root.get_arguments().filter(|it| it.is_global_set()).map(|it| it.get_id().to_string());
    let global: Vec<String> = global.collect();
    assert!(global.contains(&"server".to_owned()), "{global:?}");
    look(&root, &global);
}

#[test]
fn every_command_and_flag_tells_what_it_is_for() {
    fn mute(command: &clap::Command, told: &mut Vec<String>) {
        let name = command.get_name();
        if command.get_about().is_none() && !command.is_hide_set() {
            told.push(name.to_owned());
        }
        let argument = |it: &&clap::Arg| it.get_help().is_none() && it.get_long().is_some();
        told.extend(command.get_arguments().filter(argument).map(|it| format!("{name} --{}", it.get_id())));
        command.get_subcommands().filter(|it| !it.is_hide_set()).for_each(|inner| mute(inner, told));
    }
    let mut told = Vec::new();
    mute(&Cli::command(), &mut told);
    assert_eq!(told, [""; 0]);
}

#[test]
fn wrong_arguments_are_refused_with_the_reason() {
    for (words, told) in [
        (
            "observer list -o xml",
            "write table, wide, json, yaml, name, jsonpath=EXPR or custom-columns=HEAD:PATH",
        ),
        ("observer list -o jsonpath={.items[*}", "`{.items[*}` is not a JSONPath"),
        ("observer list -o custom-columns=NAME", "`NAME` is not a column"),
        ("observer list --status Sleeping", "one of Scheduled, Created, Processing"),
        ("observer list --status Procesing", "did you mean Processing?"),
        ("observer list --status Waiting", "waiting is a health: write --health waiting"),
        ("observer list --label x", "write key=value"),
        ("observer list --limit 0", "--limit"),
        ("observer clone a", "<NEW_NAME>"),
        ("observer list --sort age", "[possible values: name, -name, created_at, -created_at]"),
        ("observer create x", "--kind"),
        ("observer create x --kind k --paused --wait 3s", "cannot be used with"),
        ("observer delete", "<NAME"),
        ("observer pause a -l app=x", "cannot be used with"),
        ("observer restart a --expect 1", "cannot be used with"),
        ("observer resume -l app=x --yes --expect 1", "cannot be used with"),
        ("observer pause --yes", "<NAME"),
        ("observer delete x --wait soon", "`soon` is not a duration"),
        ("service list --state tired", "[possible values: active"),
        ("service list --all --state gone", "cannot be used with"),
        ("service drain s --per-second 0", "1..=100000"),
        ("events --observer a --service b", "cannot be used with"),
        ("events --limit 1001", "1..=1000"),
        ("observer logs", "<NAME"),
        ("observer logs a -l app=x", "cannot be used with"),
        ("observer logs a --since yesterday", "such as 15m"),
        ("observer logs a --max-log-requests 0", "1..=100"),
        ("timeline --until tomorrow", "such as 15m"),
        ("parked retry x", "invalid digit"),
        ("completion tcsh", "[possible values: bash"),
        ("dev --services 0", "1..=100"),
        ("new 1st", "begin with a letter"),
        ("new Prices", "begin with a letter"),
        ("new ../prices", "begin with a letter"),
        ("new proc-macro", "reserved"),
        ("new tokio", "reserved"),
        (&format!("new {}", "x".repeat(65)), "at most 64"),
        ("frobnicate", "unrecognized subcommand"),
    ] {
        let error = Cli::try_parse_from(std::iter::once("everwatch").chain(words.split(' '))).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words}");
        assert!(error.to_string().contains(told), "{words}: {error}");
    }
}

#[test]
fn a_status_is_found_however_it_is_written() {
    let words = ["everwatch", "observer", "list", "--status", "failed,ONDELETING"];
    let Command::Observer(Observer::List { which, .. }) = Cli::parse_from(words).command else {
        unreachable!("that is a list")
    };
    let words: Vec<_> = which.filter.status.iter().map(|it| it.as_str()).collect();
    assert_eq!(words, ["Failed", "OnDeleting"]);
}

#[test]
fn all_namespaces_override_every_other_choice() {
    let given = |arguments: &[&str]| {
        let all = ["everwatch"].iter().chain(arguments).chain(&["observer", "list"]);
        <Cli as clap::Parser>::try_parse_from(all).unwrap().everywhere.within.given()
    };
    assert_eq!(given(&["-A"]), Some(None));
    assert_eq!(given(&["-A", "-n", "team"]), Some(None));
    assert_eq!(given(&["-n", "team"]), Some(Some("team".to_owned())));
    assert_eq!(given(&["-n", ""]), None);
}
