//! The services that responses, metrics and the doctor show.

use crate::context::Manager;
use crate::fleet::safe_mode;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;

/// The living services, with the slots that are in use by the reports of runs, and with the suspects of [`mark_suspects`].
pub(crate) async fn living(manager: &Manager) -> Result<Vec<ServiceRow>, StoreError> {
    let mut services = manager.records.services_as_reported().await?;
    mark_suspects(manager, &mut services).await?;
    Ok(services)
}

/// In safe mode, marks each service as suspect that is silent, or that a person killed: nobody should count on its slots. Outside of safe
/// mode, managers record this themselves.
pub(crate) async fn mark_suspects(manager: &Manager, services: &mut [ServiceRow]) -> Result<(), StoreError> {
    let (now, lost_after) = (manager.records.clock.now(), manager.settings.lost_after);
    let killed = manager.settings.excused.killed();
    let is_killed = |it: &ServiceRow| it.end.is_none() && killed.contains(&it.id);
    let is_gone = |it: &ServiceRow| it.is_silent(now, lost_after) || is_killed(it);
    if services.iter().any(&is_gone) && safe_mode::is_on(&manager.records).await? {
        for it in services.iter_mut().filter(|it| is_gone(it)) {
            it.suspect(it.heard_at.plus(lost_after).min(now));
        }
    }
    Ok(())
}
