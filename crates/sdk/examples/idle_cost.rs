//! Prints what an idle observer costs its service: resident memory, and the processor time of its start.
//!
//! `cargo run --release -p everwatch --example idle_cost -- 20000 [waiter|ticker] [amqp://…]`: publishes that many work
//! messages and lets one service start them all. A `waiter` only waits to be told to stop, so its own code takes
//! almost nothing; a `ticker` waits for its first tick in an hour. Without a URL, the broker is part of this process:
//! the example first takes the same messages without a service and subtracts what that costs. With a URL, the figures
//! contain the client of the broker.

use everwatch::host::observer_runtime;
use everwatch::kinds::Ticker;
use everwatch::{Capacity, Context, Error, Exit, Observer, Registry, ServiceSettings};
use everwatch_broker::{
    Broker, Consume, Consumer, HeaderValue, MemoryBroker, Message, QueueKind, RabbitBroker, Session, Target,
    Topology,
};
use everwatch_core::capacity::blocks::block_sizes;
use everwatch_core::id::{Name, ObserverId, Pool};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::trace::TRACEPARENT;
use everwatch_core::wire::work::Work;
use futures::StreamExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use uuid::Uuid;

/// What a report of a start contains.
const STARTED: &[u8] = b"\"started\":";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Waits to be told to stop.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Waiter {}

impl Observer for Waiter {
    const KIND: &'static str = "waiter";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        ctx.cancelled().await;
        Ok(Exit::Done)
    }
}

/// What the process has used so far.
#[derive(Clone, Copy)]
struct Usage {
    bytes: i64,
    micros: i64,
}

impl Usage {
    fn so_far() -> Result<Self, Failure> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let statm = std::fs::read_to_string("/proc/self/statm")?;
        let resident: i64 = statm.split(' ').nth(1).ok_or("no resident pages")?.parse()?;
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        Ok(Self { bytes: resident * 4096, micros })
    }
    fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes, micros: self.micros - before.micros }
    }
}

/// What is measured.
struct Plan {
    count: u32,
    kind: &'static str,
    spec: serde_json::Value,
    topology: Topology,
    prefix: String,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.iter().find_map(|it| it.parse().ok()).unwrap_or(20_000);
    let (kind, spec) = if words.iter().any(|it| it == "ticker") {
        (Ticker::KIND, json!({ "every": "1h" }))
    } else {
        (Waiter::KIND, json!({}))
    };
    let prefix = format!("idle-cost-{}.", Uuid::new_v4());
    let plan = Plan { count, kind, spec, topology: Topology::new(&prefix), prefix };
    PrometheusBuilder::new().install_recorder()?;
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = observer_runtime(0)?;
    let figures = match words.iter().find(|it| it.starts_with("amqp")) {
        Some(url) => {
            let broker = Arc::new(RabbitBroker::new(url, &plan.prefix, Duration::from_secs(60))?);
            let used = control.block_on(measure(&plan, broker.clone(), tasks.handle()));
            control.block_on(remove(&plan, &broker))?;
            used
        }
        None => control.block_on(async {
            let broker = Arc::new(MemoryBroker::new());
            let session = broker.connect("holder").await?;
            let own = hold(&plan, session.as_ref()).await?;
            Ok(measure(&plan, broker, tasks.handle()).await?.since(own))
        }),
    };
    tasks.shutdown_background();
    let figures = figures?;
    let each = |sum: i64| sum as f64 / f64::from(count);
    println!(
        "{count} of kind {kind}: {:.0} bytes each, {:.1} µs of processor time for each start",
        each(figures.bytes),
        each(figures.micros)
    );
    Ok(())
}

/// What the in-process broker itself uses when a session takes all messages and keeps none of them.
async fn hold(plan: &Plan, session: &dyn Session) -> Result<Usage, Failure> {
    declare(plan, session).await?;
    publish(plan, session).await?;
    let before = Usage::so_far()?;
    let mut taken = Vec::with_capacity(plan.count as usize);
    for prefetch in block_sizes(plan.count) {
        let consume = Consume { queue: plan.topology.work(&Pool::default()), prefetch, priority: 0 };
        let mut consumer = session.consume(&consume).await?;
        for _ in 0..prefetch {
            taken.push(consumer.next().await.ok_or("the session is lost")?.receipt);
        }
    }
    let used = Usage::so_far()?.since(before);
    for receipt in taken {
        session.ack(receipt).await;
    }
    Ok(used)
}

