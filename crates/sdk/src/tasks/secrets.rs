//! The secrets that references in specs name: where a service reads them.

use crate::tasks::mask::Mask;
use everwatch_core::observer::secret::{SecretRef, is_variable, may_contain, resolve};
use std::env::VarError;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The largest secret, in bytes.
const SECRET_MAX_BYTES: usize = 64 * 1024;

/// Which secrets the specs of observers may refer to. The default allows none.
#[derive(Debug, Clone, Default)]
pub struct SecretsSettings {
    /// The folder below which `file:` references are read.
    pub dir: Option<PathBuf>,
    /// The names of the environment variables that `env:` references may name.
    pub env: Vec<String>,
}

/// A spec with its secrets.
pub(crate) struct Resolved {
    pub(crate) spec: String,
    pub(crate) mask: Option<Mask>,
}

impl SecretsSettings {
    /// Checks the settings themselves.
    ///
    /// # Errors
    /// Names the key of `[service]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_absolute()) {
            return Err(format!("secrets_dir: `{}` is not an absolute path", dir.display()));
        }
        match self.env.iter().find(|name| !is_variable(name)) {
            Some(name) => {
                Err(format!("secrets_env: `{name}` is not the name of a variable: use A-Z a-z 0-9 _"))
            }
            None => Ok(()),
        }
    }

    /// Whether specs could refer to this file.
    pub(crate) fn exposes(&self, file: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.dir.as_deref().is_some_and(|dir| file.starts_with(dir) || real(file).starts_with(real(dir)))
    }

    /// The spec with the secrets in place of its references; `None` if it has none.
    ///
    /// # Errors
    /// The first secret that cannot be read, with its place in the spec and the cure; never a secret.
    pub(crate) fn resolve(&self, spec: &str) -> Result<Option<Resolved>, String> {
        if !may_contain(spec) {
            return Ok(None);
        }
        let mut value = serde_json::from_str(spec).map_err(|error| error.to_string())?;
        let mut secrets = Vec::new();
        resolve(&mut value, |reference| {
            let secret = self.read(reference)?;
            secrets.push(secret.clone());
            Ok(secret)
        })?;
        if secrets.is_empty() {
            return Ok(None);
        }
        let mask = Mask::new(secrets.iter().map(String::as_str));
        Ok(Some(Resolved { spec: value.to_string(), mask }))
    }

    fn read(&self, reference: &SecretRef) -> Result<String, String> {
        let secret = match reference {
            SecretRef::File(path) => {
                let dir = self.dir.as_deref();
                read_file(dir.ok_or("this service has no folder of secrets: set [service] secrets_dir")?, path)?
            }
            SecretRef::Env(name) if !self.env.contains(name) => {
                return Err(format!(
                    "the service does not allow this variable: add {name} to [service] secrets_env"
                ));
            }
            // The error of a variable that is not UTF-8 contains its value.
            SecretRef::Env(name) => std::env::var(name).map_err(|error| match error {
                VarError::NotPresent => {
                    format!("the environment of this service has no variable {name}: set it and restart the service")
                }
                VarError::NotUnicode(_) => format!("the value of {name} is not text in UTF-8"),
            })?,
        };
        let line = secret.strip_suffix('\n').map(|it| it.strip_suffix('\r').unwrap_or(it));
        match line.unwrap_or(&secret) {
            "" => Err("the secret is empty".to_owned()),
            secret if secret.len() > SECRET_MAX_BYTES => {
                Err(format!("the secret is larger than {SECRET_MAX_BYTES} bytes"))
            }
            secret => Ok(secret.to_owned()),
        }
    }
}

