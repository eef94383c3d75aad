//! The arguments of `everwatch new`.

use clap::Args;
use std::path::PathBuf;

/// The longest name of a kind.
const LENGTH_MAX: usize = 64;

/// Keywords of Rust, names that cargo uses itself, and the dependencies of the project.
const RESERVED: &str = "abstract as async await become box break build const continue core crate deps do dyn else enum \
    everwatch examples extern false final fn for gen if impl in incremental let loop macro match mod move mut override \
    priv proc_macro pub ref return schemars self serde serde_json static std struct super test tokio trait true try \
    type typeof unsafe unsized use virtual where while yield alloc";

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the project, of its folder and of its kind, of a-z, 0-9, - and _
    #[arg(value_parser = package_name)]
    pub(crate) name: String,
    /// Folder of the crate `everwatch`; the default is the one that this program was built with
    #[arg(long, value_name = "FOLDER")]
    pub(crate) sdk: Option<PathBuf>,
}

impl New {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch new price-watcher; cd price-watcher; cargo test
  everwatch new price-watcher --sdk ~/everwatch/crates/sdk";
}

/// The name of a cargo package that is also the name of a kind.
fn package_name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !text.starts_with(|c: char| c.is_ascii_lowercase()) || !text.chars().all(is_allowed) {
        return Err("begin with a letter and use only a-z, 0-9, - and _".to_owned());
    }
    if text.len() > LENGTH_MAX {
        return Err(format!("it has {} characters; use at most {LENGTH_MAX}", text.len()));
    }
    if RESERVED.split_whitespace().any(|reserved| reserved == text.replace('-', "_")) {
        return Err("the name is reserved; choose another one".to_owned());
    }
    Ok(text.to_owned())
}
