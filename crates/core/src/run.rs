//! What a service does with the observers that it holds: admission, starts, ends, handover.

pub mod database_clock;
pub mod machine;
pub mod permits;
pub mod slots;
pub mod stall;
pub mod vigil;
