//! Deliberate bugs: each must be found within the budget of an ordinary test run.

use crate::history::History;
use crate::play::play;

/// One thing done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    ReissuedAsItWas,
    LeaseRepublishedAsItWas,
    AckBeforeConfirm,
    FloorIgnored,
    FloorForgotten,
    SettlementIgnored,
    SettlementOverwritten,
    StaleReportApplied,
    LeftoversUnanswered,
    EpochsCompareOrEqual,
    FenceLate,
    FenceCancelsNothing,
    OlderAckedForNewer,
    OverCapacity,
    OverlapForbidIgnored,
    AcquisitionsIgnored,
    CreatedDeletedAtOnce,
    RetryCountsHandovers,
    UnsureTakenForConfirmed,
    LostBySilence,
    ReportsAckedBeforeCommit,
    OrphansNotReissued,
    OrphansNotEnded,
    NewQueueIgnored,
    HoldIgnoredByOrphans,
    HoldIgnoredBySuspects,
    HoldIgnoredByQuarantine,
    NeverQuarantined,
    LostSessionsAreDeaths,
    ResumedAsItWas,
    UpdateEndsNothing,
    CancelledBlocksForgotten,
    HandsOverWhileTaking,
    SurplusKept,
    OlderTermsWin,
    DrainTakesOn,
    LimitsNeverEnd,
    HandOverCounts,
    OrdersForgottenAtRebirth,
    OrdersOverwritten,
}

const ALL: [Bug; 40] = [
    Bug::ReissuedAsItWas,
    Bug::LeaseRepublishedAsItWas,
    Bug::AckBeforeConfirm,
    Bug::FloorIgnored,
    Bug::FloorForgotten,
    Bug::SettlementIgnored,
    Bug::SettlementOverwritten,
    Bug::StaleReportApplied,
    Bug::LeftoversUnanswered,
    Bug::EpochsCompareOrEqual,
    Bug::FenceLate,
    Bug::FenceCancelsNothing,
    Bug::OlderAckedForNewer,
    Bug::OverCapacity,
    Bug::OverlapForbidIgnored,
    Bug::AcquisitionsIgnored,
    Bug::CreatedDeletedAtOnce,
    Bug::RetryCountsHandovers,
    Bug::UnsureTakenForConfirmed,
    Bug::LostBySilence,
    Bug::ReportsAckedBeforeCommit,
    Bug::OrphansNotReissued,
    Bug::OrphansNotEnded,
    Bug::NewQueueIgnored,
    Bug::HoldIgnoredByOrphans,
    Bug::HoldIgnoredBySuspects,
    Bug::HoldIgnoredByQuarantine,
    Bug::NeverQuarantined,
    Bug::LostSessionsAreDeaths,
    Bug::ResumedAsItWas,
    Bug::UpdateEndsNothing,
    Bug::CancelledBlocksForgotten,
    Bug::HandsOverWhileTaking,
    Bug::SurplusKept,
    Bug::OlderTermsWin,
    Bug::DrainTakesOn,
    Bug::LimitsNeverEnd,
    Bug::HandOverCounts,
    Bug::OrdersForgottenAtRebirth,
    Bug::OrdersOverwritten,
];

/// Histories in which each bug must show.
const BUDGET: u64 = 2000;

#[test]
fn every_deliberate_bug_is_found() {
    let mut survivors = Vec::new();
    for bug in ALL {
        let found =
            (0..BUDGET).find_map(|seed| play(&History::of(seed), Some(bug)).err().map(|it| (seed, it)));
        match found {
            Some((seed, breach)) => println!("{bug:?}: seed {seed}, {}: {}", breach.rule, breach.text),
            None => survivors.push(bug),
        }
    }
    assert!(survivors.is_empty(), "not found in {BUDGET} histories: {survivors:?}");
}
