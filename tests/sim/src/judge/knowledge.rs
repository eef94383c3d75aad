//! The judge's knowledge of the current state of the world.

use crate::code::Code;
use crate::database::Database;
use crate::history::{Fault, History, Setup, Theme};
use crate::network::ConnId;
use crate::record::{Fact, Loss, Start};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::run::slots::Outcome;
use everwatch_core::wire::report::{RunReport, SequencedReport};
use everwatch_store::{Observers as _, Services as _};
use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long the effects of a fault may last, in ms. Rules that hold only without faults are not checked
/// during that time.
const AFTERMATH: u64 = 30_000;

/// How long managers may take to notice a lost message, in ms: two checks `orphan_after` apart. In a queue
/// that is never empty, the first check comes after ten times `orphan_after`.
pub(crate) const MISSED_WITHIN: u64 = 1_200_000;

/// The number of dead services from which managers may start the observers of these services one at a time.
const CRASH_LOOPING: u32 = 4;

#[derive(Debug, Clone, Default)]
pub(crate) struct HostState {
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) stopping: bool,
    pub(crate) life: u32,
    pub(crate) thawed_at: Option<u64>,
}

/// When all processes have started, in ms.
const STARTS_WITHIN: u64 = 5000;

/// One session of a service, by the service's id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionState {
    pub(crate) conn: ConnId,
    pub(crate) open: bool,
}

/// Where a work message is, from the broker's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    /// `arrived`: the delivery has reached its service, or will.
    Held {
        conn: ConnId,
        epoch: Epoch,
        arrived: bool,
    },
    Abandoned,
}

pub(crate) struct Knowledge {
    pub(crate) setup: Setup,
    pub(crate) healthy: bool,
    pub(crate) has_deadly_code: bool,
    pub(crate) database: Arc<Database>,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) starts: BTreeMap<u64, Start>,
    /// The starts whose code has not ended.
    pub(crate) alive: BTreeSet<u64>,
    pub(crate) sessions: BTreeMap<ServiceId, SessionState>,
    /// The newest session on each host.
    pub(crate) service_on: BTreeMap<usize, ServiceId>,
    /// Work messages by observer and generation.
    pub(crate) messages: BTreeMap<(ObserverId, u32), Place>,
    /// Why the broker took each delivery back.
    pub(crate) taken_back: BTreeMap<(ObserverId, Epoch), Loss>,
    pub(crate) rewound: BTreeSet<(ObserverId, u32)>,
    /// Publishes that the broker has confirmed, or whose messages a manager has found in the queue.
    pub(crate) confirmed: BTreeSet<(ObserverId, u32)>,
    /// The reports in the state queue, by observer.
    pub(crate) reports: BTreeMap<ObserverId, Vec<(u64, ServiceId, SequencedReport, RunReport)>>,
    /// Runs whose code ended by itself for good, and how often it errored.
    pub(crate) finished: BTreeMap<(ObserverId, Epoch), Outcome>,
    pub(crate) errors: BTreeMap<(ObserverId, Epoch), u32>,
    /// When the code of each observer last ended, and how.
    pub(crate) stopped_at: BTreeMap<ObserverId, (u64, Option<Outcome>)>,
    pub(crate) started_at: BTreeMap<ObserverId, u64>,
    /// The observers that wait, by the latest fact about their rows. Facts follow commits: two commits may come before the first fact.
    pub(crate) told_waiting: BTreeSet<ObserverId>,
    pub(crate) deaths: u32,
    pub(crate) deadly_deaths: u32,
    pub(crate) safe_mode_since: Option<u64>,
    pub(crate) restored: bool,
    /// Whether the work queues were lost. Republishing then is not a conclusion from silence.
    pub(crate) work_lost: bool,
    pub(crate) calm_since: Option<u64>,
    /// The time of the last user request or fault.
    pub(crate) acted_at: u64,
    /// Until when the effects of faults last.
    pub(crate) troubled_until: u64,
    /// When the database works normally again.
    pub(crate) database_back_at: u64,
    /// Until when a manager may lack reports that the broker has sent to it.
    pub(crate) managers_cut_until: u64,
}

