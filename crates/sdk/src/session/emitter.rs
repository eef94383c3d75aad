//! Sends the values of observers at once, and their newest progress at most once a second each.

use crate::error::Error;
use crate::session::checkpoints::Checkpoints;
use crate::session::permits::PermitAcquirer;
use crate::session::reporter::Reporter;
use crate::tasks::attempt::{Emission, Outlet};
use async_trait::async_trait;
use everwatch_broker::{HeaderValue, Message, Session, Target};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::run::permits::Permits;
use everwatch_core::wire::checkpoint::SavedCheckpoint;
use everwatch_core::wire::report::{Report, RunEvent, RunReport};
use everwatch_core::wire::work::Work;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// The code of an observer has announced that it is ready. At most one for each attempt.
pub(crate) struct Ready {
    pub(crate) id: ObserverId,
    pub(crate) epoch: Epoch,
    pub(crate) attempt: u32,
}

/// Shared by all observers of a session.
pub(crate) struct Emitter {
    pub(super) session: Arc<dyn Session>,
    pub(super) exchange: String,
    pub(super) reporter: Reporter,
    pub(super) ready: UnboundedSender<Ready>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) permits: Arc<PermitAcquirer>,
    /// At most one entry for each observer that runs here.
    pub(super) progress: Mutex<HashMap<ObserverId, (Epoch, String)>>,
}

/// The header of the namespace, unless it is `default`.
const NAMESPACE: &str = "everwatch-namespace";

impl Emitter {
    /// Reports the progress since the last call.
    pub(crate) fn tell_progress(&self) {
        let said = std::mem::take(&mut *self.progress.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, (epoch, text)) in said {
            let report = RunReport { id, epoch, event: RunEvent::Progress { text } };
            self.reporter.mention(Report::Run(report));
        }
    }
}

#[async_trait]
impl Outlet for Emitter {
    async fn emit(&self, work: &Work, epoch: Epoch, value: Emission) -> Result<(), Error> {
        let key = value.key.unwrap_or_else(|| format!("{}.{}", work.kind, work.name));
        let target = Target::Topic { exchange: self.exchange.clone(), key };
        let epoch = i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX);
        let mut headers = vec![
            ("everwatch-observer".to_owned(), HeaderValue::Text(work.id.to_string())),
            ("everwatch-epoch".to_owned(), HeaderValue::Number(epoch)),
        ];
        if !work.namespace.is_default() {
            headers.push((NAMESPACE.to_owned(), HeaderValue::Text(work.namespace.to_string())));
        }
        headers.extend(value.headers.into_iter().map(|(name, value)| (name, HeaderValue::Text(value))));
        Ok(self.session.publish(&target, Message { body: value.body.into(), headers }).await?)
    }
    fn ready(&self, work: &Work, epoch: Epoch, attempt: u32) {
        let _over = self.ready.send(Ready { id: work.id, epoch, attempt });
    }
    async fn checkpoint(&self, work: &Work, epoch: Epoch, value: String) -> Result<(), Error> {
        self.checkpoints.save((work.id, epoch), value).await
    }
    async fn restored(&self, work: &Work, epoch: Epoch) -> Result<Option<SavedCheckpoint>, Error> {
        self.checkpoints.restored((work.id, epoch)).await
    }
    async fn acquire(&self, permits: Permits) -> Result<(), Error> {
        self.permits.acquire(permits).await
    }
    fn progress(&self, work: &Work, epoch: Epoch, text: String) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).insert(work.id, (epoch, text));
    }
}
