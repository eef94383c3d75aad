//! The critical scenarios, on real processes and a real broker.

#![expect(clippy::unwrap_used, reason = "a failing test says so by panicking")]

mod abuse;
mod ack_timeout;
mod applying;
mod backlog;
mod blackout;
mod commands;
mod confinement;
mod conformance;
mod damage;
mod doctor;
mod door;
mod ending;
mod examples;
mod failover;
mod flood;
mod garbage;
mod greeting;
mod health;
mod isolation;
mod kinds;
mod limits;
mod logs;
mod managers;
mod metrics;
mod operating;
mod own_kinds;
mod pausing_pools;
mod poison;
mod pools;
mod real_input;
mod refusals;
mod restoring;
mod retrying;
mod saving;
mod schedule;
mod silent;
mod stalled;
mod state_queues;
mod stopping;
mod times;
mod tls;
mod traces;
mod upgrading;
mod versions;
