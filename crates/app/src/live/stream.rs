//! A stream of server-sent events. Reconnects when the connection is lost; the caller names the position at which it
//! continues.

use super::{LOOK_EVERY, SILENT_MAX};
use crate::client::{Client, Failure};
use everwatch_api::sse::{Message, Reader};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What the stream does next.
#[derive(Debug)]
pub(super) enum Step {
    /// The connection is open.
    Opened,
    Messages(Vec<Message>),
    /// The connection is lost; the next step reconnects.
    Lost,
}

#[derive(Debug)]
pub(super) struct Stream {
    connection: Option<(reqwest::Response, Reader)>,
    /// Whether it has tried to connect.
    tried: bool,
    /// Whether it was connected before.
    reached: bool,
    /// Whether to reconnect after this error.
    is_passing: fn(&anyhow::Error) -> bool,
}

impl Stream {
    /// Reconnects after errors that are passing.
    pub(super) fn new(is_passing: fn(&anyhow::Error) -> bool) -> Self {
        Self { connection: None, tried: false, reached: false, is_passing }
    }

    /// Waits for what arrives on the connection, or opens one at `path` after event `after`.
    ///
    /// # Errors
    /// If the manager refuses the request, or cannot be reached and never was. The next step tries again.
    pub(super) async fn step(
        &mut self,
        client: &Client,
        path: &str,
        after: Option<i64>,
    ) -> anyhow::Result<Step> {
        let Some((response, reader)) = &mut self.connection else {
            return self.connect(client, path, after).await;
        };
        if let Ok(Ok(Some(chunk))) = timeout(SILENT_MAX, response.chunk()).await {
            let read = reader.read(&chunk);
            if read.is_err() {
                self.connection = None;
            }
            return Ok(Step::Messages(read?));
        }
        self.connection = None;
        Ok(Step::Lost)
    }

    async fn connect(&mut self, client: &Client, path: &str, after: Option<i64>) -> anyhow::Result<Step> {
        loop {
            sleep(if self.tried { LOOK_EVERY } else { Duration::ZERO }).await;
            self.tried = true;
            match self.open(client, path, after).await {
                Ok(response) => {
                    self.reached = true;
                    self.connection = Some((response, Reader::default()));
                    return Ok(Step::Opened);
                }
                Err(error) if self.reached && (self.is_passing)(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(
        &self,
        client: &Client,
        path: &str,
        after: Option<i64>,
    ) -> anyhow::Result<reqwest::Response> {
        let late = || Failure::Unreachable(format!("no answer within {} s", SILENT_MAX.as_secs()));
        timeout(SILENT_MAX, client.follow(path, after)).await.map_err(|_| late())?
    }
}
