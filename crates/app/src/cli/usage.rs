//! Errors of the command line: what clap says, with the command, flag or value that the user meant.

use super::Cli;
use super::groups::grouped;
use crate::output::{colours_wanted, print};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error, FromArgMatches as _};
use everwatch_core::spelling::nearest;
use std::io::IsTerminal as _;

/// Messages of the standard library about values, and what the user reads instead.
const VALUES: [(&str, &str); 4] = [
    ("invalid digit found in string", "not a whole number"),
    ("cannot parse integer from empty string", "empty, and not a whole number"),
    ("number too large to fit in target type", "too large"),
    ("number too small to fit in target type", "too small"),
];

/// Commands of other programs, and those of Everwatch that do the same.
const FOREIGN: [(&str, &str); 10] = [
    ("ps", "observer list"),
    ("kill", "chaos kill"),
    ("drain", "service drain"),
    ("cordon", "service cordon"),
    ("uncordon", "service uncordon"),
    ("stop", "observer pause"),
    ("rm", "observer delete"),
    ("version", "--version"),
    ("start", "observer resume"),
    ("create", "rollout start"),
];

/// What other programs call a command that describes one object.
const SHOWS: [&str; 3] = ["show", "inspect", "info"];

/// Flags of other commands: the command, what users write, and what they mean.
const FLAGS: [(&str, &str, &str); 5] = [
    ("move", "--service", "--to"),
    ("timeline", "--last", "--since"),
    ("events", "--last", "--since"),
    ("events", "--tail", "--limit"),
    ("logs", "--last", "--since"),
];

/// Reads the command line. Ends the process if it is wrong, or asks for help.
pub(super) fn parsed() -> Cli {
    let command = numbers_may_be_negative(Cli::command());
    let parsed = command.clone().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        if is_main_help(&error, &command) {
            help_with(&error, command)
        }
        let error = explained(error, &command, std::env::args().nth(1).as_deref());
        exit_with(&error)
    })
}

/// A number below the permitted range is a wrong value, not an unknown flag.
fn numbers_may_be_negative(command: Command) -> Command {
    let of_flag = |arg: clap::Arg| {
        let is_number = arg.get_id() == "slots" || !arg.is_positional();
        if arg.get_action().takes_values() && is_number { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(of_flag).mut_subcommands(numbers_may_be_negative)
}

/// Whether clap shows the help of `everwatch` itself.
fn is_main_help(error: &Error, command: &Command) -> bool {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    is_help && error.to_string().starts_with(&about)
}

/// Shows this help where clap would have shown its own.
fn help_with(error: &Error, command: Command) -> ! {
    let help = grouped(command).render_help();
    if error.use_stderr() {
        eprint!("{}", coloured(&help, std::io::stderr().is_terminal()));
    } else {
        print(coloured(&help, std::io::stdout().is_terminal()).trim_end());
    }
    std::process::exit(error.exit_code())
}

fn coloured(text: &StyledStr, is_terminal: bool) -> String {
    if is_terminal && colours_wanted() { text.ansi().to_string() } else { text.to_string() }
}

fn explained(mut error: Error, command: &Command, first: Option<&str>) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            if let Some(meant) = meant(&error, command, first) {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(meant));
            }
        }
        ErrorKind::MissingRequiredArgument if has(parent(&error, command), "patch") => {
            let advice =
                "write each field that changes as --set MEMBER=VALUE, or all of them as --patch JSON";
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        }
        ErrorKind::MissingRequiredArgument if selects(&error, command) => {
            let advice = how_to_select(parent(&error, command));
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        }
        ErrorKind::UnknownArgument => {
            // clap suggests `-- -x` for a name that begins with a dash. No name does.
            error.remove(ContextKind::Suggested);
            correct_flag(&mut error, command);
        }
        _ => {}
    }
    error
}

