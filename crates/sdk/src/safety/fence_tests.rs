//! The fence at work: on its own thread, over a session of the in-process broker, with code that runs on real threads.

use super::*;
use crate::error::Error;
use crate::tasks::attempt::{Emission, Outlet};
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::logs::Logs;
use crate::tasks::observer::Observer;
use crate::tasks::registry::Registry;
use crate::tasks::task::{Code, Ended};
use async_trait::async_trait;
use everwatch_broker::{Broker as _, MemoryBroker};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::run::slots::Outcome;
use everwatch_core::wire::checkpoint::SavedCheckpoint;
use everwatch_core::wire::work::Work;
use serde_json::json;
use std::sync::atomic::AtomicI32;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

const FENCE_AFTER: Duration = Duration::from_millis(300);
const GRACE: Duration = Duration::from_millis(200);
/// How much later than allowed a step may come on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// Code that reacts to a stop as its spec says.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Stubborn {
    /// Ends when it is told to.
    No,
    /// Ignores the stop, but awaits.
    Ignores,
    /// Holds its thread.
    Blocks,
}

impl Observer for Stubborn {
    const KIND: &'static str = "stubborn";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        match self {
            Self::No => ctx.cancelled().await,
            Self::Ignores => std::future::pending().await,
            Self::Blocks => std::thread::sleep(Duration::from_secs(30)),
        }
        Ok(Exit::Done)
    }
}

struct Silent;

#[async_trait]
impl Outlet for Silent {
    async fn emit(&self, _work: &Work, _epoch: Epoch, _value: Emission) -> Result<(), Error> {
        Ok(())
    }
    async fn checkpoint(&self, _work: &Work, _epoch: Epoch, _value: String) -> Result<(), Error> {
        Ok(())
    }
    async fn restored(&self, _work: &Work, _epoch: Epoch) -> Result<Option<SavedCheckpoint>, Error> {
        Ok(None)
    }
    async fn acquire(&self, _: everwatch_core::run::permits::Permits) -> Result<(), Error> {
        Ok(())
    }
    fn ready(&self, _work: &Work, _epoch: Epoch, _attempt: u32) {}
    fn progress(&self, _work: &Work, _epoch: Epoch, _text: String) {}
}

/// A fence over a session, and code on a runtime of its own.
struct Stage {
    fence: Arc<Fence>,
    units: Arc<Units>,
    ended: UnboundedReceiver<Ended>,
    broker: MemoryBroker,
    session: Arc<dyn Session>,
    control: Runtime,
    tasks: Option<Runtime>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.fence.close();
        if let Some(tasks) = self.tasks.take() {
            tasks.shutdown_background();
        }
    }
}

impl Stage {
    fn new(end_process: fn(i32)) -> Self {
        let tasks =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let control = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let broker = MemoryBroker::new();
        let session = control.block_on(broker.connect("service")).unwrap();
        let (sender, ended) = unbounded_channel();
        let registry = Arc::new(Registry::new().observer::<Stubborn>());
        let (outlet, logs) = (Arc::new(Silent), Arc::new(Logs::new(10)));
        let code = Code { registry, outlet, logs, frost: Default::default() };
        let units = Arc::new(Units::new(tasks.handle().clone(), code, sender));
        let watched = Watched {
            session: session.clone(),
            units: units.clone(),
            pulses: ChildWatchdogs::default(),
            end_process,
        };
        let on = (FenceOn::Thread, &TaskTracker::new());
        let fence = Fence::watch((FENCE_AFTER, GRACE), watched, on).unwrap();
        Self { fence, units, ended, broker, session, control, tasks: Some(tasks) }
    }

    fn start(&self, number: u128, stubborn: &str) {
        let definition = json!({"name": format!("o{number}"), "kind": "stubborn", "spec": stubborn});
        let definition: ObserverDefinition = serde_json::from_value(definition).unwrap();
        let work = Work::of(ObserverId(Uuid::from_u128(number)), 1, &definition).unwrap();
        self.units.start(Arc::new(work), Epoch::new(1, 0), 1, None);
    }

