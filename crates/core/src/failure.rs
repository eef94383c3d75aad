//! What is concluded from silence, loss and death.

pub mod adoption;
pub mod fence;
pub mod lost_queue;
pub mod orphans;
pub mod prefix_owner;
pub mod quarantine;
pub mod queue_freshness;
pub mod queue_search;
pub mod reconnect;
mod refusal;
pub mod returned_work;
pub mod service_loss;
mod settle;
pub mod sweep;
