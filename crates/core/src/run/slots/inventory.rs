//! The description of held observers for managers that do not know them.

use super::Slots;
use crate::id::ObserverId;
use crate::wire::report::RunReport;
use crate::wire::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;

impl<R: Copy + std::fmt::Debug> Slots<R> {
    /// Those of `ids` that are held and readable here, each with its message.
    #[must_use]
    pub fn describe(&self, ids: &[ObserverId]) -> Vec<(RunReport, Arc<Work>)> {
        let ids: BTreeSet<&ObserverId> = ids.iter().collect();
        let asked = self.list().into_iter().filter(|run| ids.contains(&run.id));
        let held = |run: RunReport| Some((self.slots.get(&run.id)?.work.clone()?, run));
        asked.filter_map(held).map(|(work, run)| (run, work)).collect()
    }
}
