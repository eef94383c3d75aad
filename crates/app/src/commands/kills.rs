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

/// A service that was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    service: String,
    /// The id of its process; none if managers did not answer.
    id: Option<Uuid>,
    /// The observers that ran on it.
    held: u64,
    at: Timestamp,
}

/// Kills this service.
pub(super) async fn kill(client: &Client, service: &str) -> anyhow::Result<Killed> {
    // If managers do not know it, the order says so.
    let (id, held) = held(client, service).await.map_or((None, 0), |(id, held)| (Some(id), held));
    let at = clock::now();
    client.order(Method::POST, &format!("/dev/chaos/{}/kill", Client::part(service)), None).await?;
    Ok(Killed { service: service.to_owned(), id, held, at })
}

async fn held(client: &Client, service: &str) -> anyhow::Result<(Uuid, u64)> {
    let it: Service = client.read(&service_path(service)).await?;
    let path = format!("/v1/observers?limit=1&service={}", it.id);
    Ok((it.id, client.read::<Listed<Observer>>(&path).await?.total))
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
            if is_settled || now >= deadline {
                return self.told(incident.as_ref());
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

    /// Its time is counted from the kill; managers, which do not see the kill, count from the last sign of life before it.
    fn told(&self, incident: Option<&Incident>) -> String {
        let moved = incident.map_or(0, |it| it.moved);
        let Some((it, until)) = incident.and_then(|it| Some((it, it.until?))).filter(|_| moved >= self.held)
        else {
            let (seconds, held) = (MOVES_WITHIN.as_secs(), counted(self.held, "observer"));
            return format!("{seconds} s later, {moved} of its {held} run again (see `everwatch status`)");
        };
        let to = destinations(it);
        let took = until.since(self.at).as_millis();
        let run = counted_subject(self.held, "observer", ["runs", "run"]);
        let last = if self.held == 1 { "it" } else { "the last one" };
        format!("its {run} on {to}; {last} started {took} ms after the kill")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(moved: u64, until: Option<i64>) -> Incident {
        let to = serde_json::json!({"b": moved});
        serde_json::from_value(serde_json::json!({
            "from": "a", "cause": "lost", "since": Timestamp(0), "until": until.map(Timestamp), "moved": moved,
            "waiting": 0, "to": to, "to_others": 0, "gap_ms_median": 0, "gap_ms_p99": 0, "gap_ms_max": 0,
            "gap_is_bound": true, "overlap_ms_max": 0,
        }))
        .unwrap()
    }

    #[test]
    fn a_kill_is_told_with_what_became_of_the_observers() {
        let killed = |held| Killed { service: "a".to_owned(), id: None, held, at: Timestamp(1000) };
        assert_eq!(
            killed(3).told(Some(&incident(3, Some(1400)))),
            "its 3 observers run on b (3); the last one started 400 ms after the kill"
        );
        assert_eq!(
            killed(1).told(Some(&incident(1, Some(1005)))),
            "its 1 observer runs on b (1); it started 5 ms after the kill"
        );
        let later = "10 s later, 2 of its 3 observers run again (see `everwatch status`)";
        assert_eq!(killed(3).told(Some(&incident(2, Some(1400)))), later);
        assert_eq!(killed(3).told(None), later.replace("2 of", "0 of"));
    }
}
