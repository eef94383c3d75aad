//! Tests of `replicate` with real folders.

use super::*;
use crate::kinds::trial::Kept;
use crate::kinds::trial::{shared, start, until, until_logged, with};
use crate::testing::Trial;
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::SystemTime;

struct Place {
    folder: tempfile::TempDir,
    kept: Arc<Kept>,
}

impl Place {
    fn new() -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap(), kept: Arc::default() };
        std::fs::create_dir(this.path("from")).unwrap();
        this
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
    fn settings(&self) -> FilesSettings {
        let folder = vec![self.folder.path().to_str().unwrap().to_owned()];
        FilesSettings { read: folder.clone(), write: folder }
    }
    fn start(&self, more: Value) -> Trial {
        let spec =
            with(json!({"from": self.path("from"), "to": self.path("copies/to"), "every": "100ms"}), more);
        start::<Replicate>(spec, &self.kept, vec![shared(self.settings())])
    }
    async fn until_copied(&self, name: &str, text: Option<&str>) {
        let name = format!("copies/to/{name}");
        until(&format!("{name} is {text:?}"), || self.read(&name).as_deref() == text).await;
    }
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

#[tokio::test]
async fn the_copy_follows_every_change_of_the_original() {
    let place = Place::new();
    place.write("from/a", "one");
    place.write("from/deep/er/b", "two");
    std::fs::create_dir(place.path("from/empty")).unwrap();
    std::fs::set_permissions(place.path("from/a"), std::fs::Permissions::from_mode(0o751)).unwrap();
    symlink("/etc/passwd", place.path("from/link")).unwrap();
    let mut trial = place.start(json!({"delete": true}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"files": 2, "copied": 2, "deleted": 0, "bytes": 6}));
    assert_eq!(place.read("copies/to/deep/er/b").as_deref(), Some("two"));
    assert!(place.path("copies/to/empty").is_dir() && !place.path("copies/to/link").exists());
    let (from, to) = (place.path("from/a"), place.path("copies/to/a"));
    assert_eq!(modified(&from), modified(&to));
    assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o751);
    // A change of the same size, a new file, and a deleted folder.
    place.write("from/a", "eno");
    place.write("from/c", "three");
    std::fs::remove_dir_all(place.path("from/deep")).unwrap();
    place.write("copies/to/.everwatch-0123456789abcdef.partial", "left behind");
    place.until_copied("a", Some("eno")).await;
    place.until_copied("c", Some("three")).await;
    until("the folder is gone", || !place.path("copies/to/deep").exists()).await;
    until("nothing else is there", || std::fs::read_dir(place.path("copies/to")).unwrap().count() == 3).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    // A stop in the middle of a pass stores where it was.
    let after = place.kept.value().unwrap()["after"].clone();
    assert!(after.is_null() || ["a", "c"].contains(&after.as_str().unwrap()), "{after}");
}

