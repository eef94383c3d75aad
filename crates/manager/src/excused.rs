//! Services that a person killed or froze to try out failover.

use crate::lock::lock;
use everwatch_core::failure::quarantine::Killed;
use everwatch_core::id::ServiceId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a person did to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    /// It starts again by itself.
    Killed,
    /// It stands still until it is thawed. When the broker has given it up, it is lost.
    Frozen,
    /// It continues, or registers again by itself if it has stood still for too long.
    Thawed,
}

/// Services whose deaths count against no observer, because the program around the manager has killed or frozen them. Clones share
/// the list; it holds the newest 1,000.
#[derive(Debug, Clone, Default)]
pub struct Excused(Arc<Mutex<VecDeque<Deed>>>);

#[derive(Debug)]
struct Deed {
    service: ServiceId,
    what: ByHand,
    at: Instant,
}

impl Excused {
    const MAX: usize = 1000;

    /// Notes what a person does to a service, before it dies. The latest counts.
    pub fn add(&self, service: ServiceId, what: ByHand) {
        let mut all = lock(&self.0);
        all.retain(|it| it.service != service);
        all.push_back(Deed { service, what, at: Instant::now() });
        if all.len() > Self::MAX {
            all.pop_front();
        }
    }

    /// Whether a person killed or froze this service.
    pub(crate) fn contains(&self, service: ServiceId) -> bool {
        self.cause(service).is_some()
    }

    /// What a person did to this service.
    pub(crate) fn cause(&self, service: ServiceId) -> Option<ByHand> {
        lock(&self.0).iter().find(|it| it.service == service).map(|it| it.what)
    }

    /// How long ago a person killed this service. It lived until then.
    pub(crate) fn killed_ago(&self, service: ServiceId) -> Option<Duration> {
        let all = lock(&self.0);
        let killed = all.iter().find(|it| it.service == service && it.what == ByHand::Killed)?;
        Some(killed.at.elapsed())
    }

    /// The services that a person killed.
    pub(crate) fn killed(&self) -> Vec<ServiceId> {
        let is_killed = |it: &Deed| (it.what == ByHand::Killed).then_some(it.service);
        lock(&self.0).iter().filter_map(is_killed).collect()
    }

    /// Removes these services from the killed ones.
    pub(crate) fn forgive(&self, killed: &mut BTreeMap<ServiceId, Killed>) {
        for it in &*lock(&self.0) {
            killed.remove(&it.service);
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
        excused.clone().add(id(1), ByHand::Frozen);
        excused.forgive(&mut killed);
        assert!(excused.contains(id(1)) && !excused.contains(id(2)));
        assert_eq!((excused.cause(id(1)), excused.cause(id(2))), (Some(ByHand::Frozen), None));
        excused.add(id(3), ByHand::Killed);
        assert_eq!(excused.killed(), [id(3)], "a frozen one keeps its session");
        assert!(excused.killed_ago(id(3)).is_some() && excused.killed_ago(id(1)).is_none());
        assert_eq!(killed.into_keys().collect::<Vec<_>>(), [id(2)]);
        excused.add(id(1), ByHand::Thawed);
        assert_eq!(
            (excused.cause(id(1)), excused.cause(id(3))),
            (Some(ByHand::Thawed), Some(ByHand::Killed))
        );
        for number in 10..2000 {
            excused.add(id(number), ByHand::Killed);
        }
        assert_eq!(lock(&excused.0).len(), Excused::MAX);
    }
}
