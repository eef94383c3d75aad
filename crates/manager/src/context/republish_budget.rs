//! How many observers a manager publishes again in a minute because of silence. All searches of a manager share it.

use crate::lock::lock;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Conclusions from silence in a minute, for each manager: a mistake must not republish everything at once. Three
/// managers that make the same mistake publish three times as many.
const REPUBLISHES_A_MINUTE: usize = 500;
const MINUTE: Duration = Duration::from_secs(60);

/// The start of the present minute, and how much of it is used.
#[derive(Debug, Default)]
pub(crate) struct RepublishBudget(Mutex<Option<(Instant, usize)>>);

impl RepublishBudget {
    /// Takes as much of `wanted` as there is room for.
    pub(crate) fn take(&self, wanted: usize, now: Instant) -> usize {
        let mut used = lock(&self.0);
        let (since, count) = used.filter(|(since, _)| now - *since < MINUTE).unwrap_or((now, 0));
        let taken = wanted.min(REPUBLISHES_A_MINUTE - count.min(REPUBLISHES_A_MINUTE));
        *used = Some((since, count + taken));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_of_a_manager_share_what_may_be_concluded_in_a_minute() {
        let (budget, began) = (RepublishBudget::default(), Instant::now());
        assert_eq!(budget.take(REPUBLISHES_A_MINUTE - 10, began), REPUBLISHES_A_MINUTE - 10);
        assert_eq!((budget.take(30, began), budget.take(30, began)), (10, 0));
        assert_eq!(budget.take(1, began + MINUTE / 2), 0);
        assert_eq!(budget.take(usize::MAX, began + MINUTE), REPUBLISHES_A_MINUTE);
    }
}
