//! Rebalancing: a plan is carried out by limits that expire, so that a manager that dies midway leaves no service
//! limited.

use crate::context::Manager;
use crate::context::records::Records;
use crate::outgoing::commands;
use crate::settings::AutoRebalance;
use everwatch_core::capacity::rebalance::{PoolPlan, Share, plan_pools, plan_unasked};
use everwatch_core::id::Pool;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::command::{Cause, Command, HandOver};
use everwatch_core::wording::counted;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How long the limits of a plan hold at most.
const LIMITED: Duration = Duration::from_secs(10);
/// The pause between two plans of the same pool, unless the moves of the first are done before.
pub(crate) const SETTLES: Duration = Duration::from_secs(15);

/// A manager that ends the limits of a plan needs a moment; another one waits for it this often, with this pause.
const ENDING_LOOKS: u32 = 20;
const ENDING_PAUSE: Duration = Duration::from_millis(50);
/// The text of the note of a plan whose limits a manager ends.
const ENDING: &str = "ending";

/// Under this prefix are the notes of pools in which the limits of a plan hold.
const UNDER: &str = "rebalancing/";

/// Whether the limits of a plan hold in this pool: the observers that move need the free slots.
pub(crate) async fn is_in_progress(records: &Records, pool: &Pool) -> Result<bool, StoreError> {
    Ok(records.store.note(&format!("{UNDER}{pool}")).await?.is_some())
}

/// A plan whose limits hold.
pub(crate) struct InProgress {
    pub(crate) pool: Pool,
    /// The number of its moves; `None`: begun by 0.1.0.
    pub(crate) moves: Option<u64>,
    /// The number of moves that would still even out the pool after the plan, which has a maximum number of moves.
    not_planned: u64,
    /// Its note.
    note: String,
}

impl InProgress {
    /// Reads the note of a plan; `None` if a manager ends its limits.
    fn read(name: &str, text: &str) -> Option<Self> {
        if text == ENDING {
            return None;
        }
        // 0.1.0 notes no number.
        let (moves, not_planned) = text.split_once(' ').unwrap_or((text, ""));
        let pool = name.strip_prefix(UNDER)?.parse().ok()?;
        let (moves, not_planned) = (moves.parse().ok(), not_planned.parse().unwrap_or(0));
        Some(Self { pool, moves, not_planned, note: text.to_owned() })
    }

    /// The number of its moves that have not happened yet. If `services` have the slots in use by the reports of runs, these show the
    /// result of a plan before heartbeats do.
    pub(crate) fn moves_left(&self, services: &[ServiceRow]) -> u64 {
        moves_to_even(&self.pool, services).saturating_sub(self.not_planned)
    }
}

/// The plans whose limits hold.
pub(crate) async fn in_progress(records: &Records) -> Result<Vec<InProgress>, StoreError> {
    let notes = records.store.notes_under(UNDER).await?;
    Ok(notes.iter().filter_map(|(name, text)| InProgress::read(name, text)).collect())
}

/// The number of moves that would even out a pool.
fn moves_to_even(pool: &Pool, services: &[ServiceRow]) -> u64 {
    let plans = plan_pools(services, u32::MAX);
    plans.iter().filter(|plan| plan.pool == *pool).map(|plan| u64::from(plan.moves())).sum()
}

/// The name of the note that holds for as long as another plan of this pool must wait.
fn turn_of(pool: &Pool) -> String {
    format!("rebalance/{pool}")
}

/// Plans the moves that even out these pools, by the slots in use by the reports of runs: heartbeats are up to an interval old.
pub(crate) async fn plan(
    records: &Records,
    pool: Option<&Pool>,
    moves: u32,
) -> Result<Vec<PoolPlan>, StoreError> {
    let mut plans = plan_pools(&records.services_as_reported().await?, moves);
    plans.retain(|plan| pool.is_none_or(|pool| *pool == plan.pool));
    Ok(plans)
}

