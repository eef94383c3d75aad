//! The mistakes: for each what is changed in the sources that ship, the seed of a history that shows it, and the
//! rule that this history breaks.
//!
//! `find` stands exactly once in its file and is an expression, or a statement with its semicolon; the changed
//! copy takes `instead` if it is told to make the mistake.

/// One thing done wrong.
pub(crate) struct Mistake {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) rule: &'static str,
    pub(crate) edits: &'static [Edit],
}

/// One change of one file.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) find: &'static str,
    pub(crate) instead: &'static str,
}

const fn edit(file: &'static str, find: &'static str, instead: &'static str) -> Edit {
    Edit { file, find, instead }
}

const ROW: &str = "crates/core/src/row.rs";
const PLAN: &str = "crates/core/src/plan.rs";
const SEEN: &str = "crates/core/src/seen.rs";
const ACTIONS: &str = "crates/core/src/actions.rs";
const SLOTS: &str = "crates/core/src/slots.rs";
const ADMITTING: &str = "crates/core/src/slots/admitting.rs";
const BOOK: &str = "crates/core/src/blocks/book.rs";
const MISSING: &str = "crates/core/src/missing.rs";
const BLAME: &str = "crates/core/src/quarantine.rs";
const PLACEMENT: &str = "crates/core/src/placement.rs";
const FLEET: &str = "crates/core/src/fleet.rs";
const STATE: &str = "crates/manager/src/intake/state.rs";
const BIRTHS: &str = "crates/manager/src/intake/births.rs";
const RECONCILE: &str = "crates/manager/src/reconcile.rs";
const ORPHANS: &str = "crates/manager/src/orphans.rs";
const SWEEP: &str = "crates/manager/src/sweep.rs";
const OUTBOX: &str = "crates/manager/src/outbox.rs";
const MANAGER_FLEET: &str = "crates/manager/src/fleet.rs";
const FENCE: &str = "crates/sdk/src/fence.rs";
const SESSION: &str = "crates/sdk/src/session.rs";
const OPENING: &str = "crates/sdk/src/session/opening.rs";
const CHANNELS: &str = "crates/sdk/src/session/channels.rs";
const COMMANDS: &str = "crates/sdk/src/session/commands.rs";
const REPORTER: &str = "crates/sdk/src/reporter.rs";

