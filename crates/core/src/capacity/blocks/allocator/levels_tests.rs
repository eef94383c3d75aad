//! Several services at one queue, whose broker serves the consumers of the highest priority in turn.

use super::*;
use crate::capacity::blocks::BlockId;
use proptest::prelude::*;
use std::collections::VecDeque;

struct Consumer {
    service: usize,
    block: BlockId,
    priority: i32,
    prefetch: u32,
    held: u32,
    open: bool,
}

struct Pool {
    services: Vec<Blocks>,
    /// The one that has waited longest comes first.
    consumers: VecDeque<Consumer>,
    /// The messages in the order of their delivery.
    messages: Vec<(usize, BlockId)>,
    now: Duration,
}

impl Pool {
    fn new(capacities: &[u32]) -> Self {
        let services = capacities.iter().map(|capacity| Blocks::new(*capacity)).collect();
        let (consumers, messages) = (VecDeque::new(), Vec::new());
        let mut pool = Self { services, consumers, messages, now: Duration::ZERO };
        pool.passes(Duration::from_secs(2));
        pool
    }
    fn passes(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            for service in 0..self.services.len() {
                self.act(service);
            }
            self.now += Duration::from_millis(50);
        }
    }
    fn act(&mut self, service: usize) {
        let mut channels = std::collections::BTreeMap::new();
        for consumer in self.consumers.iter().filter(|it| it.service == service && it.open) {
            channels.insert(self.services[service].blocks[&consumer.block].channel, consumer.block);
        }
        for effect in self.services[service].decide(self.now) {
            match effect {
                BlockEffect::Open { block, prefetch, priority, .. } => {
                    let prefetch = u32::from(prefetch);
                    let consumer = Consumer { service, block, priority, prefetch, held: 0, open: true };
                    self.consumers.push_back(consumer);
                }
                BlockEffect::Cancel { channel } => {
                    let block = channels[&channel];
                    self.consumer(service, block).open = false;
                    self.services[service].ended(block);
                }
                BlockEffect::Close { .. } => {}
            }
        }
    }
    fn consumer(&mut self, service: usize, block: BlockId) -> &mut Consumer {
        self.consumers.iter_mut().find(|it| it.service == service && it.block == block).unwrap()
    }
    /// Delivers a message; returns who took it.
    fn publish(&mut self) -> Option<usize> {
        let free = self.consumers.iter().enumerate().filter(|(_, it)| it.open && it.held < it.prefetch);
        let (at, _) = free.min_by_key(|(_, it)| std::cmp::Reverse(it.priority))?;
        let mut consumer = self.consumers.remove(at).unwrap();
        consumer.held += 1;
        let (service, block) = (consumer.service, consumer.block);
        self.consumers.push_back(consumer);
        self.services[service].took(block, 1);
        self.messages.push((service, block));
        Some(service)
    }
    fn publish_all(&mut self, count: u32) -> Vec<u32> {
        let mut taken = vec![0; self.services.len()];
        for _ in 0..count {
            self.publish().into_iter().for_each(|service| taken[service] += 1);
        }
        taken
    }
    /// Deletes the oldest messages of a service.
    fn delete(&mut self, service: usize, count: usize) {
        for _ in 0..count {
            let Some(at) = self.messages.iter().position(|(of, _)| *of == service) else { return };
            self.delete_at(at);
        }
    }
    fn delete_at(&mut self, at: usize) {
        let (service, block) = self.messages.remove(at);
        self.consumer(service, block).held -= 1;
        self.services[service].freed(block, 1);
    }
    /// Restarts the service. The broker delivers its messages to the other services.
    fn restart(&mut self, service: usize) {
        let lost = self.messages.iter().filter(|(of, _)| *of == service).count();
        self.messages.retain(|(of, _)| *of != service);
        self.consumers.retain(|it| it.service != service);
        for _ in 0..lost {
            self.publish();
        }
        self.services[service] = Blocks::new(self.services[service].capacity());
        self.passes(Duration::from_secs(2));
    }
    fn held(&self) -> Vec<u32> {
        self.services.iter().map(Blocks::held).collect()
    }
    fn use_of(&self, service: usize) -> f64 {
        f64::from(self.services[service].held()) / f64::from(self.services[service].capacity())
    }
}

