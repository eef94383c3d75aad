//! Reads lines of bounded length from what a program writes.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Bytes that are read at once.
const CHUNK: usize = 4096;
/// Bytes that are kept for the next line.
const KEPT: usize = 16 * 1024;

/// The lines of a pipe; of a longer line, the rest is dropped.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    was_cut: bool,
    /// Whether the line was handed out.
    is_told: bool,
}

/// One line without its end.
pub(super) struct Line<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether it was longer than the limit.
    pub(super) was_cut: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(pipe: R, limit: usize) -> Self {
        let reader = BufReader::with_capacity(CHUNK, pipe);
        Self { reader, line: Vec::new(), limit, was_cut: false, is_told: false }
    }

    /// The next line, or `None` at the end. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Line<'_>> {
        if std::mem::take(&mut self.is_told) {
            self.line.clear();
            // One long line does not take its memory for ever.
            self.line.shrink_to(KEPT);
            self.was_cut = false;
        }
        loop {
            let chunk = self.reader.fill_buf().await.unwrap_or_default();
            if chunk.is_empty() {
                if self.line.is_empty() && !self.was_cut {
                    return None;
                }
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |at| at + 1);
            let content = &chunk[..end.unwrap_or(chunk.len())];
            let room = self.limit.saturating_sub(self.line.len());
            self.was_cut |= content.len() > room;
            self.line.extend_from_slice(&content[..content.len().min(room)]);
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        self.is_told = true;
        Some(Line { bytes: &self.line, was_cut: self.was_cut })
    }

    /// The pipe itself, to write to it.
    pub(super) fn pipe(&mut self) -> &mut R {
        self.reader.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(input: &[u8], limit: usize) -> Vec<(String, bool)> {
        let mut lines = Lines::new(input, limit);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push((String::from_utf8_lossy(line.bytes).into_owned(), line.was_cut));
        }
        all
    }

    #[tokio::test]
    async fn lines_are_cut_at_the_limit_and_the_last_one_needs_no_end() {
        let told = |all: &[(&str, bool)]| {
            all.iter().map(|(text, cut)| ((*text).to_owned(), *cut)).collect::<Vec<_>>()
        };
        assert_eq!(read(b"", 4).await, []);
        assert_eq!(
            read(b"ab\n\nabcd\nabcde\nx", 4).await,
            told(&[("ab", false), ("", false), ("abcd", false), ("abcd", true), ("x", false)])
        );
        let long = "y".repeat(3 * CHUNK);
        assert_eq!(read(long.as_bytes(), 4).await, told(&[("yyyy", true)]));
    }
}
