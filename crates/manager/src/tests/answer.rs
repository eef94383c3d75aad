//! Answers of the HTTP API, read as types.

use super::{SOON, Stage};
use axum::http::{HeaderMap, StatusCode};
use everwatch_api::{Listed, Observer, ParkedMessage, ProblemBody};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn read<T: DeserializeOwned>(&self, status: u16) -> T {
        assert_eq!(self.status, status, "{self:?}");
        T::deserialize(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    /// The problem of an answer that must have this status and code.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> ProblemBody {
        let problem: ProblemBody = self.read(status);
        assert_eq!((problem.status, problem.code.as_str()), (status, code), "{self:?}");
        problem
    }
}

impl Stage {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None).await
    }
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        self.get(path).await.read(200)
    }
    /// By name or id.
    pub(crate) async fn observer(&self, key: &str) -> Observer {
        self.read(&format!("/v1/observers/{key}")).await
    }
    /// The number of matches of a list.
    pub(crate) async fn total(&self, path: &str) -> u64 {
        self.read::<Listed<IgnoredAny>>(path).await.total
    }

    pub(crate) async fn until(&self, path: &str, is_right: impl Fn(&Answer) -> bool) -> Answer {
        let looking = async {
            loop {
                let answer = self.get(path).await;
                if is_right(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, looking).await.expect("it comes to be")
    }
    /// Waits until what is at `path` satisfies a condition; returns it.
    pub(crate) async fn until_read<T: DeserializeOwned>(
        &self,
        path: &str,
        is_right: impl Fn(&T) -> bool,
    ) -> T {
        self.until(path, |answer| answer.status == 200 && is_right(&answer.read(200))).await.read(200)
    }
    /// Waits until an observer satisfies a condition; returns it.
    pub(crate) async fn until_observer(&self, key: &str, is_right: impl Fn(&Observer) -> bool) -> Observer {
        self.until_read(&format!("/v1/observers/{key}"), is_right).await
    }
    /// Waits until the newest parked message has this text.
    pub(crate) async fn until_parked(&self, text: &str) -> ParkedMessage {
        let is_right = |parked: &Listed<ParkedMessage>| {
            parked.items.first().is_some_and(|newest| newest.text.as_deref() == Some(text))
        };
        self.until_read("/v1/parked", is_right).await.items.remove(0)
    }
}
