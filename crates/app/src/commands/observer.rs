//! `everwatch observer …`

use super::unknown::{self, Named, explained, hinted};
use super::waiting::{FormerRun, Goal};
use super::{acting, apply, clone, edit, events, fan_out, get, logs, versions, waiting, watch};
use crate::answers::Action;
use crate::cli::{Create, ListArgs, Names, Observer, Watched};
use crate::client::{Client, Failure};
use crate::output::{self, OBSERVERS, Root, TerminalStyle, answer, print, print_paragraphs};
use crate::refusals::{in_place, with_cure};
use crate::requests::{all, described_observer, path};
use everwatch_api as api;
use everwatch_core::clock;
use everwatch_core::wording;
use reqwest::Method;
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Observer) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Observer::Apply(asked) => apply::run(client, &asked).await,
        Observer::Create(asked) => create(client, *asked).await,
        Observer::Get { names, watched } => {
            get::run(client, &OBSERVERS, (&names.names, path, unknown::OBSERVERS), &watched).await
        }
        Observer::List { which, watched } => list(client, &which, &watched).await,
        Observer::Describe { names: Names { names }, form } => {
            let instead = format!("everwatch observer get {}", names.join(" "));
            form.refuse(&instead).map_err(Failure::Usage)?;
            let paper = TerminalStyle::stdout();
            let one =
                |name| hinted(client, (unknown::OBSERVERS, name), described_observer(client, name, paper));
            let (told, failed) = fan_out::read(&names, one).await;
            print_paragraphs(&told);
            failed
        }
        Observer::Result { name } => {
            let path = format!("{}/result", path(&name));
            let result: api::ObserverResult =
                hinted(client, (unknown::OBSERVERS, &name), client.read(&path)).await?;
            print(&serde_json::to_string_pretty(&result.value)?);
            Ok(())
        }
        Observer::Delete { chosen, wait, dry_run } => acting::delete(client, &chosen, wait, dry_run).await,
        Observer::Wait(asked) => waiting::run(client, &asked).await,
        Observer::Retry(chosen) => acting::selected(client, Action::Retry, &chosen, None).await,
        Observer::Pause { chosen, wait } => acting::selected(client, Action::Pause, &chosen, wait.time).await,
        Observer::Resume { chosen, wait } => {
            acting::selected(client, Action::Resume, &chosen, wait.time).await
        }
        Observer::Restart { chosen, wait } => {
            acting::selected(client, Action::Restart, &chosen, wait.time).await
        }
        Observer::Trigger(names) => acting::named(client, Action::Trigger, &names.names, None).await,
        Observer::Schedule { name, next } => {
            let path = format!("{}/schedule?next={next}", path(&name));
            let times: api::ScheduleTimes =
                hinted(client, (unknown::OBSERVERS, &name), client.read(&path)).await?;
            print(&output::schedule(&times, clock::now()));
            Ok(())
        }
        Observer::Versions { name, watched } => {
            hinted(client, (unknown::OBSERVERS, &name), versions::list(client, &name, &watched)).await
        }
        Observer::Diff { name, from, to } => {
            hinted(client, (unknown::OBSERVERS, &name), versions::diff(client, &name, (from, to))).await
        }
        Observer::Clone(asked) => clone::run(client, &asked).await,
        Observer::Edit { name } => {
            hinted(client, (unknown::OBSERVERS, &name), edit::run(client, &name)).await
        }
        Observer::Revert { name, to } => {
            hinted(client, (unknown::OBSERVERS, &name), versions::revert(client, &name, to)).await
        }
        Observer::Move(asked) => acting::relocate(client, &asked).await,
        Observer::Logs(asked) => logs::run(client, &asked).await,
        Observer::Events { name, part } => {
            let path = format!("{}/events", path(&name));
            hinted(client, (unknown::OBSERVERS, &name), events::run(client, &path, &part)).await
        }
    }
}

