//! The configuration of a service program: defaults < file < environment. Unknown keys are refused.

mod broker;

pub use broker::Broker;

use crate::kinds::{ExecSettings, FilesSettings, HttpSettings, KindSettings, PostgresSettings};
use crate::limit_text::{SizeLimitText, TimeLimitText};
use crate::settings::{Capacity, ServiceSettings};
use crate::tasks::log_files;
use crate::tasks::secrets::SecretsSettings;
use config::{Environment, File, FileFormat};
use everwatch_broker::STATE_QUEUES_MAX;
use everwatch_core::capacity::blocks::CAPACITY_MAX;
use everwatch_core::clock::friendly;
use everwatch_core::failure::fence::BROKER_HEARTBEATS;
use everwatch_core::id::{Kind, Name, Pool};
use everwatch_core::wire::logs::LINES_MAX;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is wrong with the configuration, naming the key and the rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    /// With these words.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

/// The sections that a service reads. It ignores those of a manager.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `[broker]`
    pub broker: Broker,
    /// `[service]`
    pub service: Service,
    /// `[log]`
    pub log: Log,
    /// `[telemetry]`
    pub telemetry: Telemetry,
    #[serde(rename = "store")]
    _store: IgnoredAny,
    #[serde(rename = "manager")]
    _manager: IgnoredAny,
    #[serde(rename = "auth")]
    _auth: IgnoredAny,
}

/// `[service]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Empty: the host's name.
    pub name: String,
    /// The pool whose observers it runs.
    pub pool: String,
    /// Whether that pool was created as a single pool.
    pub pool_single: bool,
    /// Its slots, or `auto`.
    pub capacity: CapacityText,
    /// The greatest weight of an observer that it takes.
    pub weight_max: u16,
    /// Labels that select it in requests and lists.
    pub labels: BTreeMap<String, String>,
    /// Pause between heartbeats, 1 s to 60 s.
    #[serde(with = "friendly")]
    pub heartbeat_interval: Duration,
    /// Time that code has to stop after the session may be lost.
    #[serde(with = "friendly")]
    pub fence_grace: Duration,
    /// How long the service may take to hand over its observers when it stops.
    #[serde(with = "friendly")]
    pub drain_timeout: Duration,
    /// If code blocks a thread for this long, the process is replaced; `"off"`: never.
    pub stall_limit: TimeLimitText,
    /// If the process uses more memory than this, it is replaced; `"off"`: no limit.
    pub memory_limit: SizeLimitText,
    /// Maximum number of starts per second, over all kinds; 0: no limit.
    pub start_rate: f64,
    /// Maximum number of starts per second of single kinds.
    pub start_rates: BTreeMap<String, f64>,
    /// Maximum number of log lines to keep for each observer, and of KiB for them; 0 keeps none.
    pub log_lines: u32,
    /// The folder in which these lines are kept as well, as an absolute path; empty: none.
    pub log_dir: PathBuf,
    /// Threads for the code of observers; 0: four for each core, at least 16.
    pub threads: u16,
    /// Address of `/livez`, `/readyz` and `/metrics`; empty: none.
    pub listen: String,
    /// The folder below which the secrets of specs are read; empty: there are none.
    pub secrets_dir: PathBuf,
    /// Names of environment variables that specs may use as secrets.
    pub secrets_env: Vec<String>,
    /// `[service.exec]`
    pub exec: ExecSettings,
    /// `[service.files]`
    pub files: Files,
    /// `[service.http]`
    pub http: HttpSettings,
    /// `[service.postgres]`
    pub postgres: Postgres,
}

/// A number or `"auto"`; kept as text because the environment knows only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub struct CapacityText(pub Capacity);

impl TryFrom<serde_json::Value> for CapacityText {
    type Error = String;
    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text == "auto" {
            return Ok(Self(Capacity::Auto));
        }
        match text.parse() {
            Ok(slots @ 0..=CAPACITY_MAX) => Ok(Self(Capacity::Fixed(slots))),
            _ => Err(format!("`{text}` is not a capacity: a number from 0 to {CAPACITY_MAX}, or \"auto\"")),
        }
    }
}

impl From<CapacityText> for String {
    fn from(capacity: CapacityText) -> Self {
        match capacity.0 {
            Capacity::Auto => "auto".to_owned(),
            Capacity::Fixed(slots) => slots.to_string(),
        }
    }
}

/// `[service.files]`
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Absolute paths of folders whose files `tail` and `replicate` may read; `*` is any.
    pub read: Vec<String>,
    /// Absolute paths of folders in which `replicate` may write and delete files; `*` is any.
    pub write: Vec<String>,
}

