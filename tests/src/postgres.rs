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
        let url = script("postgres", &[Path::new("start"), folder]).trim().to_owned();
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
