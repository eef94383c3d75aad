//! One connection: sends the subscriptions and pings, and receives until the connection ends or falls silent.

use super::request::{CLOSE_TIMEOUT, Socket};
use super::{ReadyWhen, WebSocket};
use crate::Context;
use crate::kinds::spec::cut;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_core::clock::show;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

/// Far enough in the future for "never".
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Stopped,
    Lost(String),
}

/// A message that waits to be emitted, and the room that it takes.
pub(super) struct Buffered<'a> {
    pub(super) value: Value,
    _room: SemaphorePermit<'a>,
}

/// What happened first.
enum Next {
    Stop,
    Ping,
    Overdue,
    Received(Option<Result<Message, tungstenite::Error>>),
}

pub(super) struct Connection<'a> {
    socket: Socket,
    spec: &'a WebSocket,
    pings: Interval,
    /// When the pong to the latest ping is overdue.
    pong_by: Option<Instant>,
    /// When the answer to the subscriptions is overdue.
    answer_by: Option<Instant>,
    /// When the latest message arrived, or the reading went on after a wait.
    heard: Instant,
}

impl<'a> Connection<'a> {
    pub(super) fn new(socket: Socket, spec: &'a WebSocket) -> Self {
        let now = Instant::now();
        let mut pings = tokio::time::interval_at(now + spec.ping.get(), spec.ping.get());
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let answer_by = (spec.ready == ReadyWhen::Answer).then(|| now + spec.connect_timeout.get());
        Self { socket, spec, pings, pong_by: None, answer_by, heard: now }
    }

