//! Creates that arrive at the same time share one transaction.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use crate::context::creates::{Create, Outcome};
use crate::events::actor;
use crate::outgoing::publish;
use everwatch_store::Created;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

const BATCH: usize = 500;
/// While one transaction commits, the next batch is gathered.
const IN_FLIGHT: usize = 2;

pub(crate) async fn run(manager: Arc<Manager>, mut creates: mpsc::Receiver<Create>) -> Result<(), RunError> {
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    loop {
        let turn = async {
            let first = creates.recv().await?;
            // Only now: creates that arrive while both transactions are in progress share the next one.
            let permit = Arc::clone(&in_flight).acquire_owned().await.ok()?;
            Some((first, permit))
        };
        let turn = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            turn = turn => turn,
        };
        let Some((first, permit)) = turn else { return Ok(()) };
        let batch = gather(first, &mut creates, BATCH, Duration::ZERO).await;
        let it = Arc::clone(&manager);
        manager.tasks.spawn(async move {
            commit(&it, batch).await;
            drop(permit);
        });
    }
}

async fn commit(manager: &Arc<Manager>, batch: Vec<Create>) {
    let (rows, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|it| (it.row, (it.by, it.answer))).unzip();
    let outcomes: Vec<Outcome> = match manager.records.store.create(&rows).await {
        Ok(created) => created.into_iter().map(Ok).collect(),
        Err(error) => {
            let error = Arc::new(error);
            rows.iter().map(|_| Err(Arc::clone(&error))).collect()
        }
    };
    let (mut published, mut changed) = (Vec::new(), false);
    for ((row, (by, answer)), outcome) in rows.into_iter().zip(waiting).zip(outcomes) {
        if let Ok(created) = &outcome
            && let Some(row) = created.stored(&row)
        {
            changed = true;
            actor::on_behalf(by, || manager.records.events.tell(None, &row));
            if *created == Created::Done {
                published.push(row.into_owned());
            }
        }
        if answer.send(outcome).is_err() {
            debug!("who asked for this create has left");
        }
    }
    if changed {
        // Those that wait may find a slot.
        manager.records.note_change();
    }
    publish::publish(manager, published);
}