impl Knowledge {
    pub(crate) fn new(history: &History, database: Arc<Database>) -> Self {
        let hosts = 1 + history.setup.skews.len();
        Self {
            setup: history.setup.clone(),
            healthy: history.is_healthy(),
            has_deadly_code: history.has_deadly_code(),
            database,
            hosts: vec![HostState::default(); hosts],
            starts: BTreeMap::new(),
            alive: BTreeSet::new(),
            sessions: BTreeMap::new(),
            service_on: BTreeMap::new(),
            messages: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            rewound: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            reports: BTreeMap::new(),
            finished: BTreeMap::new(),
            errors: BTreeMap::new(),
            stopped_at: BTreeMap::new(),
            started_at: BTreeMap::new(),
            told_waiting: BTreeSet::new(),
            deaths: 0,
            deadly_deaths: 0,
            safe_mode_since: None,
            restored: false,
            work_lost: false,
            calm_since: None,
            acted_at: 0,
            troubled_until: STARTS_WITHIN,
            database_back_at: 0,
            managers_cut_until: 0,
        }
    }

    pub(crate) fn is_service(&self, host: usize) -> bool {
        (1..=self.setup.services.len()).contains(&host)
    }
    pub(crate) fn host_name(&self, host: usize) -> String {
        match host.checked_sub(1 + self.setup.services.len()) {
            Some(manager) => format!("manager-{}", manager + 1),
            None => format!("service-{host}"),
        }
    }
    pub(crate) fn is_rewound(&self, id: ObserverId, generation: u32) -> bool {
        self.rewound.contains(&(id, generation))
    }

    pub(crate) fn row(&self, id: ObserverId) -> Option<Row> {
        self.database.memory.load(&[id]).now_or_never()?.ok()?.rows.pop()
    }
    pub(crate) fn rows(&self) -> Arc<[Row]> {
        self.database.rows()
    }
    /// The newest row of this name.
    pub(crate) fn newest(&self, name: &str) -> Option<Row> {
        let rows = self.rows();
        let named = rows.iter().filter(|row| row.definition.name.as_str() == name);
        named.max_by_key(|row| row.created_at).cloned()
    }
    pub(crate) fn services(&self) -> Vec<ServiceRow> {
        let all = self.database.memory.services(everwatch_core::clock::Timestamp(0));
        all.now_or_never().and_then(Result::ok).map(|found| found.rows).unwrap_or_default()
    }
    pub(crate) fn name(&self, id: ObserverId) -> String {
        self.row(id).map_or_else(|| id.to_string(), |row| row.definition.name.to_string())
    }
    pub(crate) fn is_deadly(&self, id: ObserverId) -> bool {
        self.row(id).is_some_and(|row| Code::of(&row.definition.spec.to_string()).is_deadly())
    }

    /// The weight of an observer; 1 if it is unknown.
    pub(crate) fn weight(&self, id: ObserverId) -> usize {
        if self.setup.services.iter().all(|it| it.weight_max == 1) {
            return 1;
        }
        self.row(id).map_or(1, |row| row.definition.weight.into())
    }

    /// The weight of the messages that this session holds and that have arrived there.
    pub(crate) fn held_by(&self, of: ConnId) -> usize {
        let held = |place: &Place| matches!(place, Place::Held { conn, arrived: true, .. } if *conn == of);
        self.messages.iter().filter(|(_, place)| held(place)).map(|((id, _), _)| self.weight(*id)).sum()
    }

    /// How many slots of this session are in use from the broker's view. A delivery that never arrives takes
    /// one.
    pub(crate) fn slots_used(&self, of: ConnId) -> usize {
        let held = |place: &Place| matches!(place, Place::Held { conn, .. } if *conn == of);
        self.messages.iter().filter(|(_, place)| held(place)).map(|((id, _), _)| self.weight(*id)).sum()
    }

    /// Whether the code of this start executes: its host is up and not frozen.
    pub(crate) fn executes(&self, start: u64) -> bool {
        self.starts.get(&start).is_some_and(|start| {
            let host = &self.hosts[start.host];
            host.up && !host.frozen
        })
    }

    /// Whether managers may treat observers as crash-looping and start them one at a time.
    pub(crate) fn may_be_crash_looping(&self) -> bool {
        self.has_deadly_code || self.deaths >= CRASH_LOOPING
    }

    /// Whether nothing has gone wrong for a while.
    pub(crate) fn is_untroubled(&self, now: u64) -> bool {
        now >= self.troubled_until && self.manages()
    }

    /// Whether the broker may have sent reports to a manager that does not read them. The other managers do
    /// not receive those.
    pub(crate) fn may_be_unread(&self, now: u64) -> bool {
        let managers = &self.hosts[self.first_manager()..];
        now < self.managers_cut_until || managers.iter().any(|host| host.up && host.frozen)
    }

    fn first_manager(&self) -> usize {
        1 + self.setup.services.len()
    }

    /// Whether a manager runs.
    pub(crate) fn manages(&self) -> bool {
        let managers = &self.hosts[self.first_manager()..];
        managers.iter().any(|host| host.up && !host.frozen)
    }