/// All of them.
pub(crate) const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "republish-under-the-same-generation",
        seed: 0,
        rule: "epochs",
        edits: &[edit(ROW, "self.generation = self.generation.max(self.reserve).saturating_add(1);", "self.generation = self.generation.max(self.reserve).max(1);")],
    },
    Mistake {
        name: "acknowledge-with-the-settlement-still-unsaid",
        seed: 0,
        rule: "acknowledgements",
        edits: &[edit(SLOTS, "effects.push(Effect::Settle(RunReport { id, epoch, event }));", "effects.push(Effect::Settle(RunReport { id, epoch, event }));
              if let Some(slot) = self.remove(id) { effects.push(Effect::Ack(slot.receipt)); }")],
    },
    Mistake {
        name: "ignore-revocations",
        seed: 0,
        rule: "revocations",
        edits: &[edit(SLOTS, "self.on_floor(floor, now, &mut effects);", "")],
    },
    Mistake {
        name: "forget-revocations-of-what-is-not-held",
        seed: 25,
        rule: "revocations",
        edits: &[edit(SLOTS, "self.floors.insert(floor.id, floor.below);", "if self.slots.contains_key(&floor.id) { self.floors.insert(floor.id, floor.below); }")],
    },
    Mistake {
        name: "ignore-that-a-run-was-stopped",
        seed: 0,
        rule: "convergence",
        edits: &[edit(SEEN, "self.settle(heard, Settlement::Stopped)", "()")],
    },
    Mistake {
        name: "apply-reports-of-older-generations",
        seed: 1077,
        rule: "settlements",
        edits: &[edit(ROW, "report.epoch.generation()", "report.epoch.generation().max(self.generation)")],
    },
    Mistake {
        name: "leave-older-runs-unanswered",
        seed: 685,
        rule: "convergence",
        // Services are also told at their birth of what was commanded before.
        edits: &[
            edit(STATE, "answers.floors.extend(runs.iter().filter_map(|run| row.answer(&run.report)));", ""),
            edit(BIRTHS, "rows.iter().map(Row::floor).collect()", "Vec::new()"),
        ],
    },
    Mistake {
        name: "let-a-revocation-end-its-own-epoch",
        seed: 3,
        rule: "gaps",
        edits: &[edit(ADMITTING, "epoch < *below", "epoch <= *below")],
    },
    Mistake {
        name: "fence-late",
        seed: 25,
        rule: "overlap",
        edits: &[edit(OPENING, "(me.settings.fence_after, me.settings.fence_grace)", "(me.settings.fence_after * 4, me.settings.fence_grace)")],
    },
    Mistake {
        name: "let-code-run-on-behind-the-fence",
        seed: 0,
        rule: "overlap",
        edits: &[edit(FENCE, "units.cancel_all();", "self.fallen.cancel(); return;")],
    },
    Mistake {
        name: "take-one-more-than-fits",
        seed: 21,
        rule: "capacity",
        edits: &[edit(BOOK, "u16::try_from(size).unwrap_or(u16::MAX)", "u16::try_from(size + 1).unwrap_or(u16::MAX)")],
    },
    Mistake {
        name: "overlap-where-it-is-forbidden",
        seed: 349,
        rule: "overlap",
        edits: &[edit(ADMITTING, "redelivered && work.as_ref().is_ok_and(|work| work.overlap == Overlap::Forbid)", "false")],
    },
    Mistake {
        name: "ignore-how-often-a-message-was-handed-out",
        seed: 0,
        rule: "epochs",
        edits: &[edit(SESSION, "Input::Delivered { receipt, read, acquisitions }", "Input::Delivered { receipt, read, acquisitions: acquisitions.min(0) }")],
    },
    Mistake {
        name: "call-the-unstarted-stopped-when-they-are-deleted",
        seed: 4,
        rule: "settlements",
        edits: &[edit(ROW, "self.doomed_at = Some(now);", "self.doomed_at = Some(now);
              if self.seen.latest.is_none() { let key = Key { acquisitions: 0, seq: 0 }; let (service, how) = (ServiceId(uuid::Uuid::nil()), crate::seen::Settlement::Stopped); self.seen.settled = Some(crate::seen::Settled { key, service, at: now, how }); }")],
    },
    Mistake {
        name: "count-hand-overs-as-attempts",
        seed: 2,
        rule: "settlements",
        edits: &[edit(SLOTS, "self.on_error(id, (attempt, since), error, now, effects)", "self.on_error(id, (attempt.saturating_add(epoch.acquisitions()), since), error, now, effects)")],
    },
    Mistake {
        name: "call-a-service-lost-by-its-silence",
        seed: 119,
        rule: "lost services",
        edits: &[edit(RECONCILE, "Some(fate)", "{ let _unheard = fate; Some(Fate::Gone) }")],
    },
    Mistake {
        name: "acknowledge-reports-before-the-commit",
        seed: 253,
        rule: "convergence",
        edits: &[edit(STATE, "insist(&over, || apply(&manager, &batch)).await", "{ ack_all(session.as_ref(), &batch.receipts).await;
             insist(&over, || apply(&manager, &batch)).await }")],
    },
    Mistake {
        name: "leave-lost-messages-lost",
        seed: 7,
        rule: "convergence",
        edits: &[edit(ORPHANS, "orphan(row, &self.living, &self.ended, now, after)", "match orphan(row, &self.living, &self.ended, now, after) { Orphan::Reissue => Orphan::No, found => found }")],
    },
    Mistake {
        name: "leave-lost-messages-unended",
        seed: 922,
        rule: "convergence",
        edits: &[edit(MISSING, "!published || held || !long", "!published || held || !long || row.awaits_end()")],
    },
    Mistake {
        name: "ignore-that-a-work-queue-is-new",
        seed: 52,
        rule: "convergence",
        edits: &[edit(ORPHANS, "new_queue(manager, &pool).await?;", "")],
    },
    Mistake {
        name: "look-for-lost-messages-in-safe-mode",
        seed: 1109,
        rule: "safe mode",
        edits: &[edit(ORPHANS, "hold::is_on(manager).await?", "false"), edit(SWEEP, "!hold::is_on(manager).await?", "true")],
    },
    Mistake {
        name: "suspect-services-in-safe-mode",
        seed: 6,
        rule: "safe mode",
        edits: &[edit(RECONCILE, "!hold::is_on(manager).await?", "true")],
    },
    Mistake {
        name: "never-quarantine",
        seed: 258,
        rule: "convergence",
        edits: &[edit(BLAME, "if as_likely || now.since(enough_at) < GATHER { Sentence::Wait } else { Sentence::Quarantine }", "Sentence::Suspect")],
    },
    Mistake {
        name: "take-lost-sessions-for-deaths",
        seed: 405,
        rule: "failed by a manager",
        edits: &[edit(BLAME, "!reborn.contains(&it.id) && (replaced || now.since(end.at) >= REBORN_WITHIN)", "it.end.is_some()")],
    },
    Mistake {
        name: "resume-under-the-same-generation",
        seed: 704,
        rule: "gaps",
        edits: &[edit(ACTIONS, "self.verdict().status == Status::Paused", "{ let rests = self.verdict().status == Status::Paused; if rests { self.generation = self.generation.saturating_sub(1);
             } rests }")],
    },
    Mistake {
        name: "let-a-changed-observer-run-on",
        seed: 3,
        rule: "convergence",
        edits: &[edit(ACTIONS, "runs_otherwise && self.desired == Desired::Running", "false")],
    },
    Mistake {
        name: "forget-what-cancelled-blocks-hold",
        seed: 630,
        rule: "capacity",
        edits: &[edit(BOOK, "block.state = State::Ending;", "block.state = State::Ended; block.held = 0;")],
    },
    Mistake {
        name: "hand-over-while-taking",
        seed: 1421,
        rule: "moves",
        edits: &[edit(CHANNELS, "self.blocks.closed() && !self.to_hand_over.is_empty()", "!self.to_hand_over.is_empty()"), edit(COMMANDS, "self.blocks.rest(until);", "")],
    },
    Mistake {
        name: "keep-what-is-beyond-the-capacity",
        seed: 380,
        rule: "convergence",
        edits: &[edit(CHANNELS, "surplus.filter(|_| surplus != self.shed_to)", "None")],
    },
    Mistake {
        name: "take-on-while-draining",
        seed: 93,
        rule: "capacity",
        edits: &[edit(COMMANDS, "terms.cordoned || terms.draining", "terms.cordoned && !terms.draining")],
    },
    Mistake {
        name: "keep-limits-for-too-long",
        seed: 14,
        rule: "without managers",
        edits: &[edit(COMMANDS, "now + asked.rest.clamp(REST_MIN, REST_MAX)", "now + asked.rest.clamp(REST_MIN, REST_MAX) * 100")],
    },
    Mistake {
        name: "hand-over-so-many-more-at-each-order",
        seed: 263,
        rule: "moves",
        edits: &[edit(COMMANDS, "self.blocks.limit(most, now, until);", "let more = self.told_held.saturating_sub(most);
              self.blocks.limit(self.blocks.held().saturating_sub(more), now, until);")],
    },
    Mistake {
        name: "forget-orders-at-a-rebirth",
        seed: 4,
        rule: "convergence",
        edits: &[edit(BIRTHS, "welcome.terms = book.get(birth.name.as_str()).map(Orders::terms);", ""), edit(FLEET, "!orders.followed_by(service)", "!orders.followed_by(service) && i128::from(service.born_at.0) < i128::from(orders.revision)")],
    },
    Mistake {
        name: "confirm-reports-before-the-broker",
        seed: 0,
        rule: "acknowledgements",
        edits: &[edit(REPORTER, "self.send(&mut seq, &batch).await", "{ for (_, say) in &batch { if let Say::Settle(report, _) = say { let _over = self.settled.send(report.clone()); } }
             self.send(&mut seq, &batch).await }")],
    },
    Mistake {
        name: "pass-over-the-revocations-of-a-welcome",
        seed: 25,
        rule: "revocations",
        edits: &[edit(COMMANDS, "self.step(Input::Floors(welcome.floors)).await;", "drop(welcome.floors);")],
    },
    Mistake {
        name: "sweep-what-is-to-run",
        seed: 789,
        rule: "acknowledgements",
        edits: &[edit(PLAN, "generation < row.generation", "generation <= row.generation")],
    },
    Mistake {
        name: "leave-reports-without-numbers",
        seed: 0,
        rule: "convergence",
        edits: &[edit(REPORTER, "*seq += 1;", "*seq = 1;")],
    },
    Mistake {
        name: "never-abort-code",
        seed: 1038,
        rule: "convergence",
        edits: &[edit(SESSION, "self.units.abort(id)", "()")],
    },
    Mistake {
        name: "quarantine-those-that-died-beside-another",
        seed: 258,
        rule: "failed by a manager",
        edits: &[edit(BLAME, "others().any(|it| charge.may_be_of(it))", "false")],
    },
    Mistake {
        name: "republish-an-ended-lease-under-the-same-generation",
        seed: 628,
        rule: "epochs",
        edits: &[edit(
            PLAN,
            "row.reissue(now, policy);",
            "let before = row.generation; row.reissue(now, policy); if lease_over { row.generation = before; }",
        )],
    },
    Mistake {
        name: "take-an-unanswered-publish-for-confirmed",
        seed: 42,
        rule: "published",
        edits: &[edit(OUTBOX, "return Some(How::Unsure);", "return Some(How::Confirmed);")],
    },
    Mistake {
        name: "acknowledge-the-newer-copy-for-the-older",
        seed: 156,
        rule: "acknowledgements",
        edits: &[edit(SLOTS, "effects.push(Effect::Ack(slot.receipt));", "let newer = slot.successor.as_ref().map_or(slot.receipt, |it| it.receipt); effects.push(Effect::Ack(newer));")],
    },
    Mistake {
        name: "overwrite-the-orders-of-others",
        seed: 97,
        rule: "convergence",
        edits: &[edit(MANAGER_FLEET, "manager.store.swap_note(&note, &before, &after).await?", "{ let _unlooked = before; manager.store.set_note(&note, &after, Duration::MAX).await?; true }")],
    },
    Mistake {
        name: "leave-takeovers-unrevoked",
        seed: 48,
        rule: "overlap",
        edits: &[edit(STATE, "was.and_then(|was| row.taken_over_from(was))", "None")],
    },
    Mistake {
        name: "leave-refused-messages-in-the-queue",
        seed: 343,
        rule: "refusals",
        edits: &[edit(PLACEMENT, "Placement::Withdraw", "Placement::Leave")],
    },
    Mistake {
        name: "never-release-what-was-withdrawn",
        seed: 19,
        rule: "convergence",
        edits: &[edit(PLACEMENT, "Placement::Release(free.min(u32::try_from(self.count).unwrap_or(u32::MAX)))", "{ let _room = free; Placement::Leave }")],
    },
];