/// Replaces the flag that clap suggests if another one is meant, or if it hardly resembles the wrong one.
fn correct_flag(error: &mut Error, command: &Command) {
    let wrong = error.get(ContextKind::InvalidArg).and_then(text_of).unwrap_or_default().to_owned();
    let parent = parent(error, command);
    let meant = FLAGS.iter().find(|(of, flag, _)| *of == parent.get_name() && *flag == wrong);
    let advice = (wrong == "--all" && selects(error, command)).then(|| how_to_select(parent));
    let of_number = how_to_write_a_number(parent).filter(|_| wrong.parse::<u32>().is_ok());
    let of_name =
        (wrong == "--name" && is_named_by_position(parent)).then_some("write the name without --name");
    let of_file =
        (matches!(wrong.as_str(), "-f" | "--file") && parent.get_name() == "create" && has(parent, "kind"))
            .then_some("to create observers from a file, use `everwatch observer apply -f FILE`");
    let of_diff = (matches!(wrong.as_str(), "-f" | "--file") && parent.get_name() == "diff")
        .then_some("to compare a file with what runs, use `everwatch observer apply -f FILE --dry-run`");
    let of_selector = (matches!(wrong.as_str(), "-l" | "--selector") && parent.get_name() == "get")
        .then_some("to select observers, use `everwatch observer list -l SELECTOR`");
    let of_watch = (matches!(wrong.as_str(), "-w" | "--watch") && !has(parent, "watch"))
        .then_some("`everwatch top` shows changes as they happen");
    let of_command = of_file.or(of_diff).or(of_selector).or(of_watch);
    let suggested = error.get(ContextKind::SuggestedArg).and_then(text_of);
    if meant.is_none()
        && of_number.is_none()
        && of_name.is_none()
        && of_command.is_none()
        && suggested.is_none_or(|flag| nearest(&wrong, [flag]).is_some())
    {
        return;
    }
    let usage = usage(error, command);
    // clap's usage names the flag that clap suggests.
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    if let Some((_, _, meant)) = meant {
        error.insert(ContextKind::SuggestedArg, ContextValue::String((*meant).to_owned()));
    } else if let Some(advice) = of_number.or(of_name).or(of_command).or(advice) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
}

/// The command that a wrong one resembles most. Commands of kubectl and docker begin with a verb: `everwatch list` means
/// `everwatch observer list`.
fn meant(error: &Error, command: &Command, first: Option<&str>) -> Option<String> {
    let wrong = text_of(error.get(ContextKind::InvalidSubcommand)?)?;
    if first == Some(wrong)
        && command.find_subcommand("observer").is_some_and(|it| it.find_subcommand(wrong).is_some())
    {
        return Some(format!("observer {wrong}"));
    }
    let parent = parent(error, command);
    if matches!(wrong, "rm" | "remove") && parent.find_subcommand("delete").is_some() {
        return Some("delete".to_owned());
    }
    let is_meant_here = |ours: &str| {
        let is_of_services = wrong == "kill" && parent.get_name() == "service";
        parent.get_name() == command.get_name()
            || ours.split(' ').next() == Some(parent.get_name())
            || is_of_services
    };
    if let Some((_, ours)) = FOREIGN.into_iter().find(|(foreign, _)| *foreign == wrong)
        && is_meant_here(ours)
    {
        return Some(ours.to_owned());
    }
    if SHOWS.contains(&wrong) {
        let is_top = parent.get_name() == command.get_name();
        let described = if is_top { command.find_subcommand("observer") } else { Some(parent) };
        if described.is_some_and(|it| it.find_subcommand("describe").is_some()) {
            return Some(if is_top { "observer describe" } else { "describe" }.to_owned());
        }
    }
    let all = || parent.get_subcommands().filter(|it| !it.is_hide_set());
    let names = all().flat_map(Command::get_name_and_visible_aliases);
    let near = nearest(wrong, names)?;
    all().find(|it| it.get_name_and_visible_aliases().contains(&near)).map(|it| it.get_name().to_owned())
}

/// The command that was given before the wrong part, by the usage of the error, such as `Usage: everwatch observer [OPTIONS]`.
fn parent<'a>(error: &Error, command: &'a Command) -> &'a Command {
    path(error).iter().fold(command, |at, word| at.find_subcommand(word).unwrap_or(at))
}

/// The names of the commands in the usage of the error, after the name of the program.
fn path(error: &Error) -> Vec<String> {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    // After `Usage:` and the name of the program.
    let words = usage.split_whitespace().skip(2);
    words.take_while(|word| word.starts_with(|it: char| it.is_ascii_lowercase())).map(str::to_owned).collect()
}

/// The usage of the command that was given before the wrong part, without the flags that were given.
fn usage(error: &Error, command: &Command) -> StyledStr {
    let name = format!("everwatch {}", path(error).join(" "));
    parent(error, command).clone().bin_name(name).render_usage()
}

/// How a user selects observers for this command.
fn how_to_select(command: &Command) -> &'static str {
    if has(command, "pool") {
        "name observers, or select them with a filter such as -l team=prices or --pool default"
    } else {
        "name observers, or select them with a filter such as -l team=prices"
    }
}

/// Whether the command takes a name without a flag.
fn is_named_by_position(command: &Command) -> bool {
    command.get_positionals().any(|arg| matches!(arg.get_id().as_str(), "name" | "names"))
}

/// How a user writes versions or a maximum for this command, if it takes any.
fn how_to_write_a_number(command: &Command) -> Option<&'static str> {
    match command.get_name() {
        "diff" => Some("write versions as --from 1 --to 2"),
        "revert" => Some("write the version as --to 1"),
        "set" if has(command, "max") => Some("write the maximum as --max 2"),
        _ => None,
    }
}

