//! Follows the log of an observer from its recent lines until the observer ends.

use super::is_passing;
use super::stream::{Step, Stream};
use crate::client::Client;
use crate::item::Item;
use crate::requests::path;
use everwatch_api::sse::Message;
use everwatch_api::{LogLine, LogNote};

/// The path of the newest `tail` lines of an observer.
pub(crate) fn request(key: &str, tail: u32) -> String {
    format!("{}/logs?tail={tail}", path(key))
}

/// One part of a log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LogPart {
    /// The connection is open.
    Opened,
    /// The connection is lost; the follower reconnects and continues after the last line.
    Lost,
    Line(Item<LogLine>),
    /// A notice that is not a line of the observer; may be empty.
    Note(String),
    /// As a notice; the last part.
    End(String),
}

/// Follows the log of one observer.
pub(crate) struct LogFollower<'a> {
    client: &'a Client,
    path: String,
    /// The position of the last line.
    last: Option<String>,
    stream: Stream,
}

impl<'a> LogFollower<'a> {
    /// Begins with the newest `tail` lines of this observer.
    pub(crate) fn new(client: &'a Client, key: &str, tail: u32) -> Self {
        let path = format!("{}&follow=true", request(key, tail));
        Self { client, path, last: None, stream: Stream::new(is_passing) }
    }

    /// The next parts, in their order.
    ///
    /// # Errors
    /// If the manager refuses the request, or cannot be reached and never was.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Vec<LogPart>> {
        let after = self.last.as_ref().map_or_else(String::new, |id| format!("&after={id}"));
        match self.stream.step(self.client, &format!("{}{after}", self.path), None).await? {
            Step::Opened => Ok(vec![LogPart::Opened]),
            Step::Lost => Ok(vec![LogPart::Lost]),
            Step::Messages(messages) => {
                let parts = messages.into_iter().map(|message| self.part(message));
                Ok(parts.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
            }
        }
    }

    fn part(&mut self, message: Message) -> anyhow::Result<Option<LogPart>> {
        let note = || serde_json::from_str::<LogNote>(&message.data);
        let part = match message.event.as_str() {
            "line" => Some(LogPart::Line(serde_json::from_str(&message.data)?)),
            "note" => Some(LogPart::Note(note()?.text)),
            "end" => Some(LogPart::End(note()?.text)),
            _ => None,
        };
        self.last = message.id.or(self.last.take());
        Ok(part)
    }
}
