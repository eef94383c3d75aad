//! Query parameters, read one by one: an unknown, repeated or malformed one is a 400 that names it.

use super::caller;
use super::problem::{Code, Problem};
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use everwatch_core::clock::{Timestamp, parse_duration};
use everwatch_core::id::Namespace;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// The longest that a request may wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The parameters of one request that were not read yet.
pub(crate) struct Params {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
    fingerprint: u64,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(Query(left)) => {
                let fingerprint = fingerprint(&left);
                Ok(Self { left, known: Vec::new(), fingerprint })
            }
            Err(error) => Err(Problem::new(Code::BadQuery, error.body_text())),
        }
    }
}

/// A fingerprint of the parameters that select and order rows; the order of the parameters does not matter.
fn fingerprint(all: &[(String, String)]) -> u64 {
    let mut all: Vec<_> = all.iter().filter(|(name, _)| name != "limit" && name != "cursor").collect();
    all.sort_unstable();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{all:?}").as_bytes()).as_u64_pair().0
}

impl Params {
    /// Identifies the query; all pages of one list have the same fingerprint.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Every value of `name`, in order.
    pub(crate) fn many(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let (found, left) = std::mem::take(&mut self.left).into_iter().partition(|(key, _)| key == name);
        self.left = left;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// The one value of `name`.
    pub(crate) fn one(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        let mut values = self.many(name);
        if values.len() > 1 {
            return Err(bad(name, "is given more than once"));
        }
        Ok(values.pop())
    }

    /// The one value of `name`, read.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| bad(name, error))
    }

    /// The namespace that the query names.
    pub(crate) fn given_namespace(&mut self) -> Result<Option<Namespace>, Problem> {
        self.parsed("namespace")
    }

    /// The namespace of the names in the request: the one that the query names, the only one of the sender, or `default`.
    pub(crate) fn namespace(&mut self) -> Result<Namespace, Problem> {
        Ok(self.given_namespace()?.unwrap_or_else(caller::namespace))
    }

    /// The start of a span of time that ends at `until`: a time, or how long before `until`.
    pub(crate) fn since(&mut self, until: Timestamp) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.one("since")? else { return Ok(None) };
        let since = match (text.parse::<Timestamp>(), parse_duration(&text)) {
            (Ok(at), _) => at,
            (_, Ok(ago)) => until.minus(ago),
            _ => {
                let why = format!(
                    "`{text}` is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 15m"
                );
                return Err(bad("since", why));
            }
        };
        Ok(Some(since))
    }

    /// Refuses a span of time that has no end after its start.
    pub(crate) fn check_span(since: Timestamp, until: Timestamp) -> Result<(), Problem> {
        if since < until {
            return Ok(());
        }
        Err(bad("since", format!("{since} is not before `until`, {until}")))
    }

    /// How long to wait.
    pub(crate) fn wait(&mut self) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.one("wait")? else { return Ok(None) };
        match parse_duration(&text) {
            Ok(wait) if wait > WAIT_MAX => Err(bad("wait", "at most 60s")),
            Ok(wait) => Ok(Some(wait)),
            Err(error) => Err(bad("wait", error)),
        }
    }

    /// Refuses what was not read.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(100).collect();
                let known = match self.known.as_slice() {
                    [] => "none is known here".to_owned(),
                    known => format!("known here: {}", known.join(", ")),
                };
                Err(Problem::new(Code::BadQuery, format!("unknown parameter `{name}`; {known}")))
            }
        }
    }
}

pub(crate) fn bad(name: &str, why: impl Display) -> Problem {
    Problem::new(Code::BadQuery, format!("parameter `{name}`: {why}"))
}
