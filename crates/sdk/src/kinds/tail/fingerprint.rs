//! Tells a file from another one that has taken its name or its inode: by a digest of its first bytes.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The first bytes that count.
const HEAD: usize = 1024;

/// A digest of the first bytes that a file had when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    bytes: u16,
    digest: String,
}

impl Fingerprint {
    /// Of as many first bytes as there are, up to a limit.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        Self::of_first(file, HEAD)
    }

    fn of_first(file: &File, bytes: usize) -> io::Result<Self> {
        let mut head = [0; HEAD];
        let mut filled = 0;
        while filled < bytes {
            match file.read_at(&mut head[filled..bytes], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut digest = String::new();
        for byte in Sha256::digest(&head[..filled]) {
            // Writing to a string never fails.
            let _written = write!(digest, "{byte:02x}");
        }
        Ok(Self { bytes: u16::try_from(filled).unwrap_or(u16::MAX), digest })
    }

    /// Whether the file still begins with these bytes.
    pub(super) fn fits(&self, file: &File) -> io::Result<bool> {
        let bytes = usize::from(self.bytes).min(HEAD);
        Ok(bytes == 0 || Self::of_first(file, bytes)? == *self)
    }

    /// Whether more bytes can be added to it.
    pub(super) fn is_short(&self) -> bool {
        usize::from(self.bytes) < HEAD
    }

    /// Whether it tells files apart at all.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}
