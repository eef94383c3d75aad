//! What travels between managers and services.

pub mod batch;
pub mod checkpoint;
pub mod command;
pub mod heartbeat;
pub mod hold_reasons;
pub mod inventory_range;
pub mod logs;
pub mod message;
pub mod permits;
pub mod report;
pub mod rounds;
pub mod signature;
pub mod trace;
pub mod work;
