//! `everwatch conformance`: checks an implementation of a service in any language against the rules of the protocol, on a
//! real RabbitMQ. This file chooses the rules and prints the verdicts; `stage` plays the manager.

mod facts;
mod frames;
mod ledger;
mod rules;
mod stage;
mod tap;
mod worker;

use super::roles::configured;
use crate::cli::Conformance;
use crate::client::Failure;
use crate::output::print;
use anyhow::Context as _;
use everwatch::host::on_signals;
use everwatch_broker::{Broker as _, RabbitBroker};
use rules::Rule;
use stage::{Stage, Subject, Verdict};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The longest check: rules about silence wait for several heartbeats.
const CHECK_WITHIN: Duration = Duration::from_secs(120);

/// Checks the selected rules, one after the other, each with a new worker.
///
/// # Errors
/// A failure if a rule is broken; a usage error if the arguments or the broker cannot be used.
#[tokio::main]
pub(crate) async fn run(config: Option<&Path>, arguments: &Conformance) -> anyhow::Result<()> {
    let chosen = chosen(&arguments.rules)?;
    if arguments.list {
        chosen.iter().for_each(|rule| print(&format!("{:<22}{}", rule.name, rule.text)));
        return Ok(());
    }
    let Some(command) = arguments.command.clone() else {
        return Err(Failure::Usage("--command: name the program to check".to_owned()).into());
    };
    let url = arguments.broker.clone().map_or_else(|| configured(config).map(|it| it.broker.url), Ok)?;
    let subject = subject(command, url)?;
    RabbitBroker::new(&subject.broker_url, "", stage::HEARTBEAT)
        .map_err(|error| Failure::Usage(format!("--broker: {error}")))?
        .connect("everwatch conformance")
        .await?
        .close()
        .await;
    let (soft, hard) = (CancellationToken::new(), CancellationToken::new());
    let mut broken = 0_usize;
    for rule in &chosen {
        let followed = tokio::select! {
            checked = check(&subject, rule) => checked?,
            Err(error) = on_signals(soft.clone(), hard.clone()) => return Err(error.into()),
            () = soft.cancelled() => return Err(Failure::Failed("stopped".to_owned()).into()),
        };
        broken += usize::from(!followed);
    }
    let followed = chosen.len() - broken;
    print(&format!("rules: {followed} followed, {broken} broken"));
    if broken == 0 { Ok(()) } else { Err(Failure::Failed(format!("broken rules: {broken}")).into()) }
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Rule>> {
    if let Some(unknown) = names.iter().find(|name| rules::all().all(|rule| rule.name != **name)) {
        let known: Vec<_> = rules::all().map(|rule| rule.name).collect();
        let text = format!("--rule: `{unknown}` is not a rule; known: {}", known.join(", "));
        return Err(Failure::Usage(text).into());
    }
    let wanted = |rule: &&Rule| names.is_empty() || names.iter().any(|name| name == rule.name);
    Ok(rules::all().filter(wanted).collect())
}

/// The worker reaches the broker through a proxy: its URL has a placeholder for the address.
fn subject(command: String, broker_url: String) -> anyhow::Result<Subject> {
    let wrong = |why: &str| Failure::Usage(format!("--broker: {why}"));
    let rest = broker_url.strip_prefix("amqp://").ok_or_else(|| {
        wrong("give an amqp:// URL: the checker reads the traffic, so it cannot be encrypted")
    })?;
    if rest.contains(',') {
        return Err(wrong("give the URL of one node").into());
    }
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(place, path)| (place, Some(path)));
    let (credentials, place) =
        authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
    let upstream = if place.contains(':') { place.to_owned() } else { format!("{place}:5672") };
    let credentials = credentials.map_or_else(String::new, |user| format!("{user}@"));
    let path = path.map_or_else(String::new, |path| format!("/{path}"));
    Ok(Subject { command, worker_url: format!("amqp://{credentials}{{}}{path}"), upstream, broker_url })
}

/// Checks one rule and prints the verdict; `false` if it is broken.
async fn check(subject: &Subject, rule: &Rule) -> anyhow::Result<bool> {
    let began = Instant::now();
    let mut stage = Stage::new(subject).await.context("cannot prepare a check")?;
    let checked = tokio::time::timeout(CHECK_WITHIN, (rule.check)(&mut stage)).await;
    let verdict: Verdict = match checked {
        Ok(verdict) => verdict.and_then(|()| stage.facts.unreadable.first().cloned().map_or(Ok(()), Err)),
        Err(_) => Err(format!("the check did not end within {CHECK_WITHIN:?}")),
    };
    let log = stage.worker.as_ref().map(worker::Worker::last_lines);
    let ended = stage.end().await;
    let took = began.elapsed().as_secs_f64();
    match &verdict {
        Ok(()) => print(&format!("ok      {:<20} {} ({took:.1} s)", rule.name, rule.text)),
        Err(why) => {
            print(&format!("BROKEN  {:<20} {} ({took:.1} s)\n        {why}", rule.name, rule.text));
            for line in log.iter().flat_map(|log| log.lines()) {
                print(&format!("        | {line}"));
            }
        }
    }
    ended?;
    Ok(verdict.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_s_url_goes_through_the_proxy() {
        let subject = |url: &str| subject("w".to_owned(), url.to_owned());
        let it = subject("amqp://u:p@host:5673/%2f").unwrap();
        assert_eq!((it.upstream.as_str(), it.worker_url.as_str()), ("host:5673", "amqp://u:p@{}/%2f"));
        let it = subject("amqp://host").unwrap();
        assert_eq!((it.upstream.as_str(), it.worker_url.as_str()), ("host:5672", "amqp://{}"));
        for url in ["amqps://host", "host", "amqp://a,amqp://b"] {
            assert!(subject(url).unwrap_err().to_string().starts_with("--broker: give"), "{url}");
        }
    }

    #[test]
    fn rules_have_different_names_and_are_chosen_by_them() {
        let names: Vec<_> = rules::all().map(|rule| rule.name).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        assert_eq!(chosen(&["epoch".to_owned()]).unwrap().len(), 1);
        assert!(chosen(&["epoh".to_owned()]).err().unwrap().to_string().contains("known: registers-first"));
    }
}
