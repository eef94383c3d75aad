//! A PostgreSQL server of a test's own.

use crate::script;
use std::path::{Path, PathBuf};

/// A server that a test may kill and start again.
pub struct Server {
    folder: PathBuf,
    /// Stays the same when it is started again.
    pub url: String,
}

impl Server {
    /// With its data in `folder`.
    pub fn start(folder: &Path) -> Self {
        Self::configured(folder, &[])
    }
    /// With lines for `postgresql.conf`; those that begin with `host` are the only ones of `pg_hba.conf`.
    pub fn configured(folder: &Path, lines: &[&str]) -> Self {
        let mut arguments = vec![Path::new("start"), folder];
        arguments.extend(lines.iter().map(Path::new));
        let url = script("postgres", &arguments).trim().to_owned();
        Self { folder: folder.to_owned(), url }
    }
    /// Ends it at once.
    pub fn kill(&self) {
        script("postgres", &[Path::new("kill"), &self.folder]);
    }
    /// Starts it again on the data that it left.
    pub fn start_again(&self) {
        script("postgres", &[Path::new("start"), &self.folder]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
