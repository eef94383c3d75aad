//! The built-in kinds.

mod context_ext;
pub mod exec;
mod http;
mod reconnect;
mod spec;
mod ticker;
#[cfg(test)]
mod trial;
mod websocket;

pub use exec::{Exec, ExecSettings};
pub use http::Http;
use http::HttpClients;
pub use ticker::Ticker;
pub use websocket::WebSocket;

use crate::tasks::registry::Registry;

/// All built-in kinds; `exec` may start what `allow` says.
#[must_use]
pub fn built_in(exec: ExecSettings) -> Registry {
    add_built_in(Registry::new(), exec)
}

/// The built-in kinds beside those that are there.
#[must_use]
pub fn add_built_in(registry: Registry, exec: ExecSettings) -> Registry {
    registry
        .observer::<Ticker>()
        .observer::<Exec>()
        .observer::<Http>()
        .observer::<WebSocket>()
        .share(HttpClients::default())
        .share(exec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_in_a_schema_are_written_as_a_user_would() {
        let schemas = built_in(ExecSettings::default()).infos();
        let default = |kind: &str| {
            let info = schemas.iter().find(|info| info.name.to_string() == kind).unwrap();
            info.schema["properties"]["every"]["default"].clone()
        };
        assert_eq!((default("ticker"), default("http")), ("1s".into(), "5s".into()));
    }
}
