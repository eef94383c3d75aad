//! The built-in kinds.

mod checkpoints;
pub mod exec;
mod files;
mod http;
mod network;
mod pauses;
mod postgres;
mod replicate;
mod spec;
mod tail;
mod ticker;
#[cfg(test)]
mod trial;
mod websocket;

pub use exec::{Exec, ExecSettings};
pub use files::FilesSettings;
pub use http::Http;
pub use network::HttpSettings;
pub use postgres::{PostgresListen, PostgresSettings};
pub use replicate::Replicate;
pub use tail::Tail;
pub use ticker::Ticker;
pub use websocket::WebSocket;

use crate::tasks::registry::Registry;
use http::HttpClients;

/// What the built-in kinds may do on a service. By default, observers may connect to public
/// addresses, and may not use programs, files or databases.
#[derive(Debug, Clone, Default)]
pub struct KindSettings {
    /// What `exec` may start.
    pub exec: ExecSettings,
    /// What `tail` and `replicate` may read and write.
    pub files: FilesSettings,
    /// Which hosts `http` and `websocket` may connect to.
    pub http: HttpSettings,
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
        .observer::<Replicate>()
        .share(HttpClients::new(settings.http.clone()))
        .share(settings.http)
        .share(settings.exec)
        .share(settings.files)
        .share(settings.postgres)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observer as _;

    /// The specs of the examples in `docs/observers/examples`, by their kind.
    fn examples() -> Vec<(String, serde_json::Value)> {
        #[derive(serde::Deserialize)]
        struct Definition {
            kind: String,
            spec: serde_json::Value,
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observers/examples");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
        let definitions = files.flat_map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let one: Result<Vec<Definition>, _> = serde_saphyr::from_str(&text);
            one.or_else(|_| serde_saphyr::from_multiple(&text))
                .unwrap_or_else(|error| panic!("{path:?}: {error}"))
        });
        definitions.map(|it| (it.kind, it.spec)).collect()
    }

    #[test]
    fn every_kind_that_replaces_a_daemon_has_an_example_that_fits_it() {
        let mut seen = std::collections::BTreeSet::new();
        for (kind, spec) in examples() {
            assert_eq!(fits(&kind, &spec), Ok(()));
            seen.insert(kind);
        }
        assert_eq!(seen.len(), 6, "{seen:?}");
    }

    /// What the code of a kind says of a spec.
    fn fits(kind: &str, spec: &serde_json::Value) -> Result<(), String> {
        fn of<O: crate::Observer>(spec: &serde_json::Value) -> Result<(), String> {
            serde_json::from_value::<O>(spec.clone())
                .map(drop)
                .map_err(|error| format!("{}: {error}", O::KIND))
        }
        match kind {
            Ticker::KIND => of::<Ticker>(spec),
            Exec::KIND => of::<Exec>(spec),
            Http::KIND => of::<Http>(spec),
            WebSocket::KIND => of::<WebSocket>(spec),
            Tail::KIND => of::<Tail>(spec),
            PostgresListen::KIND => of::<PostgresListen>(spec),
            Replicate::KIND => of::<Replicate>(spec),
            other => panic!("unknown kind {other}"),
        }
    }

    #[test]
    fn the_example_in_a_schema_fits_the_schema_and_the_code() {
        for info in built_in(KindSettings::default()).infos() {
            let (kind, schema) = (info.name.as_str(), &*info.schema);
            let examples = schema["examples"].as_array().unwrap_or_else(|| panic!("{kind} has no example"));
            for example in examples {
                let checked = jsonschema::validate(schema, example);
                assert!(checked.is_ok(), "{kind}: {checked:?}");
                assert_eq!(fits(kind, example), Ok(()));
                assert!(!example.as_object().unwrap().is_empty(), "the example of {kind} fills in nothing");
            }
        }
    }

    #[test]
    fn a_schema_refuses_a_postgres_listen_that_would_do_nothing() {
        let infos = built_in(KindSettings::default()).infos();
        let info = infos.iter().find(|info| info.name.as_str() == PostgresListen::KIND).unwrap();
        let url = "postgres://user@db.example.org/app";
        let query = serde_json::json!({"sql": "SELECT id FROM orders", "watermark": "id"});
        for (spec, is_valid) in [
            (serde_json::json!({ "url": url }), false),
            (serde_json::json!({"url": url, "query": query}), true),
            (serde_json::json!({"url": url, "channels": ["orders"], "query": query}), true),
        ] {
            assert_eq!(jsonschema::is_valid(&info.schema, &spec), is_valid, "{spec}");
        }
    }

    #[test]
    fn every_member_of_a_spec_is_explained() {
        for info in built_in(KindSettings::default()).infos() {
            let schema = &info.schema;
            for (member, it) in schema["properties"].as_object().unwrap() {
                let name = &info.name;
                assert!(it["description"].is_string(), "{name} does not explain `{member}`");
                assert!(it.get("$ref").is_none(), "the form of {name} does not know `{member}`");
            }
            assert_eq!(schema["additionalProperties"], false, "{}", info.name);
        }
    }

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