    /// Gives both proofs of life until `until`.
    fn prove_until(&self, until: Instant) {
        while Instant::now() < until {
            self.fence.answered(boottime());
            self.fence.confirmed(boottime());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How long the fence took to let go of everything.
    fn tripped(&self) -> Duration {
        let began = Instant::now();
        let limit = Duration::from_secs(20);
        let tripped = async { tokio::time::timeout(limit, self.fence.tripped.cancelled()).await };
        self.control.block_on(tripped).expect("the fence has tripped");
        began.elapsed()
    }
}

fn never(_code: i32) {
    panic!("the process was ended");
}

#[test]
fn a_service_with_both_proofs_stands() {
    let stage = Stage::new(never);
    stage.start(1, "no");
    stage.prove_until(Instant::now() + FENCE_AFTER * 4);
    assert!(stage.fence.stands() && !stage.fence.tripped.is_cancelled());
    assert_eq!(stage.units.alive(), 1);
}

/// After a freeze, an answer may arrive before the fence looks at the confirms: until then, nothing may look like a sign of life.
#[test]
fn an_answer_alone_does_not_prove_life() {
    let stage = Stage::new(never);
    let begun = boottime();
    assert!(stage.fence.has_proofs());
    while boottime() - begun <= FENCE_AFTER {
        stage.fence.answered(boottime());
        std::thread::yield_now();
    }
    stage.fence.answered(boottime());
    assert!(!stage.fence.has_proofs());
}

#[test]
fn silence_stops_every_run_in_time() {
    let mut stage = Stage::new(never);
    stage.start(1, "no");
    stage.start(2, "no");
    let took = stage.tripped();
    assert!(took < FENCE_AFTER + LOOK + GRACE + SLACK, "{took:?}");
    assert!(!stage.fence.stands());
    assert!(stage.fence.reason().unwrap().contains("has not"), "{:?}", stage.fence.reason());
    let outcomes = [stage.ended.try_recv().unwrap().outcome, stage.ended.try_recv().unwrap().outcome];
    assert_eq!(outcomes, [Outcome::Done, Outcome::Done]);
}

#[test]
fn one_proof_alone_is_silence() {
    let stage = Stage::new(never);
    let until = Instant::now() + FENCE_AFTER + LOOK * 3;
    while Instant::now() < until {
        stage.fence.answered(boottime());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(stage.fence.reason().unwrap().contains("not confirmed"), "{:?}", stage.fence.reason());
}

#[test]
fn code_that_ignores_the_stop_is_aborted_after_the_grace() {
    let mut stage = Stage::new(never);
    stage.start(1, "ignores");
    stage.fence.trip("a test");
    let took = stage.tripped();
    assert!((GRACE..GRACE * 2 + SLACK).contains(&took), "{took:?}");
    assert_eq!(stage.ended.try_recv().unwrap().outcome, Outcome::Aborted);
}

#[test]
fn code_that_holds_its_thread_ends_the_process() {
    static ENDED_WITH: AtomicI32 = AtomicI32::new(0);
    let stage = Stage::new(|code| ENDED_WITH.store(code, Ordering::Relaxed));
    stage.start(1, "blocks");
    let deadline = Instant::now() + Duration::from_secs(5);
    while stage.units.held_threads().is_empty() {
        assert!(Instant::now() < deadline, "the code has not started");
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.fence.trip("a test");
    let deadline = Instant::now() + GRACE * 2 + SLACK;
    while ENDED_WITH.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline, "the process goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ENDED_WITH.load(Ordering::Relaxed), i32::from(MUST_BE_REPLACED));
    assert!(!stage.fence.tripped.is_cancelled(), "its messages are not given back while the code runs");
}

#[test]
fn a_blocked_publisher_is_not_silent() {
    let stage = Stage::new(never);
    stage.broker.block(true);
    assert!(stage.session.is_blocked());
    let until = Instant::now() + FENCE_AFTER * 4;
    while Instant::now() < until {
        // Only the round trips on the consume connection are answered.
        stage.fence.answered(boottime());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(stage.fence.stands(), "{:?}", stage.fence.reason());
}

#[test]
fn a_session_that_ended_in_order_fences_nothing() {
    let stage = Stage::new(never);
    stage.start(1, "no");
    stage.fence.close();
    std::thread::sleep(FENCE_AFTER + LOOK * 3);
    assert_eq!((stage.units.alive(), stage.fence.tripped.is_cancelled()), (1, false));
}
