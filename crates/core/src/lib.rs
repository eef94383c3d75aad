//! Every decision of Everwatch, as functions of values: no runtime, no broker, no database, no HTTP.
//!
//! The invariants, and the tests that catch a violation. The simulated histories in `tests/sim` check all of them at
//! each step, and `tests/model` checks I1, I2, I3, I5, I6, I7 on every interleaving; in addition:
//! - I1 a later run has a higher epoch: `epoch::tests`, broker conformance `redelivery_counts_up`
//! - I2 the observed half of a row is a function of the set of reports: `observed::tests`, `row::tests`
//! - I3 after faults each live observer runs exactly once, each deleted one nowhere: `tests/live`
//! - I4 a service never accepts more than its capacity: broker conformance `prefetch_is_a_limit`
//! - I5 after `Deleted` no service that has the revocation starts the observer: `slots::tests`
//! - I6 how long two runs may overlap: `fence::tests`, `tests/live`
//! - I7 only a confirmed settlement or park precedes an ack: `slots::tests`
//! - I8 failover needs no manager and no database: `tests/live`

pub mod access;
pub mod batch;
pub mod capacity;
pub mod clock;
pub mod doctor;
pub mod epoch;
pub mod failure;
pub mod id;
pub mod observer;
pub mod record;
pub mod redact;
pub mod rollout;
pub mod run;
pub mod spelling;
pub mod timeline;
pub mod wire;
pub mod wording;
