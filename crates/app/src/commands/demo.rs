//! `everwatch dev --demo`: creates observers of several kinds, kills services repeatedly, and prints where their observers moved.
//! `everwatch demo` prints commands to try meanwhile.

use super::kills;
use crate::client::{Client, Failure};
use crate::output::{note, print};
use everwatch_api::{Listed, Service};
use everwatch_core::clock;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// The observers: a list in YAML.
const OBSERVERS: &str = include_str!("../../templates/demo.yaml");
/// The shortest interval between two kills.
pub(super) const EVERY_MIN: Duration = Duration::from_secs(1);

/// Runs the demo in a separate thread until the process ends.
pub(super) fn start(server: String, every: Duration) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(demonstrate(&server, every))
    };
    let thread = std::thread::Builder::new().name("demo".to_owned()).spawn(move || {
        if let Err(error) = run() {
            note(&format!("the demo ended: {error:#}"));
        }
    });
    if let Err(error) = thread {
        note(&format!("the demo did not start: {error}"));
    }
}

async fn demonstrate(server: &str, every: Duration) -> anyhow::Result<()> {
    let client = Client::with_token(server, None)?;
    print(&created(&client, server).await?);
    loop {
        tokio::time::sleep(every).await;
        match kill(&client).await {
            Ok(text) => print(&format!("{}  {text}", clock::now())),
            // The next one may succeed: a killed service needs some seconds to start again.
            Err(error) => note(&format!("{}  {error:#}", clock::now())),
        }
    }
}

/// Creates the observers; existing ones remain unchanged.
async fn created(client: &Client, server: &str) -> anyhow::Result<String> {
    let observers: Vec<Value> = serde_saphyr::from_str(&OBSERVERS.replace("SERVER", server))?;
    client.order(Method::PUT, "/v1/limits/licence", Some(&json!({ "max": 1 }))).await?;
    let mut count = 0_u64;
    // One after the other, so that the last observer that names the limit is the one that waits.
    for observer in observers {
        match client.order(Method::POST, "/v1/observers", Some(&observer)).await {
            Ok(()) => count += 1,
            Err(error) if matches!(error.downcast_ref(), Some(Failure::Conflict(_) | Failure::Exists(_))) => {
            }
            Err(error) => return Err(error),
        }
    }
    Ok(format!(
        "\nThe demo created {}. `crashes` fails again and again, `waits` waits for its turn, and `rests` is paused.\nAfter a \
         kill, `never-twice` starts later than the others, on purpose: its overlap is `forbid`, so it waits until its previous run has \
         certainly ended.",
        counted(count, "observer")
    ))
}

/// Kills the service that holds the most observers; returns a sentence about where they moved.
async fn kill(client: &Client) -> anyhow::Result<String> {
    let services: Listed<Service> = client.read("/v1/services?state=active&limit=100").await?;
    let Some(service) = services.items.into_iter().max_by_key(|it| it.held).filter(|it| it.held > 0) else {
        return Ok("no service holds an observer, so none was killed".to_owned());
    };
    let killed = kills::kill(client, &service.name).await?;
    Ok(format!("killed {}: {}", service.name, killed.until_moved(client).await))
}

/// Commands to try while the demo runs.
const TOUR: &str = "While `everwatch dev --demo` runs in another terminal, look at it with these commands. Each answers within a second.

Monitor
  everwatch status                       # health, free slots, failure tolerance, problems
  everwatch observer list                # what runs where; -o wide shows more
  everwatch timeline                     # what each service held, and what moved when one was killed
  everwatch top                          # all of it, live; ? lists the keys

Find out why
  everwatch observer describe crashes    # its error, its next attempt, and its runs
  everwatch observer logs crashes -f     # what it prints, wherever it runs
  everwatch observer describe waits      # why it does not run
  everwatch doctor                       # problems with the commands that cure them

Change something
  everwatch observer edit price-btc      # in your editor; every: 500ms makes it faster
  everwatch observer resume rests
  everwatch observer pause -l team=devices --expect 4
  everwatch chaos kill service-1         # as kill -9 does; the demo also does it
  everwatch service drain service-2      # hands its observers over, one after the other

The console is at http://127.0.0.1:7700.";

/// Prints the tour, with the URL of this manager.
pub(super) fn tour(server: &str) -> anyhow::Result<()> {
    if !server.starts_with("http") {
        let text = format!("--server `{server}` is not a URL like http://127.0.0.1:7700");
        return Err(Failure::Usage(text).into());
    }
    let default = "http://127.0.0.1:7700";
    if server != default {
        print(&format!("export EVERWATCH_SERVER={server}    # the manager of these commands\n"));
    }
    print(&TOUR.replace(default, server));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::observer::definition::MEMBERS;
    use std::collections::BTreeSet;

    #[test]
    fn the_demo_has_twenty_observers_of_several_kinds() {
        let all: Vec<Value> = serde_saphyr::from_str(OBSERVERS).unwrap();
        let words = |member: &str| {
            all.iter().filter_map(|it| it[member].as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
        };
        assert_eq!((all.len(), words("name").len(), words("kind").len()), (20, 20, 3));
        let known = |member: &String| MEMBERS.contains(&member.as_str()) || member == "desired";
        assert!(all.iter().all(|it| it.as_object().unwrap().keys().all(known)));
        for name in ["crashes", "waits", "rests", "price-btc"] {
            assert!(words("name").contains(name) && TOUR.contains(name), "the tour names {name}");
        }
        assert_eq!(
            all.iter().filter(|it| it["labels"]["team"] == "devices").count(),
            4,
            "as the tour expects"
        );
    }
}
