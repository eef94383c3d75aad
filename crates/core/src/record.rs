//! What the database keeps: the rows of observers and services, their status, health, reasons and events.

pub mod bursts;
pub mod checkpoint;
pub mod due;
pub mod events;
pub mod health;
pub mod observed;
pub mod operations;
pub mod pool_obstacle;
pub mod preemption;
pub mod reason;
pub mod row;
pub mod row_policy;
pub mod service;
pub mod status;
mod stored_observed;
#[cfg(test)]
mod takeover_tests;
pub mod taking;
#[cfg(test)]
pub(crate) mod test_services;
pub mod verdict;
