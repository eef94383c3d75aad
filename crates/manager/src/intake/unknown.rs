//! Reports of services and about observers that the database does not know: after a backup was restored, most
//! of all. What is concluded is `core::adoption`'s; here are the questions and the rows.

use crate::shared::Manager;
use crate::{metric, telling};
use everwatch_core::adoption::{self, Unknown, adopted, other_name};
use everwatch_core::id::{Name, ObserverId, ServiceId};
use everwatch_core::message::{Described, Floor, HeldWork};
use everwatch_core::row::Row;
use everwatch_store::{Created, StoreError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tracing::{debug, info, warn};

use super::state::{Run, Told};

/// What is to be said about the reports of one batch.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) floors: Vec<Floor>,
    /// What services held until others reported that they have it.
    pub(crate) taken_over: BTreeMap<ServiceId, Vec<Floor>>,
    /// Which services hold what nobody here knows.
    pub(crate) ask: BTreeMap<ServiceId, BTreeSet<ObserverId>>,
}

impl Answers {
    pub(crate) fn extend(&mut self, other: Self) {
        self.floors.extend(other.floors);
        for (service, floors) in other.taken_over {
            self.taken_over.entry(service).or_default().extend(floors);
        }
        for (service, ids) in other.ask {
            self.ask.entry(service).or_default().extend(ids);
        }
    }

    /// Reports of observers that have no row.
    pub(crate) async fn add_unknown(&mut self, manager: &Manager, runs: &[&Run]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        metrics::counter!(metric::UNKNOWN_OBSERVERS).increment(runs.len() as u64);
        let ids: BTreeSet<ObserverId> = runs.iter().map(|run| run.report.id).collect();
        let forgotten = manager.store.forgotten(&ids.into_iter().collect::<Vec<_>>()).await?;
        let forgotten: HashSet<ObserverId> = forgotten.into_iter().collect();
        for run in runs {
            let (id, service) = (run.report.id, run.service);
            match adoption::unknown(&run.report, forgotten.contains(&id)) {
                Unknown::End(floor) => self.floors.push(floor),
                // What it is was just told, and did not help.
                Unknown::Ask if run.told == Told::Described => {}
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
        telling::floors_later(manager, self.floors);
        for (service, floors) in self.taken_over {
            telling::floors_to_later(manager, service, floors);
        }
        for (service, ids) in self.ask {
            telling::describe_later(manager, service, ids.into_iter().collect());
        }
    }
}

/// Asks services that live and have no row who they are.
pub(crate) async fn ask_who(manager: &Arc<Manager>, services: &[ServiceId]) -> Result<(), StoreError> {
    // A birth may still stand in the state queue.
    if !manager.lacks().is_empty() {
        return Ok(());
    }
    for service in services {
        let known = manager.store.service(Some(*service), None).await;
        // Its row is there, and tells nothing.
        if matches!(known, Err(StoreError::Corrupt(_))) {
            continue;
        }
        if known?.is_none() {
            info!(%service, "a service beats that is not in the database: it is asked who it is");
            telling::describe_later(manager, *service, Vec::new());
        }
    }
    Ok(())
}

/// Writes down what was described, unless it is known by now, or was forgotten.
pub(crate) async fn adopt(manager: &Manager, described: &[Described]) -> Result<(), StoreError> {
    let all = described.iter().flat_map(|it| it.held.iter().map(move |held| (&it.pool, held)));
    let by_id: HashMap<ObserverId, _> = all.map(|(pool, held)| (held.run.id, (pool, held))).collect();
    if by_id.is_empty() {
        return Ok(());
    }
    let ids: Vec<ObserverId> = by_id.keys().copied().collect();
    let mut known: HashSet<ObserverId> = manager.store.forgotten(&ids).await?.into_iter().collect();
    let found = manager.store.load(&ids).await?;
    known.extend(found.rows.iter().map(|row| row.id).chain(found.unreadable));
    let now = manager.clock.now();
    let (mut rows, mut told) = (Vec::new(), HashMap::new());
    for (id, (pool, HeldWork { run, work })) in by_id {
        if known.contains(&id) {
            continue;
        }
        match adopted(run, work, pool, now, &manager.settings.row) {
            Ok(row) => {
                told.insert(id, row.wanted.name.clone());
                rows.push(row);
            }
            Err(why) => warn!(observer = %id, %why, "what runs and is not in the database cannot be adopted"),
        }
    }
    let mut late = insert(manager, rows, &told).await?;
    for row in &mut late {
        row.wanted.name = other_name(&row.wanted.name, row.id);
    }
    insert(manager, late, &told).await.map(drop)
}

/// Answers those whose names are taken. Another manager may have been faster: then the report that comes
/// with the description is applied to what that one wrote.
async fn insert(
    manager: &Manager,
    rows: Vec<Row>,
    told: &HashMap<ObserverId, Name>,
) -> Result<Vec<Row>, StoreError> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let answers = manager.store.create(&rows).await?;
    let mut late = Vec::new();
    for (row, answer) in rows.into_iter().zip(answers) {
        if answer == Created::Done {
            let name = told.get(&row.id).unwrap_or(&row.wanted.name);
            manager.tell_adopted(&row, name);
            info!(observer = %row.id, name = %row.wanted.name, "adopted: it runs and was not in the database");
        } else {
            late.push(row);
        }
    }
    Ok(late)
}
