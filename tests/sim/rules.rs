//! Every decision that the simulated hosts ask of the real core goes through here, so that one of the
//! deliberate bugs can spoil it at the boundary. Without a bug this is the core and nothing else.

use crate::mutations::Bug;
use crate::outbox::How;
use crate::users::{Ask, Asked};
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::fleet::FleetPlan;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{Floor, RunEvent, RunReport, Terms, WorkRead};
use everwatch_core::missing::{Orphan, orphan};
use everwatch_core::observer::Overlap;
use everwatch_core::plan::{RowStep, plan_row};
use everwatch_core::quarantine::{Killed, Sentence, killed};
use everwatch_core::row::{Applied, Desired, Row, RowPolicy};
use everwatch_core::seen::{Heard, Key, Settled, Settlement};
use everwatch_core::service::{Ended, ServiceRow};
use everwatch_core::slots::{Effect, Input, Now, Outcome, Slots};
use everwatch_core::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) struct Rules {
    bug: Option<Bug>,
    /// Receipts by service and observer, for one of the bugs.
    copies: BTreeMap<(usize, ObserverId), Vec<(Epoch, u64)>>,
}

impl Rules {
    pub(crate) fn of(bug: Option<Bug>) -> Self {
        Self { bug, copies: BTreeMap::new() }
    }
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// A service decides.
    pub(crate) fn step(
        &mut self,
        (s, slots): (usize, &mut Slots<u64>),
        input: Input<u64>,
        now: Now,
    ) -> Vec<Effect<u64>> {
        self.note_copy(s, &input);
        let input = match input {
            Input::Floors(_) if self.has(Bug::FloorIgnored) => return Vec::new(),
            Input::Floors(floors) if self.has(Bug::FloorForgotten) => {
                // Only what is held now hears of it.
                let held: Vec<_> = slots.list(now).iter().map(|it| it.id).collect();
                Input::Floors(floors.into_iter().filter(|floor| held.contains(&floor.id)).collect())
            }
            Input::Ended { id, epoch, outcome: Outcome::Erred(why) }
                if self.has(Bug::RetryCountsHandovers) && epoch.acquisitions() > 0 =>
            {
                Input::Ended { id, epoch, outcome: Outcome::Failed(why) }
            }
            other => other,
        };
        let mut effects = slots.step(input, now);
        if self.has(Bug::AckBeforeConfirm) {
            let settled: Vec<RunReport> = effects.iter().filter_map(settlement).collect();
            for RunReport { id, epoch, .. } in settled {
                effects.extend(slots.step(Input::Confirmed { id, epoch }, now));
            }
        }
        for effect in &mut effects {
            if let Effect::Ack(receipt) = effect {
                *receipt = self.acked_instead(*receipt);
            }
        }
        effects
    }

    fn note_copy(&mut self, s: usize, input: &Input<u64>) {
        if let Input::Delivered { receipt, read: WorkRead::Ours(work), acquisitions } = input
            && self.has(Bug::OlderAckedForNewer)
        {
            let copy = (Epoch::new(work.generation, *acquisitions), *receipt);
            self.copies.entry((s, work.id)).or_default().push(copy);
        }
    }

    fn acked_instead(&self, receipt: u64) -> u64 {
        let copies = self.copies.values().find(|copies| copies.iter().any(|copy| copy.1 == receipt));
        copies.and_then(|copies| copies.iter().max()).map_or(receipt, |newest| newest.1)
    }

    /// What a service makes of a delivery.
    pub(crate) fn delivered(&self, mut read: WorkRead, acquisitions: u32) -> (WorkRead, u32) {
        if let WorkRead::Ours(work) = &mut read
            && self.has(Bug::OverlapForbidIgnored)
        {
            work.overlap = Overlap::Allow;
        }
        (read, if self.has(Bug::AcquisitionsIgnored) { 0 } else { acquisitions })
    }

    pub(crate) fn prefetch(&self, block: u16) -> usize {
        usize::from(block) + usize::from(self.has(Bug::OverCapacity))
    }

