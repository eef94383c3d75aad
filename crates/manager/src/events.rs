//! The history of observers and services: events, and who requested them.

pub(crate) mod actor;
pub(crate) mod known_services;
pub(crate) mod late_ends;
pub(crate) mod log;
pub(crate) mod recent;
pub(crate) mod shown;
pub(crate) mod summaries;
pub(crate) mod timeline;
