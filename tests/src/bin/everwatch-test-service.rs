//! A service for the live tests: the built-in kinds, and observers that write beacons or misbehave.

use everwatch::{Context, Error, Exit, Observer, Readiness, Service, Threads};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::Instrument as _;

/// Writes its epoch and the time in ms every 20 ms while it lives, to a file under its name.
#[derive(Deserialize, JsonSchema)]
struct Beacon {
    folder: PathBuf,
    /// Whether it blocks its thread between two beacons, for ever.
    #[serde(default)]
    blocks: Blocking,
    /// How long it goes on after it was told to stop, in ms.
    #[serde(default)]
    lingers: u64,
}

/// When a beacon blocks its thread.
#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Blocking {
    #[default]
    Never,
    /// In the first run of a generation only.
    Once,
    Always,
}

impl Blocking {
    fn applies(self, epoch: u64) -> bool {
        let first = epoch & u64::from(u32::MAX) == 0;
        self == Self::Always || (self == Self::Once && first)
    }
}

/// The current time in ms, read directly from the kernel: faketime may have replaced the clock of the C
/// library.
fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

impl Observer for Beacon {
    const KIND: &'static str = "beacon";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let path = self.folder.join(ctx.name());
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let mut shine = || file.write_all(format!("{} {}\n", ctx.epoch(), now()).as_bytes());
        while self.blocks.applies(ctx.epoch()) {
            shine()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            shine()?;
        }
        let told = Instant::now();
        while told.elapsed() < Duration::from_millis(self.lingers) {
            shine()?;
            ticks.tick().await;
        }
        Ok(Exit::Done)
    }
}

/// Panics at once, every time.
#[derive(Deserialize, JsonSchema)]
struct Panics {}

impl Observer for Panics {
    const KIND: &'static str = "panics";
    #[expect(clippy::panic, reason = "that is what it is for")]
    async fn run(self, _ctx: Context) -> Result<Exit, Error> {
        panic!("on purpose")
    }
}

/// Blocks its thread for ever and ignores cancellation.
#[derive(Deserialize, JsonSchema)]
struct Blocks {}

impl Observer for Blocks {
    const KIND: &'static str = "blocks";
    async fn run(self, _ctx: Context) -> Result<Exit, Error> {
        loop {
            std::thread::park();
        }
    }
}

/// Blocks threads of its own kind for ever.
#[derive(Deserialize, JsonSchema)]
struct BlocksItsOwn {}

impl Observer for BlocksItsOwn {
    const KIND: &'static str = "blocks-its-own";
    const THREADS: Threads = Threads::Own(2);
    async fn run(self, _ctx: Context) -> Result<Exit, Error> {
        loop {
            std::thread::park();
        }
    }
}

/// Misbehaves as its spec says.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Misbehaves {
    /// Uses all the processor time that a thread can get.
    Spins,
    /// Blocks its thread for this many milliseconds, and behaves well afterwards.
    SleepsFor(u64),
    /// Allocates a MiB every 10 ms up to this many, and uses each of them.
    Leaks(usize),
    /// Awaits other things when it is told to stop.
    IgnoresCancellation,
    /// Fails and panics when it is dropped, every time.
    PanicsInDrop,
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    #[expect(clippy::panic, reason = "that is what it is for")]
    fn drop(&mut self) {
        panic!("dropped on purpose")
    }
}

impl Observer for Misbehaves {
    const KIND: &'static str = "misbehaves";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        match self {
            Self::Spins => loop {
                std::hint::spin_loop();
            },
            Self::SleepsFor(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                ctx.cancelled().await;
                Ok(Exit::Stopped)
            }
            Self::Leaks(most) => {
                let (mut leaked, mut ticks) = (Vec::new(), tokio::time::interval(Duration::from_millis(10)));
                while ctx.until_cancelled(ticks.tick()).await.is_some() {
                    if leaked.len() < most {
                        leaked.push(vec![1_u8; 1 << 20]);
                    }
                }
                Ok(Exit::Stopped)
            }
            Self::IgnoresCancellation => std::future::pending().await,
            Self::PanicsInDrop => {
                let _panics = PanicsWhenDropped;
                tokio::task::yield_now().await;
                Ok(Exit::Done)
            }
        }
    }
}

/// Fails with an error that has a cause, every time.
#[derive(Deserialize, JsonSchema)]
struct Fails {}

impl Observer for Fails {
    const KIND: &'static str = "fails";
    async fn run(self, _ctx: Context) -> Result<Exit, Error> {
        let cause = std::io::Error::other("the far side is away");
        Err(Box::new(Outer(cause)))
    }
}

#[derive(Debug)]
struct Outer(std::io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot watch")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Creates spans of its own, and fails.
#[derive(Deserialize, JsonSchema)]
struct Looker {}

impl Observer for Looker {
    const KIND: &'static str = "looker";
    async fn run(self, _ctx: Context) -> Result<Exit, Error> {
        let closer = async {
            tokio::task::yield_now().await;
            tracing::info!("looked");
        };
        let look = async { closer.instrument(tracing::info_span!("closer")).await };
        look.instrument(tracing::info_span!("look")).await;
        Err("seen enough".into())
    }
}

/// Counts from its checkpoint to `to`, and writes each count with its epoch to a file once a manager has stored it.
#[derive(Deserialize, JsonSchema)]
struct Counter {
    folder: PathBuf,
    to: u64,
}

impl Observer for Counter {
    const KIND: &'static str = "counter";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let path = self.folder.join(ctx.name());
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        let restored = ctx.restored::<u64>().await?;
        let mut count = restored.map_or(0, |restored| restored.value);
        while count < self.to {
            if ctx.until_cancelled(tokio::time::sleep(Duration::from_millis(5))).await.is_none() {
                return Ok(Exit::Stopped);
            }
            count += 1;
            ctx.checkpoint(&count).await?;
            file.write_all(format!("{} {count}\n", ctx.epoch()).as_bytes())?;
        }
        Exit::done_with(serde_json::json!({ "count": count }))
    }
}

/// Is ready after a while, or never.
#[derive(Deserialize, JsonSchema)]
struct Connects {
    ready_after_ms: Option<u64>,
}

impl Observer for Connects {
    const KIND: &'static str = "connects";
    const READINESS: Readiness = Readiness::AnnouncedWithin(Duration::from_secs(2));
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        if let Some(ms) = self.ready_after_ms {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            ctx.ready();
        }
        ctx.cancelled().await;
        Ok(Exit::Stopped)
    }
}

/// Gives three signs of life, and none afterwards.
#[derive(Deserialize, JsonSchema)]
struct FallsSilent {}

impl Observer for FallsSilent {
    const KIND: &'static str = "falls-silent";
    const ALIVE_WITHIN: Option<Duration> = Some(Duration::from_secs(1));
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            ctx.alive();
        }
        std::future::pending().await
    }
}

fn main() -> ExitCode {
    Service::new()
        .built_in()
        .observer::<Beacon>()
        .observer::<Panics>()
        .observer::<Blocks>()
        .observer::<BlocksItsOwn>()
        .observer::<Misbehaves>()
        .observer::<Fails>()
        .observer::<Looker>()
        .observer::<Counter>()
        .observer::<Connects>()
        .observer::<FallsSilent>()
        .main()
}
