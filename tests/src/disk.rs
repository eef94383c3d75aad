//! A small file system that a test fills up.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Gone with it.
pub struct SmallDisk {
    pub path: PathBuf,
}

impl SmallDisk {
    /// Mounts it on an empty folder; `size` as `mount -o size=` takes it. Needs root.
    pub fn mount(path: &Path, size: &str) -> Self {
        let options = format!("size={size},mode=0777");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).status();
        assert!(mounted.unwrap().success(), "a small file system needs root");
        Self { path: path.to_owned() }
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Full to the last byte.
    pub fn fill(&self) {
        let target = format!("of={}", self.filler().display());
        let filled = Command::new("dd").args(["if=/dev/zero", "bs=4096", &target]).output().unwrap();
        assert!(!filled.status.success(), "the disk has room left");
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
