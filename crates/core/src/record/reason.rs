//! Why an observer has its status and health: a sentence for users and a code for programs. Codes are stable;
//! sentences are not.

use crate::clock::{Timestamp, show};
use crate::record::health::{CUT_SHORT_WITHIN, Health, standing, steady_after, steady_after_an_error};
use crate::record::pool_obstacle::{Obstacle, obstacle};
use crate::record::row::Row;
use crate::record::service::ServiceRow;
use crate::record::status::{Reason, Status};
use crate::wire::hold_reasons;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Why an observer has its status and health, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum ReasonCode {
            $($(#[$doc])* $name,)*
        }

        impl ReasonCode {
            /// Every code, in the order of an observer's life cycle.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as text.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }
    };
}

codes! {
    /// Waits for its `start_at`.
    Scheduled = "scheduled",
    /// Its message is on its way into the queue.
    PublishPending = "publish-pending",
    /// Waits for a slot, and a service of its pool has a free one.
    WaitingForSlot = "waiting-for-slot",
    /// Waits for a place of a limit.
    LimitReached = "limit-reached",
    /// Waits until the message of its last run is gone: it counts towards a limit.
    ReleasePending = "release-pending",
    /// Waits for a slot or moves; no service serves its pool.
    NoServiceInPool = "no-service-in-pool",
    /// Waits for a slot or moves; the services of its pool are cordoned, draining or silent.
    NoActiveService = "no-active-service",
    /// Waits for a slot or moves; all slots of its pool are in use.
    PoolIsFull = "pool-is-full",
    /// A service holds it and starts it when its turn comes.
    StartRate = "start-rate",
    /// A service took it from another one and is about to start it.
    Redelivered = "redelivered",
    /// A service holds it for a reason that this version does not know.
    Held = "held",
    /// The services that took it cannot run it.
    Refused = "refused",
    /// No active service of its pool that runs its kind has a free slot: a manager withdraws its message.
    Withdrawing = "withdrawing",
    /// The same, and its message is withdrawn until one has.
    NoServiceForKind = "no-service-for-kind",
    /// Its code was started and has not announced that it is ready.
    NotReady = "not-ready",
    /// Its code failed; it waits for its next attempt.
    BackingOff = "backing-off",
    /// Its code executes and failed recently.
    RecentlyFailed = "recently-failed",
    /// Services died while they ran it: suspected observers start one at a time.
    CrashLooping = "crash-looping",
    /// Its service handed it over.
    HandedOver = "handed-over",
    /// Its service is gone.
    ServiceLost = "service-lost",
    /// Its service no longer holds it and has not reported why.
    Unlisted = "unlisted",
    /// It was told to stop so that its next generation can start.
    RestartRequested = "restart-requested",
    /// It was told to stop because it is paused.
    Pausing = "pausing",
    /// It was told to stop because it is deleted.
    Deleting = "deleting",
    /// It ended at its `finish_at`.
    FinishAt = "finish-at",
    /// Its retry policy ran out, or its code gave up.
    GaveUp = "gave-up",
    /// It waited for a slot longer than its `start_within`.
    NotStarted = "not-started",
    /// No service could run it for too long.
    RefusedTooLong = "refused-too-long",
    /// It ended too many services.
    Quarantined = "quarantined",
}

impl FromStr for ReasonCode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(", ");
            format!("`{text}` is not a reason code: one of {words}")
        })
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Obstacle {
    /// For programs.
    #[must_use]
    pub fn code(self) -> ReasonCode {
        match self {
            Self::NoService => ReasonCode::NoServiceInPool,
            Self::NoneTakes => ReasonCode::NoActiveService,
            Self::Full { .. } => ReasonCode::PoolIsFull,
        }
    }
}

impl Reason {
    /// For programs; `None` if there is nothing to add.
    #[must_use]
    pub fn code(&self) -> Option<ReasonCode> {
        Some(match self {
            Self::None => return None,
            Self::StartsAt { .. } => ReasonCode::Scheduled,
            Self::FinishedAt { .. } => ReasonCode::FinishAt,
            Self::ToBePublished => ReasonCode::PublishPending,
            Self::WaitingForSlot { .. } => ReasonCode::WaitingForSlot,
            Self::WaitingForLimit { .. } => ReasonCode::LimitReached,
            Self::WaitingForRelease => ReasonCode::ReleasePending,
            Self::Held { why, refuses } => held(why, *refuses),
            Self::NotReady => ReasonCode::NotReady,
            Self::Restarting { .. } => ReasonCode::BackingOff,
            Self::Unlisted => ReasonCode::Unlisted,
            Self::Moving => ReasonCode::HandedOver,
            Self::Refused { .. } => ReasonCode::Refused,
            Self::NoServiceForKind { is_out: false, .. } => ReasonCode::Withdrawing,
            Self::NoServiceForKind { is_out: true, .. } => ReasonCode::NoServiceForKind,
            Self::Ending => ReasonCode::Deleting,
            Self::StartingAnew { .. } => ReasonCode::RestartRequested,
            Self::Pausing => ReasonCode::Pausing,
            Self::GaveUp { .. } => ReasonCode::GaveUp,
            Self::NotStarted { .. } => ReasonCode::NotStarted,
            Self::RefusedTooLong { .. } => ReasonCode::RefusedTooLong,
            Self::Quarantined { .. } => ReasonCode::Quarantined,
        })
    }
}

