//! Looks at observers whose services may have died of them. Who is blamed is `core::quarantine`'s decision;
//! here are the looks. All managers share one list; one that overwrites another's is mended by the next look.

use crate::shared::Manager;
use crate::{hold, telling};
use everwatch_core::history::What;
use everwatch_core::id::ObserverId;
use everwatch_core::quarantine::{AT_ONCE_MAX, Deaths, Docket, LOOK_MAX, Sentence, WINDOW, killed};
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use uuid::Uuid;

const NOTE: &str = "quarantine";
/// Rows that are due soon and looked through for those that are watched.
const WATCHED_MAX: usize = 500;
const WEATHER: &str = "quarantine/weather";
/// Deaths are blamed for the window, and each is known a while after it.
const SERVICES_SINCE: Duration = Duration::from_secs(900);

/// Those that are to start one at a time.
pub(crate) async fn suspects(manager: &Manager) -> Result<Vec<ObserverId>, StoreError> {
    let mut docket = read(manager).await?;
    docket.forget(manager.clock.now());
    Ok(docket.suspects(manager.settings.quarantine_after))
}

async fn read(manager: &Manager) -> Result<Docket, StoreError> {
    let stored = manager.store.note(NOTE).await?;
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// Looks at those of these rows that are watched and due.
pub(crate) async fn look(manager: &Arc<Manager>, due: &[Row]) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let watched: Vec<&Row> = due.iter().filter(|row| row.is_watched(now)).collect();
    if watched.is_empty() {
        return Ok(());
    }
    if hold::is_on(manager).await? {
        return later(manager, watched.into_iter().map(|row| (row, Sentence::Wait))).await;
    }
    let services = manager.store.services(now.minus(SERVICES_SINCE)).await?.rows;
    let killed = killed(&services, now);
    let mut docket = read(manager).await?;
    let before = docket.clone();
    docket.forget(now);
    // All who are charged or watched, as they are now: an old number beside a new one decides by chance.
    let mut others = manager.store.load(&docket.charged().collect::<Vec<_>>()).await?.rows;
    others.extend(manager.store.due(now.plus(LOOK_MAX), WATCHED_MAX).await?);
    others.retain(|row| row.watch.is_some() || docket.has_charged(row.id));
    for row in &others {
        docket.enter(row, &row.deaths(&killed, now), manager.settings.quarantine_after, now);
    }
    let looked: Vec<(&Row, Deaths)> =
        watched.into_iter().map(|row| (row, row.deaths(&killed, now))).collect();
    for (row, deaths) in &looked {
        docket.enter(row, deaths, manager.settings.quarantine_after, now);
    }
    let sentenced = looked.into_iter().map(|(row, deaths)| (row, deaths, docket.sentence(row.id, now)));
    let (poison, others): (Vec<_>, Vec<_>) = sentenced.partition(|it| it.2 == Sentence::Quarantine);
    if others.iter().any(|it| it.2 == Sentence::Weather) {
        tell_weather(manager).await?;
    }
    later(manager, others.into_iter().map(|(row, _, sentence)| (row, sentence))).await?;
    for (row, deaths, _) in poison {
        // One that has ended meanwhile explains the deaths as well.
        quarantine(manager, row, &deaths).await?;
        docket.explain(now);
    }
    write(manager, &before, &docket).await
}

async fn write(manager: &Arc<Manager>, before: &Docket, docket: &Docket) -> Result<(), StoreError> {
    if docket != before {
        let text = serde_json::to_string(docket).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        manager.store.set_note(NOTE, &text, WINDOW).await?;
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
        info!(?suspects, "these start one at a time on each service");
        telling::suspects_later(manager, suspects);
    }
    Ok(())
}

async fn later<'a>(
    manager: &Manager,
    rows: impl Iterator<Item = (&'a Row, Sentence)>,
) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let mut changed = Vec::new();
    for (row, sentence) in rows {
        let mut next = row.clone();
        next.looked(sentence, now);
        changed.push(next);
    }
    if !changed.is_empty() {
        // Whoever changed one meanwhile has it looked at again.
        manager.store.save(&changed).await?;
    }
    Ok(())
}

/// Fails it, if it still can be, on the row as it is: it changes with every death.
async fn quarantine(manager: &Arc<Manager>, row: &Row, deaths: &Deaths) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let mut done = false;
    let failed = manager
        .change(row.id, |row| {
            done = row.quarantine(deaths, now);
            row.watch = None;
            true
        })
        .await?;
    if let Some(row) = failed.filter(|_| done) {
        telling::floors(manager, &[row.floor()]).await;
        warn!(observer = %row.id, name = %row.wanted.name, ?deaths, "quarantined: its services died of it");
    }
    Ok(())
}

/// Says it once in a window.
async fn tell_weather(manager: &Manager) -> Result<(), StoreError> {
    let mine = Uuid::now_v7().to_string();
    if manager.store.claim(WEATHER, &mine, WINDOW).await? == mine {
        let text = format!(
            "more than {AT_ONCE_MAX} observers would be quarantined within 10 minutes: none is, as so many are \
             not the cause"
        );
        warn!(text, "quarantine is suspended");
        manager.tell_all(What::QuarantineCapped, text);
    }
    Ok(())
}
