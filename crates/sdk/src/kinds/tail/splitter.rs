//! Splits the bytes of a file into lines of bounded length.

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// Where it starts in the file.
    pub(super) start: u64,
    /// Where the next line starts.
    pub(super) end: u64,
    pub(super) was_cut: bool,
}

/// The line that is being read.
pub(super) struct Splitter {
    limit: usize,
    partial: Vec<u8>,
    was_cut: bool,
    start: u64,
    /// Where the next byte is.
    at: u64,
}

impl Splitter {
    pub(super) fn new(limit: usize, at: u64) -> Self {
        Self { limit, partial: Vec::new(), was_cut: false, start: at, at }
    }
    /// Where the next byte is.
    pub(super) fn at(&self) -> u64 {
        self.at
    }
    /// Where the line starts that is not complete yet.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn split(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(&bytes[..end]);
            self.at += 1;
            bytes = &bytes[end + 1..];
            lines.push(self.line());
        }
        self.take(bytes);
    }

    /// The line without an end that no other byte follows.
    pub(super) fn rest(&mut self) -> Option<Line> {
        (self.at > self.start).then(|| self.line())
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.partial.len()).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..room]);
        self.was_cut |= room < bytes.len();
        self.at += bytes.len() as u64;
    }

    fn line(&mut self) -> Line {
        let mut bytes = std::mem::take(&mut self.partial);
        if bytes.last() == Some(&b'\r') && !self.was_cut {
            bytes.pop();
        }
        let start = std::mem::replace(&mut self.start, self.at);
        Line { bytes, start, end: self.at, was_cut: std::mem::take(&mut self.was_cut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_their_bytes_arrive() {
        let input = b"one\r\n\nabcdefg\nlast";
        let line = |bytes: &[u8], start, end, was_cut| Line { bytes: bytes.to_vec(), start, end, was_cut };
        let all = [line(b"one", 10, 15, false), line(b"", 15, 16, false), line(b"abcd", 16, 24, true)];
        for size in 1..=input.len() {
            let (mut splitter, mut lines) = (Splitter::new(4, 10), Vec::new());
            for chunk in input.chunks(size) {
                splitter.split(chunk, &mut lines);
            }
            assert_eq!(lines, all, "{size}");
            assert_eq!((splitter.start(), splitter.at()), (24, 28));
            assert_eq!(splitter.rest(), Some(line(b"last", 24, 28, false)));
            assert_eq!(splitter.rest(), None);
        }
    }
}
