//! Compares and copies one file.

use super::progress::Progress;
use super::tree::Stamp;
use sha2::{Digest as _, Sha256};
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes that are copied at once: a stop waits for no more.
const CHUNK: usize = 256 * 1024;

/// Whether two files have the same content. `None`: the pass must stop.
pub(super) fn is_same(one: &mut File, other: &mut File, progress: &Progress) -> io::Result<Option<bool>> {
    let Some(one) = digest(one, progress)? else { return Ok(None) };
    Ok(digest(other, progress)?.map(|other| one == other))
}

fn digest(file: &mut File, progress: &Progress) -> io::Result<Option<[u8; 32]>> {
    let mut digest = Sha256::new();
    let copied = pump(file, progress, |bytes| {
        digest.update(bytes);
        Ok(())
    })?;
    Ok(copied.map(|_| digest.finalize().into()))
}

/// Copies a file so that its name never stands for a part of it. `None`: the pass must stop, and nothing has changed.
pub(super) fn copy(
    source: &mut File,
    stamp: Stamp,
    to: &Path,
    progress: &Progress,
) -> io::Result<Option<u64>> {
    let partial = partial_of(to);
    let copied = write(source, stamp, &partial, progress);
    let done = match copied {
        Ok(Some(bytes)) => std::fs::rename(&partial, to).map(|()| Some(bytes)),
        other => other,
    };
    if !matches!(done, Ok(Some(_))) {
        // It may not exist.
        let _removed = std::fs::remove_file(&partial);
    }
    done
}

fn write(source: &mut File, stamp: Stamp, partial: &Path, progress: &Progress) -> io::Result<Option<u64>> {
    let mut target = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(partial)?;
    let Some(bytes) = pump(source, progress, |bytes| target.write_all(bytes))? else { return Ok(None) };
    target.set_permissions(Permissions::from_mode(stamp.mode))?;
    target.set_modified(stamp.modified)?;
    target.sync_all()?;
    Ok(Some(bytes))
}

fn pump(
    source: &mut File,
    progress: &Progress,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Option<u64>> {
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        if progress.must_stop() {
            return Ok(None);
        }
        match source.read(&mut chunk) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(count) => {
                take(&chunk[..count])?;
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Always the same for one name, so that one that was left behind is overwritten.
fn partial_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let digest = Sha256::digest(name.as_encoded_bytes());
    let short: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    path.with_file_name(format!(".everwatch-{short}.partial"))
}
