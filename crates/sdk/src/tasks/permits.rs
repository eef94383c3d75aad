//! Permits of rates for the code of an observer.

use crate::error::{Error, OrPermanent as _};
use crate::tasks::context::Context;
use everwatch_core::clock::show;
use everwatch_core::id::RateKey;
use everwatch_core::run::permits::Permits;
use everwatch_core::wire::permits::RATES_MAX;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::future::IntoFuture;
use std::time::Duration;

/// Permits that are not acquired yet: [`Context::acquire`].
#[must_use = "permits are acquired by `.await`"]
pub struct PendingPermits<'a> {
    ctx: &'a Context,
    wanted: Vec<(String, u32)>,
    within: Option<Duration>,
}

impl Context {
    /// Waits until this many permits of a rate are granted, and takes them. All services together use no more permits than
    /// the rate allows (`everwatch rate set`), if the code uses them at once: a grant is valid for 2 s after the service has
    /// asked for it, and no permit is returned.
    ///
    /// A service asks managers once a second at most, for everything that waits in it. So code that acquires one permit
    /// after the other gets at most one a second; acquire as many at once as the next second needs. While no manager
    /// responds, this waits.
    ///
    /// ```
    /// # everwatch::testing::example(|ctx| async move {
    /// use std::time::Duration;
    ///
    /// ctx.acquire("openai", 1).await?;
    /// // Both or none, within a minute.
    /// ctx.acquire("openai", 1).and("tokens", 800).within(Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When awaited: if the rate does not exist, if its bucket (the burst less 2 s of the rate) is smaller than the number
    /// of permits, if they were not granted in time, or if the session with the broker is lost.
    pub fn acquire(&self, rate: impl Into<String>, permits: u32) -> PendingPermits<'_> {
        PendingPermits { ctx: self, wanted: vec![(rate.into(), permits)], within: None }
    }
}

impl<'a> PendingPermits<'a> {
    /// Permits of another rate, which are granted together with the others or not at all; up to 10 rates.
    pub fn and(mut self, rate: impl Into<String>, permits: u32) -> Self {
        self.wanted.push((rate.into(), permits));
        self
    }
    /// Fails if the permits are not granted within this time.
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }

    fn permits(&self) -> Result<Permits, Error> {
        let mut permits = Permits::new();
        for (rate, count) in &self.wanted {
            let key = RateKey::new(rate).map_err(|error| error.to_string()).or_permanent()?;
            if *count == 0 {
                return Err(format!("0 permits of rate `{rate}`: acquire at least 1").into());
            }
            let wanted = permits.entry(key).or_insert(0);
            *wanted = wanted.saturating_add(*count);
        }
        if permits.len() > RATES_MAX {
            return Err(format!("permits of {} rates: at most {RATES_MAX} at once", permits.len()).into());
        }
        Ok(permits)
    }

    async fn acquired(self) -> Result<(), Error> {
        let permits = self.permits()?;
        let granted = self.ctx.0.outlets.outlet.acquire(permits);
        let Some(within) = self.within else { return granted.await };
        tokio::time::timeout(within, granted).await.unwrap_or_else(|_| {
            let wanted = self.wanted.iter().map(|(rate, count)| format!("{count} of `{rate}`"));
            let wanted = wanted.collect::<Vec<_>>().join(", ");
            Err(format!("no manager granted the permits within {}: {wanted}", show(within)).into())
        })
    }
}

impl<'a> IntoFuture for PendingPermits<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = BoxFuture<'a, Result<(), Error>>;

    fn into_future(self) -> Self::IntoFuture {
        self.acquired().boxed()
    }
}