/// `[service.postgres]`
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Postgres {
    /// Servers that `postgres-listen` may connect to, as `host:port`; `*` is any.
    pub allow: Vec<String>,
}

/// `[log]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Which events are logged: directives of `tracing`, such as `info,lapin=off`.
    pub filter: String,
    /// How they are written.
    pub format: LogFormat,
}

/// `[telemetry]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// OTLP over HTTP endpoint for spans; empty: `OTEL_EXPORTER_OTLP_ENDPOINT`, and if that is unset, no export.
    pub otlp_endpoint: String,
    /// Fraction of traces to export, 0 to 1, among those that begin in this process.
    pub sample: f64,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object for each line.
    Json,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: String::new(),
            pool: "default".to_owned(),
            pool_single: false,
            capacity: CapacityText(Capacity::Auto),
            weight_max: 1,
            labels: BTreeMap::new(),
            heartbeat_interval: Duration::from_secs(5),
            fence_grace: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(20),
            stall_limit: TimeLimitText(Some(Duration::from_secs(60))),
            memory_limit: SizeLimitText(None),
            start_rate: 0.0,
            start_rates: BTreeMap::new(),
            log_lines: 100,
            log_dir: PathBuf::new(),
            threads: 0,
            listen: String::new(),
            secrets_dir: PathBuf::new(),
            secrets_env: Vec::new(),
            exec: ExecSettings::default(),
            files: Files::default(),
            http: HttpSettings::default(),
            postgres: Postgres::default(),
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp_endpoint: String::new(), sample: 1.0 }
    }
}

impl Telemetry {
    /// # Errors
    /// Names the key and the rule.
    pub fn check(&self) -> Result<(), SettingsError> {
        if (0.0..=1.0).contains(&self.sample) {
            return Ok(());
        }
        Err(SettingsError(format!("telemetry.sample: {} must be from 0 to 1", self.sample)))
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info,lapin=off".to_owned(), format: LogFormat::Text }
    }
}

/// Reads all layers into `T`, whose keys are all that is known.
///
/// # Errors
/// Names the file or the environment, the key and the rule.
pub fn load<T: DeserializeOwned>(file: Option<&Path>) -> Result<T, SettingsError> {
    let mut builder = config::Config::builder();
    if let Some(path) = file {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| SettingsError(format!("cannot read the configuration file {shown}: {error}")))?;
        // Parse the file alone first, so that an error in it names the file.
        let layer = config::Config::builder().add_source(File::from_str(&text, FileFormat::Toml));
        let read = layer.build().and_then(config::Config::try_deserialize::<T>);
        read.map_err(|error| SettingsError(format!("in the configuration file {shown}: {error}")))?;
        builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
    }
    let environment = Environment::with_prefix("EVERWATCH")
        .prefix_separator("_")
        .separator("__")
        .list_separator(",")
        .with_list_parse_key("manager.hosts")
        .with_list_parse_key("manager.pools")
        .with_list_parse_key("service.secrets_env")
        .with_list_parse_key("auth.oidc.scopes")
        .with_list_parse_key("service.exec.allow")
        .with_list_parse_key("service.exec.env_pass")
        .with_list_parse_key("service.exec.env_allow")
        .with_list_parse_key("service.files.read")
        .with_list_parse_key("service.files.write")
        .with_list_parse_key("service.http.allow_hosts")
        .with_list_parse_key("service.http.allow_private_hosts")
        .with_list_parse_key("service.postgres.allow")
        .try_parsing(true)
        .source(Some(std::env::vars().filter(|(key, _)| key.contains("__")).collect()));
    builder.add_source(environment).build().and_then(config::Config::try_deserialize).map_err(|error| {
        SettingsError(format!("in the environment (keys have the form EVERWATCH_SECTION__KEY): {error}"))
    })
}

/// A shorter stall may be a busy machine; a process without observers needs less memory.
const STALL_LIMIT_MIN: Duration = Duration::from_secs(5);
const MEMORY_LIMIT_MIN: u64 = 64 << 20;

