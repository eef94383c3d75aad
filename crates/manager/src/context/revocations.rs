//! Revocations that wait to be sent together.

use crate::clock::DbClock;
use crate::events::known_services::KnownServices;
use everwatch_core::id::{Pool, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::Revocation;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;

/// Revocations that wait at once.
const WAITING_MAX: usize = 20_000;
/// A service that was silent for longer may have lost its messages to other services.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Who receives a revocation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recipients {
    /// All services.
    All,
    /// All services of these pools.
    Pools(BTreeSet<Pool>),
    /// The service that holds the run.
    Service(ServiceId),
}

/// A revocation and its recipients.
pub(crate) type Revoked = (Recipients, Revocation);

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

impl Recipients {
    /// Whether the services of this pool receive it.
    pub(crate) fn include(&self, pool: &Pool) -> bool {
        match self {
            Self::All => true,
            Self::Pools(pools) => pools.contains(pool),
            Self::Service(_) => false,
        }
    }
}

/// All services that may hold a message of this row.
pub(crate) fn possible_holders(row: &Row, known: &KnownServices) -> Recipients {
    let Some(mut pools) = row.possible_pools() else { return Recipients::All };
    pools.extend(row.holder().and_then(|holder| known.pool(holder)));
    Recipients::Pools(pools)
}

/// The services to which the revocation of this row goes. The first one goes to the holder alone, if it gives signs of
/// life: ten thousand deletes would otherwise be ten thousand messages for each service. Repetitions go to all services of
/// its pools, because the broker may have moved the message in the meantime.
pub(crate) fn recipients(row: &Row, known: &KnownServices, clock: &DbClock) -> Recipients {
    let is_first = row.resend.is_none_or(|resend| resend.times <= 1);
    let lives = |holder: &ServiceId| {
        known.heard_at(*holder).is_some_and(|heard| clock.now().since(heard) < SILENT_AFTER)
    };
    match row.holder().filter(|_| is_first).filter(lives) {
        Some(holder) => Recipients::Service(holder),
        None => possible_holders(row, known),
    }
}
