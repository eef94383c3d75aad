//! The console in a real browser, on a real manager and real services.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

mod accessible;
mod browser;
mod editing;
mod failing;
mod finding_back;
mod login;
mod logs;
mod looking;
mod many;
mod narrow;
mod overview;
mod pages;
mod saved_views;
mod served;
mod starting;
mod using;
