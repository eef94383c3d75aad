//! Builds the simulation from a copy of the shipped sources. The copy makes one of the listed mistakes if an
//! environment variable names it. One build contains all mistakes.

use super::list::{Edit, MISTAKES};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names the mistake to be made.
pub(crate) const CHOICE: &str = "EVERWATCH_SIM_MISTAKE";

/// The program, beside the one that makes no mistakes.
const PROGRAM: &str = "everwatch-sim-mistaken";
const MANIFEST: &str = "Cargo.toml";
const SIMULATION: &str = "tests/sim";
const MANAGER: &str = "crates/manager";
const CORE: &str = "crates/core/src/lib.rs";

/// What the simulation is built of.
const PACKAGES: [&str; 9] = [
    "crates/core",
    "crates/api",
    "crates/door",
    "crates/trace",
    "crates/broker",
    "crates/store",
    MANAGER,
    "crates/sdk",
    SIMULATION,
];

/// The function that every changed place calls to decide whether to make its mistake.
const MADE: &str = r#"
pub mod mistake {
    /// Whether this mistake is made.
    pub fn made(name: &str) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        CHOSEN.get_or_init(|| std::env::var("EVERWATCH_SIM_MISTAKE").ok()).as_deref() == Some(name)
    }
}
"#;

/// Files by their path in the workspace.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Builds the program; answers where it is.
pub(crate) fn built() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let copy = target.join("mistakes");
    // Two tests build it. The second one must not write sources that the build of the first one reads.
    let lock = fs::File::create(target.join("mistakes.lock")).unwrap();
    lock.lock().unwrap();
    write(&copy, &mistaken(sources()));
    let mut cargo = Command::new("nice");
    cargo
        .args(["-n", "19", env!("CARGO"), "build", "--offline", "--quiet", "--bin", PROGRAM])
        .current_dir(&copy);
    cargo.env("CARGO_TARGET_DIR", target);
    // Removes the variables that cargo sets for this test's package: they are wrong for the copy.
    for (name, _) in std::env::vars() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug").join(PROGRAM)
}

/// All sources, as they are.
fn sources() -> Files {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Files::new();
    for package in PACKAGES {
        read(workspace, Path::new(package), &mut files);
    }
    for name in [MANIFEST, "Cargo.lock"] {
        files.insert(name.into(), fs::read(workspace.join(name)).unwrap());
    }
    files
}

fn read(workspace: &Path, folder: &Path, files: &mut Files) {
    for entry in fs::read_dir(workspace.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            read(workspace, &path, files);
        } else {
            files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

fn mistaken(mut files: Files) -> Files {
    for (file, edits) in edits_by_file() {
        change(&mut files, file, |text| edited(file, text, &edits));
    }
    change(&mut files, CORE, |text| format!("{text}{MADE}"));
    change(&mut files, MANIFEST, reduced);
    // Only the tests of the manager need it.
    change(&mut files, &format!("{MANAGER}/{MANIFEST}"), |text| {
        text.replace("everwatch-tests.workspace = true\n", "")
    });
    change(&mut files, &format!("{SIMULATION}/{MANIFEST}"), |text| {
        let bin = |name: &str| format!("[[bin]]\nname = \"{name}\"\n");
        assert!(text.contains(&bin("everwatch-sim")), "the program of the simulation has another name");
        text.replace(&bin("everwatch-sim"), &bin(PROGRAM))
    });
    files
}

fn change(files: &mut Files, file: &str, change: impl FnOnce(&str) -> String) {
    let content = files.get_mut(Path::new(file)).unwrap_or_else(|| panic!("there is no {file}"));
    *content = change(std::str::from_utf8(content).unwrap()).into_bytes();
}

/// The workspace manifest, reduced to these packages, with a version of its own. Cargo distinguishes packages
/// of two workspaces by version; with the same version, it would store the builds of both in the same files.
fn reduced(manifest: &str) -> String {
    let members = format!("members = {PACKAGES:?}");
    let line = |line: &str| match line.split(' ').next() {
        Some("members") => members.clone(),
        Some("default-members" | "everwatch-tests") => String::new(),
        Some("version") => "version = \"0.0.0-mistaken\"".to_owned(),
        // The parentheses around choices; hundreds of warnings would hide an error.
        Some("[workspace.lints.rust]") => "[workspace.lints.rust]\nunused_parens = \"allow\"".to_owned(),
        _ => line.to_owned(),
    };
    manifest.lines().map(|it| line(it) + "\n").collect()
}

fn edits_by_file() -> BTreeMap<&'static str, Vec<(&'static str, &'static Edit)>> {
    let mut by_file: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for mistake in MISTAKES {
        for edit in mistake.edits {
            by_file.entry(edit.file).or_default().push((mistake.name, edit));
        }
    }
    by_file
}

/// The source with a choice at each place.
fn edited(file: &str, text: &str, edits: &[(&str, &Edit)]) -> String {
    let mut places: Vec<(Range<usize>, String)> =
        edits.iter().map(|(name, edit)| (place(file, text, edit.find), choice(file, name, edit))).collect();
    places.sort_by_key(|(range, _)| range.start);
    let (mut changed, mut end) = (String::new(), 0);
    for (range, choice) in places {
        assert!(range.start >= end, "two mistakes share a place in {file}: {choice}");
        changed.push_str(&text[end..range.start]);
        changed.push_str(&choice);
        end = range.end;
    }
    changed + &text[end..]
}

fn place(file: &str, text: &str, find: &str) -> Range<usize> {
    let mut places = text.match_indices(find);
    let (Some((start, _)), None) = (places.next(), places.next()) else {
        panic!("this must be in {file} exactly once, and is not; mend tests/mistakes/list.rs: {find}");
    };
    start..start + find.len()
}

fn choice(file: &str, name: &str, Edit { find, instead, .. }: &Edit) -> String {
    let core = if file.starts_with("crates/core/") { "crate" } else { "everwatch_core" };
    let choice = format!("if {core}::mistake::made(\"{name}\") {{ {instead} }} else {{ {find} }}");
    // A statement needs no parentheses; an expression does, because the code after it may continue the
    // expression.
    if find.ends_with(';') { choice } else { format!("({choice})") }
}

/// Writes changed files only, so that cargo builds little, and removes files that have no source any more.
fn write(copy: &Path, files: &Files) {
    for (path, content) in files {
        let path = copy.join(path);
        if fs::read(&path).ok().as_ref() != Some(content) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
        }
    }
    let mut there = Files::new();
    for package in PACKAGES.iter().filter(|package| copy.join(package).is_dir()) {
        read(copy, Path::new(package), &mut there);
    }
    let gone: BTreeSet<&PathBuf> = there.keys().filter(|path| !files.contains_key(*path)).collect();
    for path in gone {
        fs::remove_file(copy.join(path)).unwrap();
    }
}
