//! Whether services have room for one more observer, in whatever order their queue delivers.

use crate::record::row::Row;

/// Observers, and the slots that they take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    pub number: u64,
    pub weight: u64,
}

/// The slots of services of which each takes observers of up to its `weight_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Supply {
    pub slots: u64,
    /// If observers use fewer slots than this, one of the services takes another message.
    pub certain_slots: u64,
    /// If there are fewer observers than this, one of the services takes another message.
    pub certain_messages: u64,
}

impl Load {
    /// One observer of this weight.
    #[must_use]
    pub fn one(weight: u16) -> Self {
        Self { number: 1, weight: weight.into() }
    }
    /// The observer of this row.
    #[must_use]
    pub fn of(row: &Row) -> Self {
        Self::one(row.definition.weight)
    }
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            number: self.number.saturating_add(other.number),
            weight: self.weight.saturating_add(other.weight),
        }
    }
}

impl Supply {
    /// One service with this capacity and `weight_max`.
    #[must_use]
    pub fn of(capacity: u32, weight_max: u16) -> Self {
        let (capacity, weight_max) = (u64::from(capacity), u64::from(weight_max.max(1)));
        Self {
            slots: capacity,
            certain_slots: (capacity + 1).saturating_sub(weight_max),
            certain_messages: capacity / weight_max,
        }
    }
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_add(other.slots),
            certain_slots: self.certain_slots.saturating_add(other.certain_slots),
            certain_messages: self.certain_messages.saturating_add(other.certain_messages),
        }
    }
    /// Room for this many observers of weight 1 more.
    #[must_use]
    pub(crate) fn and_ahead(self, ahead: u64) -> Self {
        self.and(Self { slots: ahead, certain_slots: ahead, certain_messages: ahead })
    }

    /// Whether each of these observers finds a service with room, in whatever order the queue delivers them.
    ///
    /// The obvious rule compares their weight with the slots. But the queue places each observer on any service that
    /// takes a message, so light ones may leave a few slots on each service, and a heavy one fits nowhere.
    ///
    /// Instead: a service with capacity C and `weight_max` W takes no further message only while it uses more than C − W
    /// slots, that is, at least C − W + 1. Each of its messages uses at most W slots, so it then holds at least ⌊C/W⌋
    /// messages. Assume that an observer finds all services closed. Then the other observers use at least
    /// Σ(C − W + 1) slots, and they are at least Σ⌊C/W⌋. So it finds a service with room if all of them together use
    /// no more than Σ(C − W + 1) slots, or if they are no more than Σ⌊C/W⌋. Where every W is 1, both sums are ΣC.
    #[must_use]
    pub fn holds(self, load: Load) -> bool {
        load.weight <= self.certain_slots || load.number <= self.certain_messages
    }

    /// How many observers of weight 1 find room beside this load; below zero while the load does not find room itself.
    #[must_use]
    pub fn room_beside(self, load: Load) -> i64 {
        let left = |has: u64, used: u64| i64::try_from(has).unwrap_or(i64::MAX).saturating_sub_unsigned(used);
        left(self.certain_slots, load.weight).max(left(self.certain_messages, load.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the queue can deliver these weights so that one of them finds every service closed. A service takes
    /// messages while it uses at most its capacity less `weight_max`.
    fn can_strand(services: &mut Vec<(u32, u32)>, weight_max: u32, left: &mut Vec<u32>) -> bool {
        if left.is_empty() {
            return false;
        }
        let open: Vec<usize> =
            (0..services.len()).filter(|it| services[*it].1 + weight_max <= services[*it].0).collect();
        if open.is_empty() {
            return true;
        }
        for index in 0..left.len() {
            if left[..index].contains(&left[index]) {
                continue;
            }
            let weight = left.remove(index);
            for service in &open {
                services[*service].1 += weight;
                let strands = can_strand(services, weight_max, left);
                services[*service].1 -= weight;
                if strands {
                    left.insert(index, weight);
                    return true;
                }
            }
            left.insert(index, weight);
        }
        false
    }

    /// All multisets of up to `most` weights.
    fn loads(weight_max: u32, most: usize) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..most {
            let longer = |load: &Vec<u32>| {
                let from = load.last().copied().unwrap_or(1);
                (from..=weight_max).map(|weight| [load.as_slice(), &[weight]].concat()).collect::<Vec<_>>()
            };
            last = last.iter().flat_map(longer).collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn admitted_observers_find_room_in_every_order() {
        let (mut held, mut mixed) = (0, 0);
        for weight_max in 1..=3_u16 {
            for (a, b) in [(3, 3), (4, 3), (5, 4), (6, 0), (5, 2)] {
                let supply = Supply::of(a, weight_max).and(Supply::of(b, weight_max));
                for load in loads(weight_max.into(), 7) {
                    let total =
                        Load { number: load.len() as u64, weight: load.iter().copied().map(u64::from).sum() };
                    let strands = can_strand(&mut vec![(a, 0), (b, 0)], weight_max.into(), &mut load.clone());
                    assert!(!(supply.holds(total) && strands), "{a} {b} {weight_max} {load:?}");
                    held += u32::from(supply.holds(total));
                    mixed += u32::from(supply.holds(total) && total.weight > supply.certain_slots);
                    // More would strand one in some order, if all are as light or as heavy as they can be.
                    let light = load.iter().all(|weight| *weight == 1);
                    let same = light || load.iter().all(|weight| *weight == u32::from(weight_max));
                    assert!(!same || supply.holds(total) || strands, "{a} {b} {weight_max} {load:?}");
                }
            }
        }
        assert!(held > 100 && mixed > 10, "{held} {mixed}");
    }

    #[test]
    fn without_weights_all_sums_are_the_slots() {
        assert_eq!(Supply::of(7, 1), Supply { slots: 7, certain_slots: 7, certain_messages: 7 });
        assert_eq!(Supply::of(12, 4), Supply { slots: 12, certain_slots: 9, certain_messages: 3 });
        let too_small = Supply::of(3, 5);
        assert_eq!((too_small.certain_slots, too_small.certain_messages), (0, 0), "a resize made it useless");
        assert_eq!(Supply::of(4, 4).room_beside(Load { number: 1, weight: 4 }), 0);
    }
}
