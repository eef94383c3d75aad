//! Makes sure that the broker's observers belong to this manager's database: naively, a manager with
//! another (or an emptied) database adopts or ends what it never heard of.

use crate::context::Manager;
use everwatch_broker::{BrokerError, Delivery, Message, QueueKind, Session, Target};
use everwatch_core::failure::prefix_owner::{Owner, owner};
use everwatch_store::StoreError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::{info, warn};
use uuid::Uuid;

/// The note that holds the identity of a database.
const IDENTITY: &str = "identity";
/// Looks at the queue while other managers look at it as well.
const LOOKS: usize = 10;
/// Long enough for another manager to give back what it looks at.
const PAUSE: Duration = Duration::from_millis(250);
/// More than one message is there only for a moment.
const MESSAGES: usize = 10;

/// Why this manager may not serve the prefix.
#[derive(Debug, thiserror::Error)]
pub enum NotOwner {
    /// They belong to another database.
    #[error(
        "according to the queue {queue}, the observers of this prefix belong to the database {theirs}, but this \
         manager uses the database {ours}: set [store] url to that database, or choose another [broker] prefix, \
         or start once with --adopt to take over the observers"
    )]
    Other { queue: String, theirs: String, ours: String },
    /// Other managers read the queue at the same time.
    #[error("cannot read the queue {0} while other managers read it")]
    Busy(String),
    /// The broker failed.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotOwner {
    /// Whether a retry may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Broker(BrokerError::Refused(_) | BrokerError::Forbidden(_))
            | Self::Store(StoreError::Refused(_) | StoreError::Corrupt(_))
            | Self::Other { .. } => false,
            Self::Broker(
                BrokerError::Lost(_)
                | BrokerError::NoQueue(_)
                | BrokerError::Unroutable(_)
                | BrokerError::Silent(_)
                | BrokerError::NotAccepted(_),
            )
            | Self::Store(StoreError::Unavailable(_) | StoreError::Contended(_))
            | Self::Busy(_) => true,
        }
    }
}

pub(crate) async fn check(manager: &Manager, session: &dyn Session) -> Result<(), NotOwner> {
    manager.refresh_clock().await?;
    let queue = manager.link.topology.store();
    session.declare(&queue, &QueueKind::Durable { max_length: Some(1) }).await?;
    let ours = manager.records.store.claim(IDENTITY, &Uuid::new_v4().to_string(), Duration::MAX).await?;
    let mut claimed = false;
    for _ in 0..LOOKS {
        let found = session.get(&queue, MESSAGES).await?;
        let bodies: Vec<&[u8]> = found.iter().map(|delivery| delivery.body.as_ref()).collect();
        match owner(&bodies, &ours) {
            Owner::Ours => {
                keep_first(session, &found).await;
                if !claimed {
                    manager.link.adopting.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                // Another manager may have claimed it at the same moment: the next look tells which was first.
                claimed = false;
            }
            Owner::Nobody => match claim(session, &queue, &ours).await {
                Ok(()) => claimed = true,
                Err(BrokerError::NotAccepted(_)) => {}
                Err(error) => return Err(error.into()),
            },
            Owner::Other(theirs) if manager.link.adopting.load(Ordering::Relaxed) => {
                warn!(theirs, ours, "the observers of another database are adopted");
                for delivery in &found {
                    session.ack(delivery.receipt).await;
                }
                continue;
            }
            Owner::Other(theirs) => {
                keep_first(session, &found).await;
                return Err(NotOwner::Other { queue, theirs, ours });
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(NotOwner::Busy(queue))
}

async fn claim(session: &dyn Session, queue: &str, ours: &str) -> Result<(), BrokerError> {
    let message = Message { body: ours.to_owned().into(), headers: Vec::new() };
    session.publish(&Target::Queue(queue.to_owned()), message).await?;
    info!(queue, database = ours, "the observers of this prefix belong to this database now");
    Ok(())
}

/// The first stands; what came at the same moment goes.
async fn keep_first(session: &dyn Session, found: &[Delivery]) {
    for (index, delivery) in found.iter().enumerate() {
        if index == 0 {
            session.requeue(delivery.receipt).await;
        } else {
            session.ack(delivery.receipt).await;
        }
    }
}
