//! A TCP proxy in front of a broker, so that a test can cut what passes through it.

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Passes everything on until it is dropped.
pub struct Proxy {
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on `address` and connects to `to`.
    pub async fn listen(address: &str, to: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let to = to.to_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((mut here, _)) = listener.accept().await {
                let to = to.clone();
                links.spawn(async move {
                    if let Ok(mut there) = TcpStream::connect(to).await {
                        let _either_side_closed = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                    }
                });
            }
        });
        Self { _tasks: tasks }
    }
}
