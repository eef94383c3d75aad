//! The rules of the protocol of services, each with the check of it.

mod answering;
mod directing;
mod ending;
mod losing;
mod refusing;
mod taking;
mod timing;

use super::stage::{SOON, Stage, Verdict};
use futures::future::BoxFuture;

/// A rule.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// What the worker must do.
    pub(super) text: &'static str,
    pub(super) check: for<'a> fn(&'a mut Stage) -> BoxFuture<'a, Verdict>,
}

/// All rules, in the order in which an implementation comes to follow them.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    [
        taking::RULES,
        ending::RULES,
        refusing::RULES,
        directing::RULES,
        answering::RULES,
        losing::RULES,
        timing::RULES,
    ]
    .into_iter()
    .flatten()
}

/// Waits until the worker has acknowledged this many work messages.
async fn until_acked(stage: &mut Stage, count: usize) -> Verdict {
    let queue = stage.work_queue();
    let what = format!("{count} work messages are acknowledged");
    stage.until_traffic(&what, SOON, |ledger| ledger.acked(&queue) == count).await
}

/// Fails with a text unless it holds.
pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}
