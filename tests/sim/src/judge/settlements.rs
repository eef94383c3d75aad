//! Checks settlements: no service acknowledges a message before its settlement is confirmed or committed, and
//! an end in a row has really happened.

use super::times::is_between_windows;
use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::network::ConnId;
use crate::record::Fact;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::retry::Verdict as Retry;
use everwatch_core::record::observed::Settlement;
use everwatch_core::record::row::Row;
use everwatch_core::run::slots::Outcome;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Settlements {
    confirmed: BTreeSet<(ConnId, ObserverId, Epoch)>,
}

impl Settlements {
    pub(super) fn hear(&mut self, fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
        match fact {
            Fact::ReportConfirmed { conn, report } if report.event.settles() => {
                self.confirmed.insert((*conn, report.id, report.epoch));
                Ok(())
            }
            Fact::Acknowledged { host, conn, id, epoch } => {
                *exercised.entry("acknowledgements").or_default() += 1;
                let allowed = if known.is_service(*host) {
                    self.confirmed.contains(&(*conn, *id, *epoch))
                } else {
                    known.row(*id).is_some_and(|row| {
                        let same = row.generation == epoch.generation();
                        row.generation > epoch.generation() || (same && row.observed.settled.is_some())
                    })
                };
                if allowed {
                    return Ok(());
                }
                let text = format!("{} {epoch} is acknowledged without a settlement", known.name(*id));
                breach("acknowledgements", text)
            }
            Fact::Saved { after, .. } => {
                *exercised.entry("rows").or_default() += 1;
                is_true(after, known)
            }
            _ => Ok(()),
        }
    }
}

/// What a settlement says has happened.
fn is_true(row: &Row, known: &Knowledge) -> Verdict {
    let Some(settled) = &row.observed.settled else { return Ok(()) };
    let epoch = Epoch::new(row.generation, settled.key.acquisitions);
    if known.is_rewound(row.id, row.generation) {
        // Two runs may have the same epoch here, through no fault of Everwatch.
        return Ok(());
    }
    let key = (row.id, epoch);
    let runs = known.alive.iter().map(|start| &known.starts[start]).any(|it| (it.id, it.epoch) == key);
    let errors = known.errors.get(&key).copied().unwrap_or(0);
    let ended = known.finished.get(&key);
    let exhausted = row.definition.retry.after(errors, 0.0) == Retry::GiveUp;
    let holds = match &settled.how {
        Settlement::Stopped => true,
        Settlement::Completed => matches!(ended, Some(Outcome::Done | Outcome::DoneWith(_))),
        Settlement::Finished { at } => {
            let is_end = row.definition.finish_at == Some(*at) || is_between_windows(&row.definition, *at);
            let in_time = is_end && settled.at >= *at;
            // A manager does not wait for a service that does not answer.
            if in_time && settled.service.0.is_nil() {
                return Ok(());
            }
            in_time
        }
        // The users of histories set no limit.
        Settlement::NotStarted { .. } => false,
        Settlement::Failed { .. } if settled.service.0.is_nil() => return Ok(()),
        Settlement::Failed { attempts, .. } => {
            matches!(ended, Some(Outcome::Failed(_))) || (exhausted && errors == *attempts)
        }
    };
    if !runs && holds {
        return Ok(());
    }
    breach("settlements", format!("{} {epoch} is {:?}, which it is not", row.definition.name, settled.how))
}
