//! What a manager's pass does with the rows and services it looks at: snapshot and time in, steps out.
//! Nothing here knows why the pass runs; the next pass is the retry of this one.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::message::Floor;
use crate::row::{Row, RowPolicy};
use crate::service::ServiceRow;
use std::time::Duration;

/// What is to be done with one row: save it, then send its floor, then publish it. Or forget it.
#[derive(Debug, Clone, PartialEq)]
pub struct RowStep {
    /// The row as it is to be saved.
    pub row: Row,
    /// Its generation is new: publish it once it is saved.
    pub publish: bool,
    /// Goes out after the save and before the publish.
    pub floor: Option<Floor>,
    /// Its retention is over.
    pub forget: bool,
}

/// The step of a row that is due; `None` if somebody else has done it meanwhile.
#[must_use]
pub fn plan_row(row: &Row, now: Timestamp, policy: &RowPolicy) -> Option<RowStep> {
    if row.forget_at(policy).is_some_and(|at| at <= now) {
        return Some(RowStep { row: row.clone(), publish: false, floor: None, forget: true });
    }
    let lease_over = row.mark.is_some_and(|mark| mark.until <= now);
    if lease_over || row.wants_reissue() {
        // Even one that is to end: its message may never have reached the queue, and only the service
        // that gets it can say that it is over.
        let mut row = row.clone();
        row.reissue(now, policy);
        if row.awaits_end() {
            row.command(now, policy);
        }
        let floor = Some(row.floor());
        return Some(RowStep { row, publish: true, floor, forget: false });
    }
    if row.fails_at(policy).is_some_and(|at| at <= now) {
        let mut row = row.clone();
        row.fail_refused(now);
        let floor = Some(row.floor());
        return Some(RowStep { row, publish: false, floor, forget: false });
    }
    let silent = row.repeat.is_none_or(|repeat| repeat.next_at <= now);
    if row.awaits_end() && silent {
        let mut row = row.clone();
        row.command(now, policy);
        let floor = Some(row.floor());
        return Some(RowStep { row, publish: false, floor, forget: false });
    }
    None
}

/// What is to be done about services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServicePlan {
    /// Silent for too long: to be marked as suspect.
    pub suspect: Vec<ServiceId>,
    /// Suspect (those above included): the broker is to be asked about their sessions.
    pub ask: Vec<ServiceId>,
}

/// `may_conclude`: whether this manager reads the queues well enough to conclude from silence.
#[must_use]
pub fn plan_services(
    services: &[ServiceRow],
    now: Timestamp,
    lost_after: Duration,
    may_conclude: bool,
) -> ServicePlan {
    let mut plan = ServicePlan::default();
    for service in services.iter().filter(|service| service.end.is_none()) {
        let silent = may_conclude && service.is_silent(now, lost_after);
        if silent && service.suspect_since.is_none() {
            plan.suspect.push(service.id);
        }
        if silent || service.suspect_since.is_some() {
            plan.ask.push(service.id);
        }
    }
    plan
}

/// The broker says that a suspect's session lives. One that still beats is cleared; of one that is
/// silent nothing was heard, so it stays as it is: suspect.
pub fn on_alive(service: &mut ServiceRow, now: Timestamp, lost_after: Duration) -> bool {
    if service.end.is_some() || service.suspect_since.is_none() || service.is_silent(now, lost_after) {
        return false;
    }
    service.suspect_since = None;
    service.on_session_alive(now);
    true
}

/// Whether the queue of this row's pool is to be searched for its message: it is to end, and no service
/// that lives has it by its own word. One that ran and lost its service waits in the queue like one that
/// never did; in a full pool nobody else would ever end it.
#[must_use]
pub fn wants_sweep(row: &Row, now: Timestamp, policy: &RowPolicy, lives: impl Fn(ServiceId) -> bool) -> bool {
    row.awaits_end() && now.since(row.modified_at) >= policy.sweep_after && !row.holder().is_some_and(lives)
}

/// What becomes of a work message that a sweep has in its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Back to the queue.
    Keep,
    /// Of a generation that is over: end it.
    Stale,
    /// Its observer is to end, and whoever has the message in hand knows that nobody else has it: settle
    /// the row, then end it.
    Settle,
}

