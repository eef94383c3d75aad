//! Makes a failing history small: drops what it does not need, one action after another.

use crate::check::Breach;
use crate::history::History;
use crate::mutations::Bug;
use crate::play::{play, tell};

/// The smallest history found that breaks the same rule.
pub(crate) fn shrink(history: &History, bug: Option<Bug>, breach: &Breach) -> History {
    let mut small = history.clone();
    let still = |candidate: &History| play(candidate, bug).is_err_and(|it| it.rule == breach.rule);
    loop {
        let before = small.actions.len();
        for index in (0..small.actions.len()).rev() {
            let mut candidate = small.clone();
            candidate.actions.remove(index);
            if still(&candidate) {
                small = candidate;
            }
        }
        if small.setup.alone {
            let mut candidate = small.clone();
            candidate.setup.alone = false;
            if still(&candidate) {
                small = candidate;
            }
        }
        if small.actions.len() == before {
            return small;
        }
    }
}

/// A failing history as a person reads it, and the command that plays it again.
pub(crate) fn account(history: &History, breach: &Breach) -> String {
    let small = shrink(history, None, breach);
    let (outcome, story) = tell(&small, None);
    let breach = outcome.err().unwrap_or_else(|| breach.clone());
    let seed = history.setup.seed;
    let replay = format!("EVERWATCH_SIM_SEED={seed} cargo test -p everwatch-tests --test sim -- --nocapture");
    format!(
        "{}\n\n{:#?}\n\nseed {seed} breaks {}: {}\n({} of {} actions are needed; all of it again: {replay})",
        story.join("\n"),
        small.setup,
        breach.rule,
        breach.text,
        small.actions.len(),
        history.actions.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_history_comes_again_and_is_made_small() {
        for bug in
            [Bug::OrphansNotReissued, Bug::NewQueueIgnored, Bug::HoldIgnoredByOrphans, Bug::FloorForgotten]
        {
            let failing = (0..1000).find_map(|seed| {
                let history = History::of(seed);
                play(&history, Some(bug)).err().map(|breach| (history, breach))
            });
            let (history, breach) = failing.unwrap();
            let again = tell(&History::of(history.setup.seed), Some(bug));
            assert_eq!(again.0.as_ref(), Err(&breach));
            assert_eq!(again, tell(&history, Some(bug)), "{bug:?}: word for word");
            let small = shrink(&history, Some(bug), &breach);
            assert!(small.actions.len() < history.actions.len(), "{bug:?}: {:?}", small.actions);
            assert_eq!(play(&small, Some(bug)).unwrap_err().rule, breach.rule);
        }
    }
}
