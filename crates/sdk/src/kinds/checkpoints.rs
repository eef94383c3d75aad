//! Stores checkpoints beside the work of an observer: while no manager is there to store one, the work goes on.

use crate::{Context, Error};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// At most one checkpoint is stored in this time.
const PACE: Duration = Duration::from_secs(1);
/// How long the last checkpoint of an observer that stops may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// The checkpoints of one attempt: only the newest is worth storing.
pub(super) struct Checkpoints<T> {
    ctx: Context,
    newest: Option<T>,
    /// What is being stored.
    sent: Option<T>,
    /// What was stored last.
    stored: Option<T>,
    saving: Option<BoxFuture<'static, Result<(), Error>>>,
    not_before: Instant,
}

impl<T: Serialize + Clone + PartialEq + Send + Sync + 'static> Checkpoints<T> {
    pub(super) fn new(ctx: &Context) -> Self {
        Self {
            ctx: ctx.clone(),
            newest: None,
            sent: None,
            stored: None,
            saving: None,
            not_before: Instant::now(),
        }
    }

    /// Replaces the value that is stored next; a value that is stored already is skipped.
    pub(super) fn note(&mut self, value: T) {
        let known = self.sent.as_ref().or(self.stored.as_ref());
        self.newest = (known != Some(&value)).then_some(value);
    }

    /// Does some work, and stores checkpoints meanwhile.
    pub(super) async fn during<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        loop {
            self.begin();
            let Some(saving) = &mut self.saving else { return work.await };
            tokio::select! {
                biased;
                output = &mut work => return output,
                saved = saving => self.saved(saved),
            }
        }
    }

    /// Stores the newest before the observer stops. A next run repeats a little if that takes too long.
    pub(super) async fn finish(mut self) {
        self.saving = None;
        if let Some(value) = self.newest.take().or(self.sent.take()) {
            match tokio::time::timeout(LAST_TIMEOUT, self.ctx.checkpoint(&value)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.ctx.log(&format!("the last checkpoint is not stored: {error}")),
                Err(_) => self.ctx.log(&format!("the last checkpoint is not stored within {LAST_TIMEOUT:?}")),
            }
        }
    }

    fn begin(&mut self) {
        if self.saving.is_none()
            && let Some(value) = self.newest.take()
        {
            self.sent = Some(value.clone());
            let (ctx, not_before) = (self.ctx.clone(), self.not_before);
            let saving = async move {
                tokio::time::sleep_until(not_before).await;
                ctx.checkpoint(&value).await
            };
            self.saving = Some(saving.boxed());
        }
    }

    fn saved(&mut self, saved: Result<(), Error>) {
        self.saving = None;
        self.not_before = Instant::now() + PACE;
        let sent = self.sent.take();
        match saved {
            Ok(()) => self.stored = sent,
            Err(error) => self.ctx.log(&format!("a checkpoint is not stored: {error}")),
        }
    }
}
