//! A whole manager, run as the program runs it, on real parts: an in-process broker or RabbitMQ, SQLite
//! or PostgreSQL, and services played by hand.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod adopting;
mod broker;
mod link;
mod logs;
mod service;
mod several;
mod stage;
mod starting;
mod state_queues;
mod store;
mod traces;
