//! An exchange that sends rising prices over WebSockets, and drops or stalls its connections when a test says so.

use everwatch_tests::wait::wait_for;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

/// The pause between two prices.
const EVERY: Duration = Duration::from_millis(25);

/// What happens to the connections that exist when it is set; later connections are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Drop,
    Stall,
}

/// An exchange on a loopback port until it is dropped. Each price is higher than all prices before, over all
/// connections.
pub(crate) struct Exchange {
    pub(crate) url: String,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    subscriptions: AtomicU64,
    price: AtomicU64,
    fault: watch::Sender<Option<Fault>>,
}

impl Exchange {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let state = Arc::new(State {
            subscriptions: AtomicU64::new(0),
            price: AtomicU64::new(0),
            fault: watch::Sender::new(None),
        });
        let served = state.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(serve(client, served.clone()));
            }
        });
        Self { url, state, _tasks: tasks }
    }

    /// The newest price that was sent.
    pub(crate) fn price(&self) -> u64 {
        self.state.price.load(Ordering::Relaxed)
    }

    /// Ends every connection without a close, and waits for the next subscription.
    pub(crate) async fn drop_connections(&self) {
        self.inject(Fault::Drop).await;
    }

    /// Keeps every connection open and sends nothing more on it; waits for the next subscription.
    pub(crate) async fn stall_connections(&self) {
        self.inject(Fault::Stall).await;
    }

    async fn inject(&self, fault: Fault) {
        let before = self.state.subscriptions.load(Ordering::Relaxed);
        self.state.fault.send_replace(Some(fault));
        wait_for(&format!("a subscription after {fault:?}"), || async {
            let now = self.state.subscriptions.load(Ordering::Relaxed);
            if now > before { Ok(()) } else { Err(format!("{now} subscriptions")) }
        })
        .await;
    }
}

async fn serve(client: TcpStream, state: Arc<State>) {
    let mut faults = state.fault.subscribe();
    let Ok(mut socket) = accept_async(client).await else { return };
    let Some(Ok(Message::Text(request))) = socket.next().await else { return };
    let request: Value = serde_json::from_str(&request).unwrap();
    let symbols: Vec<String> = serde_json::from_value(request["subscribe"].clone()).unwrap();
    let mut say = async |value: Value| socket.send(Message::text(value.to_string())).await.is_ok();
    if !say(json!({ "subscribed": symbols })).await {
        return;
    }
    state.subscriptions.fetch_add(1, Ordering::Relaxed);
    for symbol in symbols.iter().cycle() {
        let pause = tokio::time::timeout(EVERY, faults.changed()).await;
        if pause.is_ok() {
            break;
        }
        let price = state.price.fetch_add(1, Ordering::Relaxed) + 1;
        if !say(json!({ "symbol": symbol, "price": price.to_string() })).await {
            return;
        }
    }
    if *faults.borrow() == Some(Fault::Stall) {
        // The client ends a connection that sends nothing; then this reads the end.
        while let Some(Ok(_)) = socket.next().await {}
    }
}
