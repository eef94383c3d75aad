//! The kinds that a service offers.

use crate::error::Error;
use crate::tasks::attempt::Shared;
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::observer::Observer;
use crate::tasks::threads::Threads;
use everwatch_core::id::Kind;
use everwatch_core::run::vigil::Vigil;
use everwatch_core::wire::report::KindInfo;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::any::TypeId;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub(crate) type Running = BoxFuture<'static, Result<Exit, Error>>;
type Start = Box<dyn Fn(&str, Context) -> Result<Running, serde_json::Error> + Send + Sync>;

/// The kinds that a service offers, and the state that they share.
#[derive(Default)]
pub struct Registry {
    starts: HashMap<Kind, Start>,
    infos: Vec<KindInfo>,
    announce_readiness: BTreeSet<Kind>,
    /// Of those kinds that promise something within a time.
    vigils: HashMap<Kind, Vigil>,
    /// The number of threads of kinds that do not share those of others.
    own_threads: HashMap<Kind, u16>,
    pub(crate) shared: Arc<Shared>,
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
        let name = Kind::new(O::KIND).expect("Observer::KIND is 1 to 64 of a-z 0-9 . _ -");
        let schema = serde_json::to_value(schemars::schema_for!(O)).unwrap_or_default();
        self.infos.push(KindInfo { name: name.clone(), schema: schema.into() });
        let start: Start = Box::new(|spec, ctx| {
            let observer: O = serde_json::from_str(spec)?;
            Ok(observer.run(ctx).boxed())
        });
        let vigil = Vigil { ready_within: O::READINESS.within(), alive_within: O::ALIVE_WITHIN };
        if O::READINESS.is_announced() {
            self.announce_readiness.insert(name.clone());
        }
        if !vigil.is_empty() {
            self.vigils.insert(name.clone(), vigil);
        }
        if let Threads::Own(count) = O::THREADS {
            self.own_threads.insert(name.clone(), count);
        }
        self.starts.insert(name, start);
        self
    }
    /// Gives every observer of this service access to a value, by its type.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let mut shared = self.shared.as_ref().clone();
        shared.insert(TypeId::of::<T>(), Arc::new(value));
        self.shared = Arc::new(shared);
        self
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
    pub(crate) fn start(&self, kind: &Kind, spec: &str, ctx: Context) -> Result<Running, String> {
        let start = self.starts.get(kind).ok_or_else(|| format!("kind `{kind}` is not offered"))?;
        start(spec, ctx).map_err(|error| format!("the spec does not fit kind `{kind}`: {error}"))
    }
}
