//! The configuration: defaults < file < environment < flags. Unknown keys are refused.

use anyhow::{Context as _, bail};
use config::{Environment, File, FileFormat};
use everwatch_core::clock::friendly;
use everwatch_core::id::{Name, Pool};
use everwatch_core::row::RowPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) broker: Broker,
    pub(crate) store: Store,
    pub(crate) manager: Manager,
    pub(crate) service: Service,
    pub(crate) log: Log,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) prefix: String,
    #[serde(with = "friendly")]
    pub(crate) heartbeat: Duration,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Manager {
    pub(crate) listen: String,
    #[serde(with = "friendly")]
    pub(crate) lost_after: Duration,
    #[serde(with = "friendly")]
    pub(crate) beat: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_deleted: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_failed: Duration,
    #[serde(with = "friendly")]
    pub(crate) retention_services: Duration,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) pool: String,
    pub(crate) capacity: CapacityText,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(with = "friendly")]
    pub(crate) beat: Duration,
    #[serde(with = "friendly")]
    pub(crate) fence_grace: Duration,
    #[serde(with = "friendly")]
    pub(crate) drain_timeout: Duration,
    pub(crate) exec: Exec,
}

/// A number or `"auto"`; kept as text because the environment knows only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub(crate) struct CapacityText(pub(crate) everwatch::Capacity);

impl TryFrom<serde_json::Value> for CapacityText {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text == "auto" {
            return Ok(Self(everwatch::Capacity::Auto));
        }
        match text.parse() {
            Ok(slots @ 0..=40_000) => Ok(Self(everwatch::Capacity::Fixed(slots))),
            _ => Err(format!("`{text}` is not a capacity: a number from 0 to 40000, or \"auto\"")),
        }
    }
}

impl From<CapacityText> for String {
    fn from(capacity: CapacityText) -> Self {
        match capacity.0 {
            everwatch::Capacity::Auto => "auto".to_owned(),
            everwatch::Capacity::Fixed(slots) => slots.to_string(),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Exec {
    pub(crate) allow: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) filter: String,
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    Text,
    Json,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned(),
            prefix: "everwatch.".to_owned(),
            heartbeat: Duration::from_secs(5),
        }
    }
}
impl Default for Store {
    fn default() -> Self {
        Self { url: "sqlite://everwatch.db".to_owned() }
    }
}
impl Default for Manager {
    fn default() -> Self {
        let row = RowPolicy::default();
        Self {
            listen: "127.0.0.1:7700".to_owned(),
            lost_after: Duration::from_secs(15),
            beat: Duration::from_secs(5),
            retention_deleted: row.retention_deleted,
            retention_failed: row.retention_failed,
            retention_services: Duration::from_secs(86_400),
        }
    }
}
impl Default for Service {
    fn default() -> Self {
        Self {
            name: String::new(),
            pool: "default".to_owned(),
            capacity: CapacityText(everwatch::Capacity::Auto),
            labels: BTreeMap::new(),
            beat: Duration::from_secs(5),
            fence_grace: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(20),
            exec: Exec::default(),
        }
    }
}
impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: Format::Text }
    }
}

/// Reads all layers.
///
/// # Errors
/// Names the file or the environment, the key and the rule.
pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Settings> {
    let mut builder = config::Config::builder();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the configuration file {} cannot be read", path.display()))?;
        toml_only(&text).with_context(|| format!("in the configuration file {}", path.display()))?;
        builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
    }
    let environment = Environment::with_prefix("EVERWATCH")
        .prefix_separator("_")
        .separator("__")
        .list_separator(",")
        .with_list_parse_key("service.exec.allow")
        .try_parsing(true)
        .source(Some(std::env::vars().filter(|(key, _)| key.contains("__")).collect()));
    let layers = builder.add_source(environment).build()?;
    let settings: Settings = layers.try_deserialize().map_err(|error| {
        anyhow::anyhow!(
            "{error} (in the configuration file, or in the environment as EVERWATCH_SECTION__KEY)"
        )
    })?;
    settings.check()?;
    Ok(settings)
}

/// The file alone, so that what is wrong in it is blamed on it.
fn toml_only(text: &str) -> anyhow::Result<Settings> {
    let layer = config::Config::builder().add_source(File::from_str(text, FileFormat::Toml)).build()?;
    Ok(layer.try_deserialize()?)
}

impl Settings {
    fn check(&self) -> anyhow::Result<()> {
        let heartbeat = self.broker.heartbeat;
        if heartbeat.subsec_nanos() != 0
            || heartbeat < Duration::from_secs(3)
            || heartbeat > Duration::from_secs(60)
        {
            bail!("broker.heartbeat: whole seconds from 3s to 60s, the broker knows no finer");
        }
        if heartbeat + self.service.fence_grace >= (heartbeat * 2).min(Duration::from_secs(15)) {
            bail!("service.fence_grace: with broker.heartbeat it must stay below two heartbeats and 15s");
        }
        Pool::new(&self.service.pool).context("service.pool")?;
        if !self.service.name.is_empty() {
            Name::new(&self.service.name).context("service.name")?;
        }
        Ok(())
    }
    pub(crate) fn row_policy(&self) -> RowPolicy {
        RowPolicy {
            retention_deleted: self.manager.retention_deleted,
            retention_failed: self.manager.retention_failed,
            ..RowPolicy::default()
        }
    }
    /// As JSON with passwords hidden.
    pub(crate) fn redacted(&self) -> Settings {
        let mut shown = self.clone();
        shown.broker.url = shown.broker.url.split(',').map(hide_password).collect::<Vec<_>>().join(",");
        shown.store.url = hide_password(&shown.store.url);
        shown
    }
}

/// `scheme://user:…@host` for `scheme://user:password@host`.
pub(crate) fn hide_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else { return url.to_owned() };
    let user = rest[..at].split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:…{}", &rest[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden() {
        assert_eq!(hide_password("amqp://u:secret@h:1/%2f"), "amqp://u:…@h:1/%2f");
        assert_eq!(hide_password("sqlite://x.db"), "sqlite://x.db");
    }

    #[test]
    fn the_annotated_file_holds_every_key_with_its_default() {
        let text = include_str!("../../../config/everwatch.toml");
        let read = serde_json::to_value(toml_only(text).unwrap()).unwrap();
        assert_eq!(read, serde_json::to_value(Settings::default()).unwrap());
        for section in read.as_object().unwrap().values() {
            for key in section.as_object().unwrap().keys() {
                assert!(text.contains(&format!("{key} =")) || text.contains(&format!("{key}]")), "{key}");
            }
        }
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml_only("[service]\ncapasity = 3\n").unwrap_err();
        assert!(error.to_string().contains("capasity"), "{error}");
    }
}
