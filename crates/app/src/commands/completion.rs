//! `everwatch completion`: prints the script of a shell, and answers this script, also with the names that a manager knows.

use super::connection;
use crate::cli::{Cli, Everywhere};
use crate::client::Client;
use crate::contexts::Contexts;
use crate::output::print;
use clap::{Arg, Args as _, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::time::Duration;

/// The environment variable by which a script requests an answer; its value is the shell.
const VARIABLE: &str = "EVERWATCH_COMPLETE";
/// A shell waits at most this long for names.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most observers of one answer.
const OBSERVERS_MAX: u32 = 500;

/// Prints the script of a shell. It runs `everwatch` for each completion.
pub(super) fn script(shell: Shell) -> anyhow::Result<()> {
    let name = shell.to_string();
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&name) {
        shell.write_registration(VARIABLE, "everwatch", "everwatch", "everwatch", &mut script)?;
    }
    print(String::from_utf8(script)?.trim_end());
    if shell == Shell::Zsh {
        // As a file of `fpath`, the script is the body of a function: it must complete the first time, too.
        print(
            "\nif [ \"$funcstack[1]\" = \"_everwatch\" ]; then\n    _clap_dynamic_completer_everwatch \"$@\"\nfi",
        );
    }
    Ok(())
}

/// Answers the script of a shell, if it runs this process. Errors print nothing: the user types a command.
pub(crate) fn answered() -> bool {
    let Some(shell) = std::env::var(VARIABLE).ok().filter(|shell| !shell.is_empty()) else { return false };
    let words: Vec<OsString> = words().collect();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&shell).filter(|_| !words.is_empty()) else { return false };
    let mut answer = Vec::new();
    let mut command = with_names(Cli::command(), None);
    let folder = std::env::current_dir().ok();
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse::<usize>().ok());
    let typed = index.map_or_else(|| words.last(), |index| words.get(index)).cloned().unwrap_or_default();
    if shell.write_complete(&mut command, words, folder.as_deref(), &mut answer).is_ok() {
        let answer = String::from_utf8_lossy(&answer);
        let separator = std::env::var("_CLAP_IFS").ok().filter(|it| !it.is_empty());
        let kept = chosen(&answer, separator.as_deref().unwrap_or("\n"), &typed);
        let _closed = std::io::stdout().write_all(kept.as_bytes());
    }
    true
}

/// The candidates without the flags, if the word is empty and there is anything else.
fn chosen(answer: &str, separator: &str, typed: &OsStr) -> String {
    let others: Vec<&str> = answer.split(separator).filter(|it| !it.starts_with('-')).collect();
    if typed.is_empty() && others.iter().any(|it| !it.trim().is_empty()) {
        return others.join(separator);
    }
    answer.to_owned()
}

/// The words of the incomplete command line.
fn words() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1)
}

/// What an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Observers,
    /// The labels of observers, as `NAME=VALUE`.
    Labels,
    Services,
    Kinds,
    Pools,
    Namespaces,
    Batches,
    Rollouts,
    Limits,
    Rates,
    Roles,
    Tokens,
    Contexts,
}

impl Names {
    /// What an argument names: `verb` is a verb of the command `noun`.
    fn of(noun: &str, verb: &str, argument: &Arg) -> Option<Self> {
        let creates =
            matches!((noun, verb), ("observer" | "pool" | "token", "create") | ("rollout", "start"));
        match (argument.get_id().as_str(), noun) {
            ("label" | "selectors", _) => Some(Self::Labels),
            ("kind", _) => Some(Self::Kinds),
            ("pool", _) => Some(Self::Pools),
            ("service" | "services", _) => Some(Self::Services),
            ("observer", _) => Some(Self::Observers),
            ("namespace", _) => Some(Self::Namespaces),
            ("context", "context") => Some(Self::Contexts),
            ("role", _) => Some(Self::Roles),
            ("token", "token") => Some(Self::Tokens),
            ("limits", "observer") | ("key", "limit") => Some(Self::Limits),
            ("key", "rate") => Some(Self::Rates),
            ("name" | "names", _) if creates || !argument.is_positional() => None,
            ("name" | "names", "observer") => Some(Self::Observers),
            ("name" | "names", "service") => Some(Self::Services),
            ("name", "kind") => Some(Self::Kinds),
            ("name", "pool") => Some(Self::Pools),
            ("name", "namespace") => Some(Self::Namespaces),
            ("name", "batch") => Some(Self::Batches),
            ("name", "rollout") => Some(Self::Rollouts),
            _ => None,
        }
    }

