//! Processes whose wall clocks are wrong.

use std::path::{Path, PathBuf};

/// The environment of a process whose wall clock is off by `by`, in the notation of faketime (`+600s`).
pub fn wrong_clock(by: &str) -> [(&'static str, String); 3] {
    [("LD_PRELOAD", library()), ("FAKETIME", by.to_owned()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned())]
}

/// The wall clock of processes, which can be set while they run.
pub struct WallClock(PathBuf);

impl WallClock {
    /// Creates a clock that is right at first; `folder` stores its setting.
    pub fn new(folder: &Path) -> Self {
        let clock = Self(folder.join("clock"));
        clock.set("+0s");
        clock
    }

    pub fn set(&self, by: &str) {
        std::fs::write(&self.0, by).unwrap();
    }

    pub fn environment(&self) -> [(String, String); 4] {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        [
            set("LD_PRELOAD", &library()),
            set("FAKETIME_TIMESTAMP_FILE", self.0.to_str().unwrap()),
            set("FAKETIME_NO_CACHE", "1"),
            set("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}

/// The library that changes the time that a program sees.
fn library() -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let file = files.find(|file| file.exists());
    file.expect("libfaketime is missing: run ./tests/run").to_str().unwrap().to_owned()
}
