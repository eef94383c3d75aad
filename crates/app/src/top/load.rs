//! Sends the model's requests to the manager: loads data and performs actions.

use super::model::{Focus, Query, Target, Trouble, Verb, Wish};
use super::seen::{Observer, Page, Pool, SafeMode, Seen, Service, Stats};
use crate::client::{Client, Failure};
use crate::output::TerminalStyle;
use crate::requests::{described_observer, described_service, path as path_of, service_path};
use everwatch_api as api;
use reqwest::Method;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// A manager that takes longer to answer counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn screen(client: &Client, query: &Query) -> Result<Box<Seen>, Trouble> {
    let observers = path(query);
    let all = async {
        let (stats, pools, services, safe_mode, observers) = tokio::try_join!(
            client.read::<Stats>("/v1/stats"),
            client.read::<Page<Pool>>("/v1/pools"),
            client.read::<Page<Service>>(
                "/v1/services?state=active,standby,cordoned,draining,suspect&limit=1000"
            ),
            client.read::<SafeMode>("/v1/safe-mode"),
            client.read::<Page<Observer>>(&observers),
        )?;
        Ok(Box::new(Seen { stats, pools: pools.items, services: services.items, observers, safe_mode }))
    };
    within(all).await
}

/// Sends the request for this verb.
async fn act<T: DeserializeOwned>(client: &Client, path: &str, verb: Verb) -> anyhow::Result<T> {
    match verb {
        Verb::Delete => client.send(Method::DELETE, path, None).await,
        verb => client.send(Method::POST, &format!("{path}/{}", verb.word()), None).await,
    }
}

pub(super) async fn describe(client: &Client, target: &Target, width: usize) -> Result<String, Trouble> {
    let paper = TerminalStyle { width: Some(width), colours: false };
    match target.what {
        Focus::Observers => within(described_observer(client, &target.id, paper)).await,
        Focus::Services => within(described_service(client, &target.id, paper)).await,
    }
}

/// Performs the action and returns the resulting state as text.
pub(super) async fn carry_out(client: &Client, wish: &Wish) -> Result<String, Trouble> {
    let id = &wish.target.id;
    let asked = async {
        Ok(match wish.target.what {
            Focus::Observers => {
                let it: api::Observer = act(client, &path_of(id), wish.verb).await?;
                format!("{} {}", it.status.as_str(), it.reason).trim_end().to_owned()
            }
            Focus::Services => {
                let it: api::Service = act(client, &service_path(id), wish.verb).await?;
                it.state.as_str().to_owned()
            }
        })
    };
    within(asked).await
}

async fn within<T>(asked: impl Future<Output = anyhow::Result<T>>) -> Result<T, Trouble> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(match error.downcast_ref() {
            Some(Failure::Unreachable(why)) => Trouble::Unreachable(why.clone()),
            _ => Trouble::Refused(format!("{error:#}")),
        }),
        Err(_) => Err(Trouble::Unreachable(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

/// Builds the path from a filter. Words `key=value` become parameters of the API or labels; all other words
/// are searched for in names.
fn path(query: &Query) -> String {
    let mut path = format!("/v1/observers?limit={}&sort={}", query.rows.clamp(1, 1000), query.sort.words().0);
    let mut parts = Vec::new();
    for word in query.filter.split_whitespace() {
        match word.split_once('=') {
            Some((key @ ("status" | "kind" | "pool" | "service"), value)) => {
                path.push_str(&format!("&{key}={}", Client::part(value)));
            }
            Some(_) => path.push_str(&format!("&label={}", Client::part(word))),
            None => parts.push(word),
        }
    }
    if !parts.is_empty() {
        path.push_str(&format!("&q={}", Client::part(&parts.join(" "))));
    }
    if let Some((cursor, _)) = query.pages.last() {
        path.push_str(&format!("&cursor={}", Client::part(cursor)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::Sort;

    #[test]
    fn a_filter_becomes_what_the_manager_knows() {
        let query = Query {
            filter: "feed status=Failed,Created team=a b".to_owned(),
            sort: Sort::Newest,
            rows: 20,
            pages: vec![("c1".to_owned(), 20)],
        };
        assert_eq!(
            path(&query),
            "/v1/observers?limit=20&sort=-created_at&status=Failed%2CCreated&label=team%3Da&q=feed%20b&cursor=c1"
        );
    }
}
