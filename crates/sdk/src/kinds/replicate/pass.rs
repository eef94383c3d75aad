//! One pass over both folders. Waits for nothing but the disk, and stops between two chunks of a file.

use super::copy::{copy, is_same};
use super::progress::Progress;
use super::tree::{Stamp, Tree, list};
use crate::kinds::files::{Access, FilesSettings};
use std::fs::{DirBuilder, File};
use std::io::{self, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Problems that one pass tells of single files.
const NOTES_MAX: usize = 20;

/// The checked folders.
pub(super) struct Folders {
    from: PathBuf,
    to: PathBuf,
    settings: Arc<FilesSettings>,
}

pub(super) struct Pass {
    pub(super) folders: Arc<Folders>,
    pub(super) delete: bool,
    pub(super) min_files: usize,
    pub(super) by_content: bool,
    pub(super) max_files: usize,
    /// Files up to this one are in step.
    pub(super) after: Option<PathBuf>,
}

/// What a pass has done.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) files: usize,
    pub(super) copied: usize,
    pub(super) deleted: usize,
    pub(super) bytes: u64,
    pub(super) failed: usize,
    pub(super) notes: Vec<String>,
}

/// What happened to one file.
enum Step {
    Unchanged,
    Copied(u64),
    Stopped,
}

impl Summary {
    fn failed(&mut self, path: &Path, error: &io::Error) {
        self.failed += 1;
        self.note(format!("{}: {error}", path.display()));
    }
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}

impl Folders {
    /// # Errors
    /// If one of the folders is in the other.
    pub(super) fn new(from: PathBuf, to: PathBuf, settings: Arc<FilesSettings>) -> Result<Self, String> {
        let this = Self { from, to, settings };
        this.ensure_apart(&this.from, &this.to).map(|()| this)
    }

    fn ensure_apart(&self, from: &Path, to: &Path) -> Result<(), String> {
        if from.starts_with(to) || to.starts_with(from) {
            let (from, to) = (self.from.display(), self.to.display());
            return Err(format!("`to`: {to} and {from} contain each other; choose another folder"));
        }
        Ok(())
    }

    /// Both folders without symbolic links; creates the copy.
    fn real(&self) -> io::Result<(PathBuf, PathBuf)> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let from = self.from.canonicalize().map_err(|error| named(&self.from, error))?;
        self.settings.ensure_real(&from, Access::Read)?;
        // The nearest folder that exists decides where the others are created.
        let existing = self.to.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
        let missing = self.to.strip_prefix(existing).unwrap_or(Path::new(""));
        let mut to = existing.canonicalize().map_err(|error| named(&self.to, error))?;
        if !missing.as_os_str().is_empty() {
            to.push(missing);
        }
        self.settings.ensure_real(&to, Access::Write)?;
        DirBuilder::new().recursive(true).mode(0o755).create(&to).map_err(|error| named(&to, error))?;
        self.ensure_apart(&from, &to).map_err(io::Error::other)?;
        Ok((from, to))
    }
}

impl Pass {
    /// # Errors
    /// If a folder cannot be read or written at all. Problems with single files are in the summary.
    pub(super) fn run(&self, progress: &Progress) -> io::Result<Summary> {
        let (from, to) = self.folders.real()?;
        let tree = list(&from, self.max_files)?;
        let mut summary = Summary { files: tree.files.len(), ..Summary::default() };
        progress.expect(tree.files.len());
        for folder in &tree.folders {
            if let Err(error) = make_folder(&to, folder) {
                summary.failed(folder, &error);
            }
        }
        for (path, stamp) in &tree.files {
            if self.after.as_ref().is_some_and(|after| path <= after) {
                progress.passed(path);
                continue;
            }
            match self.step(&from, &to, (path, *stamp), progress) {
                Ok(Step::Unchanged) => {}
                Ok(Step::Copied(bytes)) => {
                    summary.copied += 1;
                    summary.bytes += bytes;
                }
                Ok(Step::Stopped) => return Ok(summary),
                // It was removed since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => summary.failed(path, &error),
            }
            progress.passed(path);
        }
        if self.delete && !progress.must_stop() {
            self.delete_others(&to, &tree, &mut summary)?;
        }
        Ok(summary)
    }

    fn step(
        &self,
        from: &Path,
        to: &Path,
        (path, stamp): (&Path, Stamp),
        progress: &Progress,
    ) -> io::Result<Step> {
        let (source, target) = (from.join(path), to.join(path));
        if progress.must_stop() {
            return Ok(Step::Stopped);
        }
        let existing = match target.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => Some(Stamp::of(&metadata)?),
            Ok(metadata) if metadata.is_dir() => return Err(in_the_way(&target)),
            // A link is replaced, never written through.
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut opened = None;
        if existing == Some(stamp) {
            if !self.by_content {
                return Ok(Step::Unchanged);
            }
            let mut source = self.folders.settings.open(&source)?;
            let mut copied = File::options().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(&target)?;
            match is_same(&mut source, &mut copied, progress)? {
                None => return Ok(Step::Stopped),
                Some(true) => return Ok(Step::Unchanged),
                Some(false) => {
                    source.rewind()?;
                    opened = Some(source);
                }
            }
        }
        let mut opened = match opened {
            Some(opened) => opened,
            None => self.folders.settings.open(&source)?,
        };
        ensure_folders(to, path)?;
        match copy(&mut opened, stamp, &target, progress)? {
            Some(bytes) => Ok(Step::Copied(bytes)),
            None => Ok(Step::Stopped),
        }
    }

    fn delete_others(&self, to: &Path, tree: &Tree, summary: &mut Summary) -> io::Result<()> {
        if tree.files.len() < self.min_files {
            let (from, count) = (self.folders.from.display(), tree.files.len());
            let told = format!("{from} contains {count} files, fewer than `min_files`: nothing is deleted");
            summary.note(told);
            return Ok(());
        }
        let copies = list(to, self.max_files.saturating_mul(2))?;
        for path in copies.files.keys().filter(|path| !tree.files.contains_key(*path)) {
            match std::fs::remove_file(to.join(path)) {
                Ok(()) => summary.deleted += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => summary.failed(path, &error),
            }
        }
        // The deepest first. A folder that is not empty contains something that is not ours to delete.
        let mut folders: Vec<_> = copies.folders.iter().filter(|path| !tree.folders.contains(path)).collect();
        folders.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for path in folders {
            let _not_empty = std::fs::remove_dir(to.join(path));
        }
        Ok(())
    }
}

/// Creates a folder, but follows no link on the way.
fn make_folder(root: &Path, folder: &Path) -> io::Result<()> {
    ensure_folders(root, &folder.join("x"))?;
    Ok(())
}

/// Every folder above a file is a folder and no link, which might lead elsewhere.
fn ensure_folders(root: &Path, file: &Path) -> io::Result<()> {
    let mut folder = root.to_owned();
    for part in file.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        match folder.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(in_the_way(&folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::create_dir(&folder)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn in_the_way(path: &Path) -> io::Error {
    let told = format!("{} is in the way; remove it", path.display());
    io::Error::new(io::ErrorKind::AlreadyExists, told)
}