    /// Whether it hands over only once nothing more comes in.
    pub(crate) fn waits_for_the_end_of_blocks(&self) -> bool {
        !self.has(Bug::HandsOverWhileTaking)
    }
    pub(crate) fn forgets_cancelled_blocks(&self) -> bool {
        self.has(Bug::CancelledBlocksForgotten)
    }
    /// Whether it gives away what is beyond its capacity.
    pub(crate) fn sheds(&self) -> bool {
        !self.has(Bug::SurplusKept)
    }
    pub(crate) fn terms_stand(&self, known: Terms, new: Terms) -> bool {
        new.revision > known.revision || self.has(Bug::OlderTermsWin)
    }
    pub(crate) fn cordons(&self, terms: Terms) -> bool {
        terms.cordoned && !(terms.draining && self.has(Bug::DrainTakesOn))
    }
    pub(crate) fn rest(&self, asked: Duration) -> Duration {
        if self.has(Bug::LimitsNeverEnd) { asked * 100 } else { asked }
    }
    /// How many are to stay.
    pub(crate) fn down_to(&self, most: u32, (told, held): (u32, u32)) -> u32 {
        if self.has(Bug::HandOverCounts) { held.saturating_sub(told.saturating_sub(most)) } else { most }
    }

    /// Whether a manager changes orders only as it has read them.
    pub(crate) fn swaps_orders(&self) -> bool {
        !self.has(Bug::OrdersOverwritten)
    }
    /// What belongs to a newborn's name.
    pub(crate) fn welcomed_with(&self, terms: Option<Terms>) -> Option<Terms> {
        terms.filter(|_| !self.has(Bug::OrdersForgottenAtRebirth))
    }
    /// A manager tells its services again.
    pub(crate) fn tells(&self, plan: &mut FleetPlan, services: &[ServiceRow]) {
        if self.has(Bug::OrdersForgottenAtRebirth) {
            let since = |revision: u64| Timestamp(i64::try_from(revision).unwrap());
            let lived = |it: &ServiceRow, revision: u64| it.born_at < since(revision);
            let knew = |id: ServiceId, revision| services.iter().any(|it| it.id == id && lived(it, revision));
            plan.terms.retain(|(id, terms)| knew(*id, terms.revision));
        }
    }

    pub(crate) fn fence_after(&self, configured: u64) -> u64 {
        if self.has(Bug::FenceLate) { configured * 4 } else { configured }
    }
    pub(crate) fn fence_cancels(&self) -> bool {
        !self.has(Bug::FenceCancelsNothing)
    }

    /// A manager folds one report into a row.
    pub(crate) fn apply(&self, row: &mut Row, heard: &Heard, epoch: Epoch, now: Timestamp) -> Applied {
        let mut epoch = epoch;
        if self.has(Bug::SettlementIgnored) && matches!(heard.event, RunEvent::Stopped) {
            return Applied::Same;
        }
        if self.has(Bug::StaleReportApplied) && epoch.generation() < row.generation {
            epoch = Epoch::new(row.generation, epoch.acquisitions());
        }
        let report = RunReport { id: row.id, epoch, event: heard.event.clone() };
        let applied = row.apply(heard.service, heard.key.seq, heard.at, &report, now);
        if self.has(Bug::SettlementOverwritten) && matches!(heard.event, RunEvent::Started { .. }) {
            row.seen.settled = None;
        }
        applied
    }

    /// A manager answers a report.
    pub(crate) fn answer(&self, row: &Row, report: &RunReport) -> Option<Floor> {
        if self.has(Bug::LeftoversUnanswered) {
            return None;
        }
        if self.has(Bug::EpochsCompareOrEqual) {
            let floor = row.floor();
            let next = Epoch::from(u64::from(floor.below) + 1);
            return (report.event.holds() && report.epoch <= floor.below)
                .then_some(Floor { below: next, ..floor });
        }
        row.answer(report)
    }

    pub(crate) fn plan_row(&self, row: &Row, now: Timestamp, policy: &RowPolicy) -> Option<RowStep> {
        let mut step = plan_row(row, now, policy)?;
        let lease_over = row.mark.is_some_and(|mark| mark.until <= now);
        let forgets = if lease_over { Bug::LeaseRepublishedAsItWas } else { Bug::ReissuedAsItWas };
        if step.publish && self.has(forgets) {
            step.row.generation = row.generation;
        }
        Some(step)
    }

