//! Follows one name on the disk: which file it means now, how far it was read, and what comes next. Waits for nothing
//! but the disk.

use super::fingerprint::Fingerprint;
use super::splitter::{Line, Splitter};
use crate::kinds::files::FilesSettings;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that one poll reads at most.
const BATCH: usize = 256 * 1024;
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// Lines that one poll returns at least before it stops reading.
const LINES: usize = 1000;
/// Files of the folder among which a rotated file is searched.
const SIBLINGS: usize = 10_000;

/// How far a file was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    device: u64,
    inode: u64,
    /// The start of the first line that was not emitted.
    offset: u64,
    head: Fingerprint,
}

impl Position {
    pub(super) fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }
}

/// What one poll has found.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
    /// The file that all of these lines are from.
    pub(super) file: Option<Position>,
    /// The position after these lines, if it has changed.
    pub(super) position: Option<Position>,
    /// Whether there is more to read at once.
    pub(super) has_more: bool,
    /// What a reader of the log should know.
    pub(super) notes: Vec<String>,
}

/// Where a file is read from that is opened without a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Beginning,
    End,
}

struct Open {
    file: File,
    device: u64,
    inode: u64,
    head: Fingerprint,
    splitter: Splitter,
}

pub(super) struct Follower {
    path: PathBuf,
    settings: Arc<FilesSettings>,
    max_line: usize,
    open: Option<Open>,
    /// The position of an earlier run, until the first poll.
    restored: Option<Position>,
    start: Start,
    /// Whether the log says already that the file is missing.
    is_missing: bool,
    told: Option<Position>,
}

impl Follower {
    pub(super) fn new(
        path: PathBuf,
        settings: Arc<FilesSettings>,
        max_line: usize,
        restored: Option<Position>,
        from_end: bool,
    ) -> Self {
        let start = if from_end && restored.is_none() { Start::End } else { Start::Beginning };
        Self { path, settings, max_line, open: None, restored, start, is_missing: false, told: None }
    }

    /// Reads what is new.
    pub(super) fn poll(&mut self) -> io::Result<Batch> {
        let mut batch = Batch::default();
        if let Some(position) = self.restored.take() {
            self.resume(&position, &mut batch)?;
        }
        if self.open.is_none() && !self.open_named(&mut batch)? {
            return Ok(batch);
        }
        batch.file = self.open.as_ref().map(Open::position);
        let mut read = 0;
        while let Some(open) = &mut self.open {
            let count = open.read(&mut batch.lines)?;
            read += count;
            if read >= BATCH || batch.lines.len() >= LINES {
                batch.has_more = true;
                break;
            }
            if count > 0 {
                continue;
            }
            // The lines of a batch are all from one file: another file is for the next poll.
            if let Some(reason) = open.replaced()? {
                batch.notes.push(format!("{}: {reason}; reading from its beginning", self.path.display()));
                self.open = None;
                batch.has_more = self.open_named(&mut batch)?;
            } else {
                batch.has_more = self.moved_on(&mut batch)?;
            }
            break;
        }
        let position = self.open.as_ref().map(Open::position);
        if position != self.told {
            self.told.clone_from(&position);
            batch.position = position;
        }
        Ok(batch)
    }

    /// Opens the file of an earlier run: the one with the name, or one beside it to which it was renamed since.
    fn resume(&mut self, position: &Position, batch: &mut Batch) -> io::Result<()> {
        let fits = |file: &File| -> io::Result<bool> {
            let metadata = file.metadata()?;
            let is_same_device = metadata.dev() == position.device;
            Ok(metadata.ino() == position.inode
                && metadata.len() >= position.offset
                && (is_same_device || !position.head.is_empty())
                && position.head.fits(file)?)
        };
        let mut file = self.opened(&self.path)?;
        if !file.as_ref().map_or(Ok(false), &fits)? {
            file = self.sibling(position.inode).filter(|file| fits(file).unwrap_or(false));
        }
        match file {
            Some(file) => {
                batch.notes.push(format!("{}: resuming at byte {}", self.path.display(), position.offset));
                self.open = Some(Open::new(file, position.offset, self.max_line)?);
            }
            None => batch.notes.push(format!(
                "{}: the file of the last run is gone, so lines may be missing; reading from the beginning",
                self.path.display()
            )),
        }
        Ok(())
    }

