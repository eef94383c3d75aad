//! Measures creates per second through the HTTP API, compared with confirmed publishes per second of the same
//! bodies.

use super::deployment::{CONCURRENCY, Deployment, HEARTBEAT, Place, bare};
use super::outcome::{Aim, Outcome};
use anyhow::Context as _;
use everwatch_broker::{Broker as _, Message, QueueKind, RabbitBroker, Session, Target};
use everwatch_core::id::{Name, ObserverId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::work::Work;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) async fn measure(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let mut deployment = Deployment::new(place)?;
    let _manager = deployment.manager().await?;
    let (_service, id) = deployment.service(count).await?;
    let published = publish(&deployment, count).await?;
    let begun = Instant::now();
    let created = deployment.create(count).await?;
    deployment.until_running(&id, count).await?;
    let running = begun.elapsed();
    deployment.leave(count).await?;
    let rates = |took: Duration| (rate(count, took), rate(count, published));
    Ok(vec![
        Outcome::beside(format!("creates accepted, of {count}"), "1/s", rates(created))
            .aim(Aim::AtLeast(0.3)),
        Outcome::beside(format!("creates until all {count} run"), "1/s", rates(running)),
    ])
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