/// Begins, unless a plan of this pool has not settled yet.
pub(crate) async fn begin(manager: &Arc<Manager>, plan: &PoolPlan, why: &str) -> Result<bool, StoreError> {
    let turn = uuid::Uuid::new_v4().to_string();
    if manager.records.store.claim(&turn_of(&plan.pool), &turn, SETTLES).await? != turn {
        return Ok(false);
    }
    let needed = moves_to_even(&plan.pool, &manager.records.services_as_reported().await?);
    let not_planned = needed.saturating_sub(plan.moves().into());
    let note = format!("{UNDER}{}", plan.pool);
    manager.records.store.set_note(&note, &format!("{} {not_planned}", plan.moves()), LIMITED).await?;
    // The takers are limited too: otherwise the queue would spread the observers evenly, not by need.
    for Share { load, target } in &plan.shares {
        let asked = HandOver {
            service: load.id,
            ids: Vec::new(),
            down_to: Some(*target),
            rest: LIMITED,
            cause: Cause::Rebalance,
        };
        commands::order_later(manager, asked.service, Command::HandOver(asked));
    }
    let moves = plan.shares.iter().filter(|share| share.target != share.load.held);
    let moves: Vec<_> =
        moves.map(|it| format!("{} {} to {}", it.load.name, it.load.held, it.target)).collect();
    let text =
        format!("pool {}, {}, {why}: {}", plan.pool, counted(plan.moves(), "observer"), moves.join(", "));
    info!(text, "rebalancing");
    manager.records.events.tell_all(EventKind::Rebalanced, text);
    Ok(true)
}

/// Begins, unless moves of the former plan of this pool have not happened yet. A user may request a plan as soon as an answer shows that
/// the former one is done, before a manager has ended its limits.
pub(crate) async fn begin_asked(
    manager: &Arc<Manager>,
    plan: &PoolPlan,
    why: &str,
) -> Result<bool, StoreError> {
    for _ in 0..ENDING_LOOKS {
        if begin(manager, plan, why).await? {
            return Ok(true);
        }
        let (open, services) =
            (in_progress(&manager.records).await?, manager.records.services_as_reported().await?);
        if open.iter().any(|it| it.pool == plan.pool && it.moves_left(&services) > 0) {
            return Ok(false);
        }
        end(manager).await?;
        tokio::time::sleep(ENDING_PAUSE).await;
    }
    Ok(false)
}

/// Ends the limits of plans whose moves are done: observers that wait get the free slots at once, and the next plan need not wait.
pub(crate) async fn end(manager: &Arc<Manager>) -> Result<(), StoreError> {
    let plans = in_progress(&manager.records).await?;
    if plans.is_empty() {
        return Ok(());
    }
    let services = manager.records.services_as_reported().await?;
    for plan in plans {
        // Of several managers, one ends the limits.
        let note = format!("{UNDER}{}", plan.pool);
        if plan.moves_left(&services) > 0
            || !manager.records.store.swap_note(&note, &plan.note, ENDING).await?
        {
            continue;
        }
        let pool = plan.pool;
        for service in services.iter().filter(|it| it.registration.pool == pool && !it.state().is_over()) {
            let asked = HandOver {
                service: service.id,
                ids: Vec::new(),
                down_to: Some(u32::MAX),
                rest: Duration::ZERO,
                cause: Cause::Rebalance,
            };
            commands::order_later(manager, asked.service, Command::HandOver(asked));
        }
        // In this order, because another plan can begin as soon as its turn is free.
        for note in [note, turn_of(&pool)] {
            manager.records.store.set_note(&note, "", Duration::ZERO).await?;
        }
        manager.records.note_change();
    }
    Ok(())
}

/// Rebalances without a request, if the configuration says so.
pub(crate) async fn look(manager: &Arc<Manager>, services: &[ServiceRow]) -> Result<(), StoreError> {
    let AutoRebalance { on: true, moves_per_minute, min_age } = manager.settings.rebalance else {
        return Ok(());
    };
    for plan in plan_unasked(services, moves_per_minute, min_age, manager.records.clock.now()) {
        let note = format!("rebalance-auto/{}", plan.pool);
        if manager.records.store.note(&note).await?.is_some() {
            continue;
        }
        if begin(manager, &plan, "by itself").await? {
            manager.records.store.set_note(&note, "", Duration::from_secs(60)).await?;
        }
    }
    Ok(())
}