/// The rules that concern several keys.
///
/// # Errors
/// Names the key and the rule.
pub fn check(broker: &Broker, service: &Service) -> Result<(), SettingsError> {
    let wrong = |text: &str| Err(SettingsError(text.to_owned()));
    let heartbeat = broker.heartbeat;
    if heartbeat.subsec_nanos() != 0 || !BROKER_HEARTBEATS.contains(&heartbeat) {
        return wrong("broker.heartbeat: must be whole seconds from 3s to 14s");
    }
    if !(1..=STATE_QUEUES_MAX).contains(&broker.state_queues) {
        let text =
            format!("broker.state_queues: {} must be from 1 to {STATE_QUEUES_MAX}", broker.state_queues);
        return Err(SettingsError(text));
    }
    if heartbeat + service.fence_grace >= (heartbeat * 2).min(Duration::from_secs(15)) {
        return wrong(
            "service.fence_grace: broker.heartbeat plus service.fence_grace must be below two heartbeats and 15s",
        );
    }
    if service.heartbeat_interval < Duration::from_secs(1)
        || service.heartbeat_interval > Duration::from_secs(60)
    {
        return wrong("service.heartbeat_interval: from 1s to 60s");
    }
    if service.stall_limit.0.is_some_and(|limit| limit < STALL_LIMIT_MIN) {
        return wrong("service.stall_limit: at least 5s, or \"off\"");
    }
    if service.memory_limit.0.is_some_and(|limit| limit < MEMORY_LIMIT_MIN) {
        return wrong("service.memory_limit: at least 64MiB, or \"off\"");
    }
    let kinds = service.kind_settings(broker);
    kinds.exec.check().map_err(|error| SettingsError(format!("service.exec.{error}")))?;
    kinds.files.check().map_err(|error| SettingsError(format!("service.files.{error}")))?;
    kinds.http.check().map_err(|error| SettingsError(format!("service.http.{error}")))?;
    kinds.postgres.check().map_err(|error| SettingsError(format!("service.postgres.{error}")))?;
    let secrets = service.secrets();
    secrets.check().map_err(|error| SettingsError(format!("service.{error}")))?;
    let own = [&broker.url_file, &broker.management_url_file, &broker.tls_key_file];
    if let Some(file) = own.into_iter().flatten().find(|file| secrets.exposes(file)) {
        let text = format!(
            "service.secrets_dir: contains {}, a file of [broker], which every observer could read; move one of them",
            file.display()
        );
        return Err(SettingsError(text));
    }
    broker.tls()?;
    service.settings(broker).map(drop)
}

impl Service {
    /// As the runtime takes it.
    ///
    /// # Errors
    /// If the name, the pool or a kind is invalid, or a value is out of range.
    pub fn settings(&self, broker: &Broker) -> Result<ServiceSettings, SettingsError> {
        let name =
            Name::new(&self.instance()).map_err(|error| SettingsError(format!("service.name: {error}")))?;
        let pool = Pool::new(&self.pool).map_err(|error| SettingsError(format!("service.pool: {error}")))?;
        let mut settings = ServiceSettings::new(name);
        settings.pool = pool;
        settings.pool_single = self.pool_single;
        settings.capacity = self.capacity.0;
        settings.weight_max = self.weight_max;
        settings.check_slots().map_err(SettingsError)?;
        settings.labels.clone_from(&self.labels);
        settings.prefix.clone_from(&broker.prefix);
        settings.state_queues = broker.state_queues;
        settings.heartbeat_interval = self.heartbeat_interval;
        settings.fence_after = broker.heartbeat;
        settings.fence_grace = self.fence_grace;
        settings.drain_timeout = self.drain_timeout;
        settings.stall_limit = self.stall_limit.0;
        settings.memory_limit = self.memory_limit.0;
        let rates = self.start_rates.iter().map(|(kind, rate)| (format!("s.{kind}"), *rate));
        if let Some((of, rate)) =
            rates.chain([(String::new(), self.start_rate)]).find(|(_, rate)| !is_rate(*rate))
        {
            let text = format!(
                "service.start_rate{of}: {rate} must be from 0 (no limit) to 1000000 starts per second"
            );
            return Err(SettingsError(text));
        }
        if self.log_lines > LINES_MAX {
            return Err(SettingsError(format!("service.log_lines: at most {LINES_MAX}")));
        }
        settings.log_lines = self.log_lines;
        settings.log_dir = self.log_folder()?;
        settings.start_rate = self.start_rate;
        for (kind, rate) in &self.start_rates {
            let kind =
                Kind::new(kind).map_err(|error| SettingsError(format!("service.start_rates: {error}")))?;
            settings.start_rates.insert(kind, *rate);
        }
        Ok(settings)
    }
    fn log_folder(&self) -> Result<Option<PathBuf>, SettingsError> {
        if self.log_dir.as_os_str().is_empty() {
            return Ok(None);
        }
        if !self.log_dir.is_absolute() {
            let cure = "write one such as /var/log/everwatch";
            let folder = self.log_dir.display();
            return Err(SettingsError(format!(
                "service.log_dir: `{folder}` is not an absolute path; {cure}"
            )));
        }
        Ok(Some(self.log_dir.clone()))
    }
    /// Checks that this process can do what the section says, and prepares the machine for it. Only the process that runs the
    /// service may.
    ///
    /// # Errors
    /// Names the key and the cure.
    pub fn prepare(&self, broker: &Broker) -> Result<(), SettingsError> {
        let exec = self.kind_settings(broker).exec;
        exec.prepare().map_err(|error| SettingsError(format!("service.exec.{error}")))?;
        let Some(folder) = self.log_folder()? else { return Ok(()) };
        log_files::check(&folder, &self.instance()).map_err(|error| {
            let cure = "create the folder, and let the user of the service write to it";
            SettingsError(format!("service.log_dir: cannot write to `{}`: {error}; {cure}", folder.display()))
        })
    }
    /// The name of the service, which distinguishes its spans from those of other services.
    #[must_use]
    pub fn instance(&self) -> String {
        if self.name.is_empty() { host_name() } else { self.name.clone() }
    }
    /// The secrets that specs may refer to.
    #[must_use]
    pub fn secrets(&self) -> SecretsSettings {
        let dir = Some(self.secrets_dir.clone()).filter(|dir| !dir.as_os_str().is_empty());
        SecretsSettings { dir, env: self.secrets_env.clone() }
    }
    /// What the built-in kinds may do.
    #[must_use]
    pub fn kind_settings(&self, broker: &Broker) -> KindSettings {
        let Files { read, write } = self.files.clone();
        KindSettings {
            exec: ExecSettings { fence_after: broker.heartbeat, ..self.exec.clone() },
            files: FilesSettings { read, write },
            http: self.http.clone(),
            postgres: PostgresSettings { allow: self.postgres.allow.clone() },
        }
    }
}

