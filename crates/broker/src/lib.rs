//! The broker port of Everwatch and its implementations.

pub mod ack_timeout;
pub mod conformance;
mod loss;
pub mod memory;
pub mod permissions;
pub mod port;
pub mod rabbit;
mod signing;
pub mod topology;

pub use memory::{MemoryBroker, QueueBackup};
pub use permissions::Permissions;
pub use port::*;
pub use rabbit::{RabbitBroker, TlsFiles};
pub use topology::{STATE_QUEUES_MAX, Topology};
