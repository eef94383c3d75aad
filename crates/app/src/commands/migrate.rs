//! `everwatch migrate`: migrates the database schema, and prepares a database that was restored from a
//! backup.

use anyhow::Context as _;
use everwatch::dev::Settings;
use everwatch_core::redact::redacted;
use everwatch_core::wording::counted;
use everwatch_manager::{Restored, restored};

/// # Errors
/// If the database cannot be reached, refuses, or is still in use by a manager although it must not be.
#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "a command's answer")]
pub(crate) async fn run(settings: &Settings, is_restored: bool) -> anyhow::Result<()> {
    let (url, shown) = (&settings.store.url, redacted(&settings.store.url));
    let named = || format!("store.url = {shown}");
    let store = everwatch_store::open(url, settings.manager.row_policy()).await.with_context(named)?;
    println!("{shown} is up to date");
    if is_restored {
        let Restored { observers } = restored(store.as_ref()).await.with_context(named)?;
        println!(
            "prepared {} that may have continued to run since the backup; managers start in safe \
             mode:\n\
             - within a minute, managers adopt the observers that were created since the backup\n\
             - observers that were deleted or paused since the backup run again after safe mode: delete or pause them\n\
             - then switch safe mode off: everwatch safe-mode off",
            counted(observers, "observer")
        );
    }
    Ok(())
}
