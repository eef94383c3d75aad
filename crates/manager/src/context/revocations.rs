//! Revocations that wait to be sent together.

use crate::clock::DbClock;
use crate::events::log::KnownServices;
use everwatch_core::id::ServiceId;
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::Revocation;
use std::time::Duration;
use tokio::sync::mpsc;

/// Revocations that wait at once.
const WAITING_MAX: usize = 20_000;
/// A service that was silent for longer may have lost its messages to other services.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A revocation, and the service that holds the run; without one, all services receive it.
pub(crate) type Revoked = (Option<ServiceId>, Revocation);

pub(crate) struct Revocations(mpsc::Sender<Revoked>);

impl Revocations {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Revoked>) {
        let (waiting, waiting_in) = mpsc::channel(WAITING_MAX);
        (Self(waiting), waiting_in)
    }

    /// Sends revocations with the others that wait. If too many wait, these are left to their repetition.
    pub(crate) fn send(&self, revocations: impl IntoIterator<Item = Revoked>) {
        for revocation in revocations {
            if self.0.try_send(revocation).is_err() {
                tracing::warn!("too many revocations wait to be sent: some are sent when they are repeated");
                return;
            }
        }
    }
}

/// The service to which the revocation of this row goes. The first one goes to the holder alone, if it gives signs of
/// life: ten thousand deletes would otherwise be ten thousand messages for each service. Repetitions go to all services,
/// because the broker may have moved the message in the meantime.
pub(crate) fn recipient(row: &Row, known: &KnownServices, clock: &DbClock) -> Option<ServiceId> {
    let is_first = row.resend.is_none_or(|resend| resend.times <= 1);
    let lives = |holder: &ServiceId| {
        known.heard_at(*holder).is_some_and(|heard| clock.now().since(heard) < SILENT_AFTER)
    };
    row.holder().filter(|_| is_first).filter(lives)
}
