//! Checks convergence: the state that must be reached some time after the last fault.

use super::Judge;
use super::knowledge::{Knowledge, Place};
use super::limits;
use crate::code::Code;
use crate::users::{Intent, Users, edition, observer_name};
use everwatch_core::capacity::maintenance::Orders;
use everwatch_core::capacity::supply::{Load, Supply};
use everwatch_core::record::observed::{RunPhase, Settlement};
use everwatch_core::record::row::{Desired, Row, Slot};
use everwatch_core::record::status::Status;
use everwatch_core::wire::heartbeat::Intent as Takes;
use everwatch_core::wire::report::{RunEvent, RunReport};
use everwatch_store::KeyValue as _;
use futures::FutureExt as _;
use std::collections::BTreeMap;

type Settled = Result<(), String>;

impl Judge {
    /// Whether everything is as users requested, nothing is in progress, and the rows match what runs.
    pub(crate) fn has_converged(&self, users: &Users) -> Settled {
        let known = &self.knowledge;
        if known.safe_mode_since.is_some() {
            return Err("safe mode is on".to_owned());
        }
        if users.has_open_requests() {
            return Err("a request is not answered".to_owned());
        }
        let orders = Standing::read(known);
        orders.are_those_promised(users, known)?;
        orders.are_followed(known)?;
        let rows = known.rows();
        promises_are_kept(users, &rows)?;
        // While a queue has no consumer, managers cannot tell whether it is empty or unavailable. They find
        // its lost messages once a service takes work from it again.
        for row in rows.iter().filter(|row| !orders.all_cordoned(&row.definition.pool, known)) {
            is_as_wanted(row, known, &orders)?;
            limits::is_in_order(row, &rows)?;
        }
        no_leftovers(&rows, known, &orders)?;
        services_are_known(known)?;
        reports_are_folded(&rows, known)
    }

    /// Whether services run every message that the broker has, while no manager runs.
    pub(crate) fn runs_without_managers(&self, now: u64) -> Settled {
        let known = &self.knowledge;
        for ((id, generation), place) in &known.messages {
            let name = known.name(*id);
            let row = known.row(*id);
            let pool = row.as_ref().map(|row| row.definition.pool.clone());
            let refused = row.as_ref().is_some_and(|row| known.setup.may_be_refused(&row.definition));
            match place {
                Place::Ready => {
                    let room = (1..=known.setup.services.len()).any(|host| {
                        let of_pool = Some(&known.setup.services[host - 1].pool) == pool.as_ref();
                        of_pool && known.hosts[host].up && self.capacity.free_slots(now, host, known) > 0
                    });
                    if room && !refused {
                        return Err(format!("{name} waits while there is room"));
                    }
                }
                Place::Held { arrived: true, .. } => {
                    let runs = known.alive.iter().map(|start| &known.starts[start]);
                    let runs = runs.filter(|it| it.id == *id && it.epoch.generation() == *generation).count();
                    let erring = known.errors.keys().any(|(erring, _)| erring == id);
                    let ends =
                        row.as_ref().is_none_or(|row| row.awaits_end() || row.generation > *generation);
                    if runs == 0 && !erring && !ends && !refused {
                        return Err(format!("{name} is held as generation {generation} and does not run"));
                    }
                }
                Place::Held { arrived: false, .. } | Place::Abandoned => {}
            }
        }
        Ok(())
    }
}

/// The current orders of operators, by service number.
pub(crate) struct Standing(Vec<Orders>);

impl Standing {
    pub(crate) fn read(known: &Knowledge) -> Self {
        let notes = known.database.memory.notes_under("orders/");
        let notes = notes.now_or_never().and_then(Result::ok).unwrap_or_default();
        let book: BTreeMap<String, Orders> = notes
            .into_iter()
            .filter_map(|(name, text)| {
                Some((name["orders/".len()..].to_owned(), serde_json::from_str(&text).ok()?))
            })
            .collect();
        let of = |name: &str| book.get(name).cloned().unwrap_or_default();
        Self(known.setup.services.iter().map(|it| of(it.name.as_str())).collect())
    }

