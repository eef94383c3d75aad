//! The configuration of a whole deployment: defaults < file < environment < flags. Unknown keys are refused.

use crate::host::{self, Broker, Log, ServiceSection, SettingsError, Telemetry};
use everwatch_core::doctor::DatabaseLink;
use everwatch_core::redact::redacted;
use everwatch_manager::{AuthSection, ManagerSection, StoreSection};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// All sections.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `[broker]`
    pub broker: Broker,
    /// `[store]`
    pub store: StoreSection,
    /// `[manager]`
    pub manager: ManagerSection,
    /// `[auth]`
    pub auth: AuthSection,
    /// `[service]`
    pub service: ServiceSection,
    /// `[log]`
    pub log: Log,
    /// `[telemetry]`
    pub telemetry: Telemetry,
}

impl Settings {
    /// Reads all layers.
    ///
    /// # Errors
    /// Names the layer, the key and the rule.
    pub fn load(file: Option<&Path>) -> Result<Self, SettingsError> {
        let mut settings: Self = host::load(file)?;
        host::check(&settings.broker, &settings.service)?;
        settings.telemetry.check()?;
        settings.auth.check().map_err(|error| SettingsError::new(error.to_string()))?;
        settings.manager.check().map_err(|error| SettingsError::new(error.to_string()))?;
        if let Some(file) = &settings.store.url_file {
            settings.store.url =
                host::secret(file).map_err(|error| SettingsError::new(format!("store.url_file: {error}")))?;
        }
        Ok(settings)
    }

    /// The manager's part, as a manager takes it.
    ///
    /// # Errors
    /// Names the key and the rule.
    pub fn manager(&self) -> Result<everwatch_manager::Settings, SettingsError> {
        self.store.check().map_err(|error| SettingsError::new(error.to_string()))?;
        let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let broker = (self.broker.prefix.as_str(), self.broker.state_queues);
        let settings = self.manager.settings(broker, &self.auth, own);
        let settings = settings.map_err(|error| SettingsError::new(error.to_string()))?;
        let database = DatabaseLink::of(&self.store.url, std::env::var("PGSSLMODE").ok().as_deref());
        Ok(everwatch_manager::Settings { database, ..settings })
    }

    /// With passwords hidden.
    #[must_use]
    pub fn redacted(&self) -> Self {
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
        settings.broker.url = "amqp://u:hun/ter2@h/%2f,amqp://u:hunter2@h2".to_owned();
        settings.broker.management_url = Some("http://u:hunter2@h:15672".to_owned());
        settings.store.url = "postgres://h/db?password=hunter2".to_owned();
        settings.telemetry.otlp_endpoint = "http://h:4318?api-key=hunter2".to_owned();
        let shown = serde_json::to_string(&settings.redacted()).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains("ter2@"), "{shown}");
    }

    #[test]
    fn passwords_are_hidden() {
        assert_eq!(redacted("amqp://u:secret@h:1/%2f"), "amqp://u:…@h:1/%2f");
        assert_eq!(redacted("sqlite://x.db"), "sqlite://x.db");
    }

    #[test]
    fn the_annotated_file_holds_every_key_with_its_default() {
        let text = include_str!("../../../../config/everwatch.toml");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let read = serde_json::to_value(Settings::load(Some(file.path())).unwrap()).unwrap();
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
            if let Err(error) = Settings::load(Some(file.path())) {
                let told = format!("{error:#}");
                prop_assert!(told.contains(key.as_str()), "{section}.{key} = {value}: {told}");
            }
        }

        #[test]
        fn a_file_of_anything_is_refused_by_its_name(text in any::<String>()) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            if let Err(error) = Settings::load(Some(file.path())) {
                let told = format!("{error:#}");
                prop_assert!(told.contains(file.path().to_str().unwrap()), "{text:?}: {told}");
            }
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[service]\ncapasity = 3\n").unwrap();
        let error = Settings::load(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains("capasity") && error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
