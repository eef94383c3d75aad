//! The next step of a rollout: a function of the rollout, its members and their rows. A manager saves the whole step in one
//! transaction, or nothing of it if another manager has taken a step in the meantime.

use crate::clock::Timestamp;
use crate::observer::definition::ObserverDefinition;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::rollout::judge::{Judgement, Watch, executes, is_to_run, judge, left_alone};
use crate::rollout::{Member, MemberState, OnFailure, Rollout, RolloutState};

/// A member, and what a manager has read about its observer.
#[derive(Debug, Clone)]
pub struct Seen {
    pub member: Member,
    pub row: Option<Row>,
    pub holder_lives: bool,
    /// The definition of the recorded version, if the step is to restore it.
    pub former: Option<ObserverDefinition>,
}

/// A member before and after a step, and the change of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberStep {
    pub before: Member,
    pub after: Member,
    /// The row before and after the change. The member changes only if the row does.
    pub row: Option<(Row, Row)>,
}

/// A step to be saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub rollout: Rollout,
    pub members: Vec<MemberStep>,
}

/// What a step decides with.
pub struct Checks<'a> {
    pub now: Timestamp,
    pub policy: &'a RowPolicy,
    /// Whether the services can run a definition; the error says why not.
    pub kinds: &'a (dyn Fn(&ObserverDefinition) -> Result<(), String> + Sync),
    /// Whether its namespace may use the pool of a definition; the error says why not.
    pub pools: &'a (dyn Fn(&ObserverDefinition) -> Result<(), String> + Sync),
}

/// Decides the next step. While the rollout runs, `seen` has the members that are changed or failed, and the next pending
/// ones; while it is being reverted, those that are being reverted, changed or failed, and the next ones that are
/// done. All in order of their places. `None`: nothing to save.
#[must_use]
pub fn step(rollout: &Rollout, seen: &[Seen], checks: &Checks<'_>) -> Option<Step> {
    let mut plan = Plan { rollout: rollout.clone(), members: Vec::new(), in_progress: 0, checks };
    match rollout.state {
        RolloutState::Running => plan.run(seen),
        RolloutState::Reverting => plan.revert(seen),
        RolloutState::Paused | RolloutState::Completed | RolloutState::Reverted | RolloutState::Cancelled => {
        }
    }
    let Plan { rollout: next, members, .. } = plan;
    let changes = !members.is_empty() || next.state != rollout.state;
    changes.then_some(Step { rollout: Rollout { modified_at: checks.now, ..next }, members })
}

/// The result of a try to change a member.
enum Tried {
    /// It is changed, or left alone.
    Over,
    /// Enough others are in progress.
    NoRoom,
    /// Its patched definition is not valid.
    Invalid(String),
}

struct Plan<'a> {
    rollout: Rollout,
    members: Vec<MemberStep>,
    /// Members that are changed and not yet healthy, or that are being reverted.
    in_progress: u32,
    checks: &'a Checks<'a>,
}