/// `row` is `None` for an id that the database does not know.
#[must_use]
pub fn plan_sweep(row: Option<&Row>, generation: u32) -> Sweep {
    match row {
        None => Sweep::Keep,
        Some(row) if generation < row.generation => Sweep::Stale,
        Some(row) if generation == row.generation && row.awaits_end() => Sweep::Settle,
        Some(_) => Sweep::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId};
    use crate::message::{Beat, Birth, Intent, RunEvent, RunReport};
    use crate::observer::Wanted;
    use crate::status::Status;
    use serde_json::json;
    use uuid::Uuid;

    const LOST_AFTER: Duration = Duration::from_secs(15);

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn policy() -> RowPolicy {
        RowPolicy::default()
    }
    fn row() -> Row {
        let wanted = Wanted::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        Row::created(ObserverId(Uuid::from_u128(1)), wanted, at(0), &policy())
    }
    fn report(row: &mut Row, event: RunEvent, secs: i64) {
        let report = RunReport { id: row.id, epoch: row.epoch(), event };
        row.apply(ServiceId(Uuid::from_u128(9)), 1, at(secs), &report, at(secs));
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }
    fn service(number: u128, heard: i64) -> ServiceRow {
        let birth = Birth {
            name: Name::new("s").unwrap(),
            pool: crate::id::Pool::default(),
            capacity: 1,
            kinds: Vec::new(),
            version: String::new(),
            message_version: crate::message::VERSION,
            host: String::new(),
            labels: Default::default(),
            predecessor: None,
        };
        ServiceRow::born(ServiceId(Uuid::from_u128(number)), birth, at(heard), at(heard))
    }

    #[test]
    fn a_publish_is_repeated_only_when_its_lease_is_over_and_as_the_next_generation() {
        let row = row();
        assert_eq!(plan_row(&row, at(29), &policy()), None);
        let step = plan_row(&row, at(30), &policy()).unwrap();
        assert!(step.publish && !step.forget);
        assert_eq!((step.row.generation, step.row.mark.unwrap().failures), (2, 1));
        assert_eq!(step.floor, Some(Floor { id: row.id, below: Epoch::first_of(2) }));
        assert_eq!(plan_row(&step.row, at(31), &policy()), None);
    }

    #[test]
    fn a_lease_goes_on_while_its_publish_is_under_way() {
        let mut row = row();
        let until = row.mark.unwrap().until;
        let renews = [9, 10, 29, 30].map(|secs| policy().renews(until, at(secs)));
        assert_eq!(renews, [false, true, true, false]);
        assert!(row.renew(1, at(20), &policy()));
        assert_eq!(plan_row(&row, at(49), &policy()), None);
        assert!(plan_row(&row, at(50), &policy()).is_some());
        assert!(!row.renew(2, at(20), &policy()), "another generation's");
        report(&mut row, started(), 21);
        assert!(!row.renew(1, at(22), &policy()), "a report has answered for the broker");
    }

    #[test]
    fn a_publish_without_an_answer_is_repeated_soon_and_each_time_later() {
        let mut row = row();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(row.unsure(row.generation, at(100), &policy()));
            assert_eq!(plan_row(&row, at(100 + pause - 1), &policy()), None);
            row = plan_row(&row, at(100 + pause), &policy()).unwrap().row;
        }
        assert_eq!(row.generation, 9);
        assert!(!row.unsure(8, at(100), &policy()), "an older generation's");
    }

    #[test]
    fn a_list_entry_repeats_the_row_only_while_nothing_else_is_known_of_that_attempt() {
        let (mut row, holder) = (row(), ServiceId(Uuid::from_u128(9)));
        let entry = |attempt, acquisitions| RunReport {
            id: row.id,
            epoch: Epoch::new(1, acquisitions),
            event: RunEvent::Started { attempt, started_at: at(1) },
        };
        let (same, next, other_run) = (entry(1, 0), entry(2, 0), entry(1, 1));
        assert!(!row.repeats(holder, &same), "nothing was reported yet");
        report(&mut row, started(), 1);
        assert!(row.repeats(holder, &same));
        assert!(!row.repeats(holder, &next) && !row.repeats(holder, &other_run));
        assert!(!row.repeats(ServiceId(Uuid::from_u128(8)), &same), "another holder");
        row.apply(holder, 2, at(2), &RunReport { event: RunEvent::HandedOver, ..same.clone() }, at(2));
        assert!(!row.repeats(holder, &same), "handed over");
    }

    #[test]
    fn a_running_observer_needs_nothing() {
        let mut row = row();
        report(&mut row, started(), 1);
        assert_eq!(plan_row(&row, at(1_000_000), &policy()), None);
    }

    #[test]
    fn a_delete_is_commanded_again_until_it_is_answered_then_forgotten() {
        let mut row = row();
        report(&mut row, started(), 1);
        row.delete(at(10), &policy());
        assert_eq!(plan_row(&row, at(11), &policy()), None);
        let step = plan_row(&row, at(12), &policy()).unwrap();
        assert_eq!((step.publish, step.floor), (false, Some(row.floor())));
        assert_eq!(step.row.repeat.unwrap().next_at, at(16));
        report(&mut row, RunEvent::Stopped, 13);
        assert_eq!(row.verdict().status, Status::Deleted);
        assert_eq!(plan_row(&row, at(20), &policy()), None);
        assert!(plan_row(&row, at(13 + 3600), &policy()).unwrap().forget);
    }

    #[test]
    fn a_delete_before_the_publish_was_confirmed_publishes_again_under_a_floor_that_ends_it() {
        let mut row = row();
        row.delete(at(1), &policy());
        let step = plan_row(&row, at(30), &policy()).unwrap();
        assert!(step.publish);
        assert_eq!(step.floor.unwrap().below, Epoch::after_generation(2));
        assert_eq!(step.row.verdict().status, Status::OnDeleting);
    }

    #[test]
    fn one_that_was_stopped_but_is_wanted_is_published_again() {
        let mut row = row();
        report(&mut row, RunEvent::Stopped, 1);
        let step = plan_row(&row, at(1), &policy()).unwrap();
        assert!(step.publish);
        assert_eq!(step.row.generation, 2);
    }

    #[test]
    fn silence_makes_suspects_only_while_the_queues_are_read() {
        let services = [service(1, 0), service(2, 10)];
        let quiet = plan_services(&services, at(20), LOST_AFTER, false);
        assert_eq!(quiet, ServicePlan::default());
        let plan = plan_services(&services, at(20), LOST_AFTER, true);
        assert_eq!(
            (plan.suspect.as_slice(), plan.ask.as_slice()),
            (&[services[0].id][..], &[services[0].id][..])
        );
    }

    #[test]
    fn a_suspect_is_asked_about_whoever_made_it_one() {
        let mut suspect = service(1, 0);
        suspect.suspect(at(1));
        let plan = plan_services(std::slice::from_ref(&suspect), at(2), LOST_AFTER, false);
        assert_eq!((plan.suspect.len(), plan.ask.as_slice()), (0, &[suspect.id][..]));
        suspect.on_session_gone(at(3));
        assert_eq!(plan_services(&[suspect], at(4), LOST_AFTER, true), ServicePlan::default());
    }

    #[test]
    fn a_living_session_clears_a_suspect_that_beats_and_no_other() {
        let mut beating = service(1, 10);
        beating.suspect(at(11));
        assert!(on_alive(&mut beating, at(12), LOST_AFTER));
        assert_eq!(beating.suspect_since, None);
        let mut silent = service(2, 0);
        silent.suspect(at(20));
        assert!(!on_alive(&mut silent, at(21), LOST_AFTER));
        let beat = Beat {
            service: silent.id,
            seq: 1,
            state: Intent::Active,
            capacity: 1,
            held: 0,
            loop_lag_ms: 0,
            rss_bytes: 0,
            sent_at: None,
        };
        assert!(silent.on_beat(&beat, at(22)));
        assert_eq!(silent.suspect_since, None);
    }

    #[test]
    fn a_sweep_ends_doomed_and_stale_messages_and_gives_the_rest_back() {
        let mut row = row();
        assert_eq!(plan_sweep(None, 1), Sweep::Keep);
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Keep);
        row.delete(at(1), &policy());
        let nobody = |_| false;
        assert!(
            !wants_sweep(&row, at(30), &policy(), nobody) && wants_sweep(&row, at(31), &policy(), nobody)
        );
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Settle);
        row.reissue(at(2), &policy());
        assert_eq!(plan_sweep(Some(&row), 1), Sweep::Stale);
        // Once it has run it is left to its service as long as that lives.
        report(&mut row, started(), 3);
        assert!(
            !wants_sweep(&row, at(99), &policy(), |_| true) && wants_sweep(&row, at(99), &policy(), nobody)
        );
        assert_eq!(plan_sweep(Some(&row), 2), Sweep::Settle);
    }
}
