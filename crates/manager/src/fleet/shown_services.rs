//! The services that responses, metrics and the doctor show.

use crate::context::Manager;
use crate::excused::ByHand;
use crate::fleet::safe_mode;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;

/// The living services, with the slots that are in use by the reports of runs, and with the suspects of [`mark_suspects`].
pub(crate) async fn living(manager: &Manager) -> Result<Vec<ServiceRow>, StoreError> {
    let mut services = manager.records.services_as_reported().await?;
    mark_suspects(manager, &mut services).await?;
    Ok(services)
}

/// Marks each service as suspect that a person killed or froze: nobody should count on its slots. The broker may not have noticed yet, but
/// the program around the manager knows. In safe mode, also each one that is silent; otherwise, managers record this themselves.
pub(crate) async fn mark_suspects(manager: &Manager, services: &mut [ServiceRow]) -> Result<(), StoreError> {
    let (now, lost_after) = (manager.records.clock.now(), manager.settings.lost_after);
    let excused = &manager.settings.excused;
    let is_dead = |it: &ServiceRow| matches!(excused.cause(it.id), Some(ByHand::Killed | ByHand::Frozen));
    for it in services.iter_mut().filter(|it| is_dead(it)) {
        it.suspect(it.heard_at.min(now));
    }
    let is_silent = |it: &ServiceRow| it.is_silent(now, lost_after);
    if services.iter().any(is_silent) && safe_mode::is_on(&manager.records).await? {
        for it in services.iter_mut().filter(|it| is_silent(it)) {
            it.suspect(it.heard_at.plus(lost_after).min(now));
        }
    }
    Ok(())
}
