//! Sends the values of observers at once, and their newest progress at most once a second each.

use crate::error::Error;
use crate::session::reporter::Reporter;
use crate::tasks::attempt::Outlet;
use async_trait::async_trait;
use everwatch_broker::{HeaderValue, Message, Session, Target};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::report::{Report, RunEvent, RunReport};
use everwatch_core::wire::work::Work;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by all observers of a session.
pub(crate) struct Emitter {
    session: Arc<dyn Session>,
    exchange: String,
    reporter: Reporter,
    /// At most one entry for each observer that runs here.
    progress: Mutex<HashMap<ObserverId, (Epoch, String)>>,
}

impl Emitter {
    pub(crate) fn new(session: Arc<dyn Session>, exchange: String, reporter: Reporter) -> Self {
        Self { session, exchange, reporter, progress: Mutex::default() }
    }
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
    async fn emit(&self, work: &Work, epoch: Epoch, value: Value) -> Result<(), Error> {
        let key = format!("{}.{}", work.kind, work.name);
        let target = Target::Topic { exchange: self.exchange.clone(), key };
        let epoch = i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX);
        let headers = vec![
            ("everwatch-observer".to_owned(), HeaderValue::Text(work.id.to_string())),
            ("everwatch-epoch".to_owned(), HeaderValue::Number(epoch)),
        ];
        let body = serde_json::to_vec(&value)?.into();
        Ok(self.session.publish(&target, Message { body, headers }).await?)
    }
    fn progress(&self, work: &Work, epoch: Epoch, text: String) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).insert(work.id, (epoch, text));
    }
}
