//! Services that a person killed to try out failover.

use crate::lock::lock;
use everwatch_core::failure::quarantine::Killed;
use everwatch_core::id::ServiceId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Services whose deaths count against no observer, because the program around the manager has killed them. Clones share the
/// list; it holds the newest 1,000.
#[derive(Debug, Clone, Default)]
pub struct Excused(Arc<Mutex<VecDeque<ServiceId>>>);

impl Excused {
    const MAX: usize = 1000;

    /// Adds a service before it is killed.
    pub fn add(&self, service: ServiceId) {
        let mut all = lock(&self.0);
        all.push_back(service);
        if all.len() > Self::MAX {
            all.pop_front();
        }
    }

    /// Whether a person killed this service.
    pub(crate) fn contains(&self, service: ServiceId) -> bool {
        lock(&self.0).contains(&service)
    }

    /// Removes these services from the killed ones.
    pub(crate) fn forgive(&self, killed: &mut BTreeMap<ServiceId, Killed>) {
        for service in &*lock(&self.0) {
            killed.remove(service);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::id::Name;
    use std::collections::BTreeSet;
    use uuid::Uuid;

    #[test]
    fn an_excused_death_is_not_among_the_killed_ones() {
        let id = |number| ServiceId(Uuid::from_u128(number));
        let death = |_| Killed { name: Name::new("s").unwrap(), at: Timestamp(0), stalled: BTreeSet::new() };
        let mut killed: BTreeMap<_, _> = [1, 2].map(|number| (id(number), death(number))).into();
        let excused = Excused::default();
        excused.clone().add(id(1));
        excused.forgive(&mut killed);
        assert!(excused.contains(id(1)) && !excused.contains(id(2)));
        assert_eq!(killed.into_keys().collect::<Vec<_>>(), [id(2)]);
        for number in 10..2000 {
            excused.add(id(number));
        }
        assert_eq!(lock(&excused.0).len(), Excused::MAX);
    }
}
