//! Tests of `tail` with real files.

use super::*;
use crate::kinds::trial::Kept;
use crate::kinds::trial::{shared, start, until, until_logged, with};
use crate::testing::Trial;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

struct Place {
    folder: tempfile::TempDir,
    kept: Arc<Kept>,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kept: Arc::default() }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn append(&self, name: &str, text: &str) {
        let mut file = std::fs::File::options().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).unwrap();
    }
    fn start(&self, more: Value) -> Trial {
        let spec = with(json!({"path": self.path("log"), "every": "10ms"}), more);
        let read = vec![self.folder.path().to_str().unwrap().to_owned()];
        let settings = FilesSettings { read, write: Vec::new() };
        start::<Tail>(spec, &self.kept, vec![shared(settings)])
    }
    /// Waits until the file was opened, which its checkpoint tells.
    async fn until_at(&self, offset: u64) {
        let at = || self.kept.value().is_some_and(|it| it["offset"] == offset);
        until(&format!("offset {offset}, at {:?}", self.kept.value()), at).await;
    }
}

async fn lines(trial: &mut Trial, expected: &[&str]) {
    for line in expected {
        assert_eq!(trial.emitted().await.unwrap()["line"], *line, "{:?}", trial.logged());
    }
}

#[tokio::test]
async fn lines_are_emitted_when_they_are_complete() {
    let place = Place::new();
    place.append("log", "old\n");
    let mut trial = place.start(json!({}));
    place.until_at(4).await;
    place.append("log", "new\nhal");
    assert_eq!(trial.emitted().await.unwrap(), json!({"line": "new", "offset": 4}));
    place.until_at(8).await;
    place.append("log", "f\n");
    lines(&mut trial, &["half"]).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    let place = Place::new();
    place.append("log", "a\n{\"b\": 1}\nabcdefghij\nk\n");
    let mut trial = place.start(json!({"from": "beginning", "json": true, "max_line": 8}));
    lines(&mut trial, &["a"]).await;
    assert_eq!(trial.emitted().await.unwrap()["line"], json!({"b": 1}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"line": "abcdefgh", "offset": 11, "truncated": true}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"line": "k", "offset": 22}));
}

#[tokio::test]
async fn a_file_that_is_missing_or_renamed_is_followed_by_its_name() {
    let place = Place::new();
    let mut trial = place.start(json!({}));
    until_logged(&trial, "is missing; waiting for it").await;
    // What appears later is read from its beginning.
    place.append("log", "one\n");
    lines(&mut trial, &["one"]).await;
    // A writer that has not noticed the rotation yet writes on.
    place.rename("log", "log.1");
    place.append("log", "");
    place.append("log.1", "two\nunfinished");
    lines(&mut trial, &["two"]).await;
    place.append("log", "three\n");
    lines(&mut trial, &["unfinished", "three"]).await;
    // Between the rename and the create, there is no file.
    place.rename("log", "log.2");
    place.append("log.2", "four\n");
    lines(&mut trial, &["four"]).await;
    place.append("log", "five\n");
    lines(&mut trial, &["five"]).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_truncated_or_overwritten_file_is_read_from_its_beginning() {
    let place = Place::new();
    place.append("log", "one is long\n");
    let mut trial = place.start(json!({"from": "beginning"}));
    lines(&mut trial, &["one is long"]).await;
    std::fs::write(place.path("log"), "two\n").unwrap();
    lines(&mut trial, &["two"]).await;
    assert!(
        trial.logged().iter().any(|line| line.contains("the file was truncated")),
        "{:?}",
        trial.logged()
    );
    // Longer than before, so that only the first bytes tell.
    std::fs::write(place.path("log"), "three\nfour\n").unwrap();
    lines(&mut trial, &["three", "four"]).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn the_next_run_resumes_even_in_a_renamed_file() {
    let place = Place::new();
    place.append("log", "one\ntwo\n");
    let mut trial = place.start(json!({"from": "beginning"}));
    lines(&mut trial, &["one", "two"]).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    place.append("log", "three\n");
    let mut trial = place.start(json!({}));
    lines(&mut trial, &["three"]).await;
    until_logged(&trial, "resuming at byte 8").await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    place.append("log", "four\n");
    place.rename("log", "log.1");
    place.append("log", "five\n");
    let mut trial = place.start(json!({}));
    lines(&mut trial, &["four", "five"]).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    // The file is gone, or another one has its inode.
    std::fs::remove_file(place.path("log")).unwrap();
    place.append("log", "six\n");
    let mut trial = place.start(json!({}));
    lines(&mut trial, &["six"]).await;
    until_logged(&trial, "the file of the last run is gone").await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_backlog_loses_nothing_and_repeats_nothing() {
    const ALL: usize = 5000;
    let place = Place::new();
    let text: String = (0..ALL).map(|number| format!("{number}\n")).collect();
    place.append("log", &text);
    let (mut next, mut stops) = (0, 0);
    while next < ALL {
        let mut trial = place.start(json!({"from": "beginning"}));
        // The trial keeps a thousand values that nobody reads; then `emit` waits.
        for _ in 0..100.min(ALL - next) {
            lines(&mut trial, &[&next.to_string()]).await;
            next += 1;
        }
        let (stopped, rest) = trial.stop_reading().await.unwrap();
        assert_eq!(stopped.unwrap(), Exit::Done);
        for value in rest {
            assert_eq!(value["line"], next.to_string());
            next += 1;
        }
        stops += 1;
    }
    assert!(stops > 1, "everything was read at once");
}

#[tokio::test]
async fn only_an_allowed_file_is_read() {
    let place = Place::new();
    let refused = |spec: Value, settings: FilesSettings| async move {
        let ended = start::<Tail>(spec, &Arc::default(), vec![shared(settings)]).ended().await.unwrap();
        ended.map_or_else(|error| error.to_string(), |exit| format!("{exit:?}"))
    };
    let told = refused(json!({"path": "/etc/passwd"}), FilesSettings::default()).await;
    assert!(told.starts_with("Failed") && told.contains("[service.files] read"), "{told}");
    std::os::unix::fs::symlink("/etc/passwd", place.path("log")).unwrap();
    let settings =
        FilesSettings { read: vec![place.folder.path().to_str().unwrap().to_owned()], write: Vec::new() };
    let told = refused(json!({"path": place.path("log")}), settings).await;
    assert!(told.contains("`/etc/passwd` is in no folder of [service.files] read"), "{told}");
}