fn is_rate(rate: f64) -> bool {
    (0.0..=1e6).contains(&rate)
}

fn host_name() -> String {
    let legal = crate::host_info::host_name()
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-', "-");
    if legal.is_empty() { "service".to_owned() } else { legal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut Broker, &mut Service)) -> Result<(), String> {
        let (mut broker, mut service) = (Broker::default(), Service::default());
        change(&mut broker, &mut service);
        check(&broker, &service).map_err(|error| error.to_string())
    }

    #[test]
    fn times_that_would_break_the_fence_are_refused_by_name() {
        assert_eq!(checked(|_, _| {}), Ok(()));
        let slow = checked(|broker, _| broker.heartbeat = Duration::from_secs(15));
        assert!(slow.unwrap_err().starts_with("broker.heartbeat"));
        let fine = checked(|broker, _| broker.heartbeat = Duration::from_millis(3500));
        assert!(fine.unwrap_err().starts_with("broker.heartbeat"));
        for count in [0, 65] {
            let queues = checked(|broker, _| broker.state_queues = count);
            assert!(queues.unwrap_err().starts_with("broker.state_queues"));
        }
        let long = checked(|_, service| service.fence_grace = Duration::from_secs(5));
        assert!(long.unwrap_err().starts_with("service.fence_grace"));
        let pool = checked(|_, service| "No Pool".clone_into(&mut service.pool));
        assert!(pool.unwrap_err().starts_with("service.pool"));
        let telemetry = Telemetry { sample: 1.5, ..Telemetry::default() };
        assert!(telemetry.check().unwrap_err().to_string().starts_with("telemetry.sample"));
        let program = checked(|_, service| service.exec.allow.push("sh".to_owned()));
        assert!(program.unwrap_err().starts_with("service.exec.allow: `sh`"));
        let name = checked(|_, service| service.exec.env_allow.push("LD_PRELOAD".to_owned()));
        assert!(name.unwrap_err().starts_with("service.exec.env_allow: `LD_PRELOAD`"));
        let folder = checked(|_, service| service.files.read.push("logs".to_owned()));
        assert!(folder.unwrap_err().starts_with("service.files.read: `logs`"));
        let name = checked(|_, service| service.secrets_env.push("A=B".to_owned()));
        assert!(name.unwrap_err().starts_with("service.secrets_env: `A=B`"));
        let exposed = checked(|broker, service| {
            broker.url_file = Some("/run/secrets/broker-url".into());
            service.secrets_dir = "/run/secrets".into();
        });
        assert!(exposed.unwrap_err().contains("/run/secrets/broker-url"));
        let stall = checked(|_, service| service.stall_limit.0 = Some(Duration::from_secs(4)));
        assert!(stall.unwrap_err().starts_with("service.stall_limit"));
        let memory = checked(|_, service| service.memory_limit.0 = Some(1 << 20));
        assert!(memory.unwrap_err().starts_with("service.memory_limit"));
        let lines = checked(|_, service| service.log_lines = LINES_MAX + 1);
        assert!(lines.unwrap_err().starts_with("service.log_lines"));
    }
}
