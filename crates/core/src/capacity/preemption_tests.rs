use super::*;
use crate::capacity::admission::{KindCount, offers};
use crate::capacity::limits::KeyCount;
use crate::capacity::supply::{Load, Supply};
use crate::id::{LimitKey, Name, ObserverId};
use crate::observer::definition::ObserverDefinition;
use crate::record::test_services::{holding, service};
use crate::wire::heartbeat::Intent;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

const AFTER: Duration = Duration::from_secs(10);

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn policy() -> RowPolicy {
    RowPolicy::default()
}
fn row(number: u128, kind: &str, priority: i8) -> Row {
    let body = json!({"kind": kind, "priority": priority});
    let name = Name::new(&format!("o{number}")).unwrap();
    let definition = ObserverDefinition::parse(body, &name).unwrap();
    Row::created(ObserverId(Uuid::from_u128(number)), definition, at(0), &policy())
}
fn waiting(number: u128, priority: i8) -> Row {
    row(number, "ticker", priority).created_waiting()
}
/// Runs since this second on service 1.
fn running(number: u128, priority: i8, second: i64) -> Row {
    let mut it = row(number, "ticker", priority);
    it.confirmed(1, at(0));
    let event = RunEvent::Started { attempt: 1, started_at: at(second) };
    let report = RunReport { id: it.id, epoch: crate::epoch::Epoch::new(1, 1), event };
    it.apply(ServiceId(Uuid::from_u128(1)), 1, at(second), &report, at(second));
    it
}
/// Its message is in the queue: it has not run yet, or, with an odd number, its service has died.
fn ready(number: u128, priority: i8) -> Row {
    let mut it = row(number, "ticker", priority);
    it.confirmed(1, at(0));
    if !number.is_multiple_of(2) {
        let event = RunEvent::Started { attempt: 1, started_at: at(1) };
        let report = RunReport { id: it.id, epoch: crate::epoch::Epoch::new(1, 1), event };
        it.apply(ServiceId(Uuid::from_u128(77)), 1, at(1), &report, at(1));
    }
    it
}

/// A pool of one service with these slots.
struct World {
    services: Vec<ServiceRow>,
    slots: u32,
    waiting: Vec<Row>,
    keys: KeyCounts,
    admitted: Vec<Row>,
}