    /// A person asks; refused is unchanged.
    pub(crate) fn act(&self, row: &mut Row, asked: &Asked, (now, policy): (Timestamp, &RowPolicy)) -> bool {
        let (generation, created) = (row.generation, row.verdict().status == Status::Created);
        let changed = match asked {
            Asked::Plain(Ask::Retry) => row.retry(now, policy),
            Asked::Plain(Ask::Pause) => row.pause(now, policy),
            Asked::Plain(Ask::Resume) => row.resume(now, policy),
            Asked::Plain(Ask::Restart) => row.restart(now, policy),
            Asked::Plain(_) => Ok(row.delete(now, policy)),
            Asked::Change(wanted, None) if self.has(Bug::UpdateEndsNothing) => {
                row.wanted = (**wanted).clone();
                Ok(true)
            }
            Asked::Change(wanted, paused) => row.change_to((**wanted).clone(), *paused, now, policy),
        };
        let changed = changed.unwrap_or(false);
        let deletes = row.desired == Desired::Deleted;
        if changed && created && deletes && self.has(Bug::CreatedDeletedAtOnce) {
            let key = Key { acquisitions: 0, seq: 0 };
            let service = ServiceId(uuid::Uuid::nil());
            row.seen.settled = Some(Settled { key, service, at: now, how: Settlement::Stopped });
        }
        let resumed = matches!(asked, Asked::Plain(Ask::Resume));
        if self.has(Bug::ReissuedAsItWas) || (resumed && self.has(Bug::ResumedAsItWas)) {
            row.generation = generation;
        }
        changed
    }

    /// Whether managers look for nothing that is lost.
    pub(crate) fn is_on_hold(&self, hold: bool) -> bool {
        hold && !self.has(Bug::HoldIgnoredByOrphans)
    }
    pub(crate) fn suspects_on_hold(&self, hold: bool) -> bool {
        hold && !self.has(Bug::HoldIgnoredBySuspects)
    }
    pub(crate) fn quarantines_on_hold(&self, hold: bool) -> bool {
        hold && !self.has(Bug::HoldIgnoredByQuarantine)
    }

    /// What becomes of a row that nobody seems to hold.
    pub(crate) fn orphan(
        &self,
        row: &Row,
        (living, ended): (&[ServiceId], &BTreeMap<ServiceId, Timestamp>),
        now: Timestamp,
        orphan_after: Duration,
    ) -> Orphan {
        match orphan(row, living, ended, now, orphan_after) {
            Orphan::Reissue if self.has(Bug::OrphansNotReissued) => Orphan::No,
            Orphan::End if self.has(Bug::OrphansNotEnded) => Orphan::No,
            found => found,
        }
    }

    pub(crate) fn heeds_new_queues(&self) -> bool {
        !self.has(Bug::NewQueueIgnored)
    }

    /// Whose process has died.
    pub(crate) fn killed(&self, services: &[ServiceRow], now: Timestamp) -> BTreeMap<ServiceId, Killed> {
        if !self.has(Bug::LostSessionsAreDeaths) {
            return killed(services, now);
        }
        let lost = services.iter().filter(|it| it.end.is_some_and(|end| end.how == Ended::Lost));
        lost.map(|it| (it.id, Killed { name: it.birth.name.clone(), at: it.heard_at })).collect()
    }

    pub(crate) fn sentence(&self, sentence: Sentence) -> Sentence {
        if self.has(Bug::NeverQuarantined) && sentence == Sentence::Quarantine {
            Sentence::Suspect
        } else {
            sentence
        }
    }

    /// What the broker answered to a publish is written down.
    pub(crate) fn published(
        &self,
        row: &mut Row,
        (generation, how): (u32, How),
        now: Timestamp,
        policy: &RowPolicy,
    ) -> bool {
        match how {
            How::Confirmed => row.confirmed(generation, now),
            How::Unsure if self.has(Bug::UnsureTakenForConfirmed) => row.confirmed(generation, now),
            How::Unsure => row.unsure(generation, now, policy),
        }
    }

    /// What the broker answers about a session, as the manager takes it.
    pub(crate) fn session_lives(&self, lives: bool) -> bool {
        lives && !self.has(Bug::LostBySilence)
    }

    pub(crate) fn acks_before_commit(&self) -> bool {
        self.has(Bug::ReportsAckedBeforeCommit)
    }
}

fn settlement(effect: &Effect<u64>) -> Option<RunReport> {
    match effect {
        Effect::Settle(report) => Some(report.clone()),
        _ => None,
    }
}
