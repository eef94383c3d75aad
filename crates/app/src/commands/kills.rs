//! Kills a service of `everwatch dev`, and says where its observers run afterwards.

use crate::client::Client;
use crate::output::destinations;
use crate::requests::service_path;
use everwatch_api::{Incident, Listed, Observer, Service, Timeline};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::wording::{counted, counted_subject};
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a command waits for the observers of a killed service to start elsewhere.
const MOVES_WITHIN: Duration = Duration::from_secs(10);
/// How long a command waits for managers to notice the loss of a killed service whose observers run elsewhere.
const CAUSE_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many observers are looked at one by one, and how many of them are named.
const LOOKED_AT: usize = 1000;
const NAMED: usize = 3;

/// A service that was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    service: String,
    /// The id of its process; none if managers did not answer.
    id: Option<Uuid>,
    /// The number of observers that ran on it, and the ids of the first [`LOOKED_AT`].
    held: u64,
    observers: Vec<Uuid>,
    at: Timestamp,
}

/// Kills this service.
pub(super) async fn kill(client: &Client, service: &str) -> anyhow::Result<Killed> {
    // If managers do not know it, the order says so.
    let known = held(client, service).await.ok();
    let (held, observers) = known
        .as_ref()
        .map_or((0, Vec::new()), |(_, of)| (of.total, of.items.iter().map(|it| it.id).collect()));
    let at = clock::now();
    client.order(Method::POST, &format!("/dev/chaos/{}/kill", Client::part(service)), None).await?;
    Ok(Killed { service: service.to_owned(), id: known.map(|(id, _)| id), held, observers, at })
}

async fn held(client: &Client, service: &str) -> anyhow::Result<(Uuid, Listed<Observer>)> {
    let it: Service = client.read(&service_path(service)).await?;
    let path = format!("/v1/observers?limit={LOOKED_AT}&service={}", it.id);
    Ok((it.id, client.read(&path).await?))
}

