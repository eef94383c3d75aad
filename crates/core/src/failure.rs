//! What is concluded from silence, loss and death.

pub mod adoption;
pub mod fence;
pub mod orphans;
pub mod prefix_owner;
pub mod quarantine;
pub mod queue_freshness;
pub mod reconnect;
pub mod service_loss;
pub mod sweep;
