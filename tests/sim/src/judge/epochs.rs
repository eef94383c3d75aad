//! Checks epochs: managers publish each generation once, the broker's delivery count rises with each
//! delivery, no two services have runs with the same epoch, and no service starts a run that was revoked.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::command::{Command, Revocation};
use std::collections::{BTreeMap, BTreeSet};

/// How long a command may wait in the service's loop, in ms.
const TURN: u64 = 50;

#[derive(Default)]
pub(super) struct Epochs {
    published: BTreeSet<(ObserverId, u32)>,
    delivered: BTreeMap<(ObserverId, u32), u32>,
    runs: BTreeMap<(ObserverId, Epoch), ServiceId>,
    /// The revocations that each service has received, with their times.
    revoked: BTreeMap<(ServiceId, ObserverId), (Epoch, u64)>,
}

impl Epochs {
    pub(super) fn hear(
        &mut self,
        now: u64,
        fact: &Fact,
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        match fact {
            Fact::Published { id, generation, .. } => {
                *exercised.entry("generations").or_default() += 1;
                if !self.published.insert((*id, *generation)) {
                    let text = format!("{} was published twice as generation {generation}", known.name(*id));
                    return breach("epochs", text);
                }
            }
            Fact::Rewound { messages } => {
                for message in messages {
                    self.delivered.remove(message);
                }
            }
            Fact::Delivered { id, epoch, .. } => {
                let acquisitions = epoch.acquisitions();
                let before = self.delivered.insert((*id, epoch.generation()), acquisitions);
                if before.is_some_and(|before| before >= acquisitions) {
                    return breach("epochs", format!("the count of {} did not rise", known.name(*id)));
                }
            }
            Fact::Heard { host, command } => {
                let Some(service) = known.service_on.get(host) else { return Ok(()) };
                match &**command {
                    Command::Revoke(revocations) => self.on_revoked(now, *service, revocations),
                    Command::Welcome(welcome) => self.on_revoked(now, *service, &welcome.revocations),
                    _ => {}
                }
            }
            Fact::Started(start) => {
                *exercised.entry("starts").or_default() += 1;
                let Some(service) = known.service_on.get(&start.host) else { return Ok(()) };
                let revoked = self.revoked.get(&(*service, start.id));
                if revoked.is_some_and(|(below, at)| start.epoch < *below && now - at > TURN) {
                    let (name, host) = (known.name(start.id), known.host_name(start.host));
                    let text = format!("{host} starts {name} {} though it was revoked", start.epoch);
                    return breach("revocations", text);
                }
                let first = *self.runs.entry((start.id, start.epoch)).or_insert(*service);
                if first != *service && !known.is_rewound(start.id, start.epoch.generation()) {
                    let text = format!("two runs of {} have the epoch {}", known.name(start.id), start.epoch);
                    return breach("epochs", text);
                }
            }
            Fact::Saved { before: Some(before), after, .. } if after.generation < before.generation => {
                return breach("epochs", format!("the generation of {} went down", after.definition.name));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_revoked(&mut self, now: u64, service: ServiceId, revocations: &[Revocation]) {
        for revocation in revocations {
            let known = self.revoked.entry((service, revocation.id)).or_insert((revocation.below, now));
            if revocation.below > known.0 {
                *known = (revocation.below, now);
            }
        }
    }
}
