//! The critical scenarios, on real processes and a real broker.

mod failover;
