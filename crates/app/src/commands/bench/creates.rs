//! Measures creates and deletes per second through the HTTP API, compared with confirmed publishes per second of the
//! same bodies.

use super::deployment::{BATCH, CONCURRENCY, Deployment, HEARTBEAT, Place, bare};
use super::outcome::{Aim, Outcome};
use super::processor::Spent;
use anyhow::Context as _;
use everwatch_broker::{Broker as _, Message, QueueKind, RabbitBroker, Session, Target};
use everwatch_core::id::{Name, ObserverId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::work::Work;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time, the manager has stored the events and the confirms.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn measure(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let (singly, batched) = (one_by_one(place, count).await?, in_batches(place, count).await?);
    Ok(singly.into_iter().chain(batched).collect())
}

async fn one_by_one(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let mut deployment = Deployment::new(place)?;
    let manager = deployment.manager().await?;
    let (_service, id) = deployment.service(count).await?;
    let published = publish(&deployment, count).await?;
    let before = Spent::by(&manager)?;
    let begun = Instant::now();
    let created = deployment.create(count).await?;
    deployment.until_running(&id, count).await?;
    let running = begun.elapsed();
    tokio::time::sleep(SETTLE).await;
    let each = Spent::by(&manager)?.per_operation(before, count);
    let begun = Instant::now();
    deployment.delete(count).await?;
    deployment.until_deleted().await?;
    let deleted = begun.elapsed();
    let rates = |took: Duration| (rate(count, took), rate(count, published));
    let (deletes, creates) = (rate(count, deleted), rate(count, running));
    Ok(vec![
        Outcome::beside(format!("creates accepted, of {count}"), "1/s", rates(created))
            .aim(Aim::AtLeast(0.35)),
        Outcome::beside(format!("creates until all {count} run"), "1/s", rates(running)),
        Outcome::alone(format!("processor per create of {count}, manager and database"), "µs", each),
        Outcome::alone(format!("deletes until all {count} are Deleted"), "1/s", deletes)
            .aim(Aim::AtLeast(creates / 2.0)),
    ])
}

async fn in_batches(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let mut deployment = Deployment::new(place)?;
    let _manager = deployment.manager().await?;
    let (_service, id) = deployment.service(count).await?;
    let published = publish(&deployment, count).await?;
    let created = deployment.create_in_batches(count).await?;
    deployment.until_running(&id, count).await?;
    deployment.leave(count).await?;
    let what = format!("creates accepted in batches of {BATCH}, of {count}");
    let rates = (rate(count, created), rate(count, published));
    Ok(vec![Outcome::beside(what, "1/s", rates).aim(Aim::AtLeast(0.6))])
}

fn rate(count: u32, took: Duration) -> f64 {
    f64::from(count) / took.as_secs_f64()
}

/// Publishes the bodies of `count` observers to a queue with the same arguments as a work queue, each with a
/// confirm. Returns how long it took.
pub(super) async fn publish(deployment: &Deployment, count: u32) -> anyhow::Result<Duration> {
    let session = connect(deployment).await?;
    let queue = bare(&deployment.prefix);
    session.declare(&queue, &QueueKind::Durable { max_length: None }).await?;
    let (session, target) = (&session, &Target::Queue(queue));
    let begun = Instant::now();
    stream::iter(0..count)
        .map(|number| async move {
            let message = Message { body: body(deployment.observer(number))?.into(), headers: Vec::new() };
            session.publish(target, message).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect::<()>()
        .await?;
    let took = begun.elapsed();
    session.close().await;
    Ok(took)
}

async fn connect(deployment: &Deployment) -> anyhow::Result<Arc<dyn Session>> {
    let broker = RabbitBroker::new(&deployment.broker_url, &deployment.prefix, HEARTBEAT)?;
    Ok(broker.connect("everwatch bench").await?)
}

/// The body that a manager would publish for this observer.
fn body(observer: Value) -> anyhow::Result<Vec<u8>> {
    let definition =
        ObserverDefinition::parse(observer, &Name::new("bench")?).ok().context("an invalid observer")?;
    Ok(serde_json::to_vec(&Work::of(ObserverId(uuid::Uuid::now_v7()), 1, &definition)?)?)
}