impl Plan<'_> {
    fn run(&mut self, seen: &[Seen]) {
        if self.judge_changed(seen) {
            return;
        }
        let is_next = |it: &&Seen| {
            let Member { state, changed_to, .. } = &it.member;
            *state == MemberState::Pending || *state == MemberState::Failed && changed_to.is_none()
        };
        let mut is_over = self.in_progress == 0;
        for it in seen.iter().filter(is_next) {
            is_over = false;
            match self.change(it) {
                Tried::Over => {}
                Tried::NoRoom => break,
                Tried::Invalid(why) => {
                    self.push(it, it.member.turned(MemberState::Failed, Some(why.clone())), None);
                    return self.fail(&it.member, &why);
                }
            }
        }
        if is_over {
            self.rollout.turn(RolloutState::Completed, None, self.checks.now);
        }
    }

    /// Judges the changed members, and tries again those that had failed before the rollout was resumed. Returns whether a
    /// member has failed now.
    fn judge_changed(&mut self, seen: &[Seen]) -> bool {
        let (mut failed, mut timed_out) = (None, None);
        for it in seen {
            let judged = match (it.member.state, it.member.changed_to) {
                (MemberState::Changed, _) => {
                    judge(&self.rollout, &it.member, (it.row.as_ref(), it.holder_lives), self.checks.now)
                }
                (MemberState::Failed, Some(changed_to)) => self.judge_again(it, changed_to),
                _ => continue,
            };
            let after = match judged {
                Judgement::Waits(watch) => {
                    self.in_progress += 1;
                    let member = it.member.turned(MemberState::Changed, None);
                    Member { watch: Some(watch), ..member }
                }
                Judgement::Done(reason) => it.member.turned(MemberState::Done, reason),
                Judgement::Skipped(why) => it.member.turned(MemberState::Skipped, Some(why)),
                Judgement::Failed(why) => {
                    failed.get_or_insert((it, why.clone()));
                    it.member.turned(MemberState::Failed, Some(why))
                }
                Judgement::TimedOut(why) => {
                    timed_out.get_or_insert((it, why.clone()));
                    it.member.turned(MemberState::Failed, Some(why))
                }
            };
            if after != it.member {
                self.push(it, after, None);
            }
        }
        match (&failed, &timed_out) {
            (Some((it, why)), _) => self.fail(&it.member, why),
            // Slow is not wrong: a user decides.
            (None, Some((it, why))) => self.stop(RolloutState::Paused, &it.member, why),
            (None, None) => return false,
        }
        true
    }

    fn judge_again(&self, it: &Seen, changed_to: u32) -> Judgement {
        match (left_alone(it.row.as_ref(), changed_to), &it.row) {
            (Some(why), _) => Judgement::Skipped(why),
            (None, Some(row)) => Judgement::Waits(Watch::of(row, self.checks.now)),
            (None, None) => Judgement::Skipped("it was deleted".to_owned()),
        }
    }

    fn fail(&mut self, member: &Member, why: &str) {
        let state = match self.rollout.on_failure {
            OnFailure::Pause => RolloutState::Paused,
            OnFailure::Revert => RolloutState::Reverting,
        };
        self.stop(state, member, why);
    }

    fn stop(&mut self, state: RolloutState, member: &Member, why: &str) {
        let reason = format!("observer {}: {why}", member.name);
        self.rollout.turn(state, Some(reason), self.checks.now);
    }

    fn push(&mut self, it: &Seen, after: Member, row: Option<(Row, Row)>) {
        self.members.push(MemberStep { before: it.member.clone(), after, row });
    }

    fn skip(&mut self, it: &Seen, why: String) -> Tried {
        self.push(it, it.member.turned(MemberState::Skipped, Some(why)), None);
        Tried::Over
    }

    /// Applies the patch to a member.
    fn change(&mut self, it: &Seen) -> Tried {
        if let Some(why) = left_alone(it.row.as_ref(), it.member.version) {
            return self.skip(it, why);
        }
        let Some(row) = &it.row else { return Tried::Over };
        if is_to_run(row) && self.in_progress >= self.rollout.max_parallel {
            return Tried::NoRoom;
        }
        let patched = match self.patched(&row.definition) {
            Ok(patched) => patched,
            Err(why) => return Tried::Invalid(why),
        };
        if patched == *row.definition {
            return self.skip(it, "the patch changes nothing".to_owned());
        }
        self.redefine(it, row, patched, (MemberState::Changed, MemberState::Done))
    }

    fn patched(&self, before: &ObserverDefinition) -> Result<ObserverDefinition, String> {
        let first = |errors: Vec<_>| errors.first().map_or_else(String::new, ToString::to_string);
        let patched = before.patched(&self.rollout.patch).map_err(first)?;
        patched.check_limits(before).map_err(|error| error.to_string())?;
        if patched.pool != before.pool {
            (self.checks.pools)(&patched)?;
        }
        if !patched.runs_like(before) {
            (self.checks.kinds)(&patched)?;
        }
        if patched.is_timed_unlike(before) {
            patched.check_at(self.checks.now).map_err(|error| error.to_string())?;
        }
        Ok(patched)
    }

    /// Changes the definition of a member. It has the first state if it is meant to run, otherwise the second.
    fn redefine(
        &mut self,
        it: &Seen,
        row: &Row,
        definition: ObserverDefinition,
        (in_progress, over): (MemberState, MemberState),
    ) -> Tried {
        let mut after = row.clone();
        if !matches!(after.update(definition, self.checks.now, self.checks.policy), Ok(true)) {
            return self.skip(it, "it was deleted".to_owned());
        }
        after.revised_by(row, Some(self.rollout.actor()));
        let member = if is_to_run(row) {
            self.in_progress += 1;
            let watch = Some(Watch::of(&after, self.checks.now));
            Member { watch, ..it.member.turned(in_progress, it.member.failure()) }
        } else {
            let status = row.verdict().status;
            it.member.turned(over, Some(format!("it did not run when it was changed: {status}")))
        };
        let changed_to = match in_progress {
            MemberState::Changed => Some(after.revision().number),
            _ => member.changed_to,
        };
        self.push(it, Member { changed_to, ..member }, Some((row.clone(), after)));
        Tried::Over
    }

    fn revert(&mut self, seen: &[Seen]) {
        for it in seen.iter().filter(|it| it.member.state == MemberState::Reverting) {
            if self.is_back(it) {
                self.push(it, it.member.turned(MemberState::Reverted, it.member.reason.clone()), None);
            } else {
                self.in_progress += 1;
            }
        }
        let mut is_over = self.in_progress == 0;
        // Unhealthy members are reverted first: they are in progress already.
        let (done, others): (Vec<&Seen>, Vec<&Seen>) = seen
            .iter()
            .filter(|it| it.member.is_changed())
            .partition(|it| it.member.state == MemberState::Done);
        for it in others.into_iter().chain(done) {
            is_over = false;
            if let Tried::NoRoom = self.restore(it) {
                break;
            }
        }
        if is_over {
            let reason = self.rollout.reason.clone();
            self.rollout.turn(RolloutState::Reverted, reason, self.checks.now);
        }
    }

    /// Whether a member that is being reverted makes room for the next one. It need not be healthy, and a failure stops
    /// nothing: the sooner the former definitions are back, the better.
    fn is_back(&self, it: &Seen) -> bool {
        let (Some(row), Some(watch)) = (&it.row, &it.member.watch) else { return true };
        let runs = executes(row, it.holder_lives, self.checks.now);
        runs.is_some_and(|runs| runs.generation >= watch.generation)
            || !row.awaits_end() && !is_to_run(row)
            || self.checks.now.since(watch.since) >= self.rollout.healthy_for
    }

    /// Restores the recorded version of a member. Whether services can run it is not checked: it is what was there before.
    fn restore(&mut self, it: &Seen) -> Tried {
        let changed_to = it.member.changed_to.unwrap_or(it.member.version);
        if let Some(why) = left_alone(it.row.as_ref(), changed_to) {
            return self.skip(it, why);
        }
        let Some(row) = &it.row else { return Tried::Over };
        let needs_room = it.member.state == MemberState::Done && is_to_run(row);
        if needs_room && self.in_progress >= self.rollout.max_parallel {
            return Tried::NoRoom;
        }
        let Some(former) = it.former.clone() else {
            return self.skip(it, format!("its version {} is not kept any more", it.member.version));
        };
        self.redefine(it, row, former, (MemberState::Reverting, MemberState::Reverted))
    }
}