    /// The path of the list, and the member of its objects that is the name.
    fn source(self, beginning: &str) -> (String, &'static str) {
        let (path, member) = match self {
            Self::Observers => {
                let query = Client::part(beginning);
                return (format!("/v1/observers?limit={OBSERVERS_MAX}&sort=name&q={query}"), "name");
            }
            Self::Labels => return (format!("/v1/observers?limit={OBSERVERS_MAX}"), "labels"),
            Self::Services => {
                ("/v1/services?limit=1000&state=active,standby,cordoned,draining,suspect", "name")
            }
            Self::Kinds => ("/v1/kinds", "name"),
            Self::Pools => ("/v1/pools", "name"),
            Self::Namespaces => ("/v1/namespaces?limit=1000", "name"),
            Self::Batches => ("/v1/batches?limit=200", "name"),
            Self::Rollouts => ("/v1/rollouts?limit=200", "name"),
            Self::Limits => ("/v1/limits?limit=1000", "key"),
            Self::Rates => ("/v1/rates?limit=1000", "key"),
            Self::Roles => ("/v1/roles", "name"),
            Self::Tokens => ("/v1/tokens?limit=1000&sessions=false", "name"),
            Self::Contexts => ("", ""),
        };
        (path.to_owned(), member)
    }

    /// The names that begin with this text.
    fn starting(self, beginning: &OsStr) -> Vec<CompletionCandidate> {
        let Some(beginning) = beginning.to_str() else { return Vec::new() };
        let found = match self {
            Self::Contexts => Contexts::load().map(|it| it.contexts.into_keys().collect()),
            _ => self.of_manager(beginning),
        };
        let mut names: Vec<String> = found.unwrap_or_default();
        names.retain(|name| name.starts_with(beginning));
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(CompletionCandidate::new).collect()
    }

