//! The store port of Everwatch and its implementations.

pub mod port;

pub use port::*;