async fn create(client: &Client, asked: Create) -> anyhow::Result<()> {
    let mut body = Map::from_iter([("kind".to_owned(), json!(asked.kind))]);
    let words = [
        ("name", asked.name),
        ("pool", asked.pool),
        ("on_full", asked.on_full),
        ("overlap", asked.overlap),
        ("grace", asked.grace),
        ("start_at", asked.start_at.map(|at| at.to_string())),
        ("finish_at", asked.finish_at.map(|at| at.to_string())),
        ("start_within", asked.start_within),
        ("attempt_timeout", asked.attempt_timeout),
        ("desired", asked.paused.then(|| "paused".to_owned())),
    ];
    body.extend(words.into_iter().filter_map(|(member, word)| Some((member.to_owned(), json!(word?)))));
    if let Some(cron) = asked.schedule {
        let members = [
            ("cron", Some(cron)),
            ("time_zone", asked.time_zone),
            ("catch_up", asked.catch_up),
            ("if_running", asked.if_running),
            ("jitter", asked.jitter),
        ];
        let members =
            members.into_iter().filter_map(|(member, word)| Some((member.to_owned(), json!(word?))));
        body.insert("schedule".to_owned(), Value::Object(members.collect()));
    } else if let Some(time_zone) = asked.time_zone {
        let windows = json!({"time_zone": time_zone, "open": asked.windows, "except": asked.except});
        body.insert("windows".to_owned(), windows);
    }
    body.extend(asked.priority.map(|priority| ("priority".to_owned(), json!(priority))));
    body.extend(asked.weight.map(|weight| ("weight".to_owned(), json!(weight))));
    if !asked.limits.is_empty() {
        body.insert("limits".to_owned(), json!(asked.limits));
    }
    let json_flags = [("spec", asked.spec.clone()), ("retry", asked.retry.clone())];
    for (member, given) in [("spec", &asked.spec), ("retry", &asked.retry)] {
        if let Some(given) = given {
            let value = match (member, given.as_str()) {
                ("retry", "never") => json!({"kind": "intervals", "delays": []}),
                _ => read_json(member, given)?,
            };
            body.insert(member.to_owned(), value);
        }
    }
    if !asked.labels.labels.is_empty() {
        let labels = asked.labels.labels.into_iter().map(|(key, value)| (key, json!(value)));
        body.insert("labels".to_owned(), Value::Object(labels.collect()));
    }
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let [kind, pool] =
        ["kind", "pool"].map(|member| body.get(member).and_then(Value::as_str).map(str::to_owned));
    let path = if asked.dry_run { "/v1/observers?dry_run=true" } else { "/v1/observers" };
    let sent = client.send::<api::Observer>(Method::POST, path, Some(&Value::Object(body))).await;
    let named = Named { kind: kind.as_deref(), pool: pool.as_deref(), service: None };
    let sent = explained(client, named, sent).await;
    let made = sent.map_err(|error| with_cure(in_place(error, |it| flag_of(it, &json_flags)), &name))?;
    if asked.dry_run {
        answer(&format!("observer {} would be created", made.name));
    } else if let Some(timeout) = asked.wait {
        answer(&waiting::until(client, &made.name, Goal::Runs(FormerRun::default()), timeout).await?);
        return Ok(());
    } else {
        answer(&Action::Create.told_alone(&made));
    }
    unknown::warn_unserved(client, pool.as_deref().into_iter().collect()).await;
    Ok(())
}

/// The flag that gives this member of a create, and the path in its value; or the file that the flag names.
fn flag_of(member: &str, json_flags: &[(&str, Option<String>)]) -> Option<String> {
    let pointer = member.strip_prefix('/').filter(|pointer| !pointer.is_empty())?;
    let (first, inner) = match pointer.split_once('/') {
        Some((first, inner)) => (first, Some(wording::path(inner))),
        None => (pointer, None),
    };
    let inner = inner.as_deref();
    if let Some((flag, given)) = json_flags.iter().find(|(flag, _)| *flag == first) {
        let file = given.as_deref().and_then(|given| given.strip_prefix('@'));
        let place = file.map_or_else(|| format!("--{flag}"), str::to_owned);
        return Some(inner.map_or_else(|| place.clone(), |inner| format!("{place}: {inner}")));
    }
    let flag = match (first, inner) {
        ("name", _) => "NAME".to_owned(),
        ("namespace", _) => "--namespace".to_owned(),
        ("labels", Some(key)) => format!("--label {key}"),
        ("labels", None) => "--label".to_owned(),
        ("limits", _) => "--limit-key".to_owned(),
        ("schedule", Some("time_zone")) | ("windows", Some("time_zone")) => "--time-zone".to_owned(),
        ("schedule", Some(inner @ ("catch_up" | "if_running" | "jitter"))) => {
            format!("--{}", inner.replace('_', "-"))
        }
        ("windows", Some(inner)) if inner.starts_with("except") => "--except".to_owned(),
        ("windows", _) => "--window".to_owned(),
        ("desired", _) => "--paused".to_owned(),
        (
            "kind" | "pool" | "on_full" | "overlap" | "grace" | "start_at" | "finish_at" | "start_within"
            | "attempt_timeout" | "schedule" | "priority" | "weight",
            _,
        ) => format!("--{}", first.replace('_', "-")),
        _ => return None,
    };
    Some(flag)
}

