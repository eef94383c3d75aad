//! A directory on a simulated disk that loses unsynchronized writes on demand. This program replaces two
//! functions of the C library: they call the original, then record the contents of the file or the names in
//! the directory.

#![expect(unsafe_code, reason = "two functions of the C library are replaced")]

use nix::libc::{SYS_fdatasync, SYS_fsync, c_int, c_long, syscall};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// The synchronized content of the disk, as far as this process has synchronized it.
#[derive(Default)]
struct Synchronized {
    /// Contents by the number of the file's inode.
    files: HashMap<u64, Vec<u8>>,
    /// Names and inodes by the directory's path.
    directories: HashMap<PathBuf, Vec<(OsString, u64)>>,
}

static SYNCHRONIZED: Mutex<Option<Synchronized>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Synchronized) -> T) -> T {
    let mut synchronized = SYNCHRONIZED.lock().unwrap_or_else(PoisonError::into_inner);
    act(synchronized.get_or_insert_default())
}

pub(crate) struct Disk(TempDir);

impl Disk {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates a disk with the content that this one has after a power loss.
    pub(crate) fn after_power_loss(&self) -> Self {
        let left = Self::new();
        for (name, contents) in self.left() {
            std::fs::write(left.path().join(name), contents).unwrap();
        }
        // Content that was read back from the disk counts as synchronized.
        File::open(left.path()).unwrap().sync_all().unwrap();
        for file in std::fs::read_dir(left.path()).unwrap() {
            File::open(file.unwrap().path()).unwrap().sync_all().unwrap();
        }
        left
    }

    /// How many bytes of this file survive a power loss.
    pub(crate) fn synchronized(&self, name: &str) -> usize {
        self.left().iter().find(|(known, _)| known == name).map_or(0, |(_, contents)| contents.len())
    }

    fn left(&self) -> Vec<(OsString, Vec<u8>)> {
        let path = self.path().canonicalize().unwrap();
        with(|synchronized| {
            let names = synchronized.directories.get(&path).cloned().unwrap_or_default();
            let contents = |inode| synchronized.files.get(&inode).cloned().unwrap_or_default();
            names.into_iter().map(|(name, inode)| (name, contents(inode))).collect()
        })
    }
}

/// Records what was just synchronized. It must not open the file: closing it would release SQLite's locks on
/// it.
fn note(descriptor: c_int) -> std::io::Result<()> {
    // SAFETY: the caller's descriptor is open, and is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}"))?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            names.push((entry.file_name(), entry.metadata()?.ino()));
        }
        with(|synchronized| synchronized.directories.insert(path, names));
    } else {
        let mut contents = vec![0; usize::try_from(metadata.len()).unwrap_or(0)];
        file.read_exact_at(&mut contents, 0)?;
        with(|synchronized| synchronized.files.insert(metadata.ino(), contents));
    }
    Ok(())
}

fn synchronize(number: c_long, descriptor: c_int) -> c_int {
    // SAFETY: the caller's own argument.
    let done = unsafe { syscall(number, descriptor) };
    // If the recording fails, this disk treats the write as not synchronized: a test that needs it fails.
    let noted = done == 0 && note(descriptor).is_ok();
    if noted { 0 } else { -1 }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    synchronize(SYS_fsync, descriptor)
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    synchronize(SYS_fdatasync, descriptor)
}
