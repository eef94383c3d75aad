//! Messages that services refused, because no manager signed them: the audit log and the events tell of them.

use crate::context::Manager;
use everwatch_core::access::{AuditEntry, Outcome};
use everwatch_core::id::ServiceId;
use everwatch_core::record::events::EventKind;
use everwatch_core::wire::report::RefusedMessages;
use everwatch_store::StoreError;
use tracing::info;

/// The method of their entries in the audit log, which are no requests.
const METHOD: &str = "MESSAGE";
/// As of a request that is not permitted.
const STATUS: u16 = 403;
/// The names come from a service.
const PATH_MAX: usize = 500;

pub(super) async fn store(
    manager: &Manager,
    refused: &[(ServiceId, RefusedMessages)],
) -> Result<(), StoreError> {
    if refused.is_empty() {
        return Ok(());
    }
    let entries: Vec<AuditEntry> = refused.iter().map(|(service, it)| entry(manager, *service, it)).collect();
    let ids = manager.records.store.add_audit(&entries).await?;
    let outcome = Outcome { status: STATUS, created: None };
    let outcomes: Vec<(i64, Outcome)> = ids.into_iter().map(|id| (id, outcome.clone())).collect();
    manager.records.store.set_outcomes(&outcomes).await?;
    for (service, it) in refused {
        let name = manager.records.events.known.name(*service);
        info!(target: "audit", service = name, queue = it.queue, reason = it.reason, count = it.count, "messages refused");
        let text = format!("service {name} refused {} of {}: {}", it.count, it.queue, it.detail);
        manager.records.events.tell_all(EventKind::MessagesRefused, text);
    }
    Ok(())
}

fn entry(manager: &Manager, service: ServiceId, refused: &RefusedMessages) -> AuditEntry {
    let RefusedMessages { queue, reason, count, observer, .. } = refused;
    let observer = observer.map(|id| format!("&observer={id}")).unwrap_or_default();
    let path = format!("/queues/{queue}?refused={reason}&count={count}{observer}");
    AuditEntry {
        id: 0,
        at: manager.records.clock.now(),
        principal: None,
        token: None,
        actor: None,
        from: Some(format!("service {}", manager.records.events.known.name(service))),
        verb: None,
        method: METHOD.to_owned(),
        path: path.chars().take(PATH_MAX).collect(),
        outcome: None,
    }
}
