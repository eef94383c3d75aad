//! Log lines in files, for `service.log_dir`: they outlive a process that is killed.
//!
//! One file for each observer, named by its id, with one JSON object a line. A thread writes, so code never waits for a
//! disk: if the thread falls behind, lines are missing in the files, but not in memory. Services on one machine may share
//! the folder, because only the service that holds an observer writes to its file.

use everwatch_core::id::ObserverId;
use everwatch_core::wire::logs::{Line, Ring};
use std::collections::HashMap;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{Error, Result as IoResult, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Lines that wait to be written.
const QUEUE: usize = 10_000;
/// Lines that are written at once.
const BATCH: usize = 1000;
/// The most bytes in the folder; the files that were not written for the longest time are removed first.
const TOTAL_MAX: u64 = 1 << 30;
/// A file that was not written for this long is removed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The folder is looked through after so many written bytes.
const LOOK_AFTER: u64 = 64 << 20;
/// Failures are logged at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
const SUFFIX: &str = ".log";

/// The folder, and the thread that writes to it. The thread ends once this is dropped.
pub(crate) struct LogFiles {
    folder: PathBuf,
    most: u32,
    waiting: SyncSender<(ObserverId, Line)>,
    lost: Arc<AtomicU64>,
}

impl LogFiles {
    /// Keeps about `most` lines of each observer, as a ring in memory does, and up to twice the bytes.
    ///
    /// # Errors
    /// If files cannot be created in the folder, or the thread cannot start.
    pub(crate) fn open(folder: &Path, most: u32) -> IoResult<Arc<Self>> {
        check(folder)?;
        let (waiting, lines) = sync_channel(QUEUE);
        let lost = Arc::default();
        let writer = Writer {
            folder: folder.to_owned(),
            most,
            lost: Arc::clone(&lost),
            since_look: 0,
            complained: None,
        };
        std::thread::Builder::new().name("log-files".to_owned()).spawn(move || writer.run(&lines))?;
        Ok(Arc::new(Self { folder: folder.to_owned(), most, waiting, lost }))
    }

    /// Never waits.
    pub(crate) fn write(&self, id: ObserverId, line: Line) {
        if self.waiting.try_send((id, line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The lines of an observer; empty if there are none that can be read.
    pub(crate) fn read(&self, id: ObserverId) -> Ring {
        read(&file(&self.folder, id), self.most)
    }
}

/// Whether files can be created in the folder.
///
/// # Errors
/// Why not.
pub(crate) fn check(folder: &Path) -> IoResult<()> {
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    create(&probe)?;
    fs::remove_file(probe)
}

fn file(folder: &Path, id: ObserverId) -> PathBuf {
    folder.join(format!("{id}{SUFFIX}"))
}

/// For this user alone, because lines may be confidential.
fn create(path: &Path) -> IoResult<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn read(path: &Path, most: u32) -> Ring {
    let mut ring = Ring::default();
    for line in fs::read(path).unwrap_or_default().split(|byte| *byte == b'\n') {
        // The last one may be cut off, if the disk was full.
        if let Ok(line) = serde_json::from_slice(line) {
            ring.restore(line, most);
        }
    }
    ring
}

struct Writer {
    folder: PathBuf,
    most: u32,
    lost: Arc<AtomicU64>,
    /// Bytes that were written since the folder was looked through.
    since_look: u64,
    complained: Option<Instant>,
}

impl Writer {
    fn run(mut self, lines: &Receiver<(ObserverId, Line)>) {
        self.look();
        while let Ok(first) = lines.recv() {
            let mut texts: HashMap<ObserverId, Vec<u8>> = HashMap::new();
            for (id, line) in std::iter::once(first).chain(lines.try_iter()).take(BATCH) {
                let text = texts.entry(id).or_default();
                if serde_json::to_writer(&mut *text, &line).is_ok() {
                    text.push(b'\n');
                }
            }
            for (id, text) in texts {
                if let Err(error) = self.append(&file(&self.folder, id), &text) {
                    self.complain(&error.to_string());
                }
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.complain(&format!("{lost} lines were dropped, because writing is too slow"));
            }
            if self.since_look > LOOK_AFTER {
                self.look();
            }
        }
    }

    fn append(&mut self, path: &Path, text: &[u8]) -> IoResult<()> {
        let mut file = create(path)?;
        file.write_all(text)?;
        self.since_look += text.len() as u64;
        if file.metadata()?.len() > 2 * Ring::bytes_max(self.most) as u64 {
            self.shorten(path)?;
        }
        Ok(())
    }

    /// Leaves only the newest lines.
    fn shorten(&self, path: &Path) -> IoResult<()> {
        let kept = read(path, self.most).read(None, self.most as usize).lines;
        let mut text = Vec::new();
        for line in &kept {
            serde_json::to_writer(&mut text, line).map_err(Error::other)?;
            text.push(b'\n');
        }
        let new = path.with_extension("new");
        let _left_behind = fs::remove_file(&new);
        create(&new)?.write_all(&text)?;
        fs::rename(new, path)
    }

    /// Removes what is too old or too much.
    fn look(&mut self) {
        self.since_look = 0;
        if let Err(error) = remove_old(&self.folder, SystemTime::now(), TOTAL_MAX) {
            self.complain(&error.to_string());
        }
    }

    fn complain(&mut self, why: &str) {
        if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            tracing::warn!(folder = %self.folder.display(), why, "log lines are missing in service.log_dir");
        }
    }
}

fn remove_old(folder: &Path, now: SystemTime, total_max: u64) -> IoResult<()> {
    let known = |entry: DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(SUFFIX)?.parse::<ObserverId>().ok()?;
        let metadata = entry.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len(), entry.path()))
    };
    let mut all: Vec<_> = fs::read_dir(folder)?.flatten().filter_map(known).collect();
    all.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
    let mut total = 0;
    for (written, size, path) in all {
        total += size;
        let age = now.duration_since(written).unwrap_or_default();
        if total > total_max || age > KEPT {
            // Another service may have removed it.
            let _gone = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::epoch::Epoch;
    use everwatch_core::wire::logs::{LogCursor, Stream};
    use uuid::Uuid;

    fn id(number: u128) -> ObserverId {
        ObserverId(Uuid::from_u128(number))
    }
    fn line(run: u32, seq: u64) -> Line {
        let place = LogCursor { epoch: Epoch::first_of(run), seq };
        Line { place, at: Timestamp(7), stream: Stream::Log, text: format!("{run}.{seq}").into() }
    }
    fn texts(ring: &Ring) -> Vec<String> {
        ring.read(None, 1000).lines.into_iter().map(|line| line.text.into()).collect()
    }
    fn writer(folder: &Path, most: u32) -> Writer {
        let folder = folder.to_owned();
        Writer { folder, most, lost: Arc::default(), since_look: 0, complained: None }
    }
    /// Writes the lines and waits until they are in the file.
    fn write(folder: &Path, most: u32, lines: impl Iterator<Item = Line>) {
        let (sender, receiver) = sync_channel(10_000);
        lines.for_each(|line| sender.send((id(1), line)).unwrap());
        drop(sender);
        writer(folder, most).run(&receiver);
    }

    #[test]
    fn the_newest_lines_are_found_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 3, (1..=2).map(|seq| line(1, seq)));
        write(folder.path(), 3, (1..=2).map(|seq| line(2, seq)));
        // A process died in the middle of a line.
        create(&file(folder.path(), id(1))).unwrap().write_all(b"{\"place\": {\"ep").unwrap();
        let files = LogFiles::open(folder.path(), 3).unwrap();
        assert_eq!(texts(&files.read(id(1))), ["1.2", "2.1", "2.2"]);
        assert!(files.read(id(2)).is_empty());
        let mode = fs::metadata(file(folder.path(), id(1))).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o600);
    }

    #[test]
    fn a_file_never_grows_beyond_twice_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 10, (1..=5000).map(|seq| line(1, seq)));
        let size = fs::metadata(file(folder.path(), id(1))).unwrap().len();
        let batch = u64::try_from(BATCH * 100).unwrap();
        assert!(size < 2 * Ring::bytes_max(10) as u64 + batch, "{size}");
        let expected: Vec<_> = (4991..=5000).map(|seq| format!("1.{seq}")).collect();
        assert_eq!(texts(&read(&file(folder.path(), id(1)), 10)), expected);
    }

    #[test]
    fn old_files_are_removed_first_and_those_of_strangers_never() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for (number, age) in [(1, 3600), (2, 60), (3, 8 * 24 * 3600)] {
            let file = create(&file(folder.path(), id(number))).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        fs::write(folder.path().join("other.log"), [0; 1000]).unwrap();
        let left = || {
            let exists = |number: &u128| file(folder.path(), id(*number)).exists();
            (1..=3).filter(exists).collect::<Vec<_>>()
        };
        remove_old(folder.path(), now, 1000).unwrap();
        assert_eq!(left(), [1, 2]);
        remove_old(folder.path(), now, 150).unwrap();
        assert_eq!(left(), [2]);
        assert!(folder.path().join("other.log").exists());
    }

    #[test]
    fn a_folder_that_takes_no_files_is_refused() {
        assert!(LogFiles::open(Path::new("/no/such/folder"), 3).is_err());
        assert!(check(Path::new("/proc")).is_err());
    }
}
