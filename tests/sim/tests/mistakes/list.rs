//! The deliberate mistakes: for each, the change in the shipped sources, the seed of a history that reveals
//! it, and the rule that this history breaks.
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

const ROW: &str = "crates/core/src/record/row.rs";
const OUTBOX: &str = "crates/core/src/record/row/outbox.rs";
const TIMES: &str = "crates/core/src/run/slots/times.rs";
const BLOCK: &str = "crates/core/src/capacity/blocks/block.rs";
const PREEMPTION: &str = "crates/core/src/capacity/preemption.rs";
const SUPPLY: &str = "crates/core/src/capacity/supply.rs";
const ADMISSION_LOOP: &str = "crates/manager/src/loops/admission.rs";
const BACKLOG_IN_MEMORY: &str = "crates/store/src/memory/backlog.rs";
const CHANGES_IN_MEMORY: &str = "crates/store/src/memory/changes.rs";
const LIMITS: &str = "crates/core/src/capacity/limits.rs";
const PLACES: &str = "crates/core/src/record/row/places.rs";
const CHECKPOINT: &str = "crates/core/src/record/checkpoint.rs";
const SCHEDULED: &str = "crates/core/src/record/row/schedule.rs";
const DUE: &str = "crates/core/src/record/due.rs";
const SWEPT: &str = "crates/core/src/failure/sweep.rs";
const SEEN: &str = "crates/core/src/record/observed.rs";
const ACTIONS: &str = "crates/core/src/record/operations.rs";
const SLOTS: &str = "crates/core/src/run/slots.rs";
const ADMITTING: &str = "crates/core/src/run/slots/admission.rs";
const BOOK: &str = "crates/core/src/capacity/blocks/allocator.rs";
const MISSING: &str = "crates/core/src/failure/orphans.rs";
const BLAME: &str = "crates/core/src/failure/quarantine.rs";
const PLACEMENT: &str = "crates/core/src/capacity/placement.rs";
const FLEET: &str = "crates/core/src/capacity/maintenance.rs";
const WORK: &str = "crates/core/src/wire/work.rs";
const CREATING: &str = "crates/manager/src/http/creating.rs";
const STATE: &str = "crates/manager/src/intake/state.rs";
const BIRTHS: &str = "crates/manager/src/intake/registrations.rs";
const RECONCILE: &str = "crates/manager/src/loops/reconcile.rs";
const SERVICE_LOSS: &str = "crates/manager/src/fleet/service_loss.rs";
const ORPHANS: &str = "crates/manager/src/loops/orphans.rs";
const SWEEP: &str = "crates/manager/src/loops/sweep.rs";
const PUBLISH: &str = "crates/manager/src/outgoing/publish.rs";
const MANAGER_FLEET: &str = "crates/manager/src/fleet/orders.rs";
const SESSION_INTAKE: &str = "crates/sdk/src/session/intake.rs";
const FENCE: &str = "crates/sdk/src/safety/fence.rs";
const OPENING: &str = "crates/sdk/src/session/opening.rs";
const MACHINE: &str = "crates/core/src/run/machine.rs";
const SAVING: &str = "crates/sdk/src/session/checkpoints.rs";
const EFFECTS: &str = "crates/sdk/src/session/effects.rs";
const REPORTER: &str = "crates/sdk/src/session/reporter.rs";

