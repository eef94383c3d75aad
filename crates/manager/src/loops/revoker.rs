//! Sends revocations, many in one message, each to the service that holds the run or to all services of its pools.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use crate::context::revocations::{Recipients, Revoked};
use crate::outgoing::commands;
use everwatch_core::wire::command::Revocation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const BATCH: usize = 5000;
/// Requests that arrive within this time share their messages.
const GATHER: Duration = Duration::from_millis(2);

pub(crate) async fn run(manager: Arc<Manager>, mut waiting: mpsc::Receiver<Revoked>) -> Result<(), RunError> {
    loop {
        let first = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            first = waiting.recv() => first,
        };
        let Some(first) = first else { return Ok(()) };
        let batch = gather(first, &mut waiting, BATCH, GATHER).await;
        for (recipients, revocations) in by_recipients(batch) {
            let it = Arc::clone(&manager);
            manager.tasks.spawn(async move {
                commands::revocations_to(&it, &recipients, &revocations).await;
            });
        }
    }
}

/// The revocations for the same recipients, the highest of each observer.
fn by_recipients(mut batch: Vec<Revoked>) -> BTreeMap<Recipients, Vec<Revocation>> {
    batch.sort_unstable_by(|(to, a), (other, b)| (to, a.id, b.below).cmp(&(other, b.id, a.below)));
    batch.dedup_by(|(to, a), (other, b)| (&*to, a.id) == (&*other, b.id));
    let mut by_recipients: BTreeMap<Recipients, Vec<Revocation>> = BTreeMap::new();
    for (recipients, revocation) in batch {
        by_recipients.entry(recipients).or_default().push(revocation);
    }
    by_recipients
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::epoch::Epoch;
    use everwatch_core::id::{ObserverId, Pool, ServiceId};
    use uuid::Uuid;

    #[test]
    fn each_recipient_gets_the_highest_revocation_of_each_observer() {
        let service = |number| Recipients::Service(ServiceId(Uuid::from_u128(number)));
        let pool = || Recipients::Pools([Pool::default()].into());
        let revocation = |number, generation| Revocation {
            id: ObserverId(Uuid::from_u128(number)),
            below: Epoch::first_of(generation),
            cause: None,
        };
        let batch = vec![
            (service(1), revocation(1, 2)),
            (pool(), revocation(1, 2)),
            (service(1), revocation(2, 3)),
            (service(1), revocation(1, 4)),
            (service(2), revocation(3, 1)),
        ];
        let expected = [
            (pool(), vec![revocation(1, 2)]),
            (service(1), vec![revocation(1, 4), revocation(2, 3)]),
            (service(2), vec![revocation(3, 1)]),
        ];
        assert_eq!(by_recipients(batch), BTreeMap::from(expected));
    }
}