    /// Opens what has the name now; `false` if nothing has.
    fn open_named(&mut self, batch: &mut Batch) -> io::Result<bool> {
        let Some(file) = self.opened(&self.path)? else {
            if !std::mem::replace(&mut self.is_missing, true) {
                batch.notes.push(format!("{} is missing; waiting for it", self.path.display()));
            }
            // What appears later is new.
            self.start = Start::Beginning;
            return Ok(false);
        };
        self.is_missing = false;
        let offset = if self.start == Start::End { file.metadata()?.len() } else { 0 };
        self.start = Start::Beginning;
        self.open = Some(Open::new(file, offset, self.max_line)?);
        Ok(true)
    }

    /// At the end of the open file: goes on with another file that has the name by now. `false`: there is none, or
    /// nothing was written to it yet. Until then, the writer may not have noticed that its file was renamed.
    fn moved_on(&mut self, batch: &mut Batch) -> io::Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        let Some(named) = opened(&self.path, &self.settings)? else { return Ok(false) };
        let metadata = named.metadata()?;
        if open.is(&metadata) || metadata.len() == 0 {
            return Ok(false);
        }
        // What was written to the old file before the new one is read first.
        if open.read(&mut batch.lines)? > 0 {
            return Ok(true);
        }
        batch.lines.extend(open.splitter.rest());
        batch.notes.push(format!("{} was replaced; going on with the new file", self.path.display()));
        self.open = Some(Open::new(named, 0, self.max_line)?);
        Ok(true)
    }

    fn opened(&self, path: &Path) -> io::Result<Option<File>> {
        opened(path, &self.settings)
    }

    fn sibling(&self, inode: u64) -> Option<File> {
        let entries = std::fs::read_dir(self.path.parent()?).ok()?.take(SIBLINGS).flatten();
        let mut found =
            entries.filter(|entry| entry.metadata().is_ok_and(|it| it.ino() == inode && it.is_file()));
        self.settings.open(&found.next()?.path()).ok()
    }
}

fn opened(path: &Path, settings: &FilesSettings) -> io::Result<Option<File>> {
    match settings.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

impl Open {
    fn new(file: File, offset: u64, max_line: usize) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let head = Fingerprint::of(&file)?;
        let splitter = Splitter::new(max_line, offset);
        Ok(Self { file, device: metadata.dev(), inode: metadata.ino(), head, splitter })
    }

    fn is(&self, metadata: &Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == (self.device, self.inode)
    }

    fn position(&self) -> Position {
        let (device, inode, head) = (self.device, self.inode, self.head.clone());
        Position { device, inode, offset: self.splitter.start(), head }
    }

    /// Reads some bytes; 0 at the end.
    fn read(&mut self, lines: &mut Vec<Line>) -> io::Result<usize> {
        let new = self.file.metadata()?.len().saturating_sub(self.splitter.at());
        let mut chunk = vec![0; CHUNK.min(usize::try_from(new).unwrap_or(CHUNK))];
        let count = loop {
            match self.file.read_at(&mut chunk, self.splitter.at()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        // A file that was overwritten from its beginning has other lines at this place.
        if count == 0 || !self.head.fits(&self.file)? {
            return Ok(0);
        }
        self.splitter.split(&chunk[..count], lines);
        if self.head.is_short() {
            self.head = Fingerprint::of(&self.file)?;
        }
        Ok(count)
    }

    /// Why the open file does not go on where it was read to, if so.
    fn replaced(&self) -> io::Result<Option<&'static str>> {
        if self.file.metadata()?.len() < self.splitter.at() {
            return Ok(Some("the file was truncated"));
        }
        Ok((!self.head.fits(&self.file)?).then_some("the file was overwritten"))
    }
}
