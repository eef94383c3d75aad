//! The modules of a crate and the modules that they import, read from the source.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, UseTree};

/// The path of a module within its crate; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// One file.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) path: ModulePath,
    pub(crate) file: PathBuf,
    /// The files that its paths lead to.
    pub(crate) imports: BTreeSet<ModulePath>,
}

impl Module {
    /// `crate` for the root.
    pub(crate) fn name(&self) -> String {
        if self.path.is_empty() { "crate".to_owned() } else { self.path.join("::") }
    }
}

/// All files of a crate whose sources are in this folder, without its test modules.
pub(crate) fn modules(sources: &Path) -> Vec<Module> {
    let root = ["lib.rs", "main.rs"].map(|name| sources.join(name)).into_iter().find(|file| file.exists());
    let mut found = Vec::new();
    collect(Vec::new(), root.unwrap(), sources, &mut found);
    let files: BTreeSet<ModulePath> = found.iter().map(|(path, ..)| path.clone()).collect();
    let module = |(path, file, syntax): (ModulePath, PathBuf, syn::File)| {
        let mut paths = Paths { module: &path, found: Vec::new() };
        paths.visit_file(&syntax);
        let leads_to = |mut to: ModulePath| {
            while !files.contains(&to) {
                to.pop();
            }
            to
        };
        let imports = paths.found.into_iter().map(leads_to).filter(|to| !to.is_empty() && *to != path);
        Module { imports: imports.collect(), path, file }
    };
    found.into_iter().map(module).collect()
}

/// Reads a file and the files that it declares; `folder` is where those are.
fn collect(
    path: ModulePath,
    file: PathBuf,
    folder: &Path,
    found: &mut Vec<(ModulePath, PathBuf, syn::File)>,
) {
    let text = std::fs::read_to_string(&file).unwrap();
    let syntax = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display())).unwrap();
    for item in &syntax.items {
        if let Item::Mod(ItemMod { content: None, ident, attrs, .. }) = item
            && !is_test(attrs)
        {
            let name = ident.to_string();
            let inner = path.iter().cloned().chain([name.clone()]).collect();
            collect(inner, folder.join(format!("{name}.rs")), &folder.join(&name), found);
        }
    }
    found.push((path, file, syntax));
}

/// `#[cfg(test)]`
fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|it| it.path().is_ident("cfg") && it.parse_args::<syn::Ident>().is_ok_and(|it| it == "test"))
}

/// Collects the paths that start at the crate, at this module or at its parent.
struct Paths<'a> {
    module: &'a [String],
    found: Vec<ModulePath>,
}

impl Paths<'_> {
    fn add(&mut self, segments: &[String]) {
        let mut place = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.to_vec(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(place.pop()),
                name => place.push(name.to_owned()),
            }
        }
        self.found.push(place);
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.add(&with(&name.ident)),
            UseTree::Rename(rename) => self.add(&with(&rename.ident)),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }
}

impl<'a> Visit<'a> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.add(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        // A module inside the file has another parent module; all inline modules here are tests.
        if !is_test(&item.attrs) && item.content.is_some() {
            syn::visit::visit_item_mod(self, item);
        }
    }
}