/// Symbolic links are followed as long as they stay in the folder: this is how Kubernetes mounts secrets.
fn read_file(dir: &Path, path: &str) -> Result<String, String> {
    let shown = dir.join(path);
    let shown = shown.display();
    let unreadable = |error: std::io::Error| format!("{shown}: {error}");
    let dir =
        dir.canonicalize().map_err(|error| format!("[service] secrets_dir, {}: {error}", dir.display()))?;
    let real = dir.join(path).canonicalize().map_err(unreadable)?;
    if !real.starts_with(&dir) {
        return Err(format!("{shown} is a symbolic link to a file outside [service] secrets_dir"));
    }
    if !real.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("{shown} is not a file"));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&real).map_err(unreadable)?;
    // With the line break, which is not part of the secret, and one byte that is too many.
    file.take(SECRET_MAX_BYTES as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn told(settings: &SecretsSettings, reference: &str) -> Result<String, String> {
        let spec = serde_json::json!({"a": {"$secret": reference}}).to_string();
        settings.resolve(&spec).map(|resolved| resolved.unwrap().spec)
    }

    #[test]
    fn secrets_are_read_below_the_folder_only_wherever_links_lead() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = folder.path();
        // As Kubernetes mounts a secret.
        std::fs::create_dir_all(dir.join("db/..2026")).unwrap();
        std::fs::write(dir.join("db/..2026/password"), "hunter2-hunter2\n").unwrap();
        symlink("..2026", dir.join("db/..data")).unwrap();
        symlink("..data/password", dir.join("db/password")).unwrap();
        std::fs::write(outside.path().join("x"), "not yours").unwrap();
        symlink(outside.path().join("x"), dir.join("link")).unwrap();
        std::fs::write(dir.join("empty"), "\n").unwrap();
        std::fs::write(dir.join("binary"), [0xff, 0xfe]).unwrap();
        std::fs::write(dir.join("large"), vec![b'x'; 65_537]).unwrap();
        std::fs::write(dir.join("largest"), format!("{}\r\n", "x".repeat(65_536))).unwrap();
        nix::unistd::mkfifo(&dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let settings = SecretsSettings { dir: Some(dir.to_owned()), env: vec![] };
        assert_eq!(told(&settings, "file:db/password").unwrap(), r#"{"a":"hunter2-hunter2"}"#);
        assert_eq!(told(&settings, "file:largest").unwrap().len(), 65_536 + r#"{"a":""}"#.len());
        for (reference, expected) in [
            ("file:link", "is a symbolic link to a file outside [service] secrets_dir"),
            ("file:none", "No such file"),
            ("file:db", "is not a file"),
            ("file:pipe", "is not a file"),
            ("file:empty", "the secret is empty"),
            ("file:binary", "is not text in UTF-8"),
            ("file:large", "the secret is larger than 65536 bytes"),
            ("file:../x", "is not a path below"),
        ] {
            let error = told(&settings, reference).unwrap_err();
            assert!(error.starts_with("the secret at /spec/a") && error.contains(expected), "{error}");
        }
        let none = told(&SecretsSettings::default(), "file:db/password").unwrap_err();
        assert!(none.contains("set [service] secrets_dir"), "{none}");
    }

    #[test]
    fn only_variables_that_are_listed_are_read() {
        let settings =
            SecretsSettings { dir: None, env: vec!["PATH".to_owned(), "EVERWATCH_NONE".to_owned()] };
        assert!(told(&settings, "env:PATH").unwrap().contains("/bin"));
        let error = told(&settings, "env:HOME").unwrap_err();
        assert!(error.contains("add HOME to [service] secrets_env"), "{error}");
        assert!(
            told(&settings, "env:EVERWATCH_NONE").unwrap_err().contains("has no variable EVERWATCH_NONE")
        );
    }

    #[test]
    fn a_spec_without_references_stays_as_it_is() {
        let settings = SecretsSettings::default();
        for spec in [r#"{"a":"secret"}"#, r#"{"a":"\u00e4"}"#] {
            assert!(settings.resolve(spec).unwrap().is_none());
        }
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let check = |dir: &str, env: &str| {
            SecretsSettings { dir: Some(dir.into()), env: vec![env.to_owned()] }.check()
        };
        assert_eq!(check("/run/secrets", "TOKEN"), Ok(()));
        assert!(check("secrets", "TOKEN").unwrap_err().starts_with("secrets_dir: `secrets`"));
        assert!(check("/run", "A=B").unwrap_err().starts_with("secrets_env: `A=B`"));
    }
}