async fn list(client: &Client, which: &ListArgs, watched: &Watched) -> anyhow::Result<()> {
    let mut query = which.filter.query();
    query.extend(which.sort.clone().map(|sort| ("sort", sort)));
    let most = which.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let load = async |room: usize| all(client, &query, most.min(room)).await;
    if watched.watch {
        unknown::warn(client, Named::of(&which.filter)).await;
        return watch::run(client, (&OBSERVERS, Root::List), &watched.shown, load).await;
    }
    let found = load(usize::MAX).await?;
    // Programs read an empty list also if a name is wrong.
    let is_read = found.is_empty() && watched.shown.is_table();
    if is_read {
        unknown::check(client, Named::of(&which.filter)).await?;
    }
    output::show(&OBSERVERS, &found, &watched.shown)?;
    if found.is_empty() && !is_read {
        unknown::check(client, Named::of(&which.filter)).await?;
    }
    Ok(())
}

pub(super) fn read_json(member: &str, given: &str) -> anyhow::Result<Value> {
    let place =
        given.strip_prefix('@').map_or_else(|| format!("--{member}"), |file| format!("--{member} {file}"));
    let text = match given.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("--{member} @{file}: {error}")))?,
        None => given.to_owned(),
    };
    let expected = if member == "retry" { "neither `never` nor JSON" } else { "not JSON" };
    let wrong = |error| Failure::Usage(format!("{place} is {expected}: {error}"));
    Ok(serde_json::from_str(&text).map_err(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_policy_names_the_word_that_is_known() {
        let told = |member: &str| read_json(member, "nver").unwrap_err().to_string();
        assert!(told("retry").starts_with("--retry is neither `never` nor JSON: "), "{}", told("retry"));
        assert!(told("spec").starts_with("--spec is not JSON: "), "{}", told("spec"));
    }

    #[test]
    fn refusals_of_a_create_name_flags_and_files() {
        let flags = [("spec", Some("@feed.json".to_owned())), ("retry", Some("{}".to_owned()))];
        for (told, expected) in [
            ("/spec/every must be a string", "feed.json: every must be a string"),
            ("/spec has an unknown field: x", "feed.json has an unknown field: x"),
            ("/retry/max is 0; /grace is 5x", "--retry: max is 0; --grace is 5x"),
            ("/limits/0 is not valid", "--limit-key is not valid"),
            ("/start_within is 0s", "--start-within is 0s"),
            ("/schedule/jitter is 5q", "--jitter is 5q"),
            ("/windows/open/0 is wrong", "--window is wrong"),
            ("/name: too long", "NAME: too long"),
            ("a text and/or /nothing", "a text and/or /nothing"),
        ] {
            let error = in_place(Failure::Usage(told.to_owned()).into(), |it| flag_of(it, &flags));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_name_that_exists_has_a_cure() {
        let told = |code: &str| {
            let body = json!({"type": "", "title": "", "status": 409, "code": code, "detail": "hello is taken", "instance": ""});
            let error = with_cure(Failure::of_answer("http://a:1", 409, &body.to_string()).into(), "hello");
            (error.downcast_ref().map(Failure::exit_code), error.to_string())
        };
        let (exit, cured) = told("name-exists");
        assert!(cured.contains("another name") && cured.contains("observer edit hello"), "{cured}");
        assert_eq!(exit, Some(4));
        assert_eq!(told("conflict"), (Some(4), "hello is taken".to_owned()));
        let full = Failure::Failed("pool full: create with on_full \"queue\"".to_owned());
        assert_eq!(with_cure(full.into(), "x").to_string(), "pool full: create with --on-full queue");
    }
}
