//! Follows the prices of an exchange over a WebSocket, and emits each price under a routing key of its own.
//!
//! Needs RabbitMQ and a manager: `everwatch dev --broker amqp://guest:guest@127.0.0.1:5672/%2f`.
//!
//! ```sh
//! cargo run --example price_watcher
//! everwatch observer create euro --kind price-watcher \
//!     --spec '{"url": "wss://exchange.example/feed", "symbols": ["btc-eur", "eth-eur"]}'
//! ```
//! It shows a kind that keeps a connection: it announces that it is ready after the first answer, connects again after
//! growing pauses, and closes a connection on which the server has sent nothing for `silence_seconds`. It saves no
//! checkpoint, because the exchange sends the current prices after each subscription. The exchange answers
//! `{"subscribe": ["btc-eur"]}` with `{"subscribed": ["btc-eur"]}`, and sends
//! `{"symbol": "btc-eur", "price": "61234.50"}` for each new price.

use everwatch::{Context, Error, Exit, Observer, Readiness, Reconnect, Service};
use futures::{SinkExt as _, StreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// The largest message that the exchange may send, in bytes.
const MESSAGE_MAX: usize = 64 * 1024;

/// Follows the prices of an exchange.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PriceWatcher {
    /// URL of the exchange: `ws://` or `wss://`.
    #[schemars(regex(pattern = "^wss?://"))]
    url: String,
    /// The symbols to subscribe to.
    #[schemars(length(min = 1, max = 100))]
    symbols: Vec<String>,
    /// How long the exchange may send nothing, in seconds; then the observer connects again.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    silence_seconds: u64,
}

fn half_a_minute() -> u64 {
    30
}

#[derive(Deserialize, Serialize)]
struct Price {
    symbol: String,
    price: String,
}

impl Observer for PriceWatcher {
    const KIND: &'static str = "price-watcher";
    // Until the exchange has answered, the observer does not count as running.
    const READINESS: Readiness = Readiness::Announced;

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let mut reconnect = Reconnect::new();
        loop {
            let begun = Instant::now();
            let Some(ended) = ctx.until_cancelled(self.follow(&ctx)).await else { break };
            let reason = ended?;
            ctx.log(&format!("disconnected: {reason}"));
            ctx.status("disconnected");
            if !reconnect.pause(&ctx, begun.elapsed()).await {
                break;
            }
        }
        Ok(Exit::Stopped)
    }
}

impl PriceWatcher {
    /// Emits the prices of one connection. Returns why the connection has ended; fails if a price cannot be emitted.
    async fn follow(&self, ctx: &Context) -> Result<Error, Error> {
        let mut exchange = match Exchange::subscribe(self).await {
            Ok(exchange) => exchange,
            Err(reason) => return Ok(reason),
        };
        ctx.ready();
        ctx.status("subscribed");
        loop {
            let price = match exchange.price().await {
                Ok(price) => price,
                Err(reason) => return Ok(reason),
            };
            let emission = ctx.emission(&price)?.key(format!("prices.{}", price.symbol));
            emission.header("symbol", price.symbol).send().await?;
        }
    }
}

/// A connection with a subscription.
struct Exchange {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    silence: Duration,
}

impl Exchange {
    async fn subscribe(spec: &PriceWatcher) -> Result<Self, Error> {
        let silence = Duration::from_secs(spec.silence_seconds);
        let limits = WebSocketConfig::default().max_message_size(Some(MESSAGE_MAX));
        let connecting = connect_async_with_config(&spec.url, Some(limits), false);
        let (socket, _response) = timeout(silence, connecting).await??;
        let mut exchange = Self { socket, silence };
        let request = serde_json::json!({ "subscribe": spec.symbols });
        exchange.socket.send(Message::text(request.to_string())).await?;
        let answer = exchange.text().await?;
        if !answer.contains("subscribed") {
            return Err(format!("the exchange refused the subscription: {answer}").into());
        }
        Ok(exchange)
    }

    async fn price(&mut self) -> Result<Price, Error> {
        let text = self.text().await?;
        serde_json::from_str(&text).map_err(|error| format!("`{text}` is not a price: {error}").into())
    }

    /// The next text message.
    async fn text(&mut self) -> Result<Utf8Bytes, Error> {
        loop {
            let Ok(received) = timeout(self.silence, self.socket.next()).await else {
                return Err(format!("the exchange has sent nothing for {:?}", self.silence).into());
            };
            match received.ok_or("the exchange has closed the connection")?? {
                Message::Text(text) => return Ok(text),
                // The library answers pings, and returns no further message after a close.
                _control => {}
            }
        }
    }
}

fn main() -> ExitCode {
    Service::new().observer::<PriceWatcher>().main()
}
