//! `everwatch man`: writes the manual pages that a package installs with the program.

use crate::cli::Cli;
use crate::client::Failure;
use crate::output::print;
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::path::Path;

/// Writes the page of every command into the folder, or prints the first.
pub(super) fn pages(folder: Option<&Path>) -> anyhow::Result<()> {
    let command = Cli::command();
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        print(String::from_utf8(page)?.trim_end());
        return Ok(());
    };
    if !folder.is_dir() {
        let text = format!("{}: not a folder; make it first", folder.display());
        return Err(Failure::Usage(text).into());
    }
    clap_mangen::generate_to(command, folder).with_context(|| folder.display().to_string())
}
