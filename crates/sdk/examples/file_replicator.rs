//! Copies a folder, and keeps the copy up to date. Its checkpoint lists the files that it has copied, so that the next
//! run copies and deletes only what has changed since.
//!
//! ```sh
//! cargo run --example file_replicator
//! everwatch observer create photos --kind file-replicator --overlap forbid \
//!     --spec '{"from": "/srv/photos", "to": "/mnt/backup/photos"}'
//! ```
//! Every service that offers this kind must reach both folders under these paths, for example on a network file system.
//! With `--overlap forbid`, no two runs write to the folder at once. The built-in kind `replicate` also copies
//! subfolders, and has no limit of 64 KiB for the list of files.

use everwatch::{Context, Error, Exit, Observer, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tokio::fs::{self, File};
use tokio::sync::Mutex;

/// The name of an unfinished copy begins so.
const UNFINISHED: &str = ".copy-";

/// Keeps a copy of a folder up to date.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileReplicator {
    /// The folder to copy; its subfolders are ignored.
    from: PathBuf,
    /// The copy. Files in it that this observer has not copied are left alone.
    to: PathBuf,
    /// Time between two passes, in milliseconds.
    #[serde(default = "ten_seconds")]
    #[schemars(range(min = 100, max = 86_400_000))]
    every_ms: u64,
}

fn ten_seconds() -> u64 {
    10_000
}

/// The copies of this observer, by their names. Without a version, a copy may be old, unfinished or missing.
type Copied = BTreeMap<String, Option<Version>>;

/// What tells one version of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    bytes: u64,
    modified: Duration,
}

impl Observer for FileReplicator {
    const KIND: &'static str = "file-replicator";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        fs::create_dir_all(&self.to).await?;
        self.remove_unfinished().await?;
        let restored = ctx.restored::<Copied>().await?;
        let copied = Mutex::new(restored.map(|it| it.value).unwrap_or_default());
        ctx.periodic(Duration::from_millis(self.every_ms), || async {
            let mut copied = copied.lock().await;
            self.pass(&ctx, &mut copied).await?;
            ctx.status(&format!("{} files in step", copied.len()));
            Ok(())
        })
        .await
    }
}

impl FileReplicator {
    /// Copies new and changed files, and deletes copies whose originals are gone.
    async fn pass(&self, ctx: &Context, copied: &mut Copied) -> Result<(), Error> {
        let mut changed = versions(&self.from).await?;
        let mut gone = copied.clone();
        gone.retain(|name, _| !changed.contains_key(name));
        changed.retain(|name, version| copied.get(name) != Some(&Some(*version)));
        if changed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        // Saved before the first copy: if this run ends in between, the next one knows these copies as its own, and
        // deletes them even if the originals are gone by then.
        copied.extend(changed.keys().map(|name| (name.clone(), None)));
        ctx.checkpoint(&*copied).await?;
        for name in gone.into_keys() {
            unless_gone(fs::remove_file(self.to.join(&name)).await)?;
            copied.remove(&name);
        }
        for (name, version) in changed {
            if self.copy(&name).await? {
                copied.insert(name, Some(version));
            }
        }
        ctx.checkpoint(&*copied).await
    }

    /// The copy appears under its name only when it is complete. Returns false if the original is gone.
    async fn copy(&self, name: &str) -> Result<bool, Error> {
        let Some(mut original) = unless_gone(File::open(self.from.join(name)).await)? else {
            return Ok(false);
        };
        let unfinished = self.to.join(format!("{UNFINISHED}{name}"));
        let mut copy = File::create(&unfinished).await?;
        tokio::io::copy(&mut original, &mut copy).await?;
        copy.sync_all().await?;
        fs::rename(&unfinished, self.to.join(name)).await?;
        Ok(true)
    }

    /// Removes what a killed service has left.
    async fn remove_unfinished(&self) -> Result<(), Error> {
        for name in versions(&self.to).await?.into_keys().filter(|name| name.starts_with(UNFINISHED)) {
            unless_gone(fs::remove_file(self.to.join(name)).await)?;
        }
        Ok(())
    }
}

/// The files in a folder.
async fn versions(folder: &Path) -> Result<BTreeMap<String, Version>, Error> {
    let mut files = BTreeMap::new();
    let mut entries = fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let Some(metadata) = unless_gone(entry.metadata().await)?.filter(Metadata::is_file) else { continue };
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| format!("{}: the name is not UTF-8", name.display()))?;
        let modified = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH)?;
        files.insert(name, Version { bytes: metadata.len(), modified });
    }
    Ok(files)
}

/// `None` if there is no such file: others may delete files at any time.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn main() -> ExitCode {
    Service::new().observer::<FileReplicator>().main()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch::testing::Trial;

    #[tokio::test]
    async fn the_next_run_copies_only_what_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("old"), "old").unwrap();
        let replicator = || FileReplicator { from: from.clone(), to: to.clone(), every_ms: 10 };
        let until_up_to_date = async |trial: &Trial, files: usize| {
            let begun = std::time::Instant::now();
            while trial.status() != Some(format!("{files} files in step")) {
                assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", trial.status());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let trial = Trial::start(replicator());
        until_up_to_date(&trial, 1).await;
        let checkpoint = trial.checkpointed::<Copied>().unwrap();
        trial.stop().await.unwrap().unwrap();

        std::fs::write(from.join("new"), "new").unwrap();
        std::fs::write(to.join("old"), "the run does not touch this").unwrap();
        std::fs::write(to.join(".copy-new"), "a killed service has left this").unwrap();
        let trial = Trial::builder(replicator()).checkpoint(checkpoint, 1 << 32).start();
        until_up_to_date(&trial, 2).await;
        assert_eq!(std::fs::read_to_string(to.join("new")).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(to.join("old")).unwrap(), "the run does not touch this");
        std::fs::remove_file(from.join("old")).unwrap();
        until_up_to_date(&trial, 1).await;
        trial.stop().await.unwrap().unwrap();
        assert!(!to.join("old").exists() && !to.join(".copy-new").exists());
    }
}
