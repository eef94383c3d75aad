//! Checks the structure of the code: which file and which room may import which other.
//!
//! A *room* is a top-level module of a crate with its submodules. Imports between files of a crate form no cycle, other
//! than between a module and its own submodules; imports between rooms form no cycle at all. Test modules are exempt.

#![expect(clippy::unwrap_used, reason = "a failing test says so by panicking")]

mod imports;

use imports::{Module, modules};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CRATES: [&str; 8] = ["app", "broker", "core", "door", "manager", "sdk", "store", "trace"];
/// Lines of a file. Longer ones are split.
const LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn sources(name: &str) -> PathBuf {
    root().join("crates").join(name).join("src")
}

/// Edges between nodes, each with an example of an import that makes it.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// The imports between files, without those between a module and its own submodules.
fn between_files(modules: &[Module]) -> Graph {
    let mut graph = Graph::new();
    for module in modules {
        let edges = graph.entry(module.name()).or_default();
        for import in &module.imports {
            let related = module.path.starts_with(import) || import.starts_with(&module.path);
            if !related {
                edges.insert(import.join("::"), format!("{} imports {}", module.name(), import.join("::")));
            }
        }
    }
    graph
}

/// The imports between rooms. The root of a crate is not a room: it combines the rooms.
fn between_rooms(modules: &[Module]) -> Graph {
    let mut graph = Graph::new();
    for module in modules {
        let Some(room) = module.path.first() else { continue };
        let edges = graph.entry(room.clone()).or_default();
        for import in module.imports.iter().filter(|import| import.first().is_some_and(|to| to != room)) {
            edges.insert(import[0].clone(), format!("{} imports {}", module.name(), import.join("::")));
        }
    }
    graph
}

/// A cycle, as the imports that form it; empty if there is none.
fn cycle(graph: &Graph) -> Vec<String> {
    let mut done = BTreeSet::new();
    for start in graph.keys() {
        let (mut path, mut imports) = (Vec::new(), Vec::new());
        if walk(graph, start, &mut done, (&mut path, &mut imports)) {
            return imports;
        }
    }
    Vec::new()
}

/// Searches depth first. Returns whether it has reached a node of `path` again.
fn walk<'a>(
    graph: &'a Graph,
    node: &'a str,
    done: &mut BTreeSet<&'a str>,
    (path, imports): (&mut Vec<&'a str>, &mut Vec<String>),
) -> bool {
    if let Some(at) = path.iter().position(|it| *it == node) {
        imports.drain(..at);
        return true;
    }
    if !done.insert(node) {
        return false;
    }
    path.push(node);
    for (next, import) in graph.get(node).into_iter().flatten() {
        imports.push(import.clone());
        if walk(graph, next, done, (path, imports)) {
            return true;
        }
        imports.pop();
    }
    path.pop();
    false
}

#[test]
fn no_import_between_files_closes_a_cycle() {
    for name in CRATES {
        let cycle = cycle(&between_files(&modules(&sources(name))));
        assert!(cycle.is_empty(), "{name}:\n  {}", cycle.join("\n  "));
    }
}

#[test]
fn no_import_between_rooms_closes_a_cycle() {
    for name in CRATES {
        let cycle = cycle(&between_rooms(&modules(&sources(name))));
        assert!(cycle.is_empty(), "{name}:\n  {}", cycle.join("\n  "));
    }
}

#[test]
fn every_file_is_short_and_says_what_it_is() {
    for name in CRATES {
        for module in modules(&sources(name)) {
            let text = std::fs::read_to_string(&module.file).unwrap();
            let (file, lines) = (module.file.display(), text.lines().count());
            assert!(text.starts_with("//! "), "{file} does not begin with a sentence about itself");
            assert!(lines <= LINES_MAX, "{file} has {lines} lines, more than {LINES_MAX}");
        }
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let from = text.lines().skip_while(|line| *line != "[workspace.dependencies]");
    let lines: Vec<&str> = from.skip(1).take_while(|line| !line.starts_with('[')).collect();
    let is_dependency = |line: &str| line.starts_with(|first: char| first.is_ascii_alphanumeric());
    assert!(lines.iter().filter(|line| is_dependency(line)).count() > 50, "the section is not understood");
    let without = lines.windows(2).filter(|pair| is_dependency(pair[1]) && !pair[0].starts_with("# "));
    let without: Vec<&str> = without.map(|pair| pair[1]).collect();
    assert_eq!(without, Vec::<&str>::new(), "write a comment above each that says what it is for");
}

#[test]
fn a_cycle_is_found_and_shown_by_its_imports() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod upper;\nmod lower;\n");
    write("upper.rs", "mod part;\nuse crate::lower::{Thing, other};\n");
    write("upper/part.rs", "use super::Whole;\npub(crate) struct Part;\n");
    write("lower.rs", "#[cfg(test)]\nmod tests { use crate::upper::Whole; }\n");
    assert!(cycle(&between_files(&modules(folder.path()))).is_empty(), "a module and its part, and a test");
    write("lower.rs", "fn f() -> usize { crate::upper::part::Part::SIZE }\n");
    let files = cycle(&between_files(&modules(folder.path())));
    assert!(files.is_empty(), "upper and lower::f reach different files: {files:?}");
    let rooms = cycle(&between_rooms(&modules(folder.path())));
    assert_eq!(rooms, ["lower imports upper::part", "upper imports lower"]);
    write("upper/part.rs", "use crate::lower::Thing;\n");
    let files = cycle(&between_files(&modules(folder.path())));
    assert_eq!(files, ["lower imports upper::part", "upper::part imports lower"]);
}
