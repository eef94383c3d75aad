//! Sends revocations, many in one message, each to the service that holds the run or to all.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use crate::context::revocations::Revoked;
use crate::outgoing::commands;
use everwatch_core::id::ServiceId;
use everwatch_core::wire::command::Revocation;
use std::cmp::Reverse;
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
        for (service, revocations) in by_recipient(batch) {
            let it = Arc::clone(&manager);
            manager.tasks.spawn(async move {
                match service {
                    Some(service) => commands::revocations_to(&it.link, service, &revocations).await,
                    None => commands::revocations(&it.link, &revocations).await,
                }
            });
        }
    }
}

/// The revocations of each recipient, the highest of each observer.
fn by_recipient(mut batch: Vec<Revoked>) -> BTreeMap<Option<ServiceId>, Vec<Revocation>> {
    batch.sort_unstable_by_key(|(service, revocation)| (*service, revocation.id, Reverse(revocation.below)));
    batch.dedup_by_key(|(service, revocation)| (*service, revocation.id));
    let mut by_recipient: BTreeMap<Option<ServiceId>, Vec<Revocation>> = BTreeMap::new();
    for (service, revocation) in batch {
        by_recipient.entry(service).or_default().push(revocation);
    }
    by_recipient
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::epoch::Epoch;
    use everwatch_core::id::ObserverId;
    use uuid::Uuid;

    #[test]
    fn each_recipient_gets_the_highest_revocation_of_each_observer() {
        let service = |number| Some(ServiceId(Uuid::from_u128(number)));
        let revocation = |number, generation| Revocation {
            id: ObserverId(Uuid::from_u128(number)),
            below: Epoch::first_of(generation),
            cause: None,
        };
        let batch = vec![
            (service(1), revocation(1, 2)),
            (None, revocation(1, 2)),
            (service(1), revocation(2, 3)),
            (service(1), revocation(1, 4)),
            (service(2), revocation(3, 1)),
        ];
        let expected = [
            (None, vec![revocation(1, 2)]),
            (service(1), vec![revocation(1, 4), revocation(2, 3)]),
            (service(2), vec![revocation(3, 1)]),
        ];
        assert_eq!(by_recipient(batch), BTreeMap::from(expected));
    }
}
