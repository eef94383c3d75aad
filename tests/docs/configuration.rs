//! The configuration reference, generated from the annotated file. A test beside the settings checks that the
//! file contains every key with its default.

use super::{keep, root};
use std::fmt::Write as _;

const HEAD: &str = "# Configuration

<!-- Generated from config/everwatch.toml: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

Managers and services read the same file, [`config/everwatch.toml`](../config/everwatch.toml); a service ignores the
sections of a manager. Values come from four layers; each overrides the one before: defaults, the file (`--config FILE`
or `EVERWATCH_CONFIG`), the environment, flags. Everwatch refuses an unknown key and names the key and its layer.

In the environment, separate list items with commas (`EVERWATCH_SERVICE__EXEC__ALLOW=\"/bin/sh,/usr/bin/curl\"`) and
set an entry of a table with one more level (`EVERWATCH_SERVICE__LABELS__ZONE=a`). Write durations as `500ms`, `30s`,
`1h 30m`. This command prints the effective configuration, with passwords hidden:

```sh
EVERWATCH_SERVICE__LABELS__ZONE=a EVERWATCH_MANAGER__HOSTS=a.example,b.example everwatch config print
```

```text
\"b.example\"
\"zone\": \"a\"
```
";

/// One key of the annotated file.
struct Key<'a> {
    name: &'a str,
    default: &'a str,
    meaning: String,
}

/// `key = value`, also where it is commented out.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let is_key = |c: char| c.is_ascii_lowercase() || c == '_';
    name.chars().all(is_key).then_some((name, value))
}

fn sections(text: &str) -> Vec<(&str, Vec<Key<'_>>)> {
    let mut sections: Vec<(&str, Vec<Key<'_>>)> = Vec::new();
    // The current comment, and whether a key has used it: a comment applies to all keys that follow it
    // directly.
    let (mut said, mut used) = (String::new(), false);
    for line in text.lines() {
        let commented = line.strip_prefix("# ");
        if let Some(section) = line.strip_prefix('[') {
            sections.push((section.trim_end_matches(']'), Vec::new()));
            said.clear();
        } else if let Some((name, default)) = commented.and_then(assignment).map(|(name, _)| (name, "unset"))
        {
            let key = Key { name, default, meaning: said.clone() };
            sections.last_mut().unwrap().1.push(key);
            used = true;
        } else if let Some(words) = commented.filter(|_| !sections.is_empty()) {
            if std::mem::take(&mut used) {
                said.clear();
            }
            let between = if said.is_empty() { "" } else { " " };
            write!(said, "{between}{words}").unwrap();
        } else if let Some((name, default)) = assignment(line) {
            let key = Key { name, default, meaning: said.clone() };
            sections.last_mut().unwrap().1.push(key);
            used = true;
        } else if line.is_empty() {
            said.clear();
        }
    }
    sections
}

#[test]
fn the_reference_of_the_configuration_is_as_the_annotated_file() {
    let text = std::fs::read_to_string(root().join("config/everwatch.toml")).unwrap();
    let mut page = HEAD.to_owned();
    for (section, keys) in sections(&text) {
        write!(
            page,
            "\n## `[{section}]`\n\n| key | default | meaning | in the environment |\n|---|---|---|---|\n"
        )
        .unwrap();
        for key in keys {
            let Key { name, default, meaning } = key;
            assert!(!meaning.is_empty(), "config/everwatch.toml says nothing about {section}.{name}");
            let variable = format!("EVERWATCH_{section}__{name}").replace('.', "__").to_uppercase();
            let default = if default == "unset" { default.to_owned() } else { format!("`{default}`") };
            writeln!(page, "| `{name}` | {default} | {} | `{variable}` |", meaning.replace('|', "\\|"))
                .unwrap();
        }
    }
    keep("docs/configuration.md", &page);
}
