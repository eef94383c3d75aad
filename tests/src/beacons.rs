//! What every run writes of itself, read afterwards like a history: gaps and overlaps.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// An `exec` observer that writes its name, epoch and the time in ms every 20 ms while it lives.
pub fn exec_spec(folder: &Path) -> Value {
    let script = r#"while :; do echo "$EVERWATCH_EPOCH $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME"; sleep 0.02; done"#;
    json!({ "argv": ["/bin/sh", "-c", script, folder.display().to_string()] })
}

/// One run as its beacons tell it, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub epoch: u64,
    pub first: i64,
    pub last: i64,
}

/// The runs of every observer, in the order of their epochs.
pub fn read(folder: &Path) -> BTreeMap<String, Vec<Run>> {
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
        let text = std::fs::read_to_string(file.path()).unwrap();
        // A line that is still being written is left out.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (epoch, at) = line.split_once(' ').unwrap();
            let (epoch, at) = (epoch.parse().unwrap(), at.parse().unwrap());
            let run = runs.entry(epoch).or_insert(Run { epoch, first: at, last: at });
            run.last = run.last.max(at);
        }
        all.insert(file.file_name().into_string().unwrap(), runs.into_values().collect());
    }
    all
}

/// Time without a run (positive) or with two (negative) at each change of runs, in ms.
pub fn changes(runs: &[Run]) -> Vec<i64> {
    runs.windows(2).map(|pair| pair[1].first - pair[0].last).collect()
}

/// Checks that no observer ran twice at once for longer than `allowed` (ms, by its name), prints p50, p99
/// and max of gap and overlap, and answers the longest gap.
#[expect(clippy::print_stdout, reason = "the figures are the point")]
pub fn judge(what: &str, folder: &Path, allowed: impl Fn(&str) -> i64) -> i64 {
    let (mut gaps, mut overlaps) = (Vec::new(), Vec::new());
    for (name, runs) in read(folder) {
        for change in changes(&runs) {
            assert!(
                -change <= allowed(&name),
                "{what}: {name} ran twice at once for {} ms: {runs:?}",
                -change
            );
            gaps.push(change.max(0));
            overlaps.push((-change).max(0));
        }
    }
    assert!(!gaps.is_empty(), "{what}: nothing moved");
    println!("{what}: gap {}, overlap {} ms", percentiles(&mut gaps), percentiles(&mut overlaps));
    gaps[gaps.len() - 1]
}

fn percentiles(values: &mut [i64]) -> String {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    format!("p50 {} p99 {} max {}", at(50), at(99), at(100))
}