fn held(why: &str, refuses: bool) -> ReasonCode {
    match why {
        _ if refuses => ReasonCode::Refused,
        hold_reasons::START_RATE => ReasonCode::StartRate,
        hold_reasons::SUSPECTED => ReasonCode::CrashLooping,
        hold_reasons::ENDING => ReasonCode::RestartRequested,
        why if hold_reasons::is_redelivery(why) => ReasonCode::Redelivered,
        _ => ReasonCode::Held,
    }
}

/// The status and health of an observer at one moment, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub status: Status,
    /// `None` if it is not meant to run.
    pub health: Option<Health>,
    /// `None` exactly if there is nothing to add.
    pub code: Option<ReasonCode>,
    /// Empty if there is nothing to add.
    pub reason: String,
}

/// The code that follows from a row alone: it holds while its holder lives, its pool has room, and code that failed
/// recently has not run for long.
#[must_use]
pub fn stored_code(row: &Row) -> Option<ReasonCode> {
    code_of(row, standing(row).map(|said| said.health))
}

/// After an error, an observer whose code starts has the same code as one whose code executes. Otherwise, a crash loop would
/// change its code within milliseconds, when its program announces that it is ready.
fn code_of(row: &Row, health: Option<Health>) -> Option<ReasonCode> {
    match row.verdict().reason.code() {
        None | Some(ReasonCode::NotReady) if health == Some(Health::Restarting) => Some(failing(row)),
        code => code,
    }
}

/// Why code that was started does not count as running.
fn failing(row: &Row) -> ReasonCode {
    match steady_after_an_error(row) {
        Some(_) => ReasonCode::RecentlyFailed,
        None => ReasonCode::CrashLooping,
    }
}

/// The code of a row at one moment. The filters of the stores follow the same rule in SQL.
#[must_use]
pub fn code_at(row: &Row, held: bool, obstacle: Option<Obstacle>, now: Timestamp) -> Option<ReasonCode> {
    let said = standing(row);
    let health = said.map(|said| said.at(held, now));
    let needs_holder = said.is_some_and(|said| matches!(said.health, Health::Running | Health::Restarting));
    let lost = needs_holder && health == Some(Health::Waiting);
    let code = if lost { Some(ReasonCode::ServiceLost) } else { code_of(row, health) };
    let waits = lost || row.verdict().reason.is_queued();
    obstacle.filter(|_| waits).map(Obstacle::code).or(code)
}

/// Explains a row. `held` says whether its holder lives; `services` are the services that live.
#[must_use]
pub fn explain(row: &Row, held: bool, services: &[ServiceRow], now: Timestamp) -> Explanation {
    let verdict = row.verdict();
    let health = standing(row).map(|said| said.at(held, now));
    let obstacle = obstacle(&row.definition.pool, services);
    let code = code_at(row, held, obstacle, now);
    let own = code_at(row, held, None, now);
    let mut reason = match own {
        Some(ReasonCode::ServiceLost) => "its service is gone: it waits for the next one".to_owned(),
        Some(ReasonCode::RecentlyFailed) => failed_lately(row),
        Some(ReasonCode::CrashLooping) if !matches!(verdict.reason, Reason::Held { .. }) => crashed_lately(),
        // It is published, and nothing keeps the broker from delivering it.
        Some(ReasonCode::WaitingForSlot)
            if row.waiting.is_none() && row.preempted.is_none() && row.definition.weight == 1 =>
        {
            format!("about to start: pool {} has a free slot", row.definition.pool)
        }
        _ => verdict.reason.to_string(),
    };
    if let Some(obstacle) = obstacle.filter(|it| code == Some(it.code())) {
        let why = obstacle.explain(&row.definition.pool);
        // The obstacle says for what it waits.
        let so_far = match own {
            Some(ReasonCode::ServiceLost) => "its service is gone",
            Some(ReasonCode::HandedOver) => "handed over",
            _ => &reason,
        };
        reason = match &row.preempted {
            _ if row.observed.begun && row.waiting.is_none() => format!("{so_far}; {why}"),
            Some(preempted) => format!("{why}; {preempted}"),
            None => why,
        };
    }
    Explanation { status: verdict.status, health, code, reason }
}

fn crashed_lately() -> String {
    let within = show(CUT_SHORT_WITHIN);
    format!(
        "its last runs lost their service or the broker within {within} of their start; it counts as running after {within}"
    )
}

fn failed_lately(row: &Row) -> String {
    let after = show(steady_after(row));
    match row.restarts() {
        0 => format!("failed before its last move; it counts as running after {after} without an error"),
        1 => {
            format!("started again after an error; it counts as running after {after} without another error")
        }
        times => {
            format!(
                "started again after {times} errors; it counts as running after {after} without another error"
            )
        }
    }
}

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