/// All of them.
pub(crate) const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "republish-under-the-same-generation",
        seed: 0,
        rule: "epochs",
        edits: &[edit(OUTBOX, "self.generation = self.generation.max(self.reserve).saturating_add(1);", "self.generation = self.generation.max(self.reserve).max(1);")],
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
        edits: &[edit(SLOTS, "self.on_revocation(revocation, now, &mut effects);", "")],
    },
    Mistake {
        name: "forget-revocations-of-what-is-not-held",
        seed: 37,
        rule: "revocations",
        edits: &[edit(SLOTS, "self.revocations.insert(revocation.id, revocation.below);", "if self.slots.contains_key(&revocation.id) { self.revocations.insert(revocation.id, revocation.below); }")],
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
        seed: 156,
        rule: "convergence",
        // The welcome of a new service also contains the revocations that were sent before.
        edits: &[
            edit(STATE, "answers.revocations.extend(runs.iter().filter_map(answer));", ""),
            edit(BIRTHS, "rows.iter().filter(of_pool).map(Row::revocation).collect()", "Vec::new()"),
        ],
    },
    Mistake {
        name: "let-a-revocation-end-its-own-epoch",
        seed: 3,
        rule: "gaps",
        edits: &[edit(ADMITTING, "arrival.epoch < *below", "arrival.epoch <= *below")],
    },
    Mistake {
        name: "confirm-checkpoints-before-they-are-stored",
        seed: 1362,
        rule: "checkpoints",
        edits: &[edit(SAVING, "of_run.saves.push((of_run.number, sender));", "let _told = sender.send(());")],
    },
    Mistake {
        name: "store-only-the-first-checkpoint",
        seed: 31,
        rule: "checkpoints",
        edits: &[edit(CHECKPOINT, "known >= Some((new.epoch, new.number))", "known.is_some()")],
    },
    Mistake {
        name: "fence-late",
        seed: 91,
        rule: "overlap",
        edits: &[edit(OPENING, "(me.settings.fence_after, me.settings.fence_grace)", "(me.settings.fence_after * 4, me.settings.fence_grace)")],
    },
    Mistake {
        name: "let-code-run-on-behind-the-fence",
        seed: 0,
        rule: "overlap",
        edits: &[edit(FENCE, "units.cancel_all(self.fence_grace);", "self.tripped.cancel(); return;")],
    },
    Mistake {
        name: "take-one-more-than-fits",
        seed: 25,
        rule: "capacity",
        edits: &[edit(BOOK, "u16::try_from(size).unwrap_or(u16::MAX)", "u16::try_from(size + 1).unwrap_or(u16::MAX)")],
    },
    Mistake {
        name: "overlap-where-it-is-forbidden",
        seed: 349,
        rule: "overlap",
        edits: &[edit(ADMITTING, "redelivered && arrival.work.as_ref().is_ok_and(|work| work.overlap == Overlap::Forbid)", "false")],
    },
    Mistake {
        name: "ignore-how-often-a-message-was-handed-out",
        seed: 0,
        rule: "epochs",
        edits: &[edit(SESSION_INTAKE, "Input::Delivered { block, receipt, read, acquisitions }", "Input::Delivered { block, receipt, read, acquisitions: acquisitions.min(0) }")],
    },
    Mistake {
        name: "call-the-unstarted-stopped-when-they-are-deleted",
        seed: 29,
        rule: "settlements",
        edits: &[edit(ACTIONS, "self.delete_requested_at = Some(now);", "self.delete_requested_at = Some(now);
              if self.observed.latest.is_none() { let key = crate::record::observed::Key { acquisitions: 0, seq: 0 }; let (service, how) = (ServiceId(uuid::Uuid::nil()), crate::record::observed::Settlement::Stopped); self.observed.settled = Some(crate::record::observed::Settled { key, service, at: now, how }); }")],
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
        edits: &[edit(SERVICE_LOSS, "Some(fate)", "{ let _unheard = fate; Some(OwnerLiveness::Gone) }")],
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
        edits: &[edit(ORPHANS, "orphan(row, &self.living, &self.ended, now, after)", "match orphan(row, &self.living, &self.ended, now, after) { Orphan::Republish => Orphan::No, found => found }")],
    },
    Mistake {
        name: "leave-lost-messages-unended",
        seed: 55,
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
        edits: &[edit(ORPHANS, "safe_mode::is_on(&manager.records).await?", "false"), edit(SWEEP, "!safe_mode::is_on(&manager.records).await?", "true")],
    },
    Mistake {
        name: "suspect-services-in-safe-mode",
        seed: 6,
        rule: "safe mode",
        edits: &[edit(RECONCILE, "!safe_mode::is_on(&manager.records).await?", "true")],
    },
    Mistake {
        name: "never-quarantine",
        seed: 258,
        rule: "convergence",
        edits: &[edit(BLAME, "if as_likely || now.since(enough_at) < GATHER { CrashVerdict::Wait } else { CrashVerdict::Quarantine }", "CrashVerdict::Suspect")],
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
        rule: "epochs",
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
        seed: 58,
        rule: "moves",
        edits: &[edit(BOOK, "block.state = State::Ending;", "block.state = State::Ended; block.held = 0;")],
    },
    Mistake {
        name: "hand-over-while-taking",
        seed: 1421,
        rule: "moves",
        edits: &[edit(MACHINE, "self.blocks.closed() && !self.to_hand_over.is_empty()", "!self.to_hand_over.is_empty()"), edit(MACHINE, "self.blocks.rest(now, until);", "")],
    },
    Mistake {
        name: "keep-what-is-beyond-the-capacity",
        seed: 39,
        rule: "convergence",
        edits: &[edit(MACHINE, "surplus.filter(|_| surplus != self.surplus)", "None")],
    },
    Mistake {
        name: "take-on-while-draining",
        seed: 93,
        rule: "capacity",
        edits: &[edit(MACHINE, "directives.cordoned || directives.draining", "directives.cordoned && !directives.draining")],
    },
    Mistake {
        name: "rest-without-a-last-resort",
        seed: 3275,
        rule: "gaps",
        edits: &[edit(BOOK, "self.rests_until = self.rests_until.max(until.min(now + LETS_OTHERS_TAKE));", "self.rests_until = self.rests_until.max(until);")],
    },
    Mistake {
        name: "hand-over-so-many-more-at-each-order",
        seed: 445,
        rule: "moves",
        edits: &[edit(MACHINE, "self.blocks.limit(most, now, until);", "let more = self.own_capacity.saturating_sub(most); self.blocks.limit(self.blocks.held().saturating_sub(more), now, until);")],
    },
    Mistake {
        name: "forget-orders-at-a-rebirth",
        seed: 4,
        rule: "convergence",
        edits: &[edit(BIRTHS, "welcome.directives = book.get(registration.name.as_str()).map(Orders::directives);", ""), edit(FLEET, "!orders.followed_by(service)", "!orders.followed_by(service) && i128::from(service.registered_at.0) < i128::from(orders.revision)")],
    },
    Mistake {
        name: "confirm-reports-before-the-broker",
        seed: 0,
        rule: "acknowledgements",
        edits: &[edit(REPORTER, "self.send(&mut seq, &round).await", "{ for (_, say) in round.values().flatten() { if let Say::Settle(report, _) = say { let _over = self.settled.send(report.clone()); } }
             self.send(&mut seq, &round).await }")],
    },
    Mistake {
        name: "pass-over-the-revocations-of-a-welcome",
        seed: 62,
        rule: "revocations",
        edits: &[edit(MACHINE, "self.revoke(welcome.revocations, now, effects);", "drop(welcome.revocations);")],
    },
    Mistake {
        name: "sweep-what-is-to-run",
        seed: 24,
        rule: "acknowledgements",
        edits: &[edit(SWEPT, "generation < row.generation", "generation <= row.generation")],
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
        edits: &[edit(EFFECTS, "self.units.abort(id)", "()")],
    },
    Mistake {
        name: "quarantine-those-that-died-beside-another",
        seed: 633,
        rule: "failed by a manager",
        edits: &[edit(BLAME, "others().any(|it| charge.may_be_of(it))", "false")],
    },
    Mistake {
        name: "republish-an-ended-lease-under-the-same-generation",
        seed: 2011,
        rule: "epochs",
        edits: &[edit(
            DUE,
            "row.republish(now, policy);",
            "let before = row.generation; row.republish(now, policy); if lease_over { row.generation = before; }",
        )],
    },
    Mistake {
        name: "take-an-unanswered-publish-for-confirmed",
        seed: 8,
        rule: "published",
        edits: &[edit(PUBLISH, "return Some(PublishResult::Unsure);", "return Some(PublishResult::Confirmed);")],
    },
    Mistake {
        name: "acknowledge-the-newer-copy-for-the-older",
        seed: 1196,
        rule: "acknowledgements",
        edits: &[edit(SLOTS, "effects.push(acknowledge((slot.receipt, counts), id, epoch));", "let newer = slot.successor.as_ref().map_or(slot.receipt, |it| it.receipt); effects.push(acknowledge((newer, counts), id, epoch));")],
    },
    Mistake {
        name: "overwrite-the-orders-of-others",
        seed: 297,
        rule: "convergence",
        edits: &[edit(MANAGER_FLEET, "records.store.swap_note(&note, &before, &after).await?", "{ let _unlooked = before; records.store.set_note(&note, &after, Duration::MAX).await?; true }")],
    },
    Mistake {
        name: "leave-takeovers-unrevoked",
        seed: 148,
        rule: "overlap",
        edits: &[edit(STATE, "after.taken_over_from(before)", "None")],
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
    Mistake {
        name: "admit-the-last-in-line",
        seed: 25,
        rule: "order",
        edits: &[edit(BACKLOG_IN_MEMORY, "found.sort_by_key(|(rank, row)| (*rank, row.id));", "found.sort_by_key(|(rank, row)| (-*rank, row.id));")],
    },
    Mistake {
        name: "count-a-slot-too-many",
        seed: 25,
        rule: "slots",
        edits: &[edit(SUPPLY, "(capacity + 1).saturating_sub(weight_max)", "(capacity + 2).saturating_sub(weight_max)")],
    },
    Mistake {
        name: "claim-only-what-is-held",
        seed: 303,
        rule: "capacity",
        edits: &[
            edit(BLOCK, "self.most_weight.max(self.held_weight)", "self.held_weight + self.size.saturating_sub(self.held)"),
            edit(BOOK, "self.claimed() - waste", "self.claimed().saturating_sub(waste)"),
        ],
    },
    Mistake {
        name: "preempt-equal-priorities",
        seed: 296,
        rule: "preemption",
        edits: &[
            edit(PREEMPTION, "row.definition.priority < other.definition.priority", "row.definition.priority <= other.definition.priority"),
            edit(PREEMPTION, "Row::first_of_priority(row.definition.priority)", "Row::first_of_priority(row.definition.priority + 1)"),
        ],
    },
    Mistake {
        name: "forget-the-runs-that-are-ending",
        seed: 296,
        rule: "preemption",
        edits: &[edit(PREEMPTION, "free.saturating_add_unsigned(ending as u64)", "free.saturating_sub_unsigned(ending as u64 / u64::MAX)")],
    },
    Mistake {
        name: "preempt-nobody",
        seed: 296,
        rule: "convergence",
        edits: &[edit(PREEMPTION, "pairs.truncate(AT_ONCE)", "pairs.clear()")],
    },
    Mistake {
        name: "admit-nobody-who-waits",
        seed: 0,
        rule: "convergence",
        edits: &[edit(ADMISSION_LOOP, "manager.records.store.waiting_pools().await?", "WaitingPools::default()")],
    },
    Mistake {
        name: "free-a-place-at-the-end-of-a-run",
        seed: 62,
        rule: "limits",
        edits: &[edit(PLACES, "released >= Some(self.observed.acquisitions())", "released <= Some(u32::MAX)")],
    },
    Mistake {
        name: "count-a-place-too-many",
        seed: 14,
        rule: "limits",
        edits: &[edit(LIMITS, "self.max.map_or(0, u64::from)", "self.max.map_or(0, |max| u64::from(max) + 1)")],
    },
    Mistake {
        name: "lose-the-wake-up-of-those-behind-a-limit",
        seed: 14,
        rule: "convergence",
        edits: &[edit(CHANGES_IN_MEMORY, "self.changed_limits.extend(freed(before, row));", "")],
    },
    Mistake {
        name: "let-code-run-on-after-its-finish",
        seed: 9,
        rule: "times",
        edits: &[edit(TIMES, "self.finish(id, at, now, effects);", "let _passed_over = (id, at);")],
    },
    Mistake {
        name: "start-what-arrives-after-its-finish",
        seed: 421,
        rule: "times",
        edits: &[edit(ADMITTING, "ends_at.filter(|at| *at <= self.clock.time(now.mono, now.wall))", "ends_at.filter(|_| false)")],
    },
    Mistake {
        name: "let-managers-wait-for-the-end-of-what-no-service-has",
        seed: 45,
        rule: "times",
        edits: &[edit(DUE, "row.finish_due_at().is_some_and(|at| at <= now)", "false")],
    },
    Mistake {
        name: "let-code-run-on-after-its-window",
        seed: 186,
        rule: "times",
        edits: &[edit(WORK, "[self.finish_at, self.closes_at].into_iter()", "[self.finish_at, self.finish_at].into_iter()")],
    },
    Mistake {
        name: "start-at-once-whatever-the-start",
        seed: 5,
        rule: "times",
        edits: &[edit(CREATING, "row.starts_later(now).is_some()", "false")],
    },
    Mistake {
        name: "use-a-time-of-a-schedule-twice",
        seed: 118,
        rule: "rows read",
        edits: &[edit(
            SCHEDULED,
            "self.executions.as_ref().map_or(self.created_at, |executions| executions.used_until)",
            "self.created_at",
        )],
    },
    Mistake {
        name: "let-the-end-of-an-execution-end-its-observer",
        seed: 6,
        rule: "times",
        edits: &[edit(
            SCHEDULED,
            "self.desired == Desired::Running && self.waiting.is_none() && !self.wants_republish()",
            "false",
        )],
    },
];
