//! Reads the newest events of an observer, of a service or of all, and follows later ones.

use super::stream::{Step, Stream};
use crate::client::{Client, Failure};
use crate::item::Item;
use everwatch_api::{Event, Listed};
use everwatch_core::clock::Timestamp;

/// Which events, and the most past ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventQuery {
    /// The path of the events, without the parameters below.
    pub(crate) path: String,
    /// The types of events, separated by commas; empty: all types.
    pub(crate) types: String,
    /// Past events from this time on.
    pub(crate) since: Option<Timestamp>,
    pub(crate) limit: u32,
}

impl EventQuery {
    fn past(&self) -> String {
        let since = self.since.map(|since| format!("since={}", Client::part(&since.to_string())));
        self.with([Some(format!("limit={}", self.limit)), since])
    }

    fn live(&self) -> String {
        self.with([None, None])
    }

    fn with(&self, parameters: [Option<String>; 2]) -> String {
        let types = Some(&self.types).filter(|types| !types.is_empty());
        let types = types.map(|types| format!("type={}", Client::part(types)));
        let query: Vec<_> = parameters.into_iter().flatten().chain(types).collect();
        if query.is_empty() {
            return self.path.clone();
        }
        let mark = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{mark}{}", self.path, query.join("&"))
    }
}

/// The newest events, the oldest first, and a follower of the later ones.
///
/// # Errors
/// As [`Client::read`].
pub(crate) async fn read<'a>(
    client: &'a Client,
    query: &EventQuery,
) -> anyhow::Result<(Listed<Item<Event>>, EventFollower<'a>)> {
    // Reads the number before the history. An event that arrives between the two reads is in the history, whose
    // numbers the follower knows.
    let newest = newest(client).await?;
    let history = history(client, query).await?;
    let last = newest.max(history.items.iter().map(|it| it.id).max());
    // If the manager no longer has the events after the last one, reconnecting cannot help: the user must read the
    // list again.
    let is_passing = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(Failure::Unreachable(_)));
    let follower = EventFollower { client, path: query.live(), last, stream: Stream::new(is_passing) };
    Ok((history, follower))
}

/// The newest events that managers recorded, the oldest first, and how many there are.
///
/// # Errors
/// As [`Client::read`].
pub(crate) async fn history(client: &Client, query: &EventQuery) -> anyhow::Result<Listed<Item<Event>>> {
    let mut history = client.read::<Listed<Item<Event>>>(&query.past()).await?;
    history.items.sort_by_key(|event| (event.at, event.id));
    Ok(history)
}

/// The number of the newest event of all; `None` if there is none, or if the token may not read the events of all
/// observers.
async fn newest(client: &Client) -> anyhow::Result<Option<i64>> {
    match client.read::<Listed<Event>>("/v1/events?limit=1").await {
        Ok(page) => Ok(page.items.first().map(|event| event.id)),
        Err(error) if matches!(error.downcast_ref(), Some(Failure::NotPermitted(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One part of the stream of events.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EventPart {
    /// The connection is open.
    Opened,
    /// The connection is lost; the follower reconnects and continues after the last event.
    Lost,
    Event(Box<Item<Event>>),
}

/// Follows events; never ends.
pub(crate) struct EventFollower<'a> {
    client: &'a Client,
    path: String,
    /// The number of the last known event.
    last: Option<i64>,
    stream: Stream,
}

impl EventFollower<'_> {
    /// The next parts, in their order.
    ///
    /// # Errors
    /// If the manager refuses the request, or cannot be reached and never was.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Vec<EventPart>> {
        let messages = match self.stream.step(self.client, &self.path, self.last).await? {
            Step::Opened => return Ok(vec![EventPart::Opened]),
            Step::Lost => return Ok(vec![EventPart::Lost]),
            Step::Messages(messages) => messages,
        };
        let mut parts = Vec::with_capacity(messages.len());
        for message in messages {
            let event: Item<Event> = serde_json::from_str(&message.data)?;
            self.last = self.last.max(Some(event.id));
            parts.push(EventPart::Event(Box::new(event)));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_parameters_already() {
        let query = |path: &str, types: &str, since| EventQuery {
            path: path.to_owned(),
            types: types.to_owned(),
            since,
            limit: 5,
        };
        assert_eq!(query("/v1/events", "", None).live(), "/v1/events");
        assert_eq!(query("/v1/events", "a,b", None).past(), "/v1/events?limit=5&type=a%2Cb");
        let since = query("/v1/events?details=false", "a", Some(Timestamp(0)));
        assert_eq!(
            since.past(),
            "/v1/events?details=false&limit=5&since=1970%2D01%2D01T00%3A00%3A00%2E000Z&type=a"
        );
        assert_eq!(since.live(), "/v1/events?details=false&type=a");
    }
}
