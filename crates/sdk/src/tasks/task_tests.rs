//! The tasks of code: every end is reported once, after everything that the code leaves behind.

use super::*;
use crate::error::OrPermanent as _;
use crate::tasks::attempt::Emission;
use async_trait::async_trait;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::checkpoint::SavedCheckpoint;
use futures::FutureExt as _;
use serde_json::json;
use std::sync::atomic::AtomicBool;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uuid::Uuid;

const RUN: Epoch = Epoch::first_of(1);

/// Code that ends as its spec says.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Ends {
    WhenTold,
    ByAPanic,
    /// Waits for ever, and panics when it is dropped.
    Never,
    /// Waits for ever, and leaves something behind that takes a moment and logs.
    Slowly,
    /// With an error that no retry cures.
    ForGood,
    /// Says that it was told to stop.
    AsIfTold,
    WithAResult,
    /// With more than is kept.
    WithTooMuch,
    /// Says why it was told to stop.
    SayingWhy,
    /// Leaves a task that runs for ever, and says when that is dropped.
    WithATaskOnTheSide,
    /// Is done, and panics when what it owns is dropped.
    DoneWithAPanic,
    /// Spawns a task that panics, and waits for it.
    WithAPanicOnTheSide,
    /// Leaves a spawned task that panics when it is dropped.
    LeavingAPanicOnTheSide,
    /// Blocks its thread until the test ends, in a spawned task.
    BlockingOnTheSide,
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

struct LeavesBehind(Context);

impl Drop for LeavesBehind {
    fn drop(&mut self) {
        let ctx = self.0.clone();
        let slow = async move {
            tokio::task::yield_now().await;
            ctx.log("left behind");
        };
        self.0.leave_behind(slow.boxed());
    }
}

impl crate::Observer for Ends {
    const KIND: &'static str = "ends";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        match self {
            Self::WhenTold => ctx.cancelled().await,
            Self::ByAPanic => panic!("no way"),
            Self::Never => {
                let _panics = PanicsWhenDropped;
                std::future::pending::<()>().await;
            }
            Self::Slowly => {
                let _leaves = LeavesBehind(ctx);
                std::future::pending::<()>().await;
            }
            Self::ForGood => {
                "x".parse::<u16>().or_permanent()?;
            }
            Self::AsIfTold => return Ok(Exit::Stopped),
            Self::WithAResult => return Exit::done_with([1, 2]),
            Self::WithTooMuch => return Exit::done_with("x".repeat(CHECKPOINT_MAX_BYTES)),
            Self::SayingWhy => {
                assert_eq!((ctx.cancel_reason(), ctx.grace_left()), (None, None));
                ctx.cancelled().await;
                let left = ctx.grace_left().unwrap();
                assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(10), "{left:?}");
                ctx.log(&format!("{:?}", ctx.cancel_reason().unwrap()));
                return Ok(Exit::Stopped);
            }
            Self::WithATaskOnTheSide => {
                let on_the_side = LeavesBehind(ctx.clone());
                drop(ctx.spawn(async move {
                    let _says = on_the_side;
                    std::future::pending::<()>().await;
                }));
                tokio::task::yield_now().await;
            }
            Self::DoneWithAPanic => {
                let _panics = PanicsWhenDropped;
            }
            Self::WithAPanicOnTheSide => {
                let panicked = ctx.spawn(async { panic!("beside") }).await;
                assert!(panicked.unwrap_err().is_panic());
            }
            Self::LeavingAPanicOnTheSide => {
                drop(ctx.spawn(async {
                    let _panics = PanicsWhenDropped;
                    std::future::pending::<()>().await;
                }));
                tokio::task::yield_now().await;
            }
            Self::BlockingOnTheSide => {
                drop(ctx.spawn(async {
                    while !RELEASED.load(Ordering::Relaxed) {
                        std::thread::park_timeout(Duration::from_millis(1));
                    }
                }));
                ctx.cancelled().await;
            }
        }
        Ok(Exit::Done)
    }
}

