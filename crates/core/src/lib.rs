//! Every decision of Everwatch, as functions of values: no runtime, no broker, no database, no HTTP.
//!
//! What must always hold, and the tests that would catch a breach. All of it is judged at each step of the
//! simulated histories in `tests/sim`, and I1, I2, I3, I5, I6, I7 on every interleaving in `tests/model`; besides:
//! - I1 a later run has a higher epoch: `epoch::tests`, broker conformance `redelivery_counts_up`
//! - I2 the observed half of a row is a function of the set of reports: `seen::tests`, `row::tests`
//! - I3 after faults each live observer runs exactly once, each deleted one nowhere: `tests/live`
//! - I4 a service never accepts more than its capacity: broker conformance `prefetch_is_a_limit`
//! - I5 after `Deleted` no service that has the floor starts the observer: `slots::tests`
//! - I6 how long two runs may overlap: `fence::tests`, `tests/live`
//! - I7 only a confirmed settlement or park precedes an ack: `slots::tests`
//! - I8 failover needs no manager and no database: `tests/live`

pub mod actions;
pub mod adoption;
pub mod blocks;
pub mod clock;
pub mod doctor;
pub mod epoch;
pub mod fence;
pub mod fleet;
pub mod health;
pub mod history;
pub mod id;
pub mod logs;
pub mod message;
pub mod missing;
pub mod observer;
pub mod owner;
pub mod placement;
pub mod plan;
pub mod quarantine;
pub mod reading;
pub mod reason;
pub mod rebalance;
pub mod rebirth;
pub mod redact;
pub mod retry;
pub mod row;
pub mod seen;
pub mod service;
pub mod slots;
pub mod status;
pub mod trace;
pub mod waiting;