/// What a service uses until all observers run.
async fn measure(plan: &Plan, broker: Arc<dyn Broker>, tasks: &Handle) -> Result<Usage, Failure> {
    let session = broker.connect("manager").await?;
    declare(plan, session.as_ref()).await?;
    publish(plan, session.as_ref()).await?;
    let state = Consume { queue: plan.topology.state(), prefetch: 100, priority: 0 };
    let reports = session.consume(&state).await?;
    let mut settings = ServiceSettings::new(Name::new("idle-cost")?);
    settings.prefix.clone_from(&plan.prefix);
    settings.capacity = Capacity::Fixed(plan.count);
    let handle = everwatch::Handle::default();
    let registry = Registry::new().observer::<Waiter>().observer::<Ticker>();
    let before = Usage::so_far()?;
    let service = everwatch::run(settings, registry, broker, tasks.clone(), handle.clone());
    let watched = async {
        all_started(plan, session.as_ref(), reports).await?;
        // The last batches of reports are confirmed, and short-lived memory is freed.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = Usage::so_far()?.since(before);
        handle.stop.cancel();
        Ok::<_, Failure>(used)
    };
    let (ended, used) = tokio::join!(service, watched);
    ended?;
    session.close().await;
    used
}

async fn all_started(
    plan: &Plan,
    session: &dyn Session,
    mut reports: Box<dyn Consumer>,
) -> Result<(), Failure> {
    let mut started = 0;
    while started < plan.count as usize {
        let delivery = reports.next().await.ok_or("the session is lost")?;
        // Decoding the reports would take longer than the starts.
        let marks = delivery.body.windows(STARTED.len()).filter(|part| *part == STARTED);
        started += marks.count();
        session.ack(delivery.receipt).await;
    }
    Ok(())
}

async fn declare(plan: &Plan, session: &dyn Session) -> Result<(), Failure> {
    for (queue, kind) in plan.topology.durable_queues() {
        session.declare(&queue, &kind).await?;
    }
    let work = plan.topology.work(&Pool::default());
    session.declare(&work, &QueueKind::Durable { max_length: None }).await?;
    Ok(())
}

async fn publish(plan: &Plan, session: &dyn Session) -> Result<(), Failure> {
    let work = Target::Queue(plan.topology.work(&Pool::default()));
    let messages = (0..plan.count).map(|number| {
        let name = Name::new(&format!("observer-{number}"))?;
        let definition = json!({ "kind": plan.kind, "spec": plan.spec });
        let definition = ObserverDefinition::parse(definition, &name).map_err(|_| "an invalid definition")?;
        let work = Work::of(ObserverId(Uuid::now_v7()), 1, &definition)?;
        let trace = format!("00-{:032x}-{:016x}-00", Uuid::now_v7().as_u128(), 1);
        let headers = [("everwatch-observer", work.id.to_string()), (TRACEPARENT, trace)];
        let headers = headers.map(|(name, text)| (name.to_owned(), HeaderValue::Text(text)));
        Ok(Message { body: serde_json::to_vec(&work)?.into(), headers: headers.into() })
    });
    let messages: Vec<Message> = messages.collect::<Result<_, Failure>>()?;
    let mut sent = futures::stream::iter(messages).map(|it| session.publish(&work, it)).buffer_unordered(500);
    while let Some(sent) = sent.next().await {
        sent?;
    }
    Ok(())
}

async fn remove(plan: &Plan, broker: &RabbitBroker) -> Result<(), Failure> {
    let mut queues: Vec<String> =
        plan.topology.durable_queues().into_iter().map(|(queue, _)| queue).collect();
    queues.push(plan.topology.work(&Pool::default()));
    Ok(broker.remove(&queues, &plan.topology.exchange_names(&[Pool::default()])).await?)
}
