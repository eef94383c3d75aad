//! Everwatch as a whole: real processes on a real broker and a real database, with beacons of every run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

pub mod beacons;
pub mod cluster;
pub mod http;
pub mod proxy;
pub mod rabbitmq;
