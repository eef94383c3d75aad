//! The threads on which the code of a kind runs.

use everwatch_core::id::Kind;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{MissedTickBehavior, interval};

/// The longest time for which code that blocks a thread may delay the timers and sockets of others.
const SERVED_WITHIN: Duration = Duration::from_millis(100);

/// The threads on which the code of a kind runs: [`crate::Observer::THREADS`].
///
/// ```
/// use everwatch::{Context, Error, Exit, Observer, Threads, testing::Trial};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sensor {}
///
/// impl Observer for Sensor {
///     const KIND: &'static str = "sensor";
///     // The driver of the device blocks.
///     const THREADS: Threads = Threads::Own(4);
///     async fn run(self, ctx: Context) -> Result<Exit, Error> {
///         while ctx.cancel_reason().is_none() {
///             std::thread::sleep(std::time::Duration::from_millis(1));
///             tokio::task::yield_now().await;
///         }
///         Ok(Exit::Stopped)
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// Trial::start(Sensor {}).stop().await.unwrap().unwrap();
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// Those of `[service] threads`, which all such kinds share.
    Shared,
    /// This many threads, at least one, which all observers of this kind in one service share: code of this kind that
    /// blocks takes no thread from other kinds. The service starts them once, at its start, and `[service] stall_limit`
    /// does not apply to them.
    Own(u16),
}

/// The runtimes of kinds with threads of their own, from the start of a service to its end.
pub(crate) struct OwnRuntimes(HashMap<Kind, Runtime>);

impl OwnRuntimes {
    pub(crate) fn start<'a>(kinds: impl Iterator<Item = (&'a Kind, u16)>) -> std::io::Result<Self> {
        let start = |(kind, threads): (&Kind, u16)| {
            let runtime = Builder::new_multi_thread()
                .worker_threads(usize::from(threads.max(1)))
                .thread_name(format!("kind-{kind}"))
                .enable_all()
                .build()?;
            Ok((kind.clone(), runtime))
        };
        Ok(Self(kinds.map(start).collect::<std::io::Result<_>>()?))
    }
    /// These, and the runtime of all other kinds.
    pub(crate) fn beside(&self, shared: Handle) -> Runtimes {
        let own = self.0.iter().map(|(kind, runtime)| (kind.clone(), runtime.handle().clone()));
        Runtimes { shared, own: Arc::new(own.collect()) }
    }
}

impl Drop for OwnRuntimes {
    /// Without waiting for code that blocks.
    fn drop(&mut self) {
        self.0.drain().for_each(|(_, runtime)| runtime.shutdown_background());
    }
}

/// Where the code of each kind runs.
#[derive(Clone)]
pub(crate) struct Runtimes {
    shared: Handle,
    own: Arc<HashMap<Kind, Handle>>,
}

impl Runtimes {
    pub(crate) fn of(&self, kind: &Kind) -> &Handle {
        self.own.get(kind).unwrap_or(&self.shared)
    }
    pub(crate) fn is_shared(&self, kind: &Kind) -> bool {
        !self.own.contains_key(kind)
    }

    /// Keeps the timers and sockets of all runtimes served while code blocks some of their threads.
    ///
    /// The obvious assumption is that the free threads serve them. But one thread of a runtime waits for timers and
    /// sockets, and the others sleep. If that thread finds a single task to run, tokio wakes no other thread, so if the
    /// code of this task blocks, every observer that waits for a timer or a socket waits with it. A task that is spawned
    /// from outside wakes a sleeping thread, which then waits for timers and sockets itself.
    pub(crate) async fn keep_served(&self) -> Infallible {
        let mut ticks = interval(SERVED_WITHIN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for runtime in self.own.values().chain([&self.shared]) {
                drop(runtime.spawn(async {}));
            }
        }
    }
}

impl From<Handle> for Runtimes {
    /// All kinds share this one.
    fn from(shared: Handle) -> Self {
        Self { shared, own: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    const BLOCKED: Duration = Duration::from_secs(1);

    /// The longest pause of a timer, in ms, while other tasks block one thread after the other.
    fn longest_pause(serve: bool) -> u64 {
        let blocked = Builder::new_multi_thread().worker_threads(8).enable_all().build().unwrap();
        let control = Builder::new_current_thread().enable_all().build().unwrap();
        let longest = Arc::new(AtomicU64::new(0));
        let pauses = longest.clone();
        blocked.spawn(async move {
            let (mut ticks, mut last) = (interval(Duration::from_millis(20)), Instant::now());
            loop {
                ticks.tick().await;
                let pause = u64::try_from(last.elapsed().as_millis()).unwrap();
                pauses.fetch_max(pause, Ordering::Relaxed);
                last = Instant::now();
            }
        });
        for number in 0..3 {
            blocked.spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(110 + 37 * number)).await;
                    std::thread::sleep(BLOCKED);
                }
            });
        }
        let runtimes = Runtimes::from(blocked.handle().clone());
        let watched = Duration::from_secs(4);
        control.block_on(async {
            tokio::select! {
                never = runtimes.keep_served(), if serve => match never {},
                () = tokio::time::sleep(watched) => {}
            }
        });
        blocked.shutdown_background();
        longest.load(Ordering::Relaxed)
    }

    #[test]
    fn code_that_blocks_does_not_stop_the_timers_of_others() {
        let block = u64::try_from(BLOCKED.as_millis()).unwrap();
        let unserved = longest_pause(false);
        assert!(unserved > block / 2, "tokio serves timers by itself ({unserved} ms): remove `keep_served`");
        let served = longest_pause(true);
        assert!(served < block / 2, "{served} ms");
    }

    #[test]
    fn a_kind_with_threads_of_its_own_runs_on_them_and_the_others_on_the_shared_ones() {
        let shared = Builder::new_multi_thread().worker_threads(1).thread_name("shared").build().unwrap();
        let [own, other] = ["own", "other"].map(|name| Kind::new(name).unwrap());
        let runtimes = OwnRuntimes::start([(&own, 0)].into_iter()).unwrap();
        let beside = runtimes.beside(shared.handle().clone());
        assert!(!beside.is_shared(&own) && beside.is_shared(&other));
        let thread_of = |kind: &Kind| {
            let name = beside.of(kind).spawn(async { std::thread::current().name().unwrap().to_owned() });
            shared.block_on(name).unwrap()
        };
        assert_eq!([thread_of(&own), thread_of(&other)], ["kind-own", "shared"]);
    }
}
