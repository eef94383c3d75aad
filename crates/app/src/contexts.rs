//! The managers that a user works with: `~/.config/everwatch/config.toml`. It contains tokens, so only its user can read it.

use crate::failure::Failure;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A manager, and the token for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

/// The file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Known>,
}

/// Where the file is.
fn path() -> anyhow::Result<PathBuf> {
    let read = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let folder = read("XDG_CONFIG_HOME").or_else(|| read("HOME").map(|home| home.join(".config")));
    let folder =
        folder.ok_or_else(|| Failure::Usage("neither HOME nor XDG_CONFIG_HOME is set".to_owned()))?;
    Ok(folder.join("everwatch").join("config.toml"))
}

impl Contexts {
    /// Reads the file; without one, there are no contexts.
    ///
    /// # Errors
    /// Names the file, if it cannot be read or understood.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let Ok(path) = path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        };
        let wrong =
            |error: toml::de::Error| Failure::Usage(format!("{}: {}", path.display(), error.message()));
        Ok(toml::from_str(&text).map_err(wrong)?)
    }

    /// Writes the file: a new one takes its place, so that it is whole at any time.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let path = path()?;
        let cannot = || format!("{}: cannot be written", path.display());
        write(&path, &toml::to_string(self)?).with_context(cannot)
    }

    /// The context that is used now.
    pub(crate) fn current(&self) -> Option<&Known> {
        self.contexts.get(self.current.as_ref()?)
    }

    /// The namespace of the current context, if it is this manager's.
    pub(crate) fn namespace_for(&self, server: &str) -> Option<String> {
        self.current().filter(|known| known.server == server).and_then(|known| known.namespace.clone())
    }

    /// The token for this manager. No other manager gets it.
    pub(crate) fn token_for(&self, server: &str) -> Option<String> {
        let current = self.current().filter(|known| known.server == server);
        let known = current.or_else(|| self.contexts.values().find(|known| known.server == server));
        known.and_then(|known| known.token.clone())
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}
