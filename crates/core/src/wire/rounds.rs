//! How much of a queue a manager reads at a time, if the broker delivers a few messages and keeps the others until these
//! are acknowledged. One round is what arrives within a short time.

/// What follows a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRound {
    /// More messages wait, or may arrive.
    TakeAnother,
    /// The queue is empty: apply what was taken.
    Apply,
    /// Apply what was taken, and take more without a pause: there are many messages, or the broker is so far away that
    /// it has not delivered the next ones yet.
    ApplyAndGoOn,
}

/// The rounds of one batch.
#[derive(Debug)]
pub struct Rounds {
    prefetch: usize,
    most: usize,
    /// Messages in all rounds.
    count: usize,
    /// Messages in the previous round.
    before: usize,
    /// Whether no message came after the last full round.
    is_full_last: bool,
}

impl Rounds {
    /// The broker delivers `prefetch` messages at a time; a batch ends with the round that exceeds `most` messages.
    #[must_use]
    pub fn new(prefetch: u16, most: usize) -> Self {
        let prefetch = usize::from(prefetch);
        Self { prefetch, most, count: 0, before: prefetch, is_full_last: false }
    }

    /// A round had this many messages.
    pub fn after(&mut self, taken: usize) -> AfterRound {
        self.count += taken;
        self.is_full_last = taken == self.prefetch || (taken == 0 && self.is_full_last);
        // A round from a queue with waiting messages is full, unless the broker delivers slowly. Between them, only the
        // messages that services send just now arrive.
        let is_drained = std::mem::replace(&mut self.before, taken) + taken < self.prefetch / 2;
        match (is_drained, self.is_full_last) {
            (true, true) => AfterRound::ApplyAndGoOn,
            (true, false) => AfterRound::Apply,
            (false, _) if self.count >= self.most => AfterRound::ApplyAndGoOn,
            (false, _) => AfterRound::TakeAnother,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows each round, as letters.
    fn read(rounds: &[usize]) -> String {
        let mut it = Rounds::new(50, 1000);
        let letter = |taken: &usize| match it.after(*taken) {
            AfterRound::TakeAnother => 't',
            AfterRound::Apply => 'a',
            AfterRound::ApplyAndGoOn => 'g',
        };
        rounds.iter().map(letter).collect()
    }

    #[test]
    fn a_batch_ends_when_the_queue_is_empty() {
        assert_eq!(read(&[1, 0]), "ta", "one service");
        assert_eq!(read(&[50, 50, 50, 40, 12, 12]), "ttttta", "many services, near");
        assert_eq!(read(&[50, 20, 50, 30, 5, 4]), "ttttta", "slow deliveries");
    }

    #[test]
    fn a_far_broker_is_read_without_a_pause() {
        assert_eq!(read(&[50, 0, 0]), "ttg", "the next messages are still on their way");
        assert_eq!(read(&[50, 3, 0]), "tta", "there were only few");
    }

    #[test]
    fn a_batch_has_a_limit() {
        assert_eq!(read(&[50; 20]), "t".repeat(19) + "g");
    }
}
