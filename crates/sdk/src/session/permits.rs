//! Passes permits of rates between the code of observers and the managers: `core::run::permits` decides, this asks.

use crate::boot_clock::boottime;
use crate::error::Error;
use everwatch_broker::{Message, Session, Target};
use everwatch_core::id::ServiceId;
use everwatch_core::run::permits::{Acquire, Decided, PermitQueue, Permits};
use everwatch_core::wire::message::encode;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest, RatesMessage};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How long the broker may take to confirm a request. Managers grant no older one.
const SENT_WITHIN: Duration = Duration::from_secs(2);

/// The acquires of one session that wait.
pub(crate) struct PermitAcquirer {
    state: Mutex<State>,
    /// More waits than before.
    more: Notify,
}

struct State {
    queue: PermitQueue,
    waiting: HashMap<Acquire, oneshot::Sender<Decided>>,
}

/// An acquire that waits; dropping it gives it up.
struct Waits<'a> {
    of: &'a PermitAcquirer,
    acquire: Acquire,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        if state.waiting.remove(&self.acquire).is_some() {
            state.queue.give_up(self.acquire);
        }
    }
}

impl PermitAcquirer {
    pub(crate) fn new(service: ServiceId) -> Self {
        let state = State { queue: PermitQueue::new(service), waiting: HashMap::new() };
        Self { state: Mutex::new(state), more: Notify::new() }
    }

    /// Waits until a manager has granted these permits.
    pub(crate) async fn acquire(&self, permits: Permits) -> Result<(), Error> {
        loop {
            let (sender, decided) = oneshot::channel();
            let acquire = {
                let mut state = self.lock();
                let acquire = state.queue.acquire(permits.clone());
                state.waiting.insert(acquire, sender);
                acquire
            };
            let _waits = Waits { of: self, acquire };
            self.more.notify_one();
            match decided.await.map_err(|_| "the session with the broker is lost")? {
                // Code that was not run for a while must not use a grant that is over.
                Decided::Until(until) if boottime() < until => return Ok(()),
                Decided::Until(_) => {}
                Decided::Refused(why) => return Err(why.into()),
            }
        }
    }

    pub(crate) fn on_answers(&self, answers: &PermitAnswers) {
        let mut state = self.lock();
        for (acquire, decided) in state.queue.on_answers(answers, boottime()) {
            if let Some(waits) = state.waiting.remove(&acquire) {
                let _gave_up = waits.send(decided);
            }
        }
        drop(state);
        self.more.notify_one();
    }

    /// Sends requests for what waits, until it is aborted.
    pub(crate) async fn run(self: Arc<Self>, session: Arc<dyn Session>, rates: Target) {
        loop {
            match self.next_request() {
                Next::Send(request) => send(session.as_ref(), &rates, request).await,
                Next::Wait(Some(left)) => {
                    let _more = tokio::time::timeout(left, self.more.notified()).await;
                }
                Next::Wait(None) => self.more.notified().await,
            }
        }
    }

    fn next_request(&self) -> Next {
        let (mut state, now) = (self.lock(), boottime());
        match state.queue.request(now) {
            Some(request) => Next::Send(request),
            None => Next::Wait(state.queue.due().map(|due| due.saturating_sub(now))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Send(PermitRequest),
    /// For this long, or for the next acquire or answer.
    Wait(Option<Duration>),
}

/// A request that does not go out is asked again when it could no longer be answered.
async fn send(session: &dyn Session, rates: &Target, request: PermitRequest) {
    let Ok(body) = encode(&RatesMessage::Acquire(request)) else { return };
    let message = Message { body: body.into(), headers: Vec::new() };
    match tokio::time::timeout(SENT_WITHIN, session.publish(rates, message)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for permits was not accepted"),
        Err(_) => tracing::debug!("a request for permits is not confirmed"),
    }
}
