//! The configuration: defaults < file < environment < flags. Unknown keys are refused.

use anyhow::{Context as _, ensure};
use everwatch::host::{self, Broker, Log, ServiceSection, Telemetry};
use everwatch_core::clock::friendly;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::redact::redacted;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) broker: Broker,
    pub(crate) store: Store,
    pub(crate) manager: Manager,
    pub(crate) service: ServiceSection,
    pub(crate) log: Log,
    pub(crate) telemetry: Telemetry,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: String,
    /// A file that contains the URL; it takes precedence over `url`.
    pub(crate) url_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Manager {
    pub(crate) listen: String,
    pub(crate) hosts: Vec<String>,
    #[serde(with = "friendly")]
    pub(crate) lost_after: Duration,
    #[serde(with = "friendly")]
    pub(crate) heartbeat_interval: Duration,
    #[serde(with = "friendly")]
    pub(crate) orphan_after: Duration,
    #[serde(with = "friendly")]
    pub(crate) refused_max: Duration,
    pub(crate) quarantine_after: u32,
    #[serde(with = "friendly")]
    pub(crate) retention_deleted: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_failed: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_services: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_events: Duration,
    pub(crate) events_max: u32,
    #[serde(with = "friendly")]
    pub(crate) retention_parked: Duration,
    pub(crate) parked_max: u32,
    pub(crate) requests_per_second: u32,
    pub(crate) rebalance: Rebalance,
    pub(crate) rebalance_moves: u32,
    #[serde(with = "friendly")]
    pub(crate) rebalance_min_age: Duration,
}

/// Whether managers rebalance services automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rebalance {
    Off,
    Auto,
}

impl Default for Store {
    fn default() -> Self {
        Self { url: "sqlite://everwatch.db".to_owned(), url_file: None }
    }
}
impl Default for Manager {
    fn default() -> Self {
        let row = RowPolicy::default();
        Self {
            listen: "127.0.0.1:7700".to_owned(),
            hosts: Vec::new(),
            lost_after: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(5),
            orphan_after: Duration::from_secs(90),
            refused_max: row.refused_max,
            quarantine_after: 5,
            retention_deleted: row.retention_deleted,
            retention_failed: row.retention_failed,
            retention_services: Duration::from_secs(86_400),
            retention_events: Duration::from_secs(7 * 86_400),
            events_max: 100_000,
            retention_parked: Duration::from_secs(30 * 86_400),
            parked_max: 10_000,
            requests_per_second: 10_000,
            rebalance: Rebalance::Off,
            rebalance_moves: 100,
            rebalance_min_age: Duration::from_secs(60),
        }
    }
}
/// Reads all layers.
///
/// # Errors
/// Names the layer, the key and the rule.
pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Settings> {
    let mut settings: Settings = host::load(file)?;
    host::check(&settings.broker, &settings.service)?;
    settings.telemetry.check()?;
    let manager = &settings.manager;
    ensure!(
        manager.quarantine_after >= 2,
        "manager.quarantine_after: must be at least 2, because a single death does not identify an observer"
    );
    ensure!(manager.rebalance_moves >= 1, "manager.rebalance_moves: at least 1");
    ensure!(manager.orphan_after >= manager.lost_after, "manager.orphan_after: at least manager.lost_after");
    if let Some(file) = &settings.store.url_file {
        settings.store.url = host::secret(file).context("store.url_file")?;
    }
    Ok(settings)
}

impl Settings {
    pub(crate) fn row_policy(&self) -> RowPolicy {
        RowPolicy {
            refused_max: self.manager.refused_max,
            retention_deleted: self.manager.retention_deleted,
            retention_failed: self.manager.retention_failed,
            ..RowPolicy::default()
        }
    }
    /// As JSON with passwords hidden.
    pub(crate) fn redacted(&self) -> Settings {
        let mut shown = self.clone();
        shown.broker.url = redacted(&shown.broker.url);
        shown.store.url = redacted(&shown.store.url);
        shown.telemetry.otlp_endpoint = redacted(&shown.telemetry.otlp_endpoint);
        shown.broker.management_url = shown.broker.management_url.as_deref().map(redacted);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_key_shows_a_password() {
        let mut settings = Settings::default();
        settings.broker.url = "amqp://u:sec/ret@h/%2f,amqp://u:secret@h2".to_owned();
        settings.broker.management_url = Some("http://u:secret@h:15672".to_owned());
        settings.store.url = "postgres://h/db?password=secret".to_owned();
        settings.telemetry.otlp_endpoint = "http://h:4318?api-key=secret".to_owned();
        let shown = serde_json::to_string(&settings.redacted()).unwrap();
        assert!(!shown.contains("secret") && !shown.contains("ret@"), "{shown}");
    }

    #[test]
    fn passwords_are_hidden() {
        assert_eq!(redacted("amqp://u:secret@h:1/%2f"), "amqp://u:…@h:1/%2f");
        assert_eq!(redacted("sqlite://x.db"), "sqlite://x.db");
    }

    #[test]
    fn the_annotated_file_holds_every_key_with_its_default() {
        let text = include_str!("../../../config/everwatch.toml");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let read = serde_json::to_value(load(Some(file.path())).unwrap()).unwrap();
        assert_eq!(read, serde_json::to_value(Settings::default()).unwrap());
        for section in read.as_object().unwrap().values() {
            for key in section.as_object().unwrap().keys() {
                assert!(text.contains(&format!("{key} =")) || text.contains(&format!("{key}]")), "{key}");
            }
        }
    }

    fn any_toml() -> impl Strategy<Value = String> {
        let quoted = |text: &str| serde_json::to_string(text).unwrap().replace('\u{7f}', "\\u007f");
        let words = ["", "0s", "5s", "1y", "auto", "off", "amqp://", "sqlite://", "[::1]:1", "no-such-file"];
        let leaf = prop_oneof![
            any::<bool>().prop_map(|it| it.to_string()),
            any::<i64>().prop_map(|it| it.to_string()),
            (0_i64..3).prop_map(|it| it.to_string()),
            prop::num::f64::NORMAL.prop_map(|it| format!("{it:?}")),
            any::<String>().prop_map(move |it| quoted(&it)),
            prop::sample::select(words.to_vec()).prop_map(quoted),
        ];
        leaf.prop_recursive(2, 6, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                inner.prop_map(|item| format!("{{ a = {item} }}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_key_says_is_taken_or_refused_by_its_name(place in any::<prop::sample::Index>(), value in any_toml()) {
            let all = serde_json::to_value(Settings::default()).unwrap();
            let keys: Vec<(&String, &String)> = all
                .as_object()
                .unwrap()
                .iter()
                .flat_map(|(section, keys)| keys.as_object().unwrap().keys().map(move |key| (section, key)))
                .collect();
            let (section, key) = place.get(&keys);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("[{section}]\n{key} = {value}\n")).unwrap();
            if let Err(error) = load(Some(file.path())) {
                let told = format!("{error:#}");
                prop_assert!(told.contains(key.as_str()), "{section}.{key} = {value}: {told}");
            }
        }

        #[test]
        fn a_file_of_anything_is_refused_by_its_name(text in any::<String>()) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            if let Err(error) = load(Some(file.path())) {
                let told = format!("{error:#}");
                prop_assert!(told.contains(file.path().to_str().unwrap()), "{text:?}: {told}");
            }
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[service]\ncapasity = 3\n").unwrap();
        let error = load(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains("capasity") && error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
