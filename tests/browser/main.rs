//! The console in a real browser, on a real manager and real services.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

mod browser;
mod failing;
mod login;
mod logs;
mod many;
mod served;
mod using;
