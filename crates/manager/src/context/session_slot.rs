//! The present session with the broker, or the reason why there is none.

use crate::lock::lock;
use everwatch_broker::Session;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) struct SessionSlot {
    session: watch::Sender<Option<Arc<dyn Session>>>,
    why_none: Mutex<String>,
}

impl Default for SessionSlot {
    fn default() -> Self {
        let why_none = Mutex::new("it has not answered yet".to_owned());
        Self { session: watch::Sender::new(None), why_none }
    }
}

impl SessionSlot {
    pub(crate) fn get(&self) -> Option<Arc<dyn Session>> {
        self.session.borrow().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.session.borrow().is_none()
    }

    /// The session, waiting for one until `deadline`.
    pub(crate) async fn by(&self, deadline: Instant) -> Option<Arc<dyn Session>> {
        let mut session = self.session.subscribe();
        let found = tokio::time::timeout_at(deadline, session.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    pub(crate) fn set(&self, session: Arc<dyn Session>) {
        self.session.send_replace(Some(session));
    }

    pub(crate) fn clear(&self, why: String) {
        *lock(&self.why_none) = why;
        self.session.send_replace(None);
    }

    /// The newest reason for having no session.
    pub(crate) fn why_none(&self) -> String {
        lock(&self.why_none).clone()
    }
}