    /// The names that the manager sends in time.
    fn of_manager(self, beginning: &str) -> anyhow::Result<Vec<String>> {
        let (path, member) = self.source(beginning);
        let client = Client::new(&connection(everywhere(words()))?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let read = async { tokio::time::timeout(PATIENCE, client.read::<Value>(&path)).await };
        let answer = runtime.block_on(read);
        // A name server that is still being asked does not delay the answer.
        runtime.shutdown_background();
        let answer = answer??;
        let items = answer["items"].as_array().into_iter().flatten();
        Ok(items.flat_map(|it| names_in(&it[member])).collect())
    }
}

/// The name in a member, or the labels in it.
fn names_in(member: &Value) -> Vec<String> {
    match member {
        Value::String(name) => vec![name.clone()],
        Value::Object(labels) => {
            let value = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            labels.iter().map(|(name, text)| format!("{name}={}", value(text))).collect()
        }
        _ => Vec::new(),
    }
}

/// What a filter of observers accepts; none if the argument is no such filter.
fn words_of(argument: &Arg) -> Vec<&'static str> {
    match argument.get_id().as_str() {
        "status" => Status::ALL.map(Status::as_str).to_vec(),
        "health" => Health::ALL.map(Health::as_str).to_vec(),
        "reason" => ReasonCode::ALL.iter().map(|code| code.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// The words that begin with this text.
fn starting(words: &[&str], beginning: &OsStr) -> Vec<CompletionCandidate> {
    let Some(beginning) = beginning.to_str() else { return Vec::new() };
    words.iter().filter(|word| word.starts_with(beginning)).map(CompletionCandidate::new).collect()
}

/// The command with a source of names for each argument that names something. `noun`: its parent, if it has one.
fn with_names(command: Command, noun: Option<&str>) -> Command {
    let verb = command.get_name().to_owned();
    let noun = noun.unwrap_or(&verb).to_owned();
    let below = if verb == "everwatch" { None } else { Some(verb.clone()) };
    let command = command.mut_args(|argument| match Names::of(&noun, &verb, &argument) {
        Some(names) => {
            argument.add(ArgValueCompleter::new(move |beginning: &OsStr| names.starting(beginning)))
        }
        None => match words_of(&argument) {
            words if words.is_empty() => argument,
            words => {
                argument.add(ArgValueCompleter::new(move |beginning: &OsStr| starting(&words, beginning)))
            }
        },
    });
    command.mut_subcommands(|inner| with_names(inner, below.as_deref()))
}

/// What the words of an incomplete command line and the environment say about the manager.
fn everywhere(words: impl IntoIterator<Item = OsString>) -> Everywhere {
    let command = Everywhere::augment_args(Command::new("everwatch"));
    let mut kept = vec![OsString::from("everwatch")];
    let mut words = words.into_iter().skip(1).peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let flag = text.split_once('=').map_or(text.as_str(), |(flag, _)| flag);
        let is_it = |argument: &&Arg| {
            argument.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long))
                || argument.get_short().is_some_and(|short| text == format!("-{short}"))
        };
        let Some(argument) = command.get_arguments().find(is_it) else { continue };
        let takes = argument.get_action().takes_values() && !text.contains('=');
        match words.next_if(|_| takes) {
            Some(value) => kept.extend([word, value]),
            None if takes => {}
            None => kept.push(word),
        }
    }
    let read = |words: &[OsString]| {
        let matches = command.clone().ignore_errors(true).try_get_matches_from(words).ok()?;
        Everywhere::from_arg_matches(&matches).ok()
    };
    read(&kept).or_else(|| read(&kept[..1])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_what_their_command_is_about() {
        let found = |words: &[&str], id: &str| {
            let root = Cli::command();
            let command = words.iter().try_fold(&root, |it, word| it.find_subcommand(word)).unwrap();
            let argument = command.get_arguments().find(|it| it.get_id() == id).unwrap();
            Names::of(words[0], words[words.len() - 1], argument)
        };
        for (words, id, names) in [
            (["observer", "get"], "names", Some(Names::Observers)),
            (["observer", "logs"], "names", Some(Names::Observers)),
            (["observer", "edit"], "name", Some(Names::Observers)),
            (["observer", "create"], "name", None),
            (["observer", "create"], "kind", Some(Names::Kinds)),
            (["observer", "list"], "pool", Some(Names::Pools)),
            (["observer", "list"], "service", Some(Names::Services)),
            (["observer", "list"], "selectors", Some(Names::Labels)),
            (["observer", "move"], "service", Some(Names::Services)),
            (["service", "drain"], "names", Some(Names::Services)),
            (["service", "capacity"], "name", Some(Names::Services)),
            (["pool", "pause"], "name", Some(Names::Pools)),
            (["pool", "create"], "name", None),
            (["batch", "describe"], "name", Some(Names::Batches)),
            (["batch", "create"], "name", None),
            (["limit", "describe"], "key", Some(Names::Limits)),
            (["role", "get"], "role", Some(Names::Roles)),
            (["context", "use"], "context", Some(Names::Contexts)),
        ] {
            assert_eq!(found(&words, id), names, "{words:?} {id}");
        }
    }

    #[test]
    fn filters_of_observers_are_completed() {
        let root = Cli::command();
        let list = root.find_subcommand("observer").and_then(|it| it.find_subcommand("list")).unwrap();
        let after = |id: &str, typed: &str| {
            let argument = list.get_arguments().find(|it| it.get_id() == id).unwrap();
            let all = starting(&words_of(argument), OsStr::new(typed));
            all.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(after("status", "Pa"), "Paused");
        assert_eq!(after("health", ""), "running restarting waiting moving stopping");
        assert_eq!(after("reason", "pool"), "pool-is-full");
        assert_eq!(after("kind", ""), "");
    }

    #[test]
    fn flags_are_offered_once_a_dash_is_typed_or_if_there_is_nothing_else() {
        let chosen = |answer, typed: &str| chosen(answer, "|", OsStr::new(typed));
        assert_eq!(chosen("news|prices|--watch|-w", ""), "news|prices");
        assert_eq!(chosen("--watch|-w", ""), "--watch|-w");
        assert_eq!(chosen("--watch|--wait", "--wa"), "--watch|--wait");
    }

    #[test]
    fn the_words_of_the_line_name_the_manager() {
        let read = |line: &str| everywhere(line.split(' ').map(OsString::from));
        let it = read("everwatch observer --server=http://a:1 get -n team --unknown x -A");
        assert_eq!(it.server.as_deref(), Some("http://a:1"));
        assert_eq!(it.within.namespace.as_deref(), Some("team"));
        assert!(it.within.all_namespaces);
        let it = read("everwatch --server http://b:1 --token-file /t observer get --server");
        assert_eq!(it.server.as_deref(), Some("http://b:1"));
        assert_eq!(it.token_file.as_deref(), Some(std::path::Path::new("/t")));
    }
}
