//! Services as responses, metrics and the doctor show them.

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

/// Marks silent services as suspect. Managers record that themselves, except in safe mode; but nobody should count on the slots of a
/// silent service then either.
pub(crate) async fn mark_suspects(manager: &Manager, services: &mut [ServiceRow]) -> Result<(), StoreError> {
    let (now, lost_after) = (manager.records.clock.now(), manager.settings.lost_after);
    if services.iter().any(|it| it.is_silent(now, lost_after)) && safe_mode::is_on(&manager.records).await? {
        for it in services.iter_mut().filter(|it| it.is_silent(now, lost_after)) {
            it.suspect(it.heard_at.plus(lost_after));
        }
    }
    Ok(())
}
