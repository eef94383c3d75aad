//! Reports of services, and about observers, that the database does not know, mostly after a backup was restored.
//! `core::failure::adoption` decides; this file asks services and writes rows.

use crate::context::Manager;
use crate::context::records::Records;
use crate::context::revocations::{Recipients, Revoked};
use crate::fleet::safe_mode;
use crate::metric;
use crate::outgoing::commands;
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::failure::adoption::{self, Unknown, adopted, other_name};
use everwatch_core::id::{Name, ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::wire::checkpoint::CheckpointAnswers;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::report::{HeldMessages, HeldWork, InventoryRange};
use everwatch_store::{Created, StoreError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tracing::{debug, info, warn};

use super::runs::{Run, RunSource};

/// What a manager sends after one batch of reports.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Revocations of runs that must not continue, for the services that have reported them.
    pub(crate) revocations: Vec<Revoked>,
    /// Services that hold observers without a row.
    pub(crate) ask: BTreeMap<ServiceId, BTreeSet<ObserverId>>,
    /// Ranges of inventories whose entries managers need.
    pub(crate) list: BTreeMap<ServiceId, Vec<InventoryRange>>,
    /// What managers have stored or read for the code of observers.
    pub(crate) checkpoints: Vec<CheckpointAnswers>,
}

impl Answers {
    pub(crate) fn extend(&mut self, other: Self) {
        self.revocations.extend(other.revocations);
        self.checkpoints.extend(other.checkpoints);
        for (service, ids) in other.ask {
            self.ask.entry(service).or_default().extend(ids);
        }
        for (service, ranges) in other.list {
            self.list.entry(service).or_default().extend(ranges);
        }
    }

    /// Reports of observers that have no row.
    pub(crate) async fn add_unknown(&mut self, records: &Records, runs: &[&Run]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        metrics::counter!(metric::UNKNOWN_OBSERVERS).increment(runs.len() as u64);
        let ids: BTreeSet<ObserverId> = runs.iter().map(|run| run.report.id).collect();
        let forgotten = records.store.forgotten(&ids.into_iter().collect::<Vec<_>>()).await?;
        let forgotten: HashSet<ObserverId> = forgotten.into_iter().collect();
        for run in runs {
            let (id, service) = (run.report.id, run.service);
            match adoption::unknown(&run.report, forgotten.contains(&id)) {
                Unknown::End(revocation) => self.revocations.push((Recipients::Service(service), revocation)),
                // The service has just described it, in vain.
                Unknown::Ask if run.told == RunSource::HeldMessages => {}
                Unknown::Ask => {
                    debug!(observer = %id, %service, "it is asked what this is that it holds");
                    self.ask.entry(service).or_default().insert(id);
                }
                Unknown::Pass => debug!(observer = %id, %service, "a report of an unknown observer"),
            }
        }
        Ok(())
    }

    /// Sends all of it without waiting.
    pub(crate) fn tell_later(self, manager: &Arc<Manager>) {
        manager.link.revocations.send(self.revocations);
        for answers in self.checkpoints {
            commands::order_later(manager, answers.service, Command::Checkpoints(answers));
        }
        for (service, ids) in self.ask {
            commands::describe_later(manager, service, &ids.into_iter().collect::<Vec<_>>());
        }
        for (service, ranges) in self.list {
            commands::order_later(manager, service, Command::ListHeld { service, ranges });
        }
    }
}

/// Asks living services without a row to register again.
pub(crate) async fn ask_who(manager: &Arc<Manager>, services: &[ServiceId]) -> Result<(), StoreError> {
    // A registration may still be in a state queue.
    if !manager.readiness_blockers().is_empty() {
        return Ok(());
    }
    for service in services {
        let known = manager.records.store.service(&(*service).into()).await;
        // Its row exists and cannot be read.
        if matches!(known, Err(StoreError::Corrupt(_))) {
            continue;
        }
        if known?.is_none() {
            info!(%service, "heartbeat of an unknown service; requesting its registration");
            commands::identify_later(manager, *service);
        }
    }
    Ok(())
}

/// Adopts the described observers, unless their rows exist by now or were forgotten.
pub(crate) async fn adopt(manager: &Manager, described: &[HeldMessages]) -> Result<(), StoreError> {
    let all = described.iter().flat_map(|it| it.held.iter().map(move |held| (&it.pool, held)));
    let by_id: HashMap<ObserverId, _> = all.map(|(pool, held)| (held.run.id, (pool, held))).collect();
    if by_id.is_empty() || !may_adopt(manager, by_id.len()).await? {
        return Ok(());
    }
    let ids: Vec<ObserverId> = by_id.keys().copied().collect();
    let mut known: HashSet<ObserverId> = manager.records.store.forgotten(&ids).await?.into_iter().collect();
    let found = manager.records.store.load(&ids).await?;
    known.extend(found.rows.iter().map(|row| row.id).chain(found.unreadable));
    let now = manager.records.clock.now();
    let (mut rows, mut told) = (Vec::new(), HashMap::new());
    for (id, (pool, HeldWork { run, work })) in by_id {
        if known.contains(&id) {
            continue;
        }
        match adopted(run, work, pool, now, &manager.settings.row) {
            Ok(row) => {
                told.insert(id, row.definition.name.clone());
                rows.push(row);
            }
            Err(why) => {
                warn!(observer = %id, %why, "cannot adopt an observer that runs and is not in the database");
            }
        }
    }
    let mut late = insert(&manager.records, rows, &told).await?;
    for row in &mut late {
        let name = other_name(&row.definition.name, row.id);
        Arc::make_mut(&mut row.definition).name = name;
    }
    insert(&manager.records, late, &told).await.map(drop)
}

/// Anybody who may write to the state queue can describe an observer. If this manager signs messages, it would sign that of
/// such an observer, and services would run it.
async fn may_adopt(manager: &Manager, observers: usize) -> Result<bool, StoreError> {
    let may = !manager.link.broker.signs() || safe_mode::is_restored(&manager.records).await?;
    if !may {
        warn!(
            observers,
            "a service reports observers that are not in the database; a manager that signs messages adopts them only after \
             `everwatch migrate --restored`, and until safe mode is switched off"
        );
    }
    Ok(may)
}

/// Answers those whose names are taken. Another manager may have been faster: then the report that comes
/// with the description is applied to what that one wrote.
async fn insert(
    records: &Records,
    rows: Vec<Row>,
    told: &HashMap<ObserverId, Name>,
) -> Result<Vec<Row>, StoreError> {
    if rows.is_empty() {
        return Ok(rows);
    }
    // They have their slots already.
    let answers = records.store.create(&rows, &PoolOffers::new()).await?;
    let mut late = Vec::new();
    for (row, answer) in rows.into_iter().zip(answers) {
        if answer == Created::Done {
            let name = told.get(&row.id).unwrap_or(&row.definition.name);
            records.events.tell_adopted(&row, name);
            info!(observer = %row.id, name = %row.definition.name, "adopted: it runs and was not in the database");
        } else {
            late.push(row);
        }
    }
    Ok(late)
}
