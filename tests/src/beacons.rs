//! Beacons: each run writes its epoch and the time; tests read gaps and overlaps from them.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// An `exec` observer that writes its name, epoch and the time in ms every 20 ms while it lives.
pub fn exec_spec(folder: &Path) -> Value {
    let script = r#"while :; do echo "$EVERWATCH_EPOCH $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME"; sleep 0.02; done"#;
    json!({ "argv": ["/bin/sh", "-c", script, folder.display().to_string()] })
}

/// One run as its beacons tell it, in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub epoch: u64,
    pub first: i64,
    pub last: i64,
    /// The intervals in which the run was active. A run that was frozen has more than one.
    pub awake: Vec<(i64, i64)>,
}

/// If a run writes nothing for this long, in ms, it counts as frozen.
const FROZEN: i64 = 1500;

impl Run {
    fn add(&mut self, at: i64) {
        match self.awake.last_mut() {
            Some((_, until)) if at - *until < FROZEN => *until = at.max(*until),
            _ => self.awake.push((at, at)),
        }
        self.last = self.last.max(at);
    }
    /// How long neither run was active before the next one began, in ms. For a run that was frozen and
    /// continued later, the gap counts from the freeze.
    pub fn gap_to(&self, next: &Self) -> i64 {
        let ends = self.awake.iter().filter(|(from, _)| *from <= next.first).map(|(_, until)| *until);
        ends.max().map_or(0, |end| (next.first - end).max(0))
    }
    /// For how long both were seen to run, in ms.
    pub fn overlap(&self, other: &Self) -> i64 {
        let both = |a: &(i64, i64), b: &(i64, i64)| (a.1.min(b.1) - a.0.max(b.0)).max(0);
        self.awake.iter().flat_map(|mine| other.awake.iter().map(move |its| both(mine, its))).sum()
    }
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
            let new = || Run { epoch, first: at, last: at, awake: Vec::new() };
            runs.entry(epoch).or_insert_with(new).add(at);
        }
        all.insert(file.file_name().into_string().unwrap(), runs.into_values().collect());
    }
    all
}

/// The greatest number of observers that ran at once, and how often a run began, from the time at which each run began
/// (`true`) or ended.
pub fn most_at_once(mut changes: Vec<(i64, bool, &str)>) -> (usize, usize) {
    // An end comes before a beginning at the same millisecond.
    changes.sort_unstable();
    let (mut running, mut most, mut begun) = (BTreeMap::<&str, usize>::new(), 0, 0);
    for (_, begins, name) in changes {
        // An observer that moves may overlap with itself: it counts once.
        let count = running.entry(name).or_default();
        if begins {
            *count += 1;
        } else {
            *count -= 1;
        }
        begun += usize::from(begins);
        running.retain(|_, count| *count > 0);
        most = most.max(running.len());
    }
    (most, begun)
}

/// The longest pause within one run of any observer, in ms, with the observer's name.
pub fn longest_pause(folder: &Path) -> (i64, String) {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let longest = files.map(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let beacons: Vec<(&str, i64)> = lines
            .map(|line| line.split_once(' ').unwrap())
            .map(|(run, at)| (run, at.parse().unwrap()))
            .collect();
        let pauses =
            beacons.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1 - pair[0].1);
        (pauses.max().unwrap_or(0), file.file_name().into_string().unwrap())
    });
    longest.max().unwrap()
}

/// The time between consecutive runs, in ms: positive for a gap, negative for an overlap.
pub fn changes(runs: &[Run]) -> Vec<i64> {
    runs.windows(2).map(|pair| pair[1].first - pair[0].last).collect()
}

/// Checks that no two runs of an observer overlap for longer than `allowed` (ms, by its name), prints p50,
/// p99 and max of gaps and overlaps, and returns the longest gap.
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

/// The 50th and 99th percentile and the greatest, in ms.
pub fn percentiles(values: &mut [i64]) -> String {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    format!("p50 {} p99 {} max {}", at(50), at(99), at(100))
}