impl Killed {
    /// Waits until its observers run on other services, at most [`MOVES_WITHIN`], and then until managers know that the service was
    /// lost, at most [`CAUSE_WITHIN`], so that the next command does not show it as active; returns a sentence about the observers, in
    /// lower case.
    pub(super) async fn until_moved(&self, client: &Client) -> String {
        if self.held == 0 {
            self.until_lost(client).await;
            return "it ran no observer".to_owned();
        }
        let (deadline, mut moved_at) = (Instant::now() + MOVES_WITHIN, None::<Instant>);
        loop {
            let incident = self.incident(client).await;
            let now = Instant::now();
            let is_over = |it: &&Incident| it.until.is_some() && it.moved >= self.held;
            let is_settled = incident.as_ref().filter(is_over).is_some_and(|it| {
                let since = *moved_at.get_or_insert(now);
                it.cause != "unknown" || now.duration_since(since) >= CAUSE_WITHIN
            });
            if let Some(it) = incident.filter(|_| is_settled)
                && let Some(until) = it.until
            {
                return self.told(&it, until);
            }
            if now >= deadline {
                return self.told_late(self.still_down(client).await.as_deref());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until managers know that the service was lost, at most [`CAUSE_WITHIN`].
    async fn until_lost(&self, client: &Client) {
        let (Some(id), deadline) = (self.id, Instant::now() + CAUSE_WITHIN) else { return };
        while Instant::now() < deadline {
            let it = client.read::<Service>(&service_path(&id.to_string())).await;
            if it.is_ok_and(|it| !it.state.is_over()) {
                tokio::time::sleep(LOOK_EVERY).await;
            } else {
                return;
            }
        }
    }

    /// The incident of the kill, as far as managers know it; none if they do not answer now.
    async fn incident(&self, client: &Client) -> Option<Incident> {
        let since = self.at.minus(Duration::from_secs(10));
        let path = format!("/v1/timeline?since={since}&service={}", Client::part(&self.service));
        let timeline: Timeline = client.read(&path).await.ok()?;
        let of = |it: &Incident| it.from == self.service && it.until.is_none_or(|until| until >= self.at);
        timeline.incidents.into_iter().rfind(of)
    }

    /// The names of its observers that should run and do not; none if managers do not answer.
    async fn still_down(&self, client: &Client) -> Option<Vec<String>> {
        let path = format!("/v1/observers?health=restarting,waiting,moving&sort=name&limit={LOOKED_AT}");
        let down = client.read::<Listed<Observer>>(&path).await.ok()?.items;
        Some(down.into_iter().filter(|it| self.observers.contains(&it.id)).map(|it| it.name).collect())
    }

    fn told_late(&self, down: Option<&[String]>) -> String {
        let seconds = MOVES_WITHIN.as_secs();
        let Some(down) = down else {
            let held = counted(self.held, "observer");
            return format!(
                "it ran {held}, and {seconds} s later, the manager does not say which of them run again"
            );
        };
        if down.is_empty() {
            let run = counted_subject(self.held, "observer", ["runs", "run"]);
            return format!("its {run} again; `everwatch timeline` shows since when");
        }
        let (held, running) = (counted(self.held, "observer"), self.held.saturating_sub(down.len() as u64));
        let more = down.len().saturating_sub(NAMED);
        let named = down[..down.len() - more].join(", ");
        let named = if more == 0 { named } else { format!("{named} and {more} more") };
        format!(
            "{seconds} s later, {running} of its {held} run again; not yet: {named} (see `everwatch status`)"
        )
    }

    /// Its time is counted from the kill; managers, which do not see the kill, count from the last sign of life before it.
    fn told(&self, it: &Incident, until: Timestamp) -> String {
        // If their next services were killed too, some have started more than once.
        let to = if it.moved == self.held { destinations(it) } else { "other services".to_owned() };
        let took = until.since(self.at).as_millis();
        let run = counted_subject(self.held, "observer", ["runs", "run"]);
        let last = if self.held == 1 { "it" } else { "the last one" };
        format!("its {run} on {to}; {last} started {took} ms after the kill")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(moved: u64, until: i64) -> Incident {
        let to = serde_json::json!({"b": moved});
        serde_json::from_value(serde_json::json!({
            "from": "a", "cause": "lost", "since": Timestamp(0), "until": Timestamp(until), "moved": moved,
            "waiting": 0, "to": to, "to_others": 0, "gap_ms_median": 0, "gap_ms_p99": 0, "gap_ms_max": 0,
            "gap_is_bound": true, "overlap_ms_max": 0,
        }))
        .unwrap()
    }

    #[test]
    fn a_kill_is_told_with_what_became_of_the_observers() {
        let killed = |held| Killed {
            service: "a".to_owned(),
            id: None,
            held,
            observers: Vec::new(),
            at: Timestamp(1000),
        };
        let told = |held, moved, until| killed(held).told(&incident(moved, until), Timestamp(until));
        assert_eq!(
            told(3, 3, 1400),
            "its 3 observers run on b (3); the last one started 400 ms after the kill"
        );
        assert_eq!(told(1, 1, 1005), "its 1 observer runs on b (1); it started 5 ms after the kill");
        let twice = "its 3 observers run on other services; the last one started 400 ms after the kill";
        assert_eq!(told(3, 5, 1400), twice);
        let late = |held, down: &[&str]| {
            killed(held).told_late(Some(&down.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()))
        };
        assert_eq!(
            late(3, &["x"]),
            "10 s later, 2 of its 3 observers run again; not yet: x (see `everwatch status`)"
        );
        assert!(
            late(9, &["x", "y", "z", "a", "b"])
                .contains("4 of its 9 observers run again; not yet: x, y, z and 2 more")
        );
        assert_eq!(late(1, &[]), "its 1 observer runs again; `everwatch timeline` shows since when");
    }
}