    pub(crate) fn hold_anything_up(&self) -> bool {
        self.0.iter().any(|orders| orders.cordoned || orders.capacity.is_some())
    }

    fn all_cordoned(&self, pool: &everwatch_core::id::Pool, known: &Knowledge) -> bool {
        let of_pool = known.setup.services.iter().zip(&self.0).filter(|(it, _)| it.pool == *pool);
        of_pool.fold(true, |all, (_, orders)| all && orders.cordoned)
    }

    fn slots(&self, service: usize, known: &Knowledge) -> usize {
        self.0[service].capacity.unwrap_or(known.setup.services[service].capacity) as usize
    }

    fn may_take(&self, service: usize, known: &Knowledge) -> bool {
        let session = known.service_on.get(&(service + 1)).and_then(|id| known.sessions.get(id));
        let used = session.map_or(0, |session| known.slots_used(session.conn));
        !self.0[service].cordoned && used + self.kept(service, known) < self.slots(service, known)
    }

    /// What it keeps free for a message of the greatest weight, beyond one slot.
    fn kept(&self, service: usize, known: &Knowledge) -> usize {
        usize::from(known.setup.services[service].weight_max - 1)
    }

    /// How many slots the services of this pool surely fill. A cordoned service keeps what it has.
    fn room(&self, pool: &everwatch_core::id::Pool, known: &Knowledge) -> usize {
        let of = |service: usize| {
            let held = held_by(service, known);
            let filled = self.slots(service, known).saturating_sub(self.kept(service, known));
            if self.0[service].cordoned { held } else { filled }
        };
        let of_pool = known.setup.services.iter().enumerate().filter(|(_, it)| it.pool == *pool);
        of_pool.map(|(service, _)| of(service)).sum()
    }

    fn are_those_promised(&self, users: &Users, known: &Knowledge) -> Settled {
        for ((orders, promised), setup) in self.0.iter().zip(&users.orders).zip(&known.setup.services) {
            if let Some(broken) = promised.broken_by(orders) {
                return Err(format!("{broken} was promised for {} and is forgotten: {orders:?}", setup.name));
            }
        }
        Ok(())
    }

    fn are_followed(&self, known: &Knowledge) -> Settled {
        let rows = known.services();
        for (service, orders) in self.0.iter().enumerate() {
            let setup = &known.setup.services[service];
            let row =
                known.service_on.get(&(service + 1)).and_then(|id| rows.iter().find(|row| row.id == *id));
            let Some(heartbeat) = row.and_then(|row| row.heartbeat.as_ref()) else {
                return Err(format!("{} has sent no heartbeat", setup.name));
            };
            let held = held_by(service, known);
            if (heartbeat.state == Takes::Active) == orders.cordoned {
                return Err(format!(
                    "{} is {:?}, and its orders are {orders:?}",
                    setup.name, heartbeat.state
                ));
            }
            if heartbeat.capacity as usize != self.slots(service, known) {
                return Err(format!("{} has {} slots, not as ordered", setup.name, heartbeat.capacity));
            }
            if held > self.slots(service, known) {
                return Err(format!("{} holds {held}, more than its slots", setup.name));
            }
            let elsewhere = (0..self.0.len()).any(|other| {
                let same_pool = known.setup.services[other].pool == setup.pool;
                other != service && same_pool && self.may_take(other, known)
            });
            if orders.drain.is_some() && (elsewhere || held == 0) {
                return Err(format!("{} is not drained: it holds {held}", setup.name));
            }
        }
        Ok(())
    }
}

fn held_by(service: usize, known: &Knowledge) -> usize {
    let session = known.service_on.get(&(service + 1)).and_then(|id| known.sessions.get(id));
    session.map_or(0, |session| known.held_by(session.conn))
}

