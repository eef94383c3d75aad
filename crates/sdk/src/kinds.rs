//! The built-in kinds.

pub mod exec;
mod http;
mod ticker;

pub use exec::{Exec, ExecSettings};
pub use http::Http;
pub use ticker::Ticker;

use crate::registry::Registry;

/// All built-in kinds; `exec` may start what `allow` says.
#[must_use]
pub fn built_in(exec: ExecSettings) -> Registry {
    add_built_in(Registry::new(), exec)
}

/// The built-in kinds beside those that are there.
#[must_use]
pub fn add_built_in(registry: Registry, exec: ExecSettings) -> Registry {
    registry.observer::<Ticker>().observer::<Exec>().observer::<Http>().share(exec)
}

/// Reads a member like `"5s"`.
pub(crate) fn duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<std::time::Duration, D::Error> {
    everwatch_core::clock::friendly::deserialize(from)
}
