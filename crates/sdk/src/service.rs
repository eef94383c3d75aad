//! A program that runs a service with your kinds.

mod program;

use self::program::Arguments;
use crate::error::Error;
use crate::host::{self, Offer, last_words};
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::observer::Observer;
use crate::tasks::registry::RunFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::process::ExitCode;
use std::sync::Arc;

/// A program that is an observer service: say which observers it offers, then [`Service::main`].
///
/// ```no_run
/// # use everwatch::{Context, Error, Exit, Observer};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Hello {}
/// # impl Observer for Hello {
/// #     const KIND: &'static str = "hello";
/// #     async fn run(self, ctx: Context) -> Result<Exit, Error> { ctx.cancelled().await; Ok(Exit::Stopped) }
/// # }
/// fn main() -> std::process::ExitCode {
///     everwatch::Service::new().observer::<Hello>().main()
/// }
/// ```
#[derive(Default)]
pub struct Service(Offer);

impl Service {
    /// Offers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Offers this kind.
    #[must_use]
    pub fn observer<O: Observer>(mut self) -> Self {
        self.0.registry = self.0.registry.observer::<O>();
        self
    }
    /// Offers a kind whose code is a function of its spec and its context, beside the trait [`Observer`]. It is ready at
    /// its start and gives no signs of life.
    ///
    /// ```no_run
    /// use everwatch::{Context, Exit, Service};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Greeting { to: String }
    ///
    /// fn main() -> std::process::ExitCode {
    ///     let greet = |greeting: Greeting, ctx: Context| async move {
    ///         ctx.emit(greeting.to).await?;
    ///         ctx.cancelled().await;
    ///         Ok(Exit::Stopped)
    ///     };
    ///     Service::new().observer_fn("greeting", greet).main()
    /// }
    /// ```
    ///
    /// # Panics
    /// If `kind` is not 1 to 64 of `a-z 0-9 . _ -`: that is a mistake in the program.
    #[must_use]
    pub fn observer_fn<S, F, R>(mut self, kind: &str, code: F) -> Self
    where
        S: DeserializeOwned + JsonSchema,
        F: Fn(S, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.0.registry = self.0.registry.observer_fn(kind, code);
        self
    }
    /// Runs a function around the code of every attempt, of every kind of this service. The code runs when the function
    /// awaits it, and the function returns how the attempt ends. The function that was added first is the outermost.
    ///
    /// ```no_run
    /// # fn service() -> everwatch::Service {
    /// everwatch::Service::new().around(|ctx, code| async move {
    ///     let ended = code.await;
    ///     tracing::info!(attempt = ctx.attempt(), ?ended, "the code has ended");
    ///     ended
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn around<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Context, RunFuture) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.0.registry = self.0.registry.around(hook);
        self
    }
    /// Offers the built-in kinds too ([`crate::kinds`]).
    ///
    /// ```no_run
    /// fn main() -> std::process::ExitCode {
    ///     everwatch::Service::new().built_in().main()
    /// }
    /// ```
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.0.built_in = true;
        self
    }
    /// Gives every observer access to a value, by its type ([`crate::Context::shared`]).
    ///
    /// ```
    /// struct Limits { per_minute: u32 }
    ///
    /// let _service = everwatch::Service::new().share(Limits { per_minute: 60 });
    /// ```
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.0.registry = self.0.registry.share(value);
        self
    }
    /// Gives every observer access to the output of a future, by its type. The future runs once, before the service
    /// takes its first observer. If it fails, the program ends with exit code 1.
    ///
    /// ```no_run
    /// # struct Pool;
    /// # impl Pool {
    /// #     async fn connect(url: &str) -> Result<Self, everwatch::Error> { Ok(Self) }
    /// #     async fn close(&self) {}
    /// # }
    /// # fn service() -> everwatch::Service {
    /// everwatch::Service::new()
    ///     .share_with(async { Pool::connect("postgres://localhost/prices").await })
    ///     .tear_down(|pool: std::sync::Arc<Pool>| async move { pool.close().await })
    /// # }
    /// ```
    #[must_use]
    pub fn share_with<T, F>(mut self, set_up: F) -> Self
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.0.resources.add(set_up);
        self
    }
    /// Runs a function on a shared value after all observers of the service have stopped, for at most 10 s. Values are
    /// torn down in reverse order of these calls. A process that is killed tears nothing down.
    #[must_use]
    pub fn tear_down<T, F, R>(mut self, tear_down: F) -> Self
    where
        T: Send + Sync + 'static,
        F: FnOnce(Arc<T>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.0.resources.tear_down(tear_down);
        self
    }

    /// Reads the configuration (`--config FILE` or `EVERWATCH_CONFIG`, then `EVERWATCH_SECTION__KEY`), runs until
    /// SIGTERM or Ctrl-C, hands over all observers and returns the exit code: 0 after a signal; 1 if the broker refuses
    /// the credentials or the operating system a resource, or if a set-up fails; 2 if the configuration is wrong; 70 if
    /// only a new process helps, because code did not stop at the fence, stalled beyond `stall_limit`, or the process
    /// exceeded `memory_limit`: start the program again.
    ///
    /// With the cargo feature `dev`, the program has a subcommand `dev`, which runs a manager and several services with
    /// these kinds in one process. It needs neither a broker nor a database.
    #[must_use]
    pub fn main(self) -> ExitCode {
        crate::kinds::exec::run_helper_if_asked();
        // A second provider is refused: then the program has chosen one itself.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let ended = match program::arguments() {
            Ok(Arguments::Service { config }) => host::run_configured(config.as_deref(), self.0)
                .map_err(|error| (error.to_string(), error.exit_code())),
            #[cfg(feature = "dev")]
            Ok(Arguments::Dev { config, options }) => {
                let kinds: Vec<String> = self.0.registry.kinds().iter().map(ToString::to_string).collect();
                let greet = |address| program::greet(&kinds, address, options.services);
                self.dev(config.as_deref(), &options, greet)
                    .map_err(|error| (error.to_string(), error.exit_code()))
            }
            Err(error) => Err((error.to_string(), 2)),
        };
        ended.map_or_else(
            |(error, code)| {
                last_words(&error);
                ExitCode::from(code)
            },
            |()| ExitCode::SUCCESS,
        )
    }

    /// Runs a manager and several services with these kinds in this process, until SIGTERM or Ctrl-C. `greet` is called
    /// once with the address of the API, after the services are active.
    ///
    /// # Errors
    /// If an option or the configuration is wrong, or the manager cannot start; the error says how to fix it.
    #[cfg(feature = "dev")]
    pub fn dev(
        self,
        config: Option<&std::path::Path>,
        options: &crate::dev::Options,
        greet: impl FnOnce(std::net::SocketAddr),
    ) -> Result<(), crate::dev::DevError> {
        crate::dev::run(config, options, self.0, greet)
    }
}