fn promises_are_kept(users: &Users, rows: &[Row]) -> Settled {
    for (observer, intent) in users.intents.iter().enumerate() {
        let name = observer_name(observer);
        let of_name = rows.iter().filter(|row| row.definition.name.as_str() == name);
        // If a manager's clock was set back, a new row may have an earlier creation time than the deleted row
        // of the same name.
        let row = of_name.max_by_key(|row| (row.desired != Desired::Deleted, row.created_at));
        let Intent { created, deleted, restarted_after, edition: definition, paused, .. } = *intent;
        match row {
            None if created => return Err(format!("{name} was promised and is not there")),
            Some(row) if deleted && row.desired != Desired::Deleted => {
                return Err(format!("the delete of {name} was promised and is forgotten"));
            }
            Some(row)
                if row.desired == Desired::Running
                    && row.waiting.is_none()
                    && !matches!(row.settlement(), Some(Settlement::Finished { .. }))
                    && row.generation <= restarted_after =>
            {
                return Err(format!("the restart of {name} was promised and never came"));
            }
            Some(row) if edition(row) != definition => {
                return Err(format!("the change of {name} was promised and is forgotten"));
            }
            Some(row) if row.desired != Desired::Deleted && paused != (row.desired == Desired::Paused) => {
                return Err(format!("{name} was paused or resumed, and is {:?}", row.desired));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the observer should run and its code has not ended for good.
fn is_live(row: &Row) -> bool {
    let how = row.observed.settled.as_ref().map(|it| &it.how);
    let over = matches!(how, Some(how) if *how != Settlement::Stopped);
    row.desired == Desired::Running && (row.waiting.is_some() || !over)
}

fn is_as_wanted(row: &Row, known: &Knowledge, orders: &Standing) -> Settled {
    let name = &row.definition.name;
    let runs: Vec<_> =
        known.alive.iter().map(|start| &known.starts[start]).filter(|it| it.id == row.id).collect();
    let verdict = row.verdict();
    if let Some(at) = row.opens_at() {
        let rests = row.definition.schedule.is_some() && runs.is_empty();
        return if rests { Ok(()) } else { Err(format!("{name} waits until {at}")) };
    }
    if !is_live(row) {
        if !runs.is_empty() {
            return Err(format!("{name} is {} and runs", verdict.status));
        }
        return match (row.desired, verdict.status) {
            (Desired::Deleted, Status::Deleted)
            | (Desired::Paused, Status::Paused | Status::Completed | Status::Failed)
            | (Desired::Running, _) => Ok(()),
            (_, status) => Err(format!("{name} is {status}: {}", verdict.reason)),
        };
    }
    if row.awaits_end() {
        return Err(format!("{name} was told to stop, and nothing says that it has"));
    }
    match runs.as_slice() {
        // If a manager does not know whether its publish succeeded, a manager republishes once the lease has
        // expired.
        [] if row.published_at.is_none() && row.waiting.is_none() => {
            Err(format!("{name} is to be published"))
        }
        [] if is_to_preempt(row, known, orders) => Err(format!("{name} waits, and a lower priority runs")),
        [] if !has_room(row, known, orders) || row.is_behind_limit() || is_kept_out(row, known) => Ok(()),
        [_] if Code::of(&row.definition.spec.to_string()).is_deadly() => {
            Err(format!("{name} ends its services and goes on"))
        }
        // A run keeps a change that the restored database does not contain until its next start.
        [run] if run.edition != edition(row) && !known.restored => {
            Err(format!("{name} runs in edition {}", run.edition))
        }
        [run] if verdict.status == Status::Processing => {
            let holder = known.service_on.get(&run.host).copied();
            if (row.epoch(), row.observed.holder()) == (run.epoch, holder) && row.publish_lease.is_none() {
                Ok(())
            } else {
                Err(format!("{name} runs as {} and its row says {}", run.epoch, row.epoch()))
            }
        }
        runs => {
            Err(format!("{name} is {} ({}) and runs {} times", verdict.status, verdict.reason, runs.len()))
        }
    }
}

/// Whether it waits although a service has room: admitted observers of other weights may need that room, or slots are kept
/// for a heavier one.
fn is_kept_out(row: &Row, known: &Knowledge) -> bool {
    let rows = known.rows();
    let of_pool = || rows.iter().filter(|it| it.definition.pool == row.definition.pool);
    let heaviest = of_pool().map(|it| it.definition.weight).max().unwrap_or(1);
    if row.waiting.is_none() || heaviest == 1 {
        return false;
    }
    let services = known.setup.services.iter().filter(|it| it.pool == row.definition.pool);
    let supply =
        services.map(|it| Supply::of(it.capacity, it.weight_max)).fold(Supply::default(), Supply::and);
    let admitted = of_pool().filter(|it| it.slot() == Slot::Admitted);
    let admitted = admitted.map(Load::of).fold(Load::default(), Load::and);
    !of_pool().filter(|it| it.is_waiting()).all(|it| supply.holds(admitted.and(Load::of(it))))
}

/// Whether it waits although an observer of its kind and a lower priority has a slot that it would get.
fn is_to_preempt(row: &Row, known: &Knowledge, orders: &Standing) -> bool {
    let is_below = |other: &Row| {
        other.definition.pool == row.definition.pool
            && other.definition.kind == row.definition.kind
            && other.definition.priority < row.definition.priority
            && other.slot() == Slot::Admitted
            && other.holder().is_some()
    };
    known.setup.preempt_after_ms.is_some()
        && !orders.hold_anything_up()
        && row.is_waiting()
        && known.rows().iter().any(is_below)
}

/// Whether a service that can run it has a free slot.
fn has_room(row: &Row, known: &Knowledge, orders: &Standing) -> bool {
    known.setup.services.iter().enumerate().any(|(service, it)| {
        it.pool == row.definition.pool && it.can_run(&row.definition) && orders.may_take(service, known)
    })
}

/// Checks that every held message has the current generation of an observer that should run, and that no
/// message waits while a slot is free. Without a free slot, messages of older generations may remain until
/// they are settled.
fn no_leftovers(rows: &[Row], known: &Knowledge, orders: &Standing) -> Settled {
    for ((id, generation), place) in &known.messages {
        let row = rows.iter().find(|row| row.id == *id);
        let pool = row.map(|row| row.definition.pool.clone()).unwrap_or_default();
        let live = rows.iter().filter(|row| row.definition.pool == pool && is_live(row));
        let live: usize = live.map(|row| usize::from(row.definition.weight)).sum();
        let crowded = orders.all_cordoned(&pool, known) || live >= orders.room(&pool, known);
        match place {
            Place::Held { arrived: false, .. } | Place::Abandoned => continue,
            Place::Ready if crowded => continue,
            Place::Ready | Place::Held { .. } => {}
        }
        if !row.is_some_and(|row| is_live(row) && row.generation == *generation) {
            return Err(format!("generation {generation} of {} is still in the queue", known.name(*id)));
        }
    }
    Ok(())
}

fn services_are_known(known: &Knowledge) -> Settled {
    let rows = known.services();
    for (service, setup) in known.setup.services.iter().enumerate() {
        let id = known.service_on.get(&(service + 1));
        let row = rows.iter().find(|row| Some(&row.id) == id && row.end.is_none());
        if row.is_none_or(|row| row.suspect_since.is_some()) {
            return Err(format!("{} lives and is not known to", setup.name));
        }
    }
    let living = rows.iter().filter(|row| row.end.is_none()).count();
    if living == known.setup.services.len() {
        return Ok(());
    }
    Err("a service that has ended is not known to have".to_owned())
}

/// Checks that the observed part of every row follows from the reports of its generation. Computes it from
/// the reports in a second, slower way.
fn reports_are_folded(rows: &[Row], known: &Knowledge) -> Settled {
    for row in rows {
        let by_manager = row.observed.settled.as_ref().is_some_and(|settled| settled.service.0.is_nil());
        if by_manager || known.restored || known.is_rewound(row.id, row.generation) {
            continue;
        }
        if let Some(part) = differs(row, known) {
            return Err(format!("`{part}` of {} is not what was reported", row.definition.name));
        }
    }
    Ok(())
}

fn differs(row: &Row, known: &Knowledge) -> Option<&'static str> {
    let all = known.reports.get(&row.id).into_iter().flatten();
    let heard: Vec<_> = all.filter(|(_, _, _, run)| run.epoch.generation() == row.generation).collect();
    let key = |(_, _, entry, run): &&(u64, _, everwatch_core::wire::report::SequencedReport, RunReport)| {
        (run.epoch.acquisitions(), entry.seq)
    };
    let rank = |it: &&(u64, _, _, RunReport)| (it.3.event == RunEvent::Stopped, key(it));
    let settled = heard.iter().copied().filter(|it| it.3.event.settles()).min_by_key(rank);
    // A later run on another service has continued the observer.
    let goes_on = |run: &RunReport| {
        let later =
            row.observed.latest.as_ref().is_some_and(|it| it.key.acquisitions > run.epoch.acquisitions());
        run.event == RunEvent::Stopped && later && row.desired == Desired::Running
    };
    let settled = settled.filter(|it| !goes_on(&it.3));
    let latest = heard.iter().copied().filter(|it| phase(&it.3.event).is_some()).max_by_key(key);
    let same_settled = match (&row.observed.settled, settled) {
        (None, None) => true,
        // A deleted observer has ended, whichever end of its runs a manager applied first.
        (Some(_), Some(_)) if row.desired == Desired::Deleted => true,
        // Of the stops of two runs, the one that a manager applied first counts.
        (Some(seen), Some(heard)) if heard.3.event == RunEvent::Stopped => seen.how == Settlement::Stopped,
        (Some(seen), Some(heard)) => {
            (seen.key.acquisitions, seen.key.seq) == key(&heard) && is(&seen.how, &heard.3.event)
        }
        _ => false,
    };
    let same_latest = match (&row.observed.latest, latest) {
        (None, None) => true,
        // A manager skips an inventory entry that only repeats the row, so its sequence number may differ.
        (Some(seen), Some(heard)) => {
            seen.key.acquisitions == heard.3.epoch.acquisitions()
                && seen.service == heard.1
                && phase(&heard.3.event) == Some(word(&seen.phase))
        }
        _ => false,
    };
    let begins = |event: &RunEvent| matches!(event, RunEvent::Started { .. } | RunEvent::Errored { .. });
    if !same_settled {
        Some("settled")
    } else if !same_latest {
        Some("latest")
    } else {
        (row.observed.begun != heard.iter().any(|it| begins(&it.3.event))).then_some("begun")
    }
}

fn is(how: &Settlement, event: &RunEvent) -> bool {
    match (how, event) {
        (Settlement::Stopped, RunEvent::Stopped)
        | (Settlement::Completed, RunEvent::Completed | RunEvent::CompletedWith { .. }) => true,
        (Settlement::Finished { at }, RunEvent::Finished { at: told }) => at == told,
        (Settlement::Failed { attempts, .. }, RunEvent::Failed { attempts: told, .. }) => attempts == told,
        _ => false,
    }
}

fn phase(event: &RunEvent) -> Option<u8> {
    match event {
        RunEvent::Held { .. } => Some(0),
        RunEvent::Started { .. } => Some(1),
        RunEvent::Errored { .. } => Some(2),
        RunEvent::HandedOver | RunEvent::HandedOverFor { .. } => Some(3),
        RunEvent::Refused { .. } => Some(4),
        RunEvent::Starting { .. } => Some(5),
        RunEvent::Progress { .. }
        | RunEvent::Stopped
        | RunEvent::Completed
        | RunEvent::CompletedWith { .. }
        | RunEvent::Finished { .. }
        | RunEvent::Failed { .. }
        | RunEvent::Released => None,
    }
}

fn word(phase: &RunPhase) -> u8 {
    match phase {
        RunPhase::Held { .. } => 0,
        RunPhase::Starting => 5,
        RunPhase::Running => 1,
        RunPhase::Restarting { .. } => 2,
        RunPhase::HandedOver | RunPhase::HandedOverFor { .. } => 3,
        RunPhase::Refused { .. } => 4,
    }
}