    pub(crate) fn on_fault(&mut self, now: u64, fault: &Fault) {
        let lasts = match fault {
            Fault::Crash { back_in: ms, .. }
            | Fault::Stop { back_in: ms, .. }
            | Fault::Freeze { for_ms: ms, .. }
            | Fault::Cut { for_ms: ms, .. }
            | Fault::Slow { for_ms: ms, .. }
            | Fault::DatabaseAway { for_ms: ms }
            | Fault::DatabaseSlow { for_ms: ms, .. }
            | Fault::DatabaseFull { for_ms: ms }
            | Fault::Blocked { for_ms: ms }
            | Fault::BrokerRestart { down_ms: ms }
            | Fault::BrokerPauses { for_ms: ms } => *ms,
            Fault::RewindWork { in_ms } => in_ms + MISSED_WITHIN,
            Fault::LoseWork { .. } | Fault::Abandon { .. } => MISSED_WITHIN,
            Fault::Flaps { times, .. } => u64::from(*times) * 7000,
            // These faults wait for the next operation that they affect.
            Fault::LoseAnswers { .. }
            | Fault::BreakAfterPublish { .. }
            | Fault::BreakAfterSettlement { .. }
            | Fault::RejectWork { .. }
            | Fault::LoseDeliveries { .. } => 600_000,
            Fault::DatabaseRestored { .. } => 300_000,
            // If no other service takes the message over, the service learns of the loss with its next
            // inventory.
            Fault::GiveAway { .. } => 60_000,
            Fault::Reset { .. } | Fault::CloseChannel { .. } | Fault::ClockStep { .. } => 0,
        };
        if let Fault::DatabaseAway { .. } | Fault::DatabaseSlow { .. } | Fault::DatabaseFull { .. } = fault {
            self.database_back_at = self.database_back_at.max(now + lasts);
        }
        if let Fault::Cut { host, .. } | Fault::Slow { host, .. } | Fault::Reset { host, .. } = fault
            && *host >= self.first_manager()
        {
            self.managers_cut_until = self.managers_cut_until.max(now + lasts + AFTERMATH);
        }
        self.troubled_until = self.troubled_until.max(now + lasts + AFTERMATH);
        self.acted_at = now + lasts;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each fact")]
    pub(crate) fn learn(&mut self, now: u64, fact: &Fact) {
        if let Fact::Saved { after, .. } = fact {
            if after.is_waiting() {
                self.told_waiting.insert(after.id);
            } else {
                self.told_waiting.remove(&after.id);
            }
        }
        match fact {
            Fact::Booted { host } => {
                // The first managers listen for a while before they conclude anything from silence.
                let unmanaged = now > STARTS_WITHIN && !self.manages();
                let lasts = if unmanaged { AFTERMATH } else { STARTS_WITHIN };
                self.troubled_until = self.troubled_until.max(now + lasts);
                let state = &mut self.hosts[*host];
                *state = HostState { up: true, life: state.life + 1, ..HostState::default() };
            }
            Fact::Died { host } => self.on_death(now, *host),
            // Until then, the manager that waits for the answer applies no reports.
            Fact::AnswerLost { until } => self.database_back_at = self.database_back_at.max(*until),
            Fact::Frozen { host } => self.hosts[*host].frozen = true,
            Fact::Thawed { host } => {
                let state = &mut self.hosts[*host];
                (state.frozen, state.thawed_at) = (false, Some(now));
                if !self.is_service(*host)
                    && let Some(since) = &mut self.safe_mode_since
                {
                    // After a thaw, a manager finishes what it had begun before it froze.
                    *since = now;
                }
            }
            Fact::Started(start) => {
                self.started_at.insert(start.id, now);
                self.alive.insert(start.number);
                self.starts.insert(start.number, start.clone());
            }
            Fact::Ended { start, own } => {
                if self.alive.remove(start) {
                    self.on_end(now, *start, own.clone());
                }
            }
            Fact::EndedItsService => self.deadly_deaths += 1,
            Fact::SessionOpened { host, conn, service } => {
                self.sessions.insert(*service, SessionState { conn: *conn, open: true });
                self.service_on.insert(*host, *service);
            }
            Fact::SessionClosed { conn } => {
                for session in self.sessions.values_mut().filter(|it| it.conn == *conn) {
                    session.open = false;
                }
            }
            Fact::Published { id, generation, .. } => {
                self.messages.insert((*id, *generation), Place::Ready);
            }
            Fact::Confirmed { id, generation } => {
                self.confirmed.insert((*id, *generation));
            }
            Fact::Reported { service, entries } => self.on_reported(now, *service, entries),
            Fact::Delivered { conn, id, epoch, .. } => {
                let place = Place::Held { conn: *conn, epoch: *epoch, arrived: true };
                self.messages.insert((*id, epoch.generation()), place);
            }
            Fact::Mislaid { conn, id, epoch } => {
                let place = Place::Held { conn: *conn, epoch: *epoch, arrived: false };
                self.messages.insert((*id, epoch.generation()), place);
            }
            Fact::TakenBack { conn, id, epoch, loss } => {
                self.taken_back.insert((*id, *epoch), *loss);
                if let Some(place) = self.messages.get_mut(&(*id, epoch.generation()))
                    && matches!(place, Place::Held { conn: holder, .. } if holder == conn)
                {
                    *place = Place::Ready;
                }
            }
            Fact::Abandoned { id, epoch, .. } => {
                self.taken_back.insert((*id, *epoch), Loss::Told);
                self.messages.insert((*id, epoch.generation()), Place::Abandoned);
            }
            Fact::Recovered => {
                for place in self.messages.values_mut().filter(|place| **place == Place::Abandoned) {
                    *place = Place::Ready;
                }
            }
            Fact::Acknowledged { id, epoch, .. } => {
                self.messages.remove(&(*id, epoch.generation()));
            }
            Fact::WorkLost => {
                self.messages.clear();
                self.work_lost = true;
            }
            Fact::Rewound { messages } => {
                self.rewound.extend(messages.iter().copied());
                self.messages.extend(messages.iter().map(|message| (*message, Place::Ready)));
            }
            Fact::SafeMode { on } => self.safe_mode_since = on.then_some(now),
            Fact::CheckpointRestored { .. } | Fact::CheckpointStored { .. } => {}
            Fact::Restored => self.restored = true,
            Fact::Saved { request: Some(_), .. } => self.acted_at = self.acted_at.max(now),
            Fact::ReportConfirmed { .. }
            | Fact::GivesBack { .. }
            | Fact::Heard { .. }
            | Fact::ConsumerChanging { .. }
            | Fact::ConsumerChanged { .. }
            | Fact::Saved { .. }
            | Fact::ServiceSaved { .. } => {}
        }
    }

    fn on_death(&mut self, now: u64, host: usize) {
        let stopped = self.hosts[host].stopping;
        let life = self.hosts[host].life;
        self.hosts[host] = HostState { life, ..HostState::default() };
        if self.is_service(host) {
            // A service that has stopped in order has not died.
            self.deaths += u32::from(!stopped);
            let dead: Vec<u64> =
                self.alive.iter().copied().filter(|start| self.starts[start].host == host).collect();
            for start in dead {
                self.alive.remove(&start);
                self.stopped_at.insert(self.starts[&start].id, (now, None));
            }
            self.troubled_until = self.troubled_until.max(now + AFTERMATH);
        }
    }

    fn on_end(&mut self, now: u64, start: u64, own: Option<Outcome>) {
        let Start { id, epoch, .. } = self.starts[&start];
        self.stopped_at.insert(id, (now, own.clone()));
        match own {
            Some(outcome @ (Outcome::Done | Outcome::DoneWith(_) | Outcome::Failed(_))) => {
                self.finished.insert((id, epoch), outcome);
            }
            Some(Outcome::Errored(_)) => *self.errors.entry((id, epoch)).or_default() += 1,
            Some(Outcome::Aborted) | None => {}
        }
    }

    fn on_reported(&mut self, now: u64, service: ServiceId, entries: &[SequencedReport]) {
        use everwatch_core::wire::report::Report;
        for entry in entries {
            let runs = match &entry.report {
                Report::Run(run) => vec![run.clone()],
                Report::Inventory(list) => list.entries.clone(),
                Report::HeldMessages(described) => described.held.iter().map(|it| it.run.clone()).collect(),
                Report::ServiceRegistered(_)
                | Report::ServiceGone
                | Report::InventoryDigest(_)
                | Report::Checkpoint(_)
                | Report::CheckpointWanted(_)
                | Report::WorkQueueCreated { .. }
                | Report::MessagesRefused(_)
                | Report::Unknown(_) => Vec::new(),
            };
            for run in runs {
                let told = (now, service, entry.clone(), run.clone());
                self.reports.entry(run.id).or_default().push(told);
            }
        }
    }

    /// Whether clocks in this history differ by more than Everwatch tolerates.
    pub(crate) fn is_skewed(&self) -> bool {
        self.setup.theme == Theme::Skewed
    }
}
