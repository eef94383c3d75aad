//! The broker port of Everwatch and its implementations.

pub mod port;
pub mod topology;

pub use port::*;
pub use topology::Topology;