/// What [`Ends::BlockingOnTheSide`] waits for.
static RELEASED: AtomicBool = AtomicBool::new(false);

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

struct Stage {
    units: Units,
    logs: Arc<Logs>,
    ended: UnboundedReceiver<Ended>,
}

impl Stage {
    fn new() -> Self {
        Self::of(Registry::new().observer::<Ends>())
    }
    fn of(registry: Registry) -> Self {
        let (sender, ended) = unbounded_channel();
        let registry = Arc::new(registry);
        let logs = Arc::new(Logs::new(10));
        let code = Code { registry, outlet: Arc::new(Silent), logs: logs.clone(), frost: Default::default() };
        Self { units: Units::new(Handle::current(), code, sender), logs, ended }
    }
    fn start(&self, spec: &str) -> ObserverId {
        let definition = json!({"name": "o", "kind": "ends", "spec": spec});
        let definition: ObserverDefinition = serde_json::from_value(definition).unwrap();
        let id = ObserverId(Uuid::from_u128(7));
        self.units.start(Arc::new(Work::of(id, 1, &definition).unwrap()), RUN, 1, None);
        id
    }
    async fn outcome(&mut self) -> Outcome {
        let ended = tokio::time::timeout(Duration::from_secs(10), self.ended.recv()).await;
        assert_eq!(self.units.alive(), 0);
        ended.unwrap().unwrap().outcome
    }
    fn logged(&self, id: ObserverId) -> Vec<String> {
        self.logs
            .in_memory(id, None, 10)
            .unwrap_or_default()
            .lines
            .into_iter()
            .map(|line| line.text.into())
            .collect()
    }
}

#[tokio::test]
async fn code_is_told_to_stop_even_before_its_first_poll_and_after_all_must_stop() {
    let mut stage = Stage::new();
    let id = stage.start("when_told");
    stage.units.cancel(id, CancelReason::Paused);
    assert_eq!(stage.outcome().await, Outcome::Done);
    stage.start("when_told");
    tokio::task::yield_now().await;
    stage.units.cancel_all(Duration::from_secs(1));
    assert_eq!(stage.outcome().await, Outcome::Done);
    stage.start("when_told");
    assert_eq!(stage.outcome().await, Outcome::Done);
}

#[tokio::test]
async fn a_panic_is_an_error_and_the_last_line_of_the_log() {
    let mut stage = Stage::new();
    let id = stage.start("by_a_panic");
    assert_eq!(stage.outcome().await, Outcome::Errored("panicked: no way".to_owned()));
    assert_eq!(stage.logged(id), ["attempt 1 ended with an error: panicked: no way"]);
}

#[tokio::test]
async fn aborted_code_is_dropped_and_what_it_leaves_behind_ends_before_the_report() {
    let mut stage = Stage::new();
    for spec in ["never", "slowly"] {
        let id = stage.start(spec);
        tokio::task::yield_now().await;
        assert_eq!(stage.units.holding(), 1);
        stage.units.abort(id);
        assert_eq!(stage.outcome().await, Outcome::Aborted, "{spec}");
    }
    assert_eq!(stage.logged(ObserverId(Uuid::from_u128(7))), ["left behind"]);
}

#[tokio::test]
async fn the_end_of_code_says_what_follows() {
    let mut stage = Stage::new();
    let failed = |text: &str| Outcome::Failed(text.to_owned());
    for (spec, outcome) in [
        ("for_good", failed("invalid digit found in string")),
        ("as_if_told", Outcome::Errored("stopped without being told to".to_owned())),
        ("with_a_result", Outcome::DoneWith("[1,2]".to_owned())),
        ("with_too_much", failed("its result has 65538 bytes of JSON; at most 65536 are kept")),
    ] {
        stage.start(spec);
        assert_eq!(stage.outcome().await, outcome, "{spec}");
    }
}

