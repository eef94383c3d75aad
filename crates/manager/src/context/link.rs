//! The connection with the broker, and what this manager knows of the broker's side.

use crate::context::pools::Pools;
use crate::context::questions::Questions;
use crate::context::revocations::{Revocations, Revoked};
use crate::context::session_slot::SessionSlot;
use everwatch_broker::{Broker, Session, Topology};
use everwatch_core::id::{ManagerId, Pool};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

pub(crate) struct Link {
    /// The name of this manager in its sessions and its watermarks; new with each start.
    pub(crate) id: ManagerId,
    pub(crate) topology: Topology,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) session: SessionSlot,
    pub(crate) pools: Pools,
    pub(crate) questions: Questions,
    /// Whether observers of another database are adopted, once.
    pub(crate) adopting: AtomicBool,
    /// One set of watermarks, one for each queue, is in progress at a time.
    pub(crate) watermarks: Arc<Semaphore>,
    pub(crate) revocations: Revocations,
}

impl Link {
    pub(crate) fn new(
        broker: Arc<dyn Broker>,
        topology: Topology,
        pools: &[Pool],
        adopt: bool,
    ) -> (Self, mpsc::Receiver<Revoked>) {
        let (revocations, waiting) = Revocations::new();
        let link = Self {
            id: ManagerId(Uuid::now_v7()),
            topology,
            broker,
            session: SessionSlot::default(),
            pools: Pools::new(pools),
            questions: Questions::default(),
            adopting: AtomicBool::new(adopt),
            watermarks: Arc::new(Semaphore::new(1)),
            revocations,
        };
        (link, waiting)
    }

    /// The session, unless there is none or the broker accepts no messages in it at present.
    pub(crate) fn open_session(&self) -> Option<Arc<dyn Session>> {
        self.session.get().filter(|session| !session.is_blocked())
    }
}
