//! The kinds that a service offers.

use crate::error::Error;
use crate::tasks::attempt::{Shared, SharedValue};
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::measures::Exported;
use crate::tasks::observer::Observer;
use crate::tasks::secrets::SecretsSettings;
use crate::tasks::threads::Threads;
use everwatch_core::id::Kind;
use everwatch_core::run::vigil::Vigil;
use everwatch_core::wire::report::KindInfo;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The code of one attempt, not started yet: [`crate::Service::around`].
pub type RunFuture = BoxFuture<'static, Result<Exit, Error>>;
type Start = Arc<dyn Fn(&str, Context) -> Result<RunFuture, serde_json::Error> + Send + Sync>;
type Hook = Arc<dyn Fn(Context, RunFuture) -> RunFuture + Send + Sync>;

/// The kinds that a service offers, and the state that they share. Clones share it, too.
///
/// ```
/// use everwatch::{Exit, Registry};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
///
/// let _registry = Registry::new()
///     .observer::<everwatch::kinds::Ticker>()
///     .observer_fn("nothing", |_: Nothing, ctx| async move {
///         ctx.cancelled().await;
///         Ok(Exit::Stopped)
///     })
///     .share(42_u32);
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    starts: HashMap<Kind, Start>,
    infos: Vec<KindInfo>,
    announce_readiness: BTreeSet<Kind>,
    /// Of those kinds that promise something within a time.
    vigils: HashMap<Kind, Vigil>,
    /// The number of threads of kinds that do not share those of others.
    own_threads: HashMap<Kind, u16>,
    /// Around every run; the first one is the outermost.
    hooks: Vec<Hook>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) exported: Arc<Exported>,
    pub(crate) secrets: SecretsSettings,
}

impl Registry {
    /// Without any kind.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Offers a kind.
    ///
    /// # Panics
    /// If `O::KIND` is not a valid kind: that is a mistake in the program.
    #[must_use]
    pub fn observer<O: Observer>(mut self) -> Self {
        let name = self.offer::<O>(O::KIND, |spec, ctx| spec.run(ctx).boxed());
        let vigil = Vigil { ready_within: O::READINESS.within(), alive_within: O::ALIVE_WITHIN };
        if O::READINESS.is_announced() {
            self.announce_readiness.insert(name.clone());
        }
        if let Threads::Own(count) = O::THREADS {
            self.own_threads.insert(name.clone(), count);
        }
        if !vigil.is_empty() {
            self.vigils.insert(name, vigil);
        }
        self
    }
    /// Offers a kind whose code is a function of its spec and its context: [`crate::Service::observer_fn`].
    ///
    /// # Panics
    /// If `kind` is not a valid kind: that is a mistake in the program.
    #[must_use]
    pub fn observer_fn<S, F, R>(mut self, kind: &str, code: F) -> Self
    where
        S: DeserializeOwned + JsonSchema,
        F: Fn(S, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.offer::<S>(kind, move |spec, ctx| code(spec, ctx).boxed());
        self
    }
    fn offer<S: DeserializeOwned + JsonSchema>(
        &mut self,
        kind: &str,
        code: impl Fn(S, Context) -> RunFuture + Send + Sync + 'static,
    ) -> Kind {
        let name = Kind::new(kind).expect("a kind is 1 to 64 of a-z 0-9 . _ -");
        let schema = serde_json::to_value(schemars::schema_for!(S)).unwrap_or_default();
        self.infos.retain(|info| info.name != name);
        self.infos.push(KindInfo { name: name.clone(), schema: schema.into() });
        let start: Start = Arc::new(move |spec, ctx| Ok(code(serde_json::from_str(spec)?, ctx)));
        self.starts.insert(name.clone(), start);
        name
    }
    /// Runs this around the code of every attempt of every kind: [`crate::Service::around`].
    #[must_use]
    pub fn around<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Context, RunFuture) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.hooks.push(Arc::new(move |ctx, code| hook(ctx, code).boxed()));
        self
    }
    /// Gives every observer of this service access to a value, by its type.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.share_value(TypeId::of::<T>(), Arc::new(value));
        self
    }
    /// Lets specs refer to these secrets.
    #[must_use]
    pub fn secrets(mut self, secrets: SecretsSettings) -> Self {
        self.secrets = secrets;
        self
    }
    pub(crate) fn share_value(&mut self, of: TypeId, value: SharedValue) {
        Arc::make_mut(&mut self.shared).insert(of, value);
    }
    pub(crate) fn infos(&self) -> Vec<KindInfo> {
        self.infos.clone()
    }
    /// What the code of this kind promises.
    pub(crate) fn vigil(&self, kind: &Kind) -> Vigil {
        self.vigils.get(kind).copied().unwrap_or_default()
    }
    /// The kinds with threads of their own, and how many.
    pub(crate) fn own_threads(&self) -> impl Iterator<Item = (&Kind, u16)> {
        self.own_threads.iter().map(|(kind, count)| (kind, *count))
    }
    /// Whether the code of any kind promises something within a time.
    pub(crate) fn has_vigils(&self) -> bool {
        !self.vigils.is_empty()
    }
    /// The kinds whose code announces that it is ready.
    pub(crate) fn announce_readiness(&self) -> BTreeSet<Kind> {
        self.announce_readiness.clone()
    }
    pub(crate) fn kinds(&self) -> BTreeSet<Kind> {
        self.starts.keys().cloned().collect()
    }
    /// The code of `kind`, started; an error is about the spec and will not go away.
    pub(crate) fn start(&self, kind: &Kind, spec: &str, ctx: &Context) -> Result<RunFuture, String> {
        let start = self.starts.get(kind).ok_or_else(|| format!("kind `{kind}` is not offered"))?;
        let code = start(spec, ctx.clone())
            .map_err(|error| format!("the spec does not fit kind `{kind}`: {error}"))?;
        Ok(self.hooks.iter().rev().fold(code, |code, hook| hook(ctx.clone(), code)))
    }
}
