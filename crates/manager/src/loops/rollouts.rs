//! Takes the steps of rollouts. A pass has no input: it reads what the database knows, decides with `core::rollout`, and
//! saves the step if no other manager has taken one in the meantime; otherwise the next pass decides again.

use crate::RunError;
use crate::commit::{RowChange, Then, follow};
use crate::context::Manager;
use crate::events::actor;
use crate::fleet::{kind_check, safe_mode};
use crate::loops::changes::after_changes;
use everwatch_core::id::{ObserverId, RolloutId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceState;
use everwatch_core::rollout::{Checks, Member, MemberState, Rollout, RolloutState, Seen, Step, step};
use everwatch_store::{By, MembersPart, StepSaved, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// The maximum age of the cached services.
const SERVICES_AGE: Duration = Duration::from_secs(1);
/// The shortest time between two passes. While many observers change, each commit would otherwise cause a pass.
const PAUSE: Duration = Duration::from_millis(200);
/// The most members that one step changes. Members that do not run are changed without waiting, so one step may change more
/// than `max_parallel` members.
const BATCH: usize = 100;

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    after_changes(&manager, "a step of a rollout failed; retrying", || async {
        (pass(&manager).await, PAUSE)
    })
    .await
}

async fn pass(manager: &Arc<Manager>) -> Result<(), StoreError> {
    // A manager that has not read the newest reports could take a failed observer for a healthy one.
    if manager.link.open_session().is_none() || !manager.has_read() {
        return Ok(());
    }
    let rollouts = manager.records.store.open_rollouts().await?;
    if rollouts.is_empty() || safe_mode::is_on(&manager.records).await? {
        return Ok(());
    }
    for rollout in rollouts {
        if !manager.publishing.leases.have_room() {
            return Ok(());
        }
        advance(manager, &rollout).await?;
    }
    Ok(())
}

/// Takes the next step of one rollout.
async fn advance(manager: &Arc<Manager>, rollout: &Rollout) -> Result<(), StoreError> {
    use MemberState::{Changed, Done, Failed, Pending, Reverting};
    let (in_progress, next): (&[MemberState], &[MemberState]) = match rollout.state {
        RolloutState::Running => (&[Changed, Failed], &[Pending]),
        RolloutState::Reverting => (&[Reverting, Changed, Failed], &[Done]),
        RolloutState::Paused | RolloutState::Completed | RolloutState::Reverted | RolloutState::Cancelled => {
            return Ok(());
        }
    };
    let mut members = members(manager, rollout.id, in_progress, usize::MAX).await?;
    let is_full = members.len() >= rollout.max_parallel as usize;
    members.extend(self::members(manager, rollout.id, next, if is_full { 1 } else { BATCH }).await?);
    let services = manager.records.services(SERVICES_AGE).await?;
    // Nobody knows whether the code of a silent service executes.
    let heard = services.iter().filter(|it| it.state() != ServiceState::Suspect);
    let living: HashSet<_> = heard.map(|it| it.id).collect();
    let lives = |row: &Row| row.holder().is_some_and(|holder| living.contains(&holder));
    let Some(seen) = seen(manager, rollout, members, lives).await? else { return Ok(()) };
    let kinds = |definition: &ObserverDefinition| {
        kind_check::against(manager, &services, definition).map_err(|unfit| unfit.to_string())
    };
    let changes_pool = rollout.patch.get("pool").is_some();
    let namespaces = if changes_pool { manager.records.store.namespaces().await? } else { Vec::new() };
    let pools = |definition: &ObserverDefinition| {
        let row = namespaces.iter().find(|row| row.name == definition.namespace);
        if row.is_none_or(|row| row.settings.has_pool(&definition.pool)) {
            return Ok(());
        }
        Err(format!("its namespace {} may not use pool {}", definition.namespace, definition.pool))
    };
    let now = manager.records.clock.now();
    let checks = Checks { now, policy: &manager.settings.row, kinds: &kinds, pools: &pools };
    let Some(step) = step(rollout, &seen, &checks) else { return Ok(()) };
    if let Some(saved) = manager.records.store.save_step(&step).await? {
        tell(manager, rollout, step, saved).await;
    }
    Ok(())
}

async fn members(
    manager: &Manager,
    rollout: RolloutId,
    states: &[MemberState],
    most: usize,
) -> Result<Vec<Member>, StoreError> {
    manager.records.store.rollout_members(&MembersPart { rollout, states, after: None, most }).await
}

/// Reads the rows of the members, and the definitions to restore. `None`: a row cannot be read, and nothing may be concluded
/// about its member.
async fn seen(
    manager: &Manager,
    rollout: &Rollout,
    members: Vec<Member>,
    lives: impl Fn(&Row) -> bool,
) -> Result<Option<Vec<Seen>>, StoreError> {
    let ids: Vec<ObserverId> = members.iter().map(|it| it.observer).collect();
    let found = manager.records.store.load(&ids).await?;
    if !found.unreadable.is_empty() {
        return Ok(None);
    }
    let mut rows: HashMap<ObserverId, Row> = found.rows.into_iter().map(|row| (row.id, row)).collect();
    let mut seen = Vec::with_capacity(members.len());
    for member in members {
        let row = rows.remove(&member.observer);
        let restores = rollout.state == RolloutState::Reverting && member.is_changed();
        let former = if restores { former(manager, &member).await? } else { None };
        let holder_lives = row.as_ref().is_some_and(&lives);
        seen.push(Seen { member, row, holder_lives, former });
    }
    Ok(Some(seen))
}

async fn former(manager: &Manager, member: &Member) -> Result<Option<ObserverDefinition>, StoreError> {
    let versions = manager.records.store.versions(member.observer).await?;
    Ok(versions.into_iter().find(|it| it.revision.number == member.version).map(|it| it.definition))
}

/// Tells the events of a saved step, and sends the revocations and publishes that result.
async fn tell(manager: &Arc<Manager>, before: &Rollout, step: Step, saved: StepSaved) {
    let StepSaved { rollout, late } = saved;
    let late: HashSet<ObserverId> = late.into_iter().collect();
    let changes = step.members.into_iter().filter_map(|it| it.row);
    let changes = changes.filter(|(_, after)| !late.contains(&after.id)).map(|(before, after)| {
        let after = Row { version: after.version + 1, ..after };
        let then = if after.generation > before.generation {
            Then::Publish
        } else if after.awaits_end() {
            Then::Revoke
        } else {
            Then::Tell
        };
        RowChange { before, after, then }
    });
    let changes: Vec<RowChange> = changes.collect();
    let by = Some(By { who: Some(rollout.actor()), from: None, with: None });
    actor::on_behalf(by, || {
        for it in &changes {
            manager.records.events.tell(Some(&it.before), &it.after);
        }
        if let Some((kind, text)) = rollout.event(Some(before)) {
            info!(rollout = %rollout.name, state = %rollout.state, reason = rollout.reason, "rollout changed its state");
            manager.records.events.tell_all(kind, text);
        }
    });
    manager.records.note_change();
    follow(manager, &changes).await;
}