impl World {
    fn new(slots: u32, waiting: &[Row], admitted: &[Row]) -> Self {
        let services = vec![service("default", slots, &["ticker"])];
        let (waiting, admitted) = (waiting.to_vec(), admitted.to_vec());
        Self { services, slots, waiting, keys: KeyCounts::new(), admitted }
    }
    /// The pairs that a look at this second decides: who gives way to whom.
    fn look(&mut self, second: i64) -> String {
        self.admitted.sort_by_key(|row| (row.preemption_rank(), row.id));
        let pool = Pool::default();
        let load = |rows: &[Row]| rows.iter().map(Load::of).fold(Load::default(), Load::and);
        let mut kinds: std::collections::BTreeMap<Kind, KindCount> = std::collections::BTreeMap::new();
        for row in &self.admitted {
            let it = kinds.entry(row.definition.kind.clone()).or_default();
            it.admitted = it.admitted.and(Load::of(row));
        }
        for row in &self.waiting {
            let it = kinds.entry(row.definition.kind.clone()).or_default();
            it.waiting = it.waiting.and(load(std::slice::from_ref(row)));
        }
        let count = PoolCount { supply: Supply::of(self.slots, 1), ahead: 0, kinds };
        let offers = offers(&self.services).remove(&pool).unwrap_or_default();
        let (services, now) = (&self.services, at(second));
        let look = Look { pool: &pool, services, offers: &offers, after: AFTER, now };
        let read: Vec<Row> = look
            .selections(&count)
            .iter()
            .flat_map(|selection| self.waiting.iter().filter(|row| selection.contains(row)).cloned())
            .collect();
        let Some(below) = look.below(&read) else { return "no observer has waited long enough".to_owned() };
        let admitted: Vec<Row> =
            self.admitted.iter().filter(|row| row.preemption_rank().unwrap() < below).cloned().collect();
        let decided = look.decide(&count, (read, self.keys.clone()), &admitted, &policy());
        let shown = decided.iter().map(|it| {
            let by = it.after.preempted.as_ref().unwrap().by.as_ref().unwrap();
            let how = if it.recalled { " (recalled)" } else { "" };
            format!("{} to {by}{how}", it.before.definition.name)
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        for it in decided {
            let row = self.admitted.iter_mut().find(|row| row.id == it.before.id).unwrap();
            *row = it.after;
        }
        shown
    }
    fn end(&mut self, number: u128) {
        self.admitted.retain(|row| row.id.0.as_u128() != number);
    }
}

#[test]
fn the_latest_run_of_the_lowest_priority_gives_way_once() {
    let runs = [running(1, 0, 5), running(2, 0, 7), running(3, -1, 3), running(4, 9, 8)];
    let mut world = World::new(4, &[waiting(8, 5)], &runs);
    assert_eq!(world.look(9), "no observer has waited long enough");
    assert_eq!(world.look(10), "o3 to o8");
    assert_eq!(world.look(11), "", "a run is ending already");
    world.waiting.push(waiting(9, 1));
    assert_eq!(world.look(12), "o2 to o9");
    let reason = world.admitted.iter().find(|row| row.id.0.as_u128() == 3).unwrap().verdict().reason;
    assert_eq!(reason.to_string(), "told to stop: preempted by o8, whose priority is 5");
}

#[test]
fn equal_priorities_never_give_way_and_free_slots_come_first() {
    assert_eq!(World::new(1, &[waiting(8, 5)], &[running(1, 5, 1)]).look(99), "");
    assert_eq!(World::new(2, &[waiting(8, 5)], &[running(1, 0, 1)]).look(99), "");
    // The run of o1 ends for o8; o9 has the priority of o1 and gets no slot.
    let mut world = World::new(1, &[waiting(8, 5), waiting(9, 4)], &[running(1, 4, 1)]);
    assert_eq!(world.look(99), "o1 to o8");
    assert_eq!(world.look(99), "");
}

#[test]
fn ready_messages_are_recalled_before_a_run_ends() {
    // A service with two slots died; its observers are in the queue.
    let runs = [running(1, 0, 1), running(2, 0, 2), ready(3, 0), ready(4, 3), ready(5, 9)];
    let mut world = World::new(2, &[waiting(8, 5)], &runs);
    assert_eq!(world.look(20), "o3 to o8 (recalled), o4 to o8 (recalled)");
    assert_eq!(world.look(21), "", "the recall is not over");
    world.end(3);
    world.end(4);
    // Slots for the one that is ready with a higher priority, and for the one that waits.
    assert_eq!(world.look(22), "o2 to o8, o1 to o8");
    let mut world = World::new(1, &[waiting(8, 5)], &[running(1, 0, 1), ready(3, 0)]);
    assert_eq!(world.look(20), "o3 to o8 (recalled)");
    assert_eq!((world.look(29), world.look(30)), (String::new(), "o1 to o8".to_owned()));
}

#[test]
fn an_observer_behind_a_limit_gets_no_slot() {
    let mut limited = waiting(8, 9);
    let key = LimitKey::new("a").unwrap();
    Arc::make_mut(&mut limited.definition).limits = [key.clone()].into();
    let mut world = World::new(1, &[limited, waiting(9, 5)], &[running(1, 0, 1)]);
    world.keys = [(key, KeyCount { max: Some(1), used: 1, first_behind: None })].into();
    assert_eq!(world.look(20), "o1 to o9");
}

#[test]
fn no_run_ends_while_a_service_is_suspect_or_takes_weights() {
    let mut world = World::new(1, &[waiting(8, 5)], &[running(1, 0, 1)]);
    let mut other = service("default", 9, &["ticker"]);
    other.suspect(at(1));
    world.services.push(other);
    assert_eq!(world.look(20), "");
    world.services[1] = service("default", 9, &["ticker"]);
    world.services[1].registration.weight_max = 2;
    assert_eq!(world.look(20), "");
    world.services[1] = service("default", 9, &["ticker"]);
    assert_eq!(world.look(20), "o1 to o8");
}

#[test]
fn what_a_cordoned_service_holds_gives_no_slot() {
    let mut runs = [running(1, -9, 9), running(2, 0, 1)];
    let report = RunReport {
        id: runs[0].id,
        epoch: runs[0].epoch(),
        event: RunEvent::Started { attempt: 1, started_at: at(9) },
    };
    runs[0] = Row { observed: crate::record::observed::Observed::default(), ..runs[0].clone() };
    let cordoned = ServiceId(Uuid::from_u128(2));
    runs[0].apply(cordoned, 1, at(9), &report, at(9));
    let mut world = World::new(1, &[waiting(8, 5)], &runs);
    let mut other = holding(service("default", 1, &["ticker"]), 1);
    other.id = cordoned;
    other.heartbeat.as_mut().unwrap().state = Intent::Cordoned;
    world.services.push(other);
    assert_eq!(world.look(20), "o2 to o8");
}

#[test]
fn where_services_offer_different_kinds_only_the_same_kind_gives_way() {
    let mut runs = [running(1, -9, 1), running(2, 0, 1)];
    Arc::make_mut(&mut runs[0].definition).kind = Kind::new("exec").unwrap();
    let mut world = World::new(2, &[waiting(8, 5)], &runs);
    world.services = vec![service("default", 1, &["ticker"]), service("default", 1, &["exec"])];
    assert_eq!(world.look(20), "o2 to o8");
    // The slot of a run that ends on a service that offers both kinds is enough.
    let mut world = World::new(2, &[waiting(8, 5)], &runs);
    world.services = vec![service("default", 1, &["ticker"]), service("default", 1, &["ticker", "exec"])];
    world.admitted[0].delete(at(15), &policy());
    assert_eq!(world.look(20), "");
}

#[test]
fn a_look_ends_a_limited_number_of_runs() {
    let runs: Vec<Row> = (1..=40).map(|number| running(number, 0, 1)).collect();
    let waiting: Vec<Row> = (100..140).map(|number| waiting(number, 5)).collect();
    let mut world = World::new(40, &waiting, &runs);
    assert_eq!(world.look(20).split(", ").count(), AT_ONCE);
    // Any minute with full looks, each with its pause, sees at most twice as many.
    let look = |ended: usize, recalled: usize| {
        let one = |recalled| Preempted { before: running(1, 0, 1), after: running(1, 0, 1), recalled };
        pause(&[vec![one(false); ended], vec![one(true); recalled]].concat())
    };
    assert_eq!((look(AT_ONCE, 0), look(1, 0)), (Duration::from_secs(60), Duration::from_secs(2)));
    assert_eq!((look(0, 0), look(0, READ_MAX)), (EVERY, EVERY), "a recall ends no run");
}

#[test]
fn a_preempted_observer_returns_to_the_backlog_and_says_why() {
    use crate::record::due::{DueStep, due_step};
    let mut it = running(1, 0, 1);
    assert!(it.give_way_to(&waiting(8, 5), at(20), &policy()));
    assert!(!it.give_way_to(&waiting(9, 7), at(20), &policy()), "it has given its slot away");
    let report = RunReport { id: it.id, epoch: it.epoch(), event: RunEvent::Stopped };
    it.apply(ServiceId(Uuid::from_u128(1)), 2, at(21), &report, at(21));
    let Some(DueStep::Save(mut it)) = due_step(&it, at(22), &policy()) else { panic!("it waits") };
    let reason = it.verdict().reason.to_string();
    assert_eq!(reason, "waiting for a slot in pool default: preempted by o8, whose priority is 5");
    it.admit(at(23), &policy());
    assert_eq!((it.preempted.clone(), it.generation), (None, 2));
    // Its run completed before it was told to stop, and a user starts it again.
    let mut it = running(1, 0, 1);
    assert!(it.give_way_to(&waiting(8, 5), at(20), &policy()));
    let report = RunReport { id: it.id, epoch: it.epoch(), event: RunEvent::Completed };
    it.apply(ServiceId(Uuid::from_u128(1)), 2, at(21), &report, at(21));
    it.restart(at(22), &policy()).unwrap();
    assert_eq!(it.verdict().reason.to_string(), "waiting for a slot in pool default");
}
