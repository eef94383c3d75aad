//! The built-in kinds.

mod checkpoints;
pub mod exec;
mod files;
mod http;
mod pauses;
mod postgres;
mod spec;
mod tail;
mod ticker;
#[cfg(test)]
mod trial;
mod websocket;

pub use exec::{Exec, ExecSettings};
pub use files::FilesSettings;
pub use http::Http;
pub use postgres::{PostgresListen, PostgresSettings};
pub use tail::Tail;
pub use ticker::Ticker;
pub use websocket::WebSocket;

use crate::tasks::registry::Registry;
use http::HttpClients;

/// What the built-in kinds may do on a service. The default allows nothing that reaches beyond the network.
#[derive(Debug, Clone, Default)]
pub struct KindSettings {
    /// What `exec` may start.
    pub exec: ExecSettings,
    /// What `tail` and `replicate` may read and write.
    pub files: FilesSettings,
    /// Which servers `postgres-listen` may connect to.
    pub postgres: PostgresSettings,
}

/// All built-in kinds, which may do what the settings say.
#[must_use]
pub fn built_in(settings: KindSettings) -> Registry {
    add_built_in(Registry::new(), settings)
}

/// The built-in kinds beside those that are there.
#[must_use]
pub fn add_built_in(registry: Registry, settings: KindSettings) -> Registry {
    registry
        .observer::<Ticker>()
        .observer::<Exec>()
        .observer::<Http>()
        .observer::<WebSocket>()
        .observer::<Tail>()
        .observer::<PostgresListen>()
        .share(HttpClients::default())
        .share(settings.exec)
        .share(settings.files)
        .share(settings.postgres)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_in_a_schema_are_written_as_a_user_would() {
        let schemas = built_in(KindSettings::default()).infos();
        let default = |kind: &str| {
            let info = schemas.iter().find(|info| info.name.to_string() == kind).unwrap();
            info.schema["properties"]["every"]["default"].clone()
        };
        assert_eq!((default("ticker"), default("http")), ("1s".into(), "5s".into()));
    }
}
