//! A TCP proxy in front of a broker, so that a test can hold or cut what passes through it.

use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Which directions currently pass data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    /// From the client to the broker.
    up: bool,
    /// From the broker to the client.
    down: bool,
    /// Connections that were opened before this number was raised are reset.
    resets: u64,
}

/// A proxy that forwards data until it is told otherwise or dropped. Blocked data arrives late but is not
/// lost, as with TCP.
pub struct Proxy {
    pub address: String,
    flow: watch::Sender<Flow>,
    _tasks: JoinSet<()>,
}

/// `host:port` of a broker's URL.
#[must_use]
pub fn host_and_port(url: &str) -> &str {
    let (_, rest) = url.rsplit_once('@').unwrap();
    rest.split('/').next().unwrap()
}

impl Proxy {
    /// Starts a proxy in front of the broker with this URL. Returns it with the URL that leads through it.
    pub async fn before(url: &str) -> (Self, String) {
        let real = host_and_port(url);
        let proxy = Self::listen("127.0.0.1:0", real).await;
        let behind = url.replace(real, &proxy.address);
        (proxy, behind)
    }

    /// Listens on `address` and connects to `to`.
    pub async fn listen(address: &str, to: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = to.to_owned();
        let (flow, flows) = watch::channel(Flow { up: true, down: true, resets: 0 });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((here, _)) = listener.accept().await {
                let (to, flows) = (to.clone(), flows.clone());
                links.spawn(async move {
                    if let Ok(there) = TcpStream::connect(to).await {
                        link(here, there, flows).await;
                    }
                });
            }
        });
        Self { address, flow, _tasks: tasks }
    }

    /// Blocks or passes each direction: `up` from the client to the broker, `down` back.
    pub fn pass(&self, up: bool, down: bool) {
        self.flow.send_modify(|flow| (flow.up, flow.down) = (up, down));
    }
    /// Resets every link that stands.
    pub fn reset(&self) {
        self.flow.send_modify(|flow| flow.resets += 1);
    }
}

async fn link(here: TcpStream, there: TcpStream, flows: watch::Receiver<Flow>) {
    let registered = flows.borrow().resets;
    for stream in [&here, &there] {
        // A dropped socket is a reset, not an orderly close.
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    let (from_here, to_here) = here.into_split();
    let (from_there, to_there) = there.into_split();
    let mut resets = flows.clone();
    tokio::select! {
        () = pump(from_here, to_there, flows.clone(), |flow| flow.up) => {}
        () = pump(from_there, to_here, flows, |flow| flow.down) => {}
        _ = resets.wait_for(|flow| flow.resets > registered) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flows: watch::Receiver<Flow>,
    open: fn(&Flow) -> bool,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if flows.wait_for(open).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
