//! Statements that write many rows.

/// How many rows one statement writes. A batch is split into as few statements as these sizes allow, so that SQLite
/// prepares each text once.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// One text for each of the sizes: `before`, a list of that many rows of `columns` parameters, `after`.
pub(super) struct Statements([String; SIZES.len()]);

impl Statements {
    pub(super) fn new(before: &str, columns: usize, after: &str) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        Self(SIZES.map(|size| format!("{before} VALUES {} {after}", vec![row.as_str(); size].join(","))))
    }

    /// The rows in parts, each with the text that writes it.
    pub(super) fn parts<'a, T>(&'static self, mut rows: &'a [T]) -> Vec<(&'static str, &'a [T])> {
        let mut parts = Vec::new();
        for (size, text) in SIZES.into_iter().zip(&self.0) {
            while rows.len() >= size {
                let (part, rest) = rows.split_at(size);
                parts.push((text.as_str(), part));
                rows = rest;
            }
        }
        parts
    }
}