#[tokio::test]
async fn nothing_is_deleted_unless_it_is_asked_for_and_the_original_is_there() {
    let place = Place::new();
    place.write("from/a", "one");
    place.write("copies/to/own", "mine");
    let mut trial = place.start(json!({}));
    trial.emitted().await.unwrap();
    until("two passes", || trial.status().is_some_and(|it| it.contains("in step"))).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    assert_eq!(place.read("copies/to/own").as_deref(), Some("mine"));
    std::fs::remove_file(place.path("from/a")).unwrap();
    let trial = place.start(json!({"delete": true}));
    until_logged(&trial, "contains 0 files, fewer than `min_files`: nothing is deleted").await;
    assert_eq!(
        (place.read("copies/to/a").as_deref(), place.read("copies/to/own").as_deref()),
        (Some("one"), Some("mine"))
    );
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    let mut trial = place.start(json!({"delete": true, "min_files": 0}));
    assert_eq!(trial.emitted().await.unwrap()["deleted"], 2);
    drop(trial);
    std::fs::remove_dir(place.path("from")).unwrap();
    let mut trial = place.start(json!({"delete": true, "min_files": 0}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("from: No such file"), "{error}");
}

#[tokio::test]
async fn content_is_compared_if_the_spec_says_so() {
    let place = Place::new();
    place.write("from/a", "one");
    let mut trial = place.start(json!({"compare": "content"}));
    trial.emitted().await.unwrap();
    // The same size and time, as after a fault of a disk.
    let (from, to) = (place.path("from/a"), place.path("copies/to/a"));
    std::fs::write(&to, "0ne").unwrap();
    std::fs::File::options().write(true).open(&to).unwrap().set_modified(modified(&from)).unwrap();
    place.until_copied("a", Some("one")).await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    std::fs::write(&to, "0ne").unwrap();
    std::fs::File::options().write(true).open(&to).unwrap().set_modified(modified(&from)).unwrap();
    let trial = place.start(json!({}));
    until("a pass", || trial.status().is_some_and(|it| it.contains("in step"))).await;
    assert_eq!(place.read("copies/to/a").as_deref(), Some("0ne"));
}

#[tokio::test]
async fn an_unfinished_pass_is_continued_and_the_next_one_is_complete() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.write(&format!("from/{name}"), name);
    }
    let folders = |place: &Place| {
        Folders::new(place.path("from"), place.path("to"), Arc::new(place.settings())).unwrap()
    };
    let pass = |after: Option<&str>| Pass {
        folders: Arc::new(folders(&place)),
        delete: false,
        min_files: 1,
        by_content: false,
        max_files: 10,
        after: after.map(PathBuf::from),
    };
    let progress = Progress::default();
    let summary = pass(Some("b")).run(&progress).unwrap();
    assert_eq!((summary.copied, progress.after(), progress.counts()), (1, Some("c".into()), (3, 3)));
    let summary = pass(None).run(&Progress::default()).unwrap();
    assert_eq!((summary.copied, summary.files), (2, 3));
    // A pass that must stop changes nothing.
    place.write("from/d", "d");
    let stopped = Progress::default();
    stopped.stop();
    assert_eq!(pass(None).run(&stopped).unwrap().copied, 0);
    assert_eq!((stopped.after(), place.path("to/d").exists()), (None, false));
}

#[tokio::test]
async fn no_link_leads_a_write_out_of_the_copy() {
    let (place, outside) = (Place::new(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("file"), "theirs").unwrap();
    place.write("from/sub/file", "mine");
    place.write("from/link", "mine");
    std::fs::create_dir_all(place.path("copies/to")).unwrap();
    symlink(outside.path(), place.path("copies/to/sub")).unwrap();
    symlink(outside.path().join("file"), place.path("copies/to/link")).unwrap();
    let mut trial = place.start(json!({}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("sub is in the way; remove it"), "{error}");
    assert_eq!(std::fs::read_to_string(outside.path().join("file")).unwrap(), "theirs");
    // A link in the place of a file is replaced.
    assert_eq!(place.read("copies/to/link").as_deref(), Some("mine"));
    // The copy itself leads elsewhere.
    let place = Place::new();
    place.write("from/a", "mine");
    symlink(outside.path(), place.path("copies")).unwrap();
    let mut trial = place.start(json!({}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("is in no folder of [service.files] write"), "{error}");
    assert!(!outside.path().join("to").exists());
}

#[tokio::test]
async fn wrong_folders_are_refused() {
    let place = Place::new();
    place.write("from/a", "x");
    for (spec, told) in [
        (json!({"to": place.path("from/in")}), "contain each other; choose another folder"),
        (json!({"from": "/etc"}), "`from`: `/etc` is in no folder of [service.files] read"),
        (json!({"to": "/etc"}), "`to`: `/etc` is in no folder of [service.files] write"),
        (json!({"to": "relative"}), "`to`: `relative` is not an absolute path"),
    ] {
        let ended = place.start(spec).ended().await.unwrap().unwrap();
        let Exit::Failed(reason) = ended else { panic!("{told}: it is done") };
        assert!(reason.contains(told), "{reason}");
    }
    place.write("from/b", "x");
    let mut trial = place.start(json!({"max_files": 1}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("contains more than `max_files`, 1"), "{error}");
}
