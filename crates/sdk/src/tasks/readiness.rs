//! When the code of a kind is ready.

use std::time::Duration;

/// When the code of a kind is ready: [`crate::Observer::READINESS`].
///
/// ```
/// use everwatch::{Context, Error, Exit, Observer, Readiness, testing::Trial};
/// use std::time::Duration;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Feed {}
///
/// impl Observer for Feed {
///     const KIND: &'static str = "feed";
///     const READINESS: Readiness = Readiness::AnnouncedWithin(Duration::from_secs(30));
///     async fn run(self, ctx: Context) -> Result<Exit, Error> {
///         // connected
///         ctx.ready();
///         ctx.cancelled().await;
///         Ok(Exit::Stopped)
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let trial = Trial::start(Feed {});
/// while !trial.is_ready() {
///     tokio::task::yield_now().await;
/// }
/// trial.stop().await.unwrap().unwrap();
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// As soon as it has started.
    AtStart,
    /// When it calls [`crate::Context::ready`], for example because it is connected. The code itself decides how long
    /// that may take.
    Announced,
    /// The same, at most this long after its start. Code that is not ready in time is aborted, at most a second late,
    /// and starts again as the retry policy says.
    AnnouncedWithin(Duration),
}

impl Readiness {
    pub(crate) fn is_announced(self) -> bool {
        self != Self::AtStart
    }
    pub(crate) fn within(self) -> Option<Duration> {
        match self {
            Self::AtStart | Self::Announced => None,
            Self::AnnouncedWithin(within) => Some(within),
        }
    }
}
