//! Log lines in files, for `service.log_dir`: they outlive a process that is killed.
//!
//! Each service writes to a folder of its own, `<log_dir>/<name of the service>`, one file for each observer, one JSON object
//! a line. It reads the folders of all services. A thread writes, so code never waits for a disk: if the thread falls
//! behind, lines are missing in the files, but not in memory.

use everwatch_core::clock;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::logs::{Line, Ring};
use nix::libc::O_NOFOLLOW;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions};
use std::io::{Error, ErrorKind, Result as IoResult, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that wait to be written.
const QUEUE: usize = 10_000;
/// Lines that are written at once.
const BATCH: usize = 1000;
/// The most bytes in the folder of a service; the files that were not written to for the longest time are removed first.
const TOTAL_MAX: u64 = 1 << 30;
/// A file that was not written to for this long is removed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the end of a service waits for the files.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);
/// Old files are looked for after so many written bytes.
const CLEAN_AFTER: u64 = 64 << 20;
/// Failures are logged at most this often.
const WARN_EVERY: Duration = Duration::from_secs(60);
const SUFFIX: &str = ".log";

/// What the thread has to do.
enum Order {
    Write(ObserverId, Line),
    /// Answer once everything before is in the files.
    Flush(SyncSender<()>),
}

/// The folder, and the thread that writes to it. The thread ends once this is dropped.
pub(crate) struct LogFiles {
    /// Contains the folders of all services.
    root: PathBuf,
    waiting: SyncSender<Order>,
    dropped: Arc<AtomicU64>,
}

impl LogFiles {
    /// Keeps about `most` lines of each observer, as a ring in memory does.
    ///
    /// # Errors
    /// If files cannot be created in the folder, or the thread cannot start.
    pub(crate) fn open(root: &Path, service: &str, most: u32) -> IoResult<Arc<Self>> {
        check(root, service)?;
        let (waiting, orders) = sync_channel(QUEUE);
        let dropped = Arc::default();
        let mut writer = Writer::new(root.join(service), most);
        writer.dropped = Arc::clone(&dropped);
        std::thread::Builder::new().name("log-files".to_owned()).spawn(move || writer.run(&orders))?;
        Ok(Arc::new(Self { root: root.to_owned(), waiting, dropped }))
    }

    /// Never waits.
    pub(crate) fn write(&self, id: ObserverId, line: Line) {
        if self.waiting.try_send(Order::Write(id, line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the lines so far are in the files, at most for [`FLUSH_WITHIN`]. Blocks.
    pub(crate) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.waiting.try_send(Order::Flush(done)).is_ok() {
            // A disk that hangs must not keep the process from its end.
            let _late = is_done.recv_timeout(FLUSH_WITHIN);
        }
    }

    /// The lines of an observer in the files of all services, with those in memory.
    pub(crate) fn read(&self, id: ObserverId, in_memory: Vec<Line>) -> Ring {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut lines: Vec<Line> = folders.flat_map(|folder| read(&file(&folder.path(), id))).collect();
        lines.extend(in_memory);
        lines.sort_by_key(|line| line.place);
        let mut ring = Ring::default();
        for line in lines {
            ring.restore(line, u32::MAX);
        }
        ring
    }
}

/// Whether a service can create files in its folder, which it creates if necessary.
///
/// # Errors
/// Why not.
pub(crate) fn check(root: &Path, service: &str) -> IoResult<()> {
    let folder = root.join(service);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let probe = folder.join(format!(".probe-{}", uuid::Uuid::new_v4()));
    create(&probe)?;
    fs::remove_file(probe)
}

fn file(folder: &Path, id: ObserverId) -> PathBuf {
    folder.join(format!("{id}{SUFFIX}"))
}

/// For this user alone, because lines may be confidential.
fn create(path: &Path) -> IoResult<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(O_NOFOLLOW).open(path)
}

fn read(path: &Path) -> Vec<Line> {
    let text = fs::read(path).unwrap_or_default();
    // The last line may be cut off, if the disk was full.
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

struct Writer {
    folder: PathBuf,
    most: u32,
    dropped: Arc<AtomicU64>,
    /// Bytes that were written since old files were removed.
    since_cleaned: u64,
    warned: Option<Instant>,
}

impl Writer {
    fn new(folder: PathBuf, most: u32) -> Self {
        Self { folder, most, dropped: Arc::default(), since_cleaned: 0, warned: None }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        self.clean();
        while let Ok(first) = orders.recv() {
            let mut texts: HashMap<ObserverId, Vec<u8>> = HashMap::new();
            let mut flushed = Vec::new();
            for order in std::iter::once(first).chain(orders.try_iter()).take(BATCH) {
                match order {
                    Order::Write(id, line) => {
                        let text = texts.entry(id).or_default();
                        if serde_json::to_writer(&mut *text, &line).is_ok() {
                            text.push(b'\n');
                        }
                    }
                    Order::Flush(done) => flushed.push(done),
                }
            }
            for (id, text) in texts {
                if let Err(error) = self.append(&file(&self.folder, id), &text) {
                    self.warn(&error.to_string());
                }
            }
            for done in flushed {
                let _gave_up = done.try_send(());
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                self.warn(&format!("{dropped} lines were dropped, because writing is too slow"));
            }
            if self.since_cleaned > CLEAN_AFTER {
                self.clean();
            }
        }
    }

    fn append(&mut self, path: &Path, text: &[u8]) -> IoResult<()> {
        let mut file = create(path)?;
        file.write_all(text)?;
        self.since_cleaned += text.len() as u64;
        if file.metadata()?.len() > 2 * Ring::bytes_max(self.most) as u64 {
            shorten(path, self.most)?;
        }
        Ok(())
    }

    /// Removes old files.
    fn clean(&mut self) {
        self.since_cleaned = 0;
        if let Err(error) = remove_old(&self.folder, now(), TOTAL_MAX) {
            self.warn(&error.to_string());
        }
        // Those of services that no longer exist.
        let root = self.folder.parent().map(Path::to_owned).unwrap_or_default();
        for folder in fs::read_dir(root).into_iter().flatten().flatten() {
            let _other_user = remove_old(&folder.path(), now(), TOTAL_MAX);
        }
    }

    fn warn(&mut self, why: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(folder = %self.folder.display(), why, "log lines are missing in service.log_dir");
        }
    }
}

/// Leaves only the newest lines: half of the size at which a file is shortened.
fn shorten(path: &Path, most: u32) -> IoResult<()> {
    let text = fs::read(path)?;
    let (mut start, mut lines) = (text.len(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n').rev() {
        lines += 1;
        if lines > most as usize || text.len() - start + line.len() > Ring::bytes_max(most) {
            break;
        }
        start -= line.len();
    }
    let new = path.with_extension("new");
    let _left_by_a_crash = fs::remove_file(&new);
    create(&new)?.write_all(&text[start..])?;
    fs::rename(new, path)
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(clock::now().0).unwrap_or(0))
}

/// Removes files of observers that are too old, or too much in all.
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
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::other(error)),
                _ => {}
            }
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
    use std::os::unix::fs::MetadataExt as _;
    use uuid::Uuid;

    fn id(number: u128) -> ObserverId {
        ObserverId(Uuid::from_u128(number))
    }
    fn line(run: u32, seq: u64) -> Line {
        let place = LogCursor { epoch: Epoch::first_of(run), seq };
        Line { place, at: Timestamp(7), stream: Stream::Log, text: format!("{run}.{seq}").into() }
    }
    fn texts(ring: &Ring) -> Vec<String> {
        ring.read(None, 10_000).lines.into_iter().map(|line| line.text.into()).collect()
    }
    /// Writes the lines and waits until they are in the file.
    fn write(root: &Path, service: &str, most: u32, lines: impl Iterator<Item = Line>) {
        check(root, service).unwrap();
        let (sender, receiver) = sync_channel(10_000);
        lines.for_each(|line| sender.send(Order::Write(id(1), line)).unwrap());
        drop(sender);
        Writer::new(root.join(service), most).run(&receiver);
    }

    #[test]
    fn the_next_process_finds_the_lines_of_all_services_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a", 100, (1..=2).map(|seq| line(1, seq)));
        write(root.path(), "b", 100, (1..=2).map(|seq| line(2, seq)));
        write(root.path(), "a", 100, (1..=2).map(|seq| line(3, seq)));
        let of_a = file(&root.path().join("a"), id(1));
        // A process died in the middle of a line.
        create(&of_a).unwrap().write_all(b"{\"place\": {\"ep").unwrap();
        let files = LogFiles::open(root.path(), "a", 100).unwrap();
        let in_memory = vec![line(3, 2), line(3, 3)];
        assert_eq!(texts(&files.read(id(1), in_memory)), ["1.1", "1.2", "2.1", "2.2", "3.1", "3.2", "3.3"]);
        assert!(files.read(id(2), Vec::new()).is_empty());
        let modes = [&of_a, &root.path().join("a")].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o600, 0o700]);
    }

    #[test]
    fn what_was_written_before_a_flush_is_in_the_file_after_it() {
        let root = tempfile::tempdir().unwrap();
        let files = LogFiles::open(root.path(), "a", 5000).unwrap();
        (1..=3000).for_each(|seq| files.write(id(1), line(1, seq)));
        files.flush();
        assert_eq!(read(&file(&root.path().join("a"), id(1))).len(), 3000);
    }

    #[test]
    fn a_file_never_grows_beyond_twice_its_limit() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a", 10, (1..=5000).map(|seq| line(1, seq)));
        let of_a = file(&root.path().join("a"), id(1));
        let size = fs::metadata(&of_a).unwrap().len();
        let batch = u64::try_from(BATCH * 100).unwrap();
        assert!(size < 2 * Ring::bytes_max(10) as u64 + batch, "{size}");
        let kept: Vec<u64> = read(&of_a).iter().map(|line| line.place.seq).collect();
        assert!(kept.len() >= 10 && kept.last() == Some(&5000) && kept.is_sorted(), "{kept:?}");
        shorten(&of_a, 10).unwrap();
        let kept: Vec<u64> = read(&of_a).iter().map(|line| line.place.seq).collect();
        assert_eq!(kept, Vec::from_iter(4991..=5000));
    }

    #[test]
    fn lines_that_are_longer_in_a_file_than_in_memory_do_not_exceed_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), id(1));
        let escapes = Line { text: "\u{1b}".repeat(1000).into(), ..line(1, 1) };
        let mut writer = Writer::new(folder.path().to_owned(), 10);
        for seq in 1..=20 {
            let place = LogCursor { seq, ..escapes.place };
            let mut text = serde_json::to_vec(&Line { place, ..escapes.clone() }).unwrap();
            text.push(b'\n');
            writer.append(&path, &text).unwrap();
        }
        let size = fs::metadata(&path).unwrap().len();
        assert!(size <= 2 * Ring::bytes_max(10) as u64, "{size}");
        assert_eq!(read(&path).last().map(|line| line.place.seq), Some(20));
    }

    #[test]
    fn old_files_are_removed_first_and_those_of_strangers_never() {
        let folder = tempfile::tempdir().unwrap();
        let now = now();
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
        assert!(LogFiles::open(Path::new("/no/such/folder"), "a", 3).is_err());
        assert!(check(Path::new("/proc"), "a").is_err());
    }
}
