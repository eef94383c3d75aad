//! The bare consumer for comparison: a process that consumes with the same blocks as a service and does
//! nothing else. It prints `open` once it consumes, and the time (ms since 1970) when it holds `count`
//! messages.

use super::deployment::HEARTBEAT;
use crate::output::print;
use anyhow::Context as _;
use everwatch::dev::Settings;
use everwatch_broker::{Broker as _, Consume, RabbitBroker};
use everwatch_core::capacity::blocks::block_sizes;
use everwatch_core::clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(settings: &Settings, queue: &str, count: u32) -> anyhow::Result<()> {
    let broker = RabbitBroker::new(&settings.broker.url, &settings.broker.prefix, HEARTBEAT)?;
    let session = broker.connect("everwatch bench holder").await?;
    let (taken, mut arrivals) = mpsc::channel(1024);
    let mut blocks = JoinSet::new();
    for prefetch in block_sizes(count) {
        let consume = Consume { queue: queue.to_owned(), prefetch, priority: 0 };
        let mut consumer = session.consume(&consume).await?;
        let taken = taken.clone();
        blocks.spawn(async move {
            while let Some(delivery) = consumer.next().await {
                if taken.send(delivery).await.is_err() {
                    return;
                }
            }
        });
    }
    print("open");
    let mut held = Vec::new();
    while held.len() < count as usize {
        held.push(arrivals.recv().await.context("every block has ended")?);
    }
    print(&clock::now().0.to_string());
    anyhow::bail!("{}", session.lost().await)
}