#[test]
fn a_restarted_service_receives_the_next_messages() {
    let mut pool = Pool::new(&[10, 10, 10]);
    pool.publish_all(12);
    assert_eq!(pool.held(), [4, 4, 4]);
    pool.restart(0);
    assert_eq!(pool.held(), [0, 6, 6]);
    assert_eq!(pool.publish_all(6), [6, 0, 0]);
    assert_eq!(pool.publish_all(6), [2, 2, 2]);
}

#[test]
fn a_larger_service_receives_more() {
    assert_eq!(Pool::new(&[10, 20, 40]).publish_all(35), [6, 12, 17]);
}

#[test]
fn a_service_that_takes_observers_over_by_a_move_does_not_receive_the_next_ones() {
    let mut pool = Pool::new(&[10, 10, 10]);
    pool.publish_all(12);
    let until = pool.now + Duration::from_secs(5);
    for service in [0, 1] {
        pool.services[service].rest(pool.now, until);
    }
    pool.passes(Duration::from_millis(50));
    pool.delete(0, 4);
    pool.publish_all(4);
    assert_eq!(pool.held(), [0, 4, 8]);
    pool.passes(Duration::from_secs(10));
    assert_eq!(pool.publish_all(4), [4, 0, 0]);
}

#[test]
fn a_service_that_has_lost_its_oldest_messages_does_not_fill_up_before_others() {
    let mut pool = Pool::new(&[10, 10]);
    pool.publish_all(20);
    pool.delete(0, 5);
    for _ in 0..4 {
        let newest = pool.messages.iter().rposition(|(of, _)| *of == 1).unwrap();
        pool.delete_at(newest);
    }
    assert_eq!(pool.held(), [5, 6]);
    pool.passes(Duration::from_secs(5));
    assert_eq!(pool.publish_all(5), [3, 2]);
}

#[derive(Debug, Clone)]
enum Op {
    Publish(u32),
    Delete(usize),
    Purge(usize, usize),
    Restart(usize),
    Cordon(usize, bool),
    Passes(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1_u32..30).prop_map(Op::Publish),
        4 => (0_usize..200).prop_map(Op::Delete),
        1 => (0_usize..3, 1_usize..30).prop_map(|(service, count)| Op::Purge(service, count)),
        1 => (0_usize..3).prop_map(Op::Restart),
        1 => (0_usize..3, prop::bool::ANY).prop_map(|(service, cordoned)| Op::Cordon(service, cordoned)),
        2 => (0_u64..3000).prop_map(Op::Passes),
    ]
}

proptest! {
    /// After any sequence of deletes, cordons and restarts, no service takes more than one block of messages while another
    /// service uses three eighths less of its capacity.
    #[test]
    fn new_messages_go_where_less_is_in_use(
        capacities in prop::collection::vec(8_u32..100, 3), ops in prop::collection::vec(op(), 0..40), count in 1_u32..60,
    ) {
        let mut pool = Pool::new(&capacities);
        for op in ops {
            match op {
                Op::Publish(count) => drop(pool.publish_all(count)),
                Op::Delete(_) if pool.messages.is_empty() => {}
                Op::Delete(at) => pool.delete_at(at % pool.messages.len()),
                Op::Purge(service, count) => pool.delete(service, count),
                Op::Restart(service) => pool.restart(service),
                Op::Cordon(service, cordoned) => pool.services[service].cordon(cordoned),
                Op::Passes(millis) => pool.passes(Duration::from_millis(millis)),
            }
        }
        pool.services.iter_mut().for_each(|it| it.cordon(false));
        pool.passes(Duration::from_secs(30));
        let taken = pool.publish_all(count);
        let least = (0..3).map(|it| pool.use_of(it)).fold(1.0, f64::min);
        for (service, taken) in taken.into_iter().enumerate() {
            let of_full_block = share(pool.services[service].capacity());
            let ahead = pool.use_of(service) - least;
            prop_assert!(taken <= of_full_block || ahead <= 3.0 / 8.0 + 1e-9, "{taken} at {service}: {:?}", pool.held());
        }
    }
}