/// Whether the command takes names or a filter of observers.
fn selects(error: &Error, command: &Command) -> bool {
    let parent = parent(error, command);
    has(parent, "names") && has(parent, "selectors")
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

fn text_of(value: &ContextValue) -> Option<&str> {
    match value {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

fn exit_with(error: &Error) -> ! {
    let told = error.render();
    let plain = told.to_string();
    let Some((from, to)) = VALUES.into_iter().find(|(from, _)| plain.contains(from)) else { error.exit() };
    let text = coloured(&told, std::io::stderr().is_terminal());
    eprint!("{}", text.replace(from, to));
    std::process::exit(error.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let command = numbers_may_be_negative(Cli::command());
        let error = command.clone().try_get_matches_from(&words).unwrap_err();
        explained(error, &command, words.get(1).copied()).to_string()
    }

    #[test]
    fn the_nearest_command_is_named_and_no_alias() {
        for (line, meant) in [
            ("everwatch obsrver list", "'observer'"),
            ("everwatch observer lst", "'list'"),
            ("everwatch list", "'observer list'"),
            ("everwatch servics list", "'service'"),
            ("everwatch drain service-1", "'service drain'"),
            ("everwatch observer stop x", "'observer pause'"),
            ("everwatch rollout create r1", "'rollout start'"),
            ("everwatch kind show ticker", "'describe'"),
            ("everwatch show news", "'observer describe'"),
            ("everwatch observer rm news", "'delete'"),
            ("everwatch service kill service-1", "'chaos kill'"),
        ] {
            let told = told(line);
            assert!(told.contains(&format!("similar subcommand exists: {meant}")), "{told}");
        }
        assert!(!told("everwatch xyzzyx").contains("similar"));
        assert!(!told("everwatch service rm x").contains("observer delete"), "an observer was not meant");
    }

    #[test]
    fn a_number_or_a_name_is_told_with_its_flag_or_without() {
        for (line, advice) in [
            ("everwatch observer diff tick 1 2", "write versions as --from 1 --to 2"),
            ("everwatch observer revert tick 1", "write the version as --to 1"),
            ("everwatch limit set api 2", "write the maximum as --max 2"),
            ("everwatch rollout start --name r1", "write the name without --name"),
            ("everwatch observer create -f news.yaml", "use `everwatch observer apply -f FILE`"),
            ("everwatch observer diff -f news.yaml", "use `everwatch observer apply -f FILE --dry-run`"),
        ] {
            assert!(told(line).contains(advice), "{}", told(line));
        }
        assert!(
            told("everwatch observer get -l team=a").contains("use `everwatch observer list -l SELECTOR`")
        );
        assert!(told("everwatch rollout start r1 --kind ticker").contains("--set MEMBER=VALUE"));
        assert!(!told("everwatch rate set api 2").contains("--max"));
        assert!(!told("everwatch observer get tick --frm 1").contains("version"));
    }

    #[test]
    fn wrong_values_are_not_taken_for_flags() {
        assert!(told("everwatch observer list --limit -1").contains("-1"));
        assert!(!told("everwatch observer list --limit -1").contains("unexpected argument"));
        let slots = "everwatch service capacity s1 -2".split(' ');
        assert!(
            numbers_may_be_negative(Cli::command()).try_get_matches_from(slots).is_ok(),
            "told as a number"
        );
        assert!(!told("everwatch rollout list --wiat").contains("-- --wiat"));
        assert!(told("everwatch observer pause").contains("select them with a filter"));
        assert!(!told("everwatch observer describe").contains("filter"));
        assert!(told("everwatch status --watch").contains("`everwatch top` shows changes"));
        let logs = told("everwatch observer logs");
        assert!(logs.contains("-l team=prices") && !logs.contains("--pool"), "{logs}");
        let all = told("everwatch observer delete --all");
        assert!(all.contains("select them with a filter") && !all.contains("--all-namespaces"), "{all}");
        for (command, arguments, tip) in [
            ("service drain", "--all", None),
            ("observer create", "hello --every 1s", None),
            ("observer move", "m1 --service service-2", Some("'--to'")),
            ("timeline", "--last 5m", Some("'--since'")),
            ("events", "--tail 15", Some("'--limit'")),
            ("observer list", "--sevrer http://127.0.0.1:7700", Some("'--server'")),
            ("observer create", "hello --knd ticker", Some("'--kind'")),
        ] {
            let told = told(&format!("everwatch {command} {arguments}"));
            let expected = tip.map(|tip| format!("similar argument exists: {tip}"));
            assert!(expected.as_ref().is_none_or(|tip| told.contains(tip)), "{told}");
            assert_eq!(told.contains("similar argument"), expected.is_some(), "{told}");
            assert_eq!(told.contains("--server"), tip == Some("'--server'"), "{told}");
            assert!(told.contains(&format!("Usage: everwatch {command} ")), "{told}");
        }
    }
}
