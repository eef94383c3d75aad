//! The loops of a manager. Each looks, decides with `core`, and acts through the rooms below it.

pub(crate) mod accounts;
pub(crate) mod admission;
pub(crate) mod audit;
mod batches;
mod changes;
pub(crate) mod confirms;
pub(crate) mod create_batcher;
pub(crate) mod event_feed;
pub(crate) mod event_writer;
mod gather;
pub(crate) mod identity_provider;
pub(crate) mod leases;
pub(crate) mod link;
pub(crate) mod observer_batches;
pub(crate) mod orphans;
pub(crate) mod preemption;
pub(crate) mod reconcile;
pub(crate) mod returned_work;
pub(crate) mod revoker;
pub(crate) mod rollouts;
pub(crate) mod save_batcher;
pub(crate) mod sweep;
