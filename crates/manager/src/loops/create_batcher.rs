//! Creates that arrive at the same time share one transaction.

use super::batches;
use crate::RunError;
use crate::context::Manager;
use crate::context::creates::{Create, Outcome};
use crate::context::records::Records;
use crate::events::actor;
use crate::outgoing::publish;
use everwatch_core::record::row::Row;
use everwatch_store::{Created, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::debug;

/// Creates of a pool count its slots one after the other, so a second transaction would only wait for the first one, with
/// fewer creates in each.
const IN_FLIGHT: usize = 1;
/// The maximum age of the cached services.
const SERVICES_AGE: Duration = Duration::from_secs(1);

pub(crate) async fn run(manager: Arc<Manager>, creates: mpsc::Receiver<Create>) -> Result<(), RunError> {
    batches::run(manager, creates, IN_FLIGHT, |manager, batch| async move { commit(&manager, batch).await })
        .await
}

/// Creates rows. What was refused because of the kinds of the cached services is tried again with those that live now.
async fn create(records: &Records, rows: &[Row]) -> Result<Vec<Created>, StoreError> {
    let mut created = records.store.create(rows, &*records.offers(SERVICES_AGE).await?).await?;
    let refused: Vec<usize> =
        (0..rows.len()).filter(|place| created[*place] == Created::NoCapacityForKind).collect();
    if !refused.is_empty() {
        let again: Vec<Row> = refused.iter().map(|place| rows[*place].clone()).collect();
        let offers = records.offers(Duration::ZERO).await?;
        for (place, outcome) in refused.into_iter().zip(records.store.create(&again, &offers).await?) {
            created[place] = outcome;
        }
    }
    Ok(created)
}

async fn commit(manager: &Arc<Manager>, batch: Vec<Create>) {
    let (rows, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|it| (it.row, (it.by, it.answer))).unzip();
    let outcomes: Vec<Outcome> = match create(&manager.records, &rows).await {
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
            debug!("the request for this create ended before its answer");
        }
    }
    if changed {
        // Those that wait may find a slot.
        manager.records.note_change();
    }
    publish::publish(manager, published);
}
