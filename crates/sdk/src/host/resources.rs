//! State that all observers of a process share and that takes time to set up and to tear down.

use super::HostError;
use crate::error::Error;
use crate::tasks::attempt::SharedValue;
use crate::tasks::registry::Registry;
use crate::tasks::task::chain;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::any::{TypeId, type_name};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The time limit for tearing down one value.
const TEAR_DOWN_WITHIN: Duration = Duration::from_secs(10);

struct SetUp {
    of: (TypeId, &'static str),
    value: BoxFuture<'static, Result<SharedValue, Error>>,
}

struct TearDown {
    of: (TypeId, &'static str),
    ends: Box<dyn FnOnce(SharedValue) -> BoxFuture<'static, ()> + Send>,
}

/// What is set up before the first observer starts, and torn down after the last one has stopped.
#[derive(Default)]
pub(crate) struct Resources {
    set_ups: Vec<SetUp>,
    tear_downs: Vec<TearDown>,
}

impl Resources {
    pub(super) fn add<T, F>(&mut self, set_up: F)
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let value = async { set_up.await.map(|value| Arc::new(value) as SharedValue) };
        self.set_ups.push(SetUp { of: (TypeId::of::<T>(), type_name::<T>()), value: value.boxed() });
    }

    pub(super) fn tear_down<T, F, R>(&mut self, tear_down: F)
    where
        T: Send + Sync + 'static,
        F: FnOnce(Arc<T>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let ends = |value: SharedValue| match value.downcast::<T>() {
            Ok(value) => tear_down(value).boxed(),
            Err(_) => std::future::ready(()).boxed(),
        };
        self.tear_downs.push(TearDown { of: (TypeId::of::<T>(), type_name::<T>()), ends: Box::new(ends) });
    }

    /// Sets up, runs the service with what its observers share, and tears down in every case.
    pub(crate) async fn around<R, F>(
        self,
        mut registry: Registry,
        (tasks, stop): (&Handle, &CancellationToken),
        run: R,
    ) -> Result<(), HostError>
    where
        R: FnOnce(Registry) -> F,
        F: Future<Output = Result<(), HostError>>,
    {
        let ended = match set_up(self.set_ups, &mut registry, (tasks, stop)).await {
            Ok(Progress::Done) => run(registry.clone()).await,
            Ok(Progress::ToldToStop) => Ok(()),
            Err(error) => Err(error),
        };
        tear_down(self.tear_downs, &registry, tasks).await;
        ended
    }
}

/// How far the set-up has come.
enum Progress {
    Done,
    ToldToStop,
}

async fn set_up(
    set_ups: Vec<SetUp>,
    registry: &mut Registry,
    (tasks, stop): (&Handle, &CancellationToken),
) -> Result<Progress, HostError> {
    for SetUp { of: (of, name), value } in set_ups {
        // On the runtime for the code of observers: what it spawns must not run beside the control loop.
        let value = AbortOnDropHandle::new(tasks.spawn(value));
        let failed = |error| HostError::SetUp { name, error };
        match stop.run_until_cancelled(value).await {
            None => return Ok(Progress::ToldToStop),
            Some(Ok(Ok(value))) => registry.share_value(of, value),
            Some(Ok(Err(error))) => return Err(failed(chain(error.as_ref()))),
            Some(Err(panicked)) => return Err(failed(panicked.to_string())),
        }
    }
    Ok(Progress::Done)
}

async fn tear_down(tear_downs: Vec<TearDown>, registry: &Registry, tasks: &Handle) {
    for TearDown { of: (of, name), ends } in tear_downs.into_iter().rev() {
        let Some(value) = registry.shared.get(&of).cloned() else { continue };
        let ends = AbortOnDropHandle::new(tasks.spawn(ends(value)));
        match tokio::time::timeout(TEAR_DOWN_WITHIN, ends).await {
            Ok(Ok(())) => {}
            Ok(Err(panicked)) => tracing::error!(value = name, %panicked, "a shared value was not torn down"),
            Err(_) => {
                tracing::error!(value = name, limit = ?TEAR_DOWN_WITHIN, "a shared value was not torn down in time");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug)]
    struct Pool(u32);
    struct Cache;

    type Story = Arc<Mutex<Vec<&'static str>>>;

    fn told(story: &Story, what: &'static str) {
        story.lock().unwrap().push(what);
    }

    /// A pool and a cache that tell when they are torn down; the set-up of the cache ends like this.
    fn resources(
        story: &Story,
        cache: impl Future<Output = Result<Cache, Error>> + Send + 'static,
    ) -> Resources {
        let mut resources = Resources::default();
        resources.add(async { Ok(Pool(7)) });
        resources.add(cache);
        let (of_pool, of_cache) = (story.clone(), story.clone());
        resources.tear_down(|pool: Arc<Pool>| async move {
            assert_eq!(pool.0, 7);
            told(&of_pool, "pool closed");
        });
        resources.tear_down(|_: Arc<Cache>| async move { told(&of_cache, "cache closed") });
        resources
    }

    async fn around(story: &Story, stop: &CancellationToken, resources: Resources) -> Result<(), HostError> {
        let of_run = story.clone();
        let run = |registry: Registry| async move {
            assert!(registry.shared.contains_key(&TypeId::of::<Cache>()));
            told(&of_run, "ran");
            Ok(())
        };
        resources.around(Registry::new(), (&Handle::current(), stop), run).await
    }

    #[tokio::test]
    async fn values_are_torn_down_in_reverse_order_after_the_service() {
        let story = Story::default();
        let resources = resources(&story, async { Ok(Cache) });
        around(&story, &CancellationToken::new(), resources).await.unwrap();
        assert_eq!(*story.lock().unwrap(), ["ran", "cache closed", "pool closed"]);
    }

    #[tokio::test]
    async fn a_failed_set_up_is_named_and_what_was_set_up_before_is_torn_down() {
        let failures: [fn() -> Result<Cache, Error>; 2] = [|| Err("no room".into()), || panic!("no room")];
        for fails in failures {
            let story = Story::default();
            let resources = resources(&story, async move { fails() });
            let error = around(&story, &CancellationToken::new(), resources).await.unwrap_err().to_string();
            assert!(error.contains("Cache") && error.contains("no room"), "{error}");
            assert_eq!(*story.lock().unwrap(), ["pool closed"]);
        }
    }

    #[tokio::test]
    async fn a_stop_ends_a_set_up_that_waits() {
        let (story, stop) = (Story::default(), CancellationToken::new());
        let told = stop.clone();
        let resources = resources(&story, async move {
            told.cancel();
            std::future::pending().await
        });
        around(&story, &stop, resources).await.unwrap();
        assert_eq!(*story.lock().unwrap(), ["pool closed"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tear_down_has_a_limit() {
        let story = Story::default();
        let mut resources = resources(&story, async { Ok(Cache) });
        resources.tear_down(|_: Arc<Cache>| std::future::pending());
        around(&story, &CancellationToken::new(), resources).await.unwrap();
        assert_eq!(*story.lock().unwrap(), ["ran", "cache closed", "pool closed"]);
    }
}
