//! Checks how the pages hang together: each link leads to a file and a heading, and each chapter is in the contents of
//! the site (`docs/SUMMARY.md`).

use super::root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Pages outside of `docs` that the site contains, too.
const BESIDE: [&str; 10] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/peers/README.md",
    "bench/peers/results.md",
    "deploy/helm/everwatch/README.md",
    "sdk/python/README.md",
];
const CONTENTS: &str = "docs/SUMMARY.md";

/// The pages in `docs`, with those of its folders.
pub(crate) fn chapters() -> Vec<String> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

fn pages() -> BTreeMap<String, String> {
    let names = chapters().into_iter().chain(BESIDE.map(str::to_owned));
    names.map(|it| (it.clone(), std::fs::read_to_string(root().join(it)).unwrap())).collect()
}

/// The lines outside of fenced blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// The name by which a link refers to a heading, as forges and mdBook derive it.
pub(super) fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link, only the text counts.
    while let Some((before, link)) = rest.split_once("](") {
        text += before;
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let name = anchor(heading);
            let further = (1..).map(|number| format!("{name}-{number}"));
            let free = std::iter::once(name.clone()).chain(further).find(|it| !anchors.contains(it));
            anchors.extend(free);
        }
    }
    anchors
}

/// The targets of links and pictures.
fn links(page: &str) -> Vec<String> {
    let text = prose(page).collect::<Vec<_>>().join("\n");
    // Code between backticks may contain brackets that are no link.
    let parts = text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "" });
    let text = parts.collect::<String>();
    text.split("](").skip(1).filter_map(|part| part.split(')').next()).map(str::to_owned).collect()
}

/// The path of a link from the root of the repository.
fn resolved(page: &str, file: &str) -> String {
    let mut path = PathBuf::new();
    for part in Path::new(page).parent().unwrap().join(file).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{page}: {file} leaves the repository"),
            part => path.push(part),
        }
    }
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut dead = Vec::new();
    for (page, text) in &pages {
        for link in links(text).iter().filter(|it| !it.contains("://") && !it.starts_with("mailto:")) {
            let (file, heading) = link.split_once('#').map_or((&**link, None), |(file, it)| (file, Some(it)));
            let target = if file.is_empty() { page.clone() } else { resolved(page, file) };
            let has_heading = |heading: &str| {
                let linked = pages.get(&target).cloned();
                let linked = linked.or_else(|| std::fs::read_to_string(root().join(&target)).ok());
                linked.is_some_and(|it| anchors(&it).contains(heading))
            };
            if !root().join(&target).exists() || !heading.is_none_or(has_heading) {
                dead.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "these links lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn every_chapter_is_in_the_contents_once() {
    let contents = std::fs::read_to_string(root().join(CONTENTS)).unwrap();
    let mut listed: Vec<String> = links(&contents).iter().map(|it| resolved(CONTENTS, it)).collect();
    listed.sort();
    let mut wanted: Vec<String> = pages().into_keys().filter(|it| it != CONTENTS).collect();
    wanted.sort();
    assert_eq!(listed, wanted, "{CONTENTS} lists each page once");
}

/// The site contains only the pages of the contents: a link to another page leads nowhere there.
#[test]
fn every_linked_page_is_in_the_contents() {
    let pages = pages();
    let mut absent = Vec::new();
    for (page, text) in &pages {
        for link in links(text).iter().filter(|it| !it.contains("://")) {
            let file = link.split('#').next().unwrap_or_default();
            if file.ends_with(".md") && !pages.contains_key(&resolved(page, file)) {
                absent.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(absent.is_empty(), "{CONTENTS} does not list these linked pages:\n{}", absent.join("\n"));
}

/// The index that a forge shows for the folder.
#[test]
fn every_chapter_is_in_the_index() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    let listed: BTreeSet<String> = links(&index).iter().map(|it| resolved("docs/README.md", it)).collect();
    // The pages of a folder with an index of its own are listed there.
    let has_own = |page: &String| page.starts_with("docs/observers/") && !page.ends_with("README.md");
    let is_index = |page: &String| page == "docs/README.md" || page == CONTENTS;
    let missing = chapters().into_iter().filter(|it| !listed.contains(it) && !has_own(it) && !is_index(it));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new(), "docs/README.md does not list these");
}

#[test]
fn headings_become_anchors() {
    assert_eq!(anchor(" `exec`: any program"), "exec-any-program");
    assert_eq!(anchor(" From [Celery](https://x.example), now"), "from-celery-now");
    let page = "# A b\n```sh\n# no\n```\n## A b\n[x](y.md#z) `[0](1)`\n";
    assert_eq!(anchors(page), BTreeSet::from(["a-b", "a-b-1"].map(str::to_owned)));
    assert_eq!(links(page), ["y.md#z"]);
    assert_eq!(resolved("docs/a/b.md", "../../x.md"), "x.md");
}
