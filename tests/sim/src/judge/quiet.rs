//! Checks quiet: once the system is at rest, it stays at rest. Nothing starts, nothing is published or
//! revoked, memory does not grow, and managers do not read rows repeatedly.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::code::Code;
use crate::machine;
use crate::record::Fact;
use everwatch_core::id::ObserverId;
use everwatch_core::record::observed::RunPhase;
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::hold_reasons;
use std::sync::atomic::Ordering;

/// How much memory may grow in a quiet hour, in bytes. The stored heartbeats always take about the same
/// space.
const GROWTH_MAX: i64 = 256 * 1024;
/// How many rows may be read in a quiet minute, for each observer and each manager: for the inventory and one
/// search.
const ROWS_MAX: u64 = 4;
/// The first part of the quiet time, in ms, in which caches fill.
const WARM_UP: u64 = 600_000;

/// A time in which nothing may happen.
pub(crate) struct Quiet {
    since: u64,
    rows_read: u64,
    /// The allocated bytes once the caches are filled.
    live_bytes: Option<i64>,
    /// Whether managers still check rows, for up to ten minutes, for observers that may have killed their
    /// services.
    watched: bool,
}

impl Quiet {
    pub(crate) fn begin(now: u64, known: &Knowledge) -> Self {
        let rows_read = known.database.rows_read.load(Ordering::Relaxed);
        let watched = known.rows().iter().any(|row| row.crash_check.is_some());
        Self { since: now, rows_read, live_bytes: None, watched }
    }

    /// Checks one fact during the quiet time.
    pub(crate) fn hear(fact: &Fact, known: &Knowledge) -> Verdict {
        let (what, id) = match fact {
            Fact::Started(start) => ("starts", start.id),
            Fact::Published { id, .. } => ("is published", *id),
            // For ten minutes, managers check whether the observer kills its services, and save its row. An observer that
            // every service refuses fails after `refused_max`. A suspect starts once it is its turn.
            Fact::Saved { before: Some(before), .. }
                if before.crash_check.is_some() || before.refused_since.is_some() || is_suspect(before) =>
            {
                return Ok(());
            }
            Fact::Saved { request: None, after, .. } => ("is saved", after.id),
            Fact::Heard { command, .. } => match &**command {
                // A suspect has ended its service. Another service refuses the redelivered messages, and managers end its
                // older runs.
                Command::Revoke(revocations) => match revocations.iter().find(|it| !is_checked(it.id, known))
                {
                    Some(revocation) => ("is revoked", revocation.id),
                    None => return Ok(()),
                },
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        if is_restless(id, known) || takes_freed_slot(id, fact, known) {
            return Ok(());
        }
        breach("quiet", format!("{} {what}, and nothing has happened", known.name(id)))
    }

    pub(crate) fn pass(&mut self, now: u64) {
        if self.live_bytes.is_none() && now - self.since >= WARM_UP {
            self.live_bytes = Some(machine::live_bytes());
        }
    }

    /// Checks the quiet time as a whole.
    pub(crate) fn end(&self, now: u64, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
        let minutes = (now - self.since) / 60_000;
        *exercised.entry("quiet minutes").or_default() += minutes;
        let read = known.database.rows_read.load(Ordering::Relaxed) - self.rows_read;
        let (rows, managers) = (known.rows().len() as u64, known.setup.managers as u64);
        let heaviest = known.setup.services.iter().map(|it| it.weight_max).max().unwrap_or(1);
        // While a heavy observer waits, each admission reads it and as many lighter ones as free slots are too few for it.
        let heavy = if heaviest > 1 { 60 * u64::from(heaviest) } else { 0 };
        let most = (minutes + 1) * managers * (rows.max(1) * ROWS_MAX + heavy);
        if read > most && !self.watched {
            let text = format!("{read} rows were read in {minutes} quiet minutes; {most} is the most");
            return breach("rows read", text);
        }
        if let Some(before) = self.live_bytes {
            *exercised.entry("quiet hours").or_default() += 1;
            let grown = machine::live_bytes() - before;
            if grown > GROWTH_MAX {
                let text = format!("{grown} bytes more are allocated after {minutes} quiet minutes");
                return breach("memory", text);
            }
        }
        Ok(())
    }
}

/// Whether the observer may have waited for a slot that another observer freed when its code ended.
fn takes_freed_slot(id: ObserverId, fact: &Fact, known: &Knowledge) -> bool {
    if !matches!(fact, Fact::Started(_) | Fact::Saved { .. }) {
        return false;
    }
    let rows = known.rows();
    let Some(pool) = rows.iter().find(|row| row.id == id).map(|row| &row.definition.pool) else {
        return true;
    };
    let of_pool = known.setup.services.iter().filter(|it| it.pool == *pool);
    let slots: u32 = of_pool.map(|it| (it.capacity + 1).saturating_sub(it.weight_max.into())).sum();
    let there = || rows.iter().filter(|row| row.definition.pool == *pool);
    there().map(|row| u32::from(row.definition.weight)).sum::<u32>() > slots
        && there().any(|row| is_restless(row.id, known))
}

/// Whether it waits for its turn to start: suspects start a minute apart on each service.
fn is_suspect(row: &Row) -> bool {
    let latest = row.observed.latest.as_ref().map(|latest| &latest.phase);
    matches!(latest, Some(RunPhase::Held { reason, .. }) if reason == hold_reasons::SUSPECTED)
}

/// Whether managers check if it has ended its services.
fn is_checked(id: ObserverId, known: &Knowledge) -> bool {
    known.row(id).is_some_and(|row| row.crash_check.is_some())
}

/// Whether its code ends by itself, or it has not come to rest yet.
fn is_restless(id: ObserverId, known: &Knowledge) -> bool {
    let Some(row) = known.row(id) else { return true };
    let code = Code::of(&row.definition.spec.to_string());
    !matches!(code.does, crate::code::Does::RunsForEver) || is_suspect(&row)
}
