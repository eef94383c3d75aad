//! A value that a file may replace. The file is read at each use, so that a new password needs no restart.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Reread<T> {
    /// The key of the file, for the log.
    key: &'static str,
    file: Option<PathBuf>,
    /// The last valid value.
    last: Mutex<T>,
}

impl<T: Clone> Reread<T> {
    pub(super) fn new(key: &'static str, value: T) -> Self {
        Self { key, file: None, last: Mutex::new(value) }
    }

    pub(super) fn set_file(&mut self, file: PathBuf) {
        self.file = Some(file);
    }

    /// The last valid value, without reading the file.
    pub(super) fn last(&self) -> T {
        self.lock().clone()
    }

    /// Reads the file again. A file that is unusable is logged and changes nothing.
    pub(super) fn current(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> T {
        if let Some(file) = &self.file {
            let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
            match text.and_then(|text| parse(text.trim())) {
                Ok(value) => *self.lock() = value,
                Err(error) => {
                    let (key, file) = (self.key, file.display());
                    tracing::warn!(key, %file, error, "file is unusable; its last valid content stays in use");
                }
            }
        }
        self.last()
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