    /// Receives until the end. The sender is dropped with it, so that the other side drains what was received.
    pub(super) async fn receive<'r>(
        &mut self,
        ctx: &Context,
        sender: mpsc::Sender<Buffered<'r>>,
        room: &'r Semaphore,
    ) -> Ended {
        if let Err(error) = self.subscribe().await {
            return Ended::Lost(format!("cannot subscribe: {error}"));
        }
        if self.spec.ready == ReadyWhen::Connect {
            ctx.ready();
        }
        loop {
            let message = match self.next(ctx).await {
                Next::Stop => {
                    self.close(CloseCode::Away, "the observer stops").await;
                    return Ended::Stopped;
                }
                Next::Overdue => return self.give_up().await,
                Next::Ping => match self.ping().await {
                    Ok(()) => continue,
                    Err(error) => return Ended::Lost(format!("the connection broke: {error}")),
                },
                Next::Received(None) => return Ended::Lost("the server ended the connection".to_owned()),
                Next::Received(Some(Err(error))) => return self.refuse(&error).await,
                Next::Received(Some(Ok(Message::Close(frame)))) => {
                    // Reading on completes the closing handshake.
                    let _ended = tokio::time::timeout(CLOSE_TIMEOUT, self.socket.next()).await;
                    return Ended::Lost(closed_by(frame.as_ref()));
                }
                Next::Received(Some(Ok(message))) => message,
            };
            let Some((value, size)) = self.value(message, ctx) else { continue };
            let Ok(size) = u32::try_from(size.max(1)) else { continue };
            match self.make_room(ctx, &sender, (room, size)).await {
                Ok(Some((slot, room))) => slot.send(Buffered { value, _room: room }),
                Ok(None) => {
                    self.close(CloseCode::Away, "the observer stops").await;
                    return Ended::Stopped;
                }
                Err(error) => return Ended::Lost(format!("the connection broke: {error}")),
            }
        }
    }

    async fn subscribe(&mut self) -> Result<(), tungstenite::Error> {
        let timeout = self.spec.connect_timeout.get();
        let sending = async {
            for message in &self.spec.subscribe {
                let text = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
                self.socket.feed(Message::text(text)).await?;
            }
            self.socket.flush().await
        };
        tokio::time::timeout(timeout, sending).await.unwrap_or(Err(timed_out()))
    }

    async fn next(&mut self, ctx: &Context) -> Next {
        let overdue = self.overdue_at();
        tokio::select! {
            biased;
            () = ctx.cancelled() => Next::Stop,
            // Before the messages, because these may never pause.
            _ = self.pings.tick() => Next::Ping,
            () = tokio::time::sleep_until(overdue) => Next::Overdue,
            message = self.socket.next() => Next::Received(message),
        }
    }

    fn overdue_at(&self) -> Instant {
        let silent_at = self.spec.silence.map(|silence| self.heard + silence.get());
        let limits = [self.pong_by, self.answer_by, silent_at];
        limits.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + NEVER)
    }

    async fn give_up(&mut self) -> Ended {
        let now = Instant::now();
        let reason = if self.pong_by.is_some_and(|by| by <= now) {
            format!("no answer to a ping within {}", show(self.spec.pong_timeout.get()))
        } else if self.answer_by.is_some_and(|by| by <= now) {
            format!("no answer to `subscribe` within {}", show(self.spec.connect_timeout.get()))
        } else {
            format!("no message for {}", self.spec.silence.map(|it| show(it.get())).unwrap_or_default())
        };
        self.close(CloseCode::Policy, "the client waited too long").await;
        Ended::Lost(reason)
    }

    async fn ping(&mut self) -> Result<(), tungstenite::Error> {
        let sent = self.socket.send(Message::Ping(Bytes::new()));
        tokio::time::timeout(self.spec.pong_timeout.get(), sent).await.unwrap_or(Err(timed_out()))?;
        let by = Instant::now() + self.spec.pong_timeout.get();
        self.pong_by.get_or_insert(by);
        Ok(())
    }

    /// Waits until the message fits the buffer; `None` if the observer must stop first. Meanwhile nothing is read, so
    /// pongs do not arrive and the server cannot be blamed for its silence; pings keep the connection alive.
    async fn make_room<'s, 'r>(
        &mut self,
        ctx: &Context,
        sender: &'s mpsc::Sender<Buffered<'r>>,
        (room, size): (&'r Semaphore, u32),
    ) -> Result<Option<(mpsc::Permit<'s, Buffered<'r>>, SemaphorePermit<'r>)>, tungstenite::Error> {
        if let (Ok(slot), Ok(room)) = (sender.try_reserve(), room.try_acquire_many(size)) {
            return Ok(Some((slot, room)));
        }
        let mut both = std::pin::pin!(async { tokio::join!(sender.reserve(), room.acquire_many(size)) });
        let (slot, room) = loop {
            tokio::select! {
                biased;
                () = ctx.cancelled() => return Ok(None),
                both = &mut both => break both,
                _ = self.pings.tick() => {
                    let sent = self.socket.send(Message::Ping(Bytes::new()));
                    tokio::time::timeout(self.spec.pong_timeout.get(), sent).await.unwrap_or(Err(timed_out()))?;
                }
            }
        };
        self.heard = Instant::now();
        self.pong_by = None;
        // Neither is ever closed while this side holds it.
        Ok(slot.ok().zip(room.ok()))
    }

    /// The value to emit and its size in bytes; `None` for messages of the protocol itself.
    fn value(&mut self, message: Message, ctx: &Context) -> Option<(Value, usize)> {
        // Any message proves that the server lives; its pong may be far behind.
        self.pong_by = None;
        let (value, size, answers) = match message {
            Message::Text(text) => {
                let answers = self.answer_by.is_some() && self.spec.answer.is(&text);
                let parsed = self.spec.json.then(|| serde_json::from_str(&text).ok()).flatten();
                let value = parsed.unwrap_or_else(|| Value::String(text.to_string()));
                (value, text.len(), answers)
            }
            Message::Binary(bytes) => (json!({ "base64": STANDARD.encode(&bytes) }), bytes.len(), false),
            Message::Pong(_) | Message::Ping(_) | Message::Close(_) | Message::Frame(_) => return None,
        };
        self.heard = Instant::now();
        if answers {
            self.answer_by = None;
        }
        if answers || self.spec.ready == ReadyWhen::Message {
            ctx.ready();
        }
        Some((value, size))
    }

    /// Tells the server what is wrong with what it sent.
    async fn refuse(&mut self, error: &tungstenite::Error) -> Ended {
        let (code, reason) = match error {
            tungstenite::Error::Capacity(_) => {
                let told =
                    format!("a message is larger than `max_message`, {} bytes", self.spec.max_message.get());
                (CloseCode::Size, told)
            }
            tungstenite::Error::Utf8(_) => (CloseCode::Invalid, "a text message is not UTF-8".to_owned()),
            tungstenite::Error::Protocol(error) => {
                (CloseCode::Protocol, format!("the server broke the protocol: {error}"))
            }
            other => return Ended::Lost(format!("the connection broke: {other}")),
        };
        self.close(code, "the client refuses the message").await;
        Ended::Lost(reason)
    }

    async fn close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        // The server may be gone, or not answer.
        let _closed = tokio::time::timeout(CLOSE_TIMEOUT, self.socket.close(Some(frame))).await;
    }
}

fn timed_out() -> tungstenite::Error {
    tungstenite::Error::Io(std::io::ErrorKind::TimedOut.into())
}

fn closed_by(frame: Option<&CloseFrame>) -> String {
    match frame {
        None => "the server closed the connection without a code".to_owned(),
        Some(frame) if frame.reason.is_empty() => {
            format!("the server closed the connection with code {}", u16::from(frame.code))
        }
        Some(frame) => {
            let reason = cut(&frame.reason, 200);
            format!("the server closed the connection with code {}: {reason}", u16::from(frame.code))
        }
    }
}