#[tokio::test]
async fn code_knows_why_and_until_when_it_must_stop() {
    let mut stage = Stage::new();
    let id = stage.start("saying_why");
    tokio::task::yield_now().await;
    stage.units.cancel(id, CancelReason::Moved);
    stage.units.cancel(id, CancelReason::Deleted);
    assert_eq!(stage.outcome().await, Outcome::Done);
    assert_eq!(stage.logged(id), ["Moved"], "the first reason counts");
}

#[tokio::test]
async fn tasks_on_the_side_end_before_the_report() {
    let mut stage = Stage::new();
    let id = stage.start("with_a_task_on_the_side");
    assert_eq!(stage.outcome().await, Outcome::Done);
    assert_eq!(stage.logged(id), ["left behind"]);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greeting(String);

#[tokio::test]
async fn functions_run_around_code_the_first_one_outermost() {
    let greet = |Greeting(to), ctx: Context| async move {
        ctx.log(&format!("hello {to}"));
        Exit::done_with(to)
    };
    let registry = Registry::new()
        .observer_fn("ends", greet)
        .around(|ctx, code| async move {
            ctx.log("first");
            let ended = code.await;
            ctx.log("last");
            match ended? {
                Exit::DoneWith(to) if to == "" => Ok(Exit::Failed("the name is empty".to_owned())),
                ended => Ok(ended),
            }
        })
        .around(|ctx, code| async move {
            ctx.log("second");
            code.await
        });
    let mut stage = Stage::of(registry);
    let id = stage.start("you");
    assert_eq!(stage.outcome().await, Outcome::DoneWith("\"you\"".to_owned()));
    assert_eq!(stage.logged(id), ["first", "second", "hello you", "last"]);
    stage.start("");
    assert_eq!(stage.outcome().await, Outcome::Failed("the name is empty".to_owned()));
}

#[tokio::test]
async fn a_panic_in_a_destructor_is_an_error_of_the_code() {
    let mut stage = Stage::new();
    stage.start("done_with_a_panic");
    assert_eq!(stage.outcome().await, Outcome::Errored("panicked: dropped".to_owned()));
}

#[tokio::test]
async fn a_panic_on_the_side_is_logged_and_does_not_end_the_code() {
    let mut stage = Stage::new();
    let id = stage.start("with_a_panic_on_the_side");
    assert_eq!(stage.outcome().await, Outcome::Done);
    assert_eq!(stage.logged(id), ["a spawned task panicked: beside"]);
    stage.start("leaving_a_panic_on_the_side");
    assert_eq!(stage.outcome().await, Outcome::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_the_side_that_blocks_its_thread_is_attributed_to_its_observer() {
    let mut stage = Stage::new();
    let id = stage.start("blocking_on_the_side");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let held = || stage.units.held_threads().into_iter().find(|held| held.id == id);
    while held().is_none_or(|held| boottime().saturating_sub(held.since) < Duration::from_millis(50)) {
        assert!(tokio::time::Instant::now() < deadline, "the blocked thread is not attributed");
        tokio::task::yield_now().await;
    }
    RELEASED.store(true, Ordering::Relaxed);
    stage.units.cancel(id, CancelReason::Paused);
    assert_eq!(stage.outcome().await, Outcome::Done);
}

#[tokio::test]
async fn code_that_is_aborted_before_its_first_poll_never_starts() {
    let mut stage = Stage::new();
    let id = stage.start("by_a_panic");
    stage.units.abort(id);
    assert_eq!(stage.outcome().await, Outcome::Aborted);
}

#[test]
fn a_start_takes_little_memory() {
    fn size<F>(_task: fn(AttemptTask) -> F) -> usize {
        size_of::<F>()
    }
    // A service may hold 40,000 observers, most of them idle.
    assert!(size(AttemptTask::run) <= 128, "{}", size(AttemptTask::run));
    assert!(size_of::<Attempt>() <= 216, "{}", size_of::<Attempt>());
}
