//! Runs one request for each of several objects: several at a time, with a progress bar for long lists. A
//! failed request does not stop the others.

use super::exit_code;
use crate::client::Failure;
use crate::output::{answer, note};
use futures::StreamExt as _;
use indicatif::ProgressBar;
use uuid::Uuid;

/// Requests under way at once.
const AT_ONCE: usize = 16;
/// The number of objects from which the progress bar is shown.
const BAR_FROM: usize = 20;

/// # Errors
/// With the exit code of the first failure. Every failure is printed.
pub(super) async fn each<'a, F: Future<Output = anyhow::Result<String>>>(
    names: &'a [String],
    done: &str,
    one: impl Fn(&'a str) -> F,
) -> anyhow::Result<()> {
    let bar =
        if names.len() < BAR_FROM { ProgressBar::hidden() } else { ProgressBar::new(names.len() as u64) };
    let one = &one;
    let mut results =
        futures::stream::iter(names).map(|name| async move { (name, one(name).await) }).buffered(AT_ONCE);
    let (mut first, mut failed) = (None, 0_usize);
    while let Some((name, result)) = results.next().await {
        bar.inc(1);
        match result {
            Ok(line) => bar.suspend(|| answer(&line)),
            Err(error) if names.len() == 1 => return Err(error),
            Err(error) => {
                bar.suspend(|| note(&named(name, &error)));
                failed += 1;
                first.get_or_insert(error);
            }
        }
    }
    bar.finish_and_clear();
    let Some(error) = first else { return Ok(()) };
    let summary = format!("{} of {} {done}, {failed} failed", names.len() - failed, names.len());
    Err(replaced(error, summary))
}

/// An error with the name of its object. A message about an object that is addressed by its id says its name itself.
fn named(name: &str, error: &anyhow::Error) -> String {
    if name.parse::<Uuid>().is_ok() { format!("{error:#}") } else { format!("{name}: {error:#}") }
}

/// An error with the same exit code and another text.
pub(super) fn replaced(error: anyhow::Error, text: String) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => failure.replaced(text).into(),
        Err(error) => error,
    }
}

/// Reads each of several objects, in the order of the names.
///
/// # Errors
/// With the objects that were read: the failure with the highest exit code, if any. Every other failure is printed.
pub(super) async fn read<'a, T, F: Future<Output = anyhow::Result<T>>>(
    names: &'a [String],
    one: impl Fn(&'a str) -> F,
) -> (Vec<T>, anyhow::Result<()>) {
    let one = &one;
    let mut results =
        futures::stream::iter(names).map(|name| async move { (name, one(name).await) }).buffered(AT_ONCE);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    while let Some((name, result)) = results.next().await {
        match result {
            Ok(it) => found.push(it),
            Err(error) => failed.push((name, error)),
        }
    }
    // The first of the worst ones: `max_by_key` returns the last one.
    let worst = (0..failed.len()).rev().max_by_key(|at| failed.get(*at).map(|(_, error)| exit_code(error)));
    let Some(worst) = worst else { return (found, Ok(())) };
    let (worst, error) = failed.remove(worst);
    for (name, error) in failed {
        note(&format!("{name}: {error:#}"));
    }
    let text = if names.len() == 1 { format!("{error:#}") } else { format!("{worst}: {error:#}") };
    (found, Err(replaced(error, text)))
}
