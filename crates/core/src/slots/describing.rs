//! What a service shows of what it holds to managers that do not know it.

use super::{Now, Slots};
use crate::id::ObserverId;
use crate::message::{RunReport, Work};
use std::collections::BTreeSet;
use std::sync::Arc;

impl<R: Copy + std::fmt::Debug> Slots<R> {
    /// What is held of these and can be read here, each with its message.
    #[must_use]
    pub fn describe(&self, ids: &[ObserverId], now: Now) -> Vec<(RunReport, Arc<Work>)> {
        let ids: BTreeSet<&ObserverId> = ids.iter().collect();
        let asked = self.list(now).into_iter().filter(|run| ids.contains(&run.id));
        let held = |run: RunReport| Some((self.slots.get(&run.id)?.work.clone()?, run));
        asked.filter_map(held).map(|(work, run)| (run, work)).collect()
    }
}
