//! Decisions about several services or observers together: orders, drains, rebalancing, quarantine, placement, safe
//! mode, and whether services can run a definition.

pub(crate) mod kind_check;
pub(crate) mod limits;
pub(crate) mod moves;
pub(crate) mod orders;
pub(crate) mod placement;
pub(crate) mod pool_pause;
pub(crate) mod quarantine;
pub(crate) mod rebalance;
pub(crate) mod safe_mode;
pub(crate) mod service_loss;
pub(crate) mod shown_services;
