//! `everwatch observer apply`: creates or updates observers from files, and deletes those that no file
//! defines.

use super::edit::definition;
use super::versions::told_differences;
use super::waiting::{self, FormerRun, Goal};
use super::{fan_out, unknown};
use crate::cli::Apply;
use crate::client::{Client, Failure};
use crate::error_wording::yaml_error;
use crate::item::Item;
use crate::output::{answer, cut, note, print};
use crate::refusals::in_file;
use crate::requests::{all, path};
use anyhow::Context as _;
use everwatch_api::{Desired, Difference, Observer, Whoami};
use everwatch_core::id::Namespace;
use everwatch_core::observer::definition::MEMBERS;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use everwatch_core::spelling::nearest;
use futures::StreamExt as _;
use indicatif::ProgressBar;
use reqwest::Method;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests under way at once, unless the observers have limits.
const AT_ONCE: usize = 16;
/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 64 * 1024 * 1024;
/// How many characters of a wrong value are told.
const SHOWN: usize = 40;
/// The most mistakes in files that are told.
const MISTAKES_MAX: usize = 20;

/// An observer in a file: its namespace, if the file names one, and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: Option<String>,
    name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(out, "{namespace}/{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// The observers of all files, in their order.
type Manifests = Vec<(Key, PathBuf, Map<String, Value>)>;

/// The request that the command sends for one observer.
enum Step<'a> {
    Put(&'a Key, &'a Path, &'a Map<String, Value>),
    Delete(Box<Item<Observer>>),
}

/// The result, real or planned, for one observer.
enum Outcome {
    Created,
    /// Each value that changed.
    Changed(Vec<Difference>),
    Unchanged,
    Deleted,
}

impl Outcome {
    /// Its place among the counts.
    fn slot(&self) -> usize {
        match self {
            Self::Created => 0,
            Self::Changed(_) => 1,
            Self::Unchanged => 2,
            Self::Deleted => 3,
        }
    }

    /// What was done; `None` if nothing was.
    fn told(&self) -> Option<String> {
        match self {
            Self::Created => Some("created".to_owned()),
            Self::Changed(all) => {
                let mut members: Vec<_> = all.iter().filter_map(|it| it.pointer.split('/').nth(1)).collect();
                members.dedup();
                Some(format!("changed: {}", members.join(", ")))
            }
            Self::Unchanged => None,
            Self::Deleted => Some("deleted".to_owned()),
        }
    }
}

/// What was done for one observer, and its id with what `--wait` waits for.
struct Applied {
    outcome: Outcome,
    awaited: Option<(String, Goal<'static>)>,
}

pub(super) async fn run(client: &Client, asked: &Apply) -> anyhow::Result<()> {
    let labels: BTreeMap<String, String> = asked.labels.iter().cloned().collect();
    let manifests = read(&asked.files)?;
    if manifests.is_empty() {
        let files = asked.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let cure = if asked.prune {
            ", and --prune would delete all that have these labels; to delete them, use `everwatch observer delete` with --label"
        } else {
            ""
        };
        return Err(Failure::Usage(format!("{files}: no observer is defined{cure}")).into());
    }
    if asked.prune {
        check_labels(&manifests, &labels)?;
    }
    let doomed = if asked.prune { doomed(client, &labels, &manifests).await? } else { Vec::new() };
    let bar = ProgressBar::new((manifests.len() + doomed.len()) as u64);
    let put = manifests.iter().map(|(key, file, manifest)| Step::Put(key, file, manifest));
    let todo = put.chain(doomed.into_iter().map(|it| Step::Delete(Box::new(it))));
    let mut done = futures::stream::iter(todo)
        .map(|step| async move {
            match step {
                Step::Put(key, file, manifest) => {
                    let outcome = put_one(client, key, manifest, asked.dry_run).await;
                    (outcome.map_err(|error| in_file(error, file)), key.to_string())
                }
                Step::Delete(it) => (delete_one(client, &it, asked.dry_run).await, it.name.clone()),
            }
        })
        .buffered(at_once(&manifests));
    let (mut counts, mut failed, mut awaited) = ([0_usize; 4], BTreeSet::new(), BTreeMap::new());
    while let Some((applied, name)) = done.next().await {
        bar.inc(1);
        match applied {
            Ok(applied) => {
                counts[applied.outcome.slot()] += 1;
                bar.suspend(|| tell(&name, &applied.outcome, asked.dry_run));
                awaited.extend(applied.awaited);
            }
            // The others would fail with the same text.
            Err(error) if matches!(error.downcast_ref(), Some(Failure::Unreachable(_))) => {
                bar.finish_and_clear();
                return Err(error);
            }
            Err(error) => {
                bar.suspend(|| answer(&format!("observer {name} failed: {error:#}")));
                failed.insert(name);
            }
        }
    }
    bar.finish_and_clear();
    let applied = manifests.iter().filter(|(key, ..)| !failed.contains(&key.to_string()));
    let pools = applied.filter_map(|(_, _, manifest)| manifest.get("pool")?.as_str());
    unknown::warn_unserved(client, pools.collect()).await;
    let [created, changed, unchanged, deleted] = counts;
    let would = if asked.dry_run { "would be: " } else { "" };
    answer(&format!("{would}{created} created, {changed} changed, {unchanged} unchanged, {deleted} deleted"));
    let waited = wait(client, &awaited, asked.wait).await;
    if failed.is_empty() {
        return waited;
    }
    // Only one error is returned, and this one comes first: it says what to do.
    if let Err(error) = waited {
        note(&format!("of those that were applied: {error:#}"));
    }
    let text = format!("{} failed: correct the errors above and apply again", failed.len());
    Err(Failure::Failed(text).into())
}

/// How many requests are under way at once. If observers have limits, the first ones of the files get the places.
fn at_once(manifests: &Manifests) -> usize {
    if manifests.iter().any(|(_, _, manifest)| manifest.contains_key("limits")) { 1 } else { AT_ONCE }
}

/// Waits for what was applied, if the user wants that.
async fn wait(
    client: &Client,
    awaited: &BTreeMap<String, Goal<'static>>,
    timeout: Option<Duration>,
) -> anyhow::Result<()> {
    let Some(timeout) = timeout else { return Ok(()) };
    let ids: Vec<String> = awaited.keys().cloned().collect();
    fan_out::each(&ids, "done", |id| waiting::until(client, id, awaited[id], timeout)).await
}

fn tell(name: &str, outcome: &Outcome, dry_run: bool) {
    if let Some(what) = outcome.told() {
        let be = if dry_run { "would be" } else { "is" };
        answer(&format!("observer {name} {be} {what}"));
    }
    if let Outcome::Changed(all) = outcome
        && dry_run
    {
        print(&told_differences(all).join("\n"));
    }
}

/// Every observer of the files needs the labels that `--prune` selects by.
fn check_labels(manifests: &Manifests, labels: &BTreeMap<String, String>) -> anyhow::Result<()> {
    for (name, file, manifest) in manifests {
        let given = manifest.get("labels").cloned().unwrap_or_default();
        if let Some((key, value)) = labels.iter().find(|(key, value)| given[key.as_str()] != value.as_str()) {
            let file = file.display();
            let text = format!(
                "{file}: {name} lacks the label {key}={value} that --prune selects by; add it to {name}"
            );
            return Err(Failure::Usage(text).into());
        }
    }
    Ok(())
}

/// Every observer of every file. All mistakes are told at once.
fn read(files: &[PathBuf]) -> anyhow::Result<Manifests> {
    let (mut manifests, mut files_of) = (Manifests::new(), BTreeMap::<Key, PathBuf>::new());
    let mut wrong = Vec::new();
    for file in files.iter().map(|path| listed(path)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let shown = file.display();
        let documents: Vec<Value> = match serde_saphyr::from_multiple(&text(&file)?) {
            Ok(documents) => documents,
            Err(error) => {
                wrong.push(format!("{shown}: {}", yaml_error(&error)));
                continue;
            }
        };
        let observers = documents.into_iter().flat_map(in_document);
        for (number, observer) in (1..).zip(observers) {
            let (key, manifest) = match manifest(number, observer) {
                Ok(read) => read,
                Err(why) => {
                    wrong.push(format!("{shown}: {why}"));
                    continue;
                }
            };
            match files_of.insert(key.clone(), file.clone()) {
                Some(other) if other == file => {
                    wrong.push(format!("{shown}: observer {key} is defined twice"));
                }
                Some(other) => wrong.push(format!("{shown}: {} also defines {key}", other.display())),
                None => manifests.push((key, file.clone(), manifest)),
            }
        }
    }
    if wrong.is_empty() {
        return Ok(manifests);
    }
    let more = wrong.len().saturating_sub(MISTAKES_MAX);
    wrong.truncate(MISTAKES_MAX);
    if more > 0 {
        wrong.push(format!("and {more} more mistakes"));
    }
    Err(Failure::Usage(wrong.join("\n")).into())
}

/// The observers of a document: a list of them, or one. A mapping with nothing but a list `observers` is such a list, as in the file of
/// a batch.
fn in_document(document: Value) -> Vec<Value> {
    match document {
        Value::Array(items) => items,
        Value::Object(mut it) if it.len() == 1 && it.get("observers").is_some_and(Value::is_array) => {
            in_document(it.remove("observers").unwrap_or_default())
        }
        other => vec![other],
    }
}

/// One observer of a file, which is the one with this number there.
fn manifest(number: usize, observer: Value) -> Result<(Key, Map<String, Value>), String> {
    let Value::Object(mut manifest) = observer else {
        return Err(format!(
            "observer {number} in this file is {}: an observer is a mapping with at least `name` and `kind`",
            cut(&observer.to_string(), SHOWN)
        ));
    };
    without_state(&mut manifest);
    let name = match manifest.get("name") {
        Some(Value::String(name)) => name.clone(),
        None | Some(Value::Null) => {
            let meant = manifest.keys().find(|key| nearest(key, ["name"]).is_some());
            let tip = meant.map_or_else(String::new, |key| format!("; did you mean `name` by `{key}`?"));
            return Err(format!("observer {number} in this file has no `name`{tip}"));
        }
        Some(other) => {
            return Err(format!(
                "the `name` of observer {number} in this file is {}, which is not a string: write it in quotes (YAML reads y, no and on as true or false)",
                cut(&other.to_string(), SHOWN)
            ));
        }
    };
    let namespace = manifest.get("namespace").and_then(Value::as_str).map(str::to_owned);
    Ok((Key { namespace, name }, manifest))
}

/// Removes what a manager adds to a definition, so that the output of `observer get -o yaml` can be applied.
fn without_state(manifest: &mut Map<String, Value>) {
    if ["id", "status", "epoch"].iter().all(|member| manifest.contains_key(*member)) {
        manifest.retain(|member, _| MEMBERS.contains(&member.as_str()) || member == "desired");
    }
}

/// The files of a folder, or the file itself.
fn listed(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let kinds = ["yaml", "yml", "json"];
    files.retain(|file| file.extension().is_some_and(|it| kinds.iter().any(|kind| it == *kind)));
    files.sort();
    if files.is_empty() {
        let text = format!("{}: the folder contains no .yaml, .yml or .json file", path.display());
        return Err(Failure::Usage(text).into());
    }
    Ok(files)
}

fn text(file: &Path) -> anyhow::Result<String> {
    let failed = |error: std::io::Error| Failure::Usage(format!("{}: {error}", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
    } else {
        let opened = std::fs::File::open(file).map_err(failed)?;
        opened.take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
    }
    Ok(text)
}

/// The observers with these labels that no file defines: in the namespace of the command, and in those that the files name.
async fn doomed(
    client: &Client,
    labels: &BTreeMap<String, String>,
    manifests: &Manifests,
) -> anyhow::Result<Vec<Item<Observer>>> {
    let own = match client.namespace() {
        Some(namespace) => namespace.to_owned(),
        None => {
            let who: Whoami = client.read("/v1/whoami").await?;
            who.namespace.unwrap_or_else(|| Namespace::default().to_string())
        }
    };
    let defined: BTreeSet<(&str, &str)> = manifests
        .iter()
        .map(|(key, ..)| (key.namespace.as_deref().unwrap_or(&own), key.name.as_str()))
        .collect();
    let namespaces: BTreeSet<&str> = defined.iter().map(|(namespace, _)| *namespace).chain([&*own]).collect();
    let mut doomed = Vec::new();
    for namespace in namespaces {
        let mut query: Vec<_> =
            labels.iter().map(|(key, value)| ("label", format!("{key}={value}"))).collect();
        query.push(("namespace", namespace.to_owned()));
        let there = all(client, &query, usize::MAX).await?.into_iter();
        doomed.extend(there.filter(|it| {
            it.status != Status::OnDeleting && !defined.contains(&(namespace, it.name.as_str()))
        }));
    }
    Ok(doomed)
}

async fn delete_one(client: &Client, it: &Observer, dry_run: bool) -> anyhow::Result<Applied> {
    if !dry_run {
        // Its id, because the same name may be another observer in the namespace of the command.
        client.order(Method::DELETE, &path(&it.id.to_string()), None).await?;
    }
    Ok(Applied { outcome: Outcome::Deleted, awaited: None })
}

async fn put_one(
    client: &Client,
    key: &Key,
    manifest: &Map<String, Value>,
    dry_run: bool,
) -> anyhow::Result<Applied> {
    let path = match &key.namespace {
        Some(namespace) if client.namespace().is_none() => {
            format!("{}?namespace={}", path(&key.name), Client::part(namespace))
        }
        _ => path(&key.name),
    };
    let before = match client.read::<Item<Observer>>(&path).await {
        Ok(it) if it.status != Status::Deleted => Some(it),
        Ok(_) => None,
        Err(error) if matches!(error.downcast_ref(), Some(Failure::NotFound(_))) => None,
        Err(error) => return Err(error),
    };
    let put = match (dry_run, path.contains('?')) {
        (false, _) => path,
        (true, false) => format!("{path}?dry_run=true"),
        (true, true) => format!("{path}&dry_run=true"),
    };
    let after: Item<Observer> =
        client.send(Method::PUT, &put, Some(&Value::Object(manifest.clone()))).await?;
    let awaited = Some((after.id.to_string(), goal(before.as_deref(), &after)));
    let outcome = match before {
        None => Outcome::Created,
        Some(before) => match Difference::all(&definition(before.sent()), &definition(after.sent())) {
            all if all.is_empty() => Outcome::Unchanged,
            all => Outcome::Changed(all),
        },
    };
    Ok(Applied { outcome, awaited })
}

/// What `--wait` waits for: a run that has the new definition, or the pause that the definition asks for.
fn goal(before: Option<&Observer>, after: &Observer) -> Goal<'static> {
    if after.desired == Desired::Paused {
        return Goal::Paused;
    }
    let ended = before.filter(|_| after.reason_code == Some(ReasonCode::RestartRequested));
    Goal::Runs(FormerRun { epoch: ended.map(|it| it.epoch), service: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_place_in_the_file_once() {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), "a: b\n c: d\n").unwrap();
        let told = read(&[file.path().to_owned()]).unwrap_err().to_string();
        assert!(told.contains("line 2 column 3") && told.lines().count() == 1, "{told}");
        assert_eq!(told.matches("mapping values").count(), 1, "{told}");
    }

    #[test]
    fn all_mistakes_of_all_files_are_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let a =
            file("a.yaml", "- {name: a}\n- {kind: ticker, nmae: b}\n- {name: no}\n- ticker\n- {name: a}\n");
        let b = file("b.yaml", "a: b\n c: d\n");
        let listed = file("c.yaml", "observers:\n- {name: c}\n- {name: d}\n");
        let names: Vec<_> = read(&[listed]).unwrap().into_iter().map(|(key, ..)| key.name).collect();
        assert_eq!(names, ["c", "d"], "as in the file of a batch");
        let told = read(&[a.clone(), b.clone()]).unwrap_err().to_string();
        let lines: Vec<&str> = told.lines().collect();
        let (a, b) = (a.display(), b.display());
        assert_eq!(
            lines[0],
            format!("{a}: observer 2 in this file has no `name`; did you mean `name` by `nmae`?")
        );
        assert!(
            lines[1].starts_with(&format!("{a}: the `name` of observer 3 in this file is false")),
            "{told}"
        );
        assert!(lines[2].starts_with(&format!("{a}: observer 4 in this file is \"ticker\":")), "{told}");
        assert_eq!(lines[3], format!("{a}: observer a is defined twice"));
        assert!(lines[4].starts_with(&format!("{b}: ")) && lines.len() == 5, "{told}");
        let many = file("many.yaml", &"- {kind: ticker}\n".repeat(30));
        let told = read(&[many]).unwrap_err().to_string();
        assert_eq!((told.lines().count(), told.lines().last()), (21, Some("and 10 more mistakes")));
    }

    #[test]
    fn the_output_of_get_is_a_definition() {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        let sent = crate::output::an_observer("feed", "Processing", "").sent().clone();
        std::fs::write(file.path(), serde_saphyr::to_string(&sent).unwrap()).unwrap();
        let all = read(&[file.path().to_owned()]).unwrap();
        let [(_, _, manifest)] = &all[..] else { panic!("{all:?}") };
        assert!(manifest.contains_key("kind") && manifest.contains_key("desired"), "{manifest:?}");
        assert!(!manifest.contains_key("health") && !manifest.contains_key("restarts"), "{manifest:?}");
        // A file that people write keeps its unknown members, which the manager refuses.
        std::fs::write(file.path(), "{name: feed, kind: ticker, status: Processing}").unwrap();
        let all = read(&[file.path().to_owned()]).unwrap();
        assert!(all.iter().all(|(_, _, manifest)| manifest.contains_key("status")));
    }

    #[test]
    fn observers_with_limits_are_applied_one_after_the_other_in_the_order_of_the_file() {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        let text = "{name: b, kind: ticker}\n---\n{name: a, kind: ticker, limits: [account]}\n";
        std::fs::write(file.path(), text).unwrap();
        let mut all = read(&[file.path().to_owned()]).unwrap();
        assert_eq!(all.iter().map(|(key, ..)| key.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(at_once(&all), 1);
        all.pop();
        assert_eq!(at_once(&all), AT_ONCE);
        std::fs::write(file.path(), format!("{text}---\n{{name: b, kind: ticker}}\n")).unwrap();
        let told = read(&[file.path().to_owned()]).unwrap_err().to_string();
        assert!(told.ends_with("observer b is defined twice"), "{told}");
    }
}
