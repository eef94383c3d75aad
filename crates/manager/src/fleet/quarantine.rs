//! Checks observers whose services may have died of them; `core::failure::quarantine` decides which one is blamed. All
//! managers share one list: if one overwrites the change of another, the next check repeats it.

use crate::commit::{RowChange, Then, change_row, save};
use crate::context::Manager;
use crate::context::records::Records;
use crate::fleet::safe_mode;
use crate::outgoing::commands;
use everwatch_core::failure::quarantine::{
    AT_ONCE_MAX, CrashLedger, CrashVerdict, Deaths, LOOK_MAX, WINDOW, killed,
};
use everwatch_core::id::ObserverId;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::{Desired, Row};
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use uuid::Uuid;

const NOTE: &str = "quarantine";
/// Rows that are due soon, among which watched ones are looked for.
const WATCHED_MAX: usize = 500;
const WEATHER: &str = "quarantine/weather";
/// Deaths count for the window, and a manager learns of each a while later.
const SERVICES_SINCE: Duration = Duration::from_secs(900);

/// The observers that must start one at a time.
pub(crate) async fn suspects(manager: &Manager) -> Result<Vec<ObserverId>, StoreError> {
    let mut docket = read(&manager.records).await?;
    docket.forget(manager.records.clock.now());
    Ok(docket.suspects(manager.settings.quarantine_after))
}

async fn read(records: &Records) -> Result<CrashLedger, StoreError> {
    let stored = records.store.note(NOTE).await?;
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// Checks those of these rows that are watched and due.
pub(crate) async fn look(manager: &Arc<Manager>, due: &[Row]) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let watched: Vec<&Row> = due.iter().filter(|row| row.is_crash_check_due(now)).collect();
    if watched.is_empty() {
        return Ok(());
    }
    if safe_mode::is_on(&manager.records).await? {
        return later(&manager.records, watched.into_iter().map(|row| (row, CrashVerdict::Wait))).await;
    }
    let services = manager.records.store.services(now.minus(SERVICES_SINCE)).await?.rows;
    let mut killed = killed(&services, now);
    manager.settings.excused.forgive(&mut killed);
    let mut docket = read(&manager.records).await?;
    let before = docket.clone();
    docket.forget(now);
    // All charged and watched observers, as they are now: comparing old numbers with new ones would decide by chance.
    let charged: Vec<ObserverId> = docket.charged().collect();
    let found = manager.records.store.load(&charged).await?;
    let mut others = found.rows;
    for id in charged {
        let there = others.iter().any(|row| row.id == id && row.desired == Desired::Running);
        if !there && !found.unreadable.contains(&id) {
            docket.leave(id, now);
        }
    }
    others.extend(manager.records.store.due(now.plus(LOOK_MAX), WATCHED_MAX).await?);
    others.retain(|row| row.crash_check.is_some() || docket.has_charged(row.id));
    for row in &others {
        docket.enter(row, &row.deaths(&killed, now), manager.settings.quarantine_after, now);
    }
    let looked: Vec<(&Row, Deaths)> =
        watched.into_iter().map(|row| (row, row.deaths(&killed, now))).collect();
    for (row, deaths) in &looked {
        docket.enter(row, deaths, manager.settings.quarantine_after, now);
    }
    docket.list(others.iter().chain(looked.iter().map(|(row, _)| *row)), manager.settings.quarantine_after);
    let mut verdicts = docket.sentences(looked.iter().map(|(row, _)| row.id), now);
    let poison = verdicts.extract_if(.., |_, verdict| *verdict == CrashVerdict::Quarantine).next();
    if verdicts.values().any(|verdict| *verdict == CrashVerdict::Weather) {
        tell_weather(&manager.records).await?;
    }
    let spared = looked.iter().filter_map(|(row, _)| Some((*row, *verdicts.get(&row.id)?)));
    later(&manager.records, spared).await?;
    if let Some((row, deaths)) = looked.iter().find(|(row, _)| poison.is_some_and(|(id, _)| id == row.id)) {
        // An observer that has ended in the meantime explains the deaths as well.
        quarantine(manager, row, deaths).await?;
        docket.explain(now);
    }
    write(manager, &before, &docket).await
}

async fn write(manager: &Arc<Manager>, before: &CrashLedger, docket: &CrashLedger) -> Result<(), StoreError> {
    if docket != before {
        let text = serde_json::to_string(docket).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        manager.records.store.set_note(NOTE, &text, WINDOW).await?;
    }
    let (blamed, blamed_before) = (docket.charged().count(), before.charged().count());
    if blamed != blamed_before {
        info!(
            blamed,
            "services died soon after the starts of so many observers, twice and more in 10 minutes"
        );
    }
    let quarantine_after = manager.settings.quarantine_after;
    let suspects = docket.suspects(quarantine_after);
    if suspects != before.suspects(quarantine_after) {
        info!(?suspects, "crash-looping observers start one at a time on each service");
        commands::suspects_later(manager, suspects);
    }
    Ok(())
}

async fn later<'a>(
    records: &Records,
    rows: impl Iterator<Item = (&'a Row, CrashVerdict)>,
) -> Result<(), StoreError> {
    let now = records.clock.now();
    let rescheduled = rows.map(|(row, sentence)| {
        let mut after = row.clone();
        after.reschedule_check(sentence, now);
        RowChange { before: row.clone(), after, then: Then::Tell }
    });
    // A row that was changed in the meantime is still due.
    save(records, rescheduled.collect()).await.map(drop)
}

/// Fails the observer on its present row, which changes with every death.
async fn quarantine(manager: &Arc<Manager>, row: &Row, deaths: &Deaths) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let mut done = false;
    let quarantine = |row: &mut Row| {
        done = row.quarantine(deaths, now);
        row.crash_check = None;
        true
    };
    let failed = change_row(&manager.records, row.id, quarantine).await?.row();
    if let Some(row) = failed.filter(|_| done) {
        commands::revocations(manager, &[&row]).await;
        warn!(observer = %row.id, name = %row.definition.name, ?deaths, "quarantined: it ended its services");
    }
    Ok(())
}

/// Records it once in a window.
async fn tell_weather(records: &Records) -> Result<(), StoreError> {
    let mine = Uuid::now_v7().to_string();
    if records.store.claim(WEATHER, &mine, WINDOW).await? == mine {
        let text = format!(
            "more than {AT_ONCE_MAX} observers would be quarantined within 10 minutes: none is, as so many are \
             not the cause"
        );
        warn!(text, "quarantine is suspended");
        records.events.tell_all(EventKind::QuarantineCapped, text);
    }
    Ok(())
}
