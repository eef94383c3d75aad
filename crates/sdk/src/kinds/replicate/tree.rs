//! Lists the files of a folder and of the folders in it, without following symbolic links.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How deep folders may be nested.
const DEPTH_MAX: usize = 100;

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) mode: u32,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> io::Result<Self> {
        let mode = metadata.permissions().mode() & 0o777;
        Ok(Self { size: metadata.size(), modified: metadata.modified()?, mode })
    }
}

/// The entries of a folder by their path in it.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, Stamp>,
    pub(super) folders: Vec<PathBuf>,
    /// Symbolic links, sockets and the like.
    pub(super) others: usize,
}

/// # Errors
/// If a folder cannot be read, or if there are more entries than `limit`.
pub(super) fn list(root: &Path, limit: usize) -> io::Result<Tree> {
    let mut tree = Tree::default();
    let mut next = vec![(PathBuf::new(), 0)];
    while let Some((folder, depth)) = next.pop() {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", root.join(&folder).display()))
        };
        let entries = match std::fs::read_dir(root.join(&folder)) {
            // It was removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => continue,
            entries => entries.map_err(named)?,
        };
        for entry in entries {
            let entry = entry.map_err(named)?;
            let path = folder.join(entry.file_name());
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata.map_err(named)?,
            };
            if tree.files.len() + tree.folders.len() + tree.others >= limit {
                let told = format!("{} contains more than `max_files`, {limit}", root.display());
                return Err(io::Error::other(told));
            }
            if metadata.is_dir() {
                if depth >= DEPTH_MAX {
                    let told =
                        format!("{} is nested deeper than {DEPTH_MAX} folders", root.join(&path).display());
                    return Err(io::Error::other(told));
                }
                tree.folders.push(path.clone());
                next.push((path, depth + 1));
            } else if metadata.is_file() {
                tree.files.insert(path, Stamp::of(&metadata)?);
            } else {
                tree.others += 1;
            }
        }
    }
    Ok(tree)
}
