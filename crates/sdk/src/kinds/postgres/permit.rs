//! Which servers a service lets observers connect to, and where it reads their passwords.

use crate::Error;
use crate::kinds::files::{Access, FilesSettings};
use std::io::Read as _;
use std::sync::Arc;

/// Any server.
const ANY: &str = "*";
/// Size of the largest password file, in bytes.
const PASSWORD_MAX: u64 = 4096;

/// What `postgres-listen` may do on a service.
#[derive(Debug, Clone, Default)]
pub struct PostgresSettings {
    /// Servers as `host:port`; `*` is any.
    pub allow: Vec<String>,
}

impl PostgresSettings {
    /// Checks the list itself.
    ///
    /// # Errors
    /// Names the key in `[service.postgres]` and the rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_server = |it: &str| {
            it.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match self.allow.iter().find(|it| *it != ANY && !is_server(it)) {
            Some(wrong) => Err(format!(
                "allow: `{wrong}` is not a server; write host:port, such as db.example.org:5432, or \"*\""
            )),
            None => Ok(()),
        }
    }

    /// # Errors
    /// Names the server and the cure.
    pub(super) fn ensure_allowed(&self, host: &str, port: u16) -> Result<(), String> {
        let server = format!("{host}:{port}");
        if self.allow.iter().any(|it| it == ANY || it.eq_ignore_ascii_case(&server)) {
            return Ok(());
        }
        Err(format!("`url`: `{server}` is not in [service.postgres] allow of this service; add it there"))
    }
}

/// The password in a file, without the line's end.
pub(super) async fn password(path: &str, files: &Arc<FilesSettings>) -> Result<String, Error> {
    let path = files.path("password_file", path, Access::Read)?;
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let read = files.open(&path).and_then(|file| file.take(PASSWORD_MAX).read_to_string(&mut text));
        read.map(|_| text).map_err(|error| format!("`password_file`: {}: {error}", path.display()))
    });
    Ok(read.await??.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_of_the_list_are_allowed() {
        let settings =
            |allow: &[&str]| PostgresSettings { allow: allow.iter().map(|it| (*it).to_owned()).collect() };
        let some = settings(&["db.example.org:5432", "::1:5433"]);
        assert_eq!((some.check(), some.ensure_allowed("DB.example.org", 5432)), (Ok(()), Ok(())));
        assert_eq!(some.ensure_allowed("::1", 5433), Ok(()));
        for (host, port) in [("db.example.org", 5433), ("other", 5432)] {
            let refused = some.ensure_allowed(host, port).unwrap_err();
            assert!(
                refused.contains(&format!("`{host}:{port}` is not in [service.postgres] allow")),
                "{refused}"
            );
        }
        assert_eq!(settings(&["*"]).ensure_allowed("other", 1), Ok(()));
        for wrong in ["db", "db:x", ":5432"] {
            assert!(settings(&[wrong]).check().unwrap_err().starts_with(&format!("allow: `{wrong}`")));
        }
    }
}
