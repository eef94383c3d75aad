//! Services that are silent, or whose observers run elsewhere: they are lost only when the broker says that their session
//! is gone.
//! `core::failure::service_loss` decides.

use crate::commit::{Changed, change_service};
use crate::context::Manager;
use crate::excused::ByHand;
use crate::lock::lock;
use crate::outgoing::commands;
use everwatch_broker::{OwnerLiveness, Session};
use everwatch_core::failure::service_loss::{on_alive, plan_suspicion};
use everwatch_core::id::ServiceId;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;
use futures::StreamExt as _;
use std::time::Duration;
use tracing::{info, warn};

/// The broker has delivered an observer of this service to another service: asks the broker about it at once.
pub(crate) fn doubt(manager: &Manager, service: ServiceId) {
    if lock(&manager.doubts).add(service, manager.records.clock.now()) {
        manager.wake.notify_one();
    }
}

/// Concurrent questions to the broker, and the time limit of each.
const ASK_AT_ONCE: usize = 16;
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// Suspects the services that are silent, asks the broker about the sessions of the suspects and of the services in doubt,
/// and notes its answers.
pub(crate) async fn look(
    manager: &Manager,
    session: &dyn Session,
    living: &[ServiceRow],
) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let lost_after = manager.settings.lost_after;
    let mut doubted = lock(&manager.doubts).current(now);
    // A service that held no observer leaves no other sign when it dies.
    doubted.extend(manager.settings.excused.killed());
    let plan = plan_suspicion(living, now, lost_after, manager.may_conclude(), &doubted);
    for service in plan.suspect {
        // Checked again on the present row: a heartbeat may have arrived in the meantime.
        let suspected = |row: &mut ServiceRow| row.is_silent(now, lost_after) && row.suspect(now);
        if let Changed::Saved(row) = change_service(&manager.records, service, suspected).await? {
            manager.records.events.tell_service(
                EventKind::ServiceSuspect,
                &row,
                "nothing was heard of it".to_owned(),
            );
            warn!(%service, "service is silent, the broker is asked about its session");
        }
    }
    let answers: Vec<(ServiceId, Option<OwnerLiveness>)> = futures::stream::iter(plan.ask)
        .map(|service| async move { (service, ask(manager, session, service).await) })
        .buffer_unordered(ASK_AT_ONCE)
        .collect()
        .await;
    for (service, fate) in answers {
        match fate {
            Some(OwnerLiveness::Gone) => {
                let gone = |row: &mut ServiceRow| row.on_session_gone(manager.records.clock.now());
                if let Changed::Saved(row) = change_service(&manager.records, service, gone).await? {
                    let text = match manager.settings.excused.cause(service) {
                        Some(ByHand::Killed) => "it was killed on purpose",
                        Some(ByHand::Frozen) => {
                            "it was frozen on purpose, so the broker has closed its connection"
                        }
                        Some(ByHand::Thawed) | None => "its connection to the broker has ended",
                    };
                    manager.records.events.tell_lost(&row, text.to_owned());
                    info!(%service, "service lost: its session with the broker is gone");
                    manager.records.note_change();
                }
            }
            Some(OwnerLiveness::Alive) => {
                let at = manager.records.clock.now();
                change_service(&manager.records, service, |row| on_alive(row, at, lost_after)).await?;
            }
            None => {}
        }
    }
    Ok(())
}

async fn ask(manager: &Manager, session: &dyn Session, service: ServiceId) -> Option<OwnerLiveness> {
    let queue = commands::queue_of(manager, service).await?;
    match tokio::time::timeout(ASK_WITHIN, session.fate(&queue)).await {
        Ok(Ok(fate)) => Some(fate),
        Ok(Err(error)) => {
            warn!(%service, %error, "the broker did not answer whether the session of a service exists");
            None
        }
        Err(_) => None,
    }
}
