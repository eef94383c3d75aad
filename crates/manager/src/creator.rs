//! Creates that come at the same time share one transaction.

use crate::shared::Manager;
use crate::{RunError, asked, outbox};
use everwatch_core::row::Row;
use everwatch_store::{By, Created, StoreError};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tracing::debug;

const BATCH: usize = 500;
/// While one transaction commits, the next one gathers.
const IN_FLIGHT: usize = 2;

/// What became of a create.
pub(crate) type Outcome = Result<Created, Arc<StoreError>>;

/// One observer to be created, and who waits for it.
pub(crate) struct Create {
    pub(crate) row: Row,
    pub(crate) by: Option<By>,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// Creates one observer; `None` if the manager stops meanwhile.
pub(crate) async fn create(manager: &Manager, row: Row) -> Option<Outcome> {
    let (answer, outcome) = oneshot::channel();
    manager.creates.send(Create { row, by: asked::by(), answer }).await.ok()?;
    outcome.await.ok()
}

pub(crate) async fn run(manager: Arc<Manager>, mut creates: mpsc::Receiver<Create>) -> Result<(), RunError> {
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    loop {
        let turn = async {
            let first = creates.recv().await?;
            // Only now: what comes while both transactions are under way shares the next one.
            let permit = Arc::clone(&in_flight).acquire_owned().await.ok()?;
            Some((first, permit))
        };
        let turn = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            turn = turn => turn,
        };
        let Some((first, permit)) = turn else { return Ok(()) };
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(create) = creates.try_recv()
        {
            batch.push(create);
        }
        let it = Arc::clone(&manager);
        manager.tasks.spawn(async move {
            commit(&it, batch).await;
            drop(permit);
        });
    }
}

async fn commit(manager: &Arc<Manager>, batch: Vec<Create>) {
    let (rows, waiting): (Vec<_>, Vec<_>) = batch.into_iter().map(|it| (it.row, (it.by, it.answer))).unzip();
    let outcomes: Vec<Outcome> = match manager.store.create(&rows).await {
        Ok(created) => created.into_iter().map(Ok).collect(),
        Err(error) => {
            let error = Arc::new(error);
            rows.iter().map(|_| Err(Arc::clone(&error))).collect()
        }
    };
    let mut publish = Vec::new();
    for ((row, (by, answer)), outcome) in rows.into_iter().zip(waiting).zip(outcomes) {
        if matches!(outcome, Ok(Created::Done)) {
            asked::on_behalf(by, || manager.tell(None, &row));
            publish.push(row);
        }
        if answer.send(outcome).is_err() {
            debug!("who asked for this create has left");
        }
    }
    if !publish.is_empty() {
        manager.note_change();
    }
    outbox::publish(manager, publish);
}
