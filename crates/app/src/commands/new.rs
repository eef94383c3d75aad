//! `everwatch new`: creates the folder of a project with one kind of observers. The templates are a complete project
//! themselves, and the example `my-project` of this crate.

use crate::cli::New;
use crate::client::Failure;
use crate::output::answer;
use anyhow::Context as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The crate `everwatch` that this program was built with.
const BUILT_WITH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk");

/// The files of a project, with the names `my-project` and `/path/to/everwatch`.
const TEMPLATES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("../../templates/project/Cargo.toml")),
    ("src/main.rs", include_str!("../../templates/project/src/main.rs")),
    ("config/service.toml", include_str!("../../templates/project/config/service.toml")),
    ("Dockerfile", include_str!("../../templates/project/Dockerfile")),
    (".gitignore", include_str!("../../templates/project/gitignore")),
    ("README.md", include_str!("../../templates/project/README.md")),
];

/// Creates the folder; it must not exist.
///
/// # Errors
/// A usage error if there is no crate `everwatch`; a conflict if the folder exists; or a file cannot be written.
pub(super) fn run(arguments: &New) -> anyhow::Result<()> {
    let sdk = Sdk::find(arguments.sdk.as_deref())?;
    let folder = Path::new(&arguments.name);
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let text = format!("{} exists already; choose another name or remove it", folder.display());
            return Err(Failure::Conflict(text).into());
        }
        created => created.with_context(|| format!("cannot create the folder {}", folder.display()))?,
    }
    if let Err(error) = write_all(folder, &arguments.name, &sdk) {
        // `new` refuses an existing folder, so an incomplete project would make the next attempt fail.
        let _kept = std::fs::remove_dir_all(folder);
        return Err(error);
    }
    let (name, crate_at) = (&arguments.name, &sdk.folder);
    answer(&format!(
        "{name} created with the crate everwatch in {crate_at}; continue with `cd {name}`, `cargo test` and its README.md"
    ));
    Ok(())
}

fn write_all(folder: &Path, name: &str, sdk: &Sdk) -> anyhow::Result<()> {
    for (file, template) in TEMPLATES {
        write(&folder.join(file), fill(template, name, sdk).as_bytes())?;
    }
    // The project starts with the versions of dependencies that Everwatch is tested with. Cargo removes the others.
    match std::fs::read(sdk.repository.join("Cargo.lock")) {
        Ok(lock) => write(&folder.join("Cargo.lock"), &lock),
        Err(_absent) => Ok(()),
    }
}

fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let written = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    written
        .and_then(|()| std::fs::write(file, content))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn fill(template: &str, name: &str, sdk: &Sdk) -> String {
    template
        .replace("my-project", name)
        .replace("/path/to/everwatch/crates/sdk", &sdk.folder)
        .replace("/path/to/everwatch", &sdk.repository.display().to_string())
}

/// The crate `everwatch` on this machine.
struct Sdk {
    folder: String,
    /// The workspace that contains it.
    repository: PathBuf,
}

impl Sdk {
    fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        let folder = given.unwrap_or(Path::new(BUILT_WITH));
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if !manifest.lines().any(|line| line == r#"name = "everwatch""#) {
            return Err(Failure::Usage(match given {
                Some(_) => format!("--sdk: {} is not the folder of the crate everwatch", folder.display()),
                None => format!(
                    "the crate everwatch is no longer in {}; name its folder with --sdk, such as \
                     --sdk ~/everwatch/crates/sdk",
                    folder.display()
                ),
            })
            .into());
        }
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        let is_workspace = |it: &&Path| {
            std::fs::read_to_string(it.join("Cargo.toml")).is_ok_and(|it| it.contains("[workspace.package]"))
        };
        let repository = folder.ancestors().find(is_workspace).unwrap_or(&folder).to_owned();
        let text = folder.to_str().filter(|it| !it.contains(['"', '\\', '\n']));
        let text = text.ok_or_else(|| {
            Failure::Usage(format!("--sdk: {} has a name that Cargo.toml cannot contain", folder.display()))
        })?;
        Ok(Self { folder: text.to_owned(), repository })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_names_the_project_and_the_crate() {
        let sdk = Sdk::find(None).unwrap();
        for (file, template) in TEMPLATES {
            let text = fill(template, "price-watcher", &sdk);
            assert!(!text.contains("my-project") && !text.contains("/path/to"), "{file}: {text}");
        }
        let manifest = fill(TEMPLATES[0].1, "price-watcher", &sdk);
        assert!(manifest.contains(r#"name = "price-watcher""#), "{manifest}");
        assert!(manifest.contains(&format!("path = \"{}\"", sdk.folder)), "{manifest}");
        assert!(
            Path::new(&sdk.folder).starts_with(&sdk.repository) && sdk.repository.join("Cargo.lock").exists()
        );
    }
}
