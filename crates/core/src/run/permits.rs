//! What waits for permits in one service: when it asks managers, and what a grant may still be used for.
//!
//! A service asks for everything that waits, once a second at most, and has one request at a time: while a request is
//! unanswered, a second one for the same acquires could be granted, too, and its permits would be lost.

use crate::capacity::rate::GRANT_VALID;
use crate::id::{RateKey, ServiceId};
use crate::wire::permits::{ASKS_MAX, PermitAnswers, PermitAsk, PermitRequest};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The shortest time from one request to the next.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long after its request was sent a grant is used. It is a little less than the buckets assume: databases count whole
/// milliseconds, and the clocks of two machines do not run equally fast.
pub const USED_WITHIN: Duration = GRANT_VALID.saturating_sub(Duration::from_millis(10));

/// The permits of one acquire, by rate.
pub type Permits = BTreeMap<RateKey, u32>;

/// The acquires of one service that wait, in order.
#[derive(Debug)]
pub struct PermitQueue {
    service: ServiceId,
    waiting: VecDeque<Waiting>,
    acquires: u64,
    turns: u64,
    requests: u64,
    /// The request that is unanswered: its number, and when it was sent.
    asked: Option<(u64, Duration)>,
    asks_from: Duration,
}

#[derive(Debug)]
struct Waiting {
    acquire: Acquire,
    permits: Permits,
    /// From its first request on.
    turn: Option<u64>,
}

/// Identifies an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acquire(pub u64);

/// What a manager has decided about one acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// Granted, for use until this time.
    Until(Duration),
    /// It can never be granted: why.
    Refused(String),
}

impl PermitQueue {
    #[must_use]
    pub fn new(service: ServiceId) -> Self {
        let (waiting, asks_from) = (VecDeque::new(), Duration::ZERO);
        Self { service, waiting, acquires: 0, turns: 0, requests: 0, asked: None, asks_from }
    }

    /// Code waits for these permits.
    pub fn acquire(&mut self, permits: Permits) -> Acquire {
        self.acquires += 1;
        let acquire = Acquire(self.acquires);
        self.waiting.push_back(Waiting { acquire, permits, turn: None });
        acquire
    }

    /// The code of this acquire no longer waits.
    pub fn give_up(&mut self, acquire: Acquire) {
        self.waiting.retain(|it| it.acquire != acquire);
    }

    /// When the next request is due; `None` if nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let unanswered = self.asked.map_or(Duration::ZERO, |(_, sent_at)| sent_at + USED_WITHIN);
        (!self.waiting.is_empty()).then(|| self.asks_from.max(unanswered))
    }

    /// The request that is due now, which counts as sent.
    pub fn request(&mut self, now: Duration) -> Option<PermitRequest> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let mut asks: Vec<PermitAsk> = Vec::new();
        let asked_before = self.turns;
        for it in &mut self.waiting {
            let joins = |ask: &&mut PermitAsk| match it.turn {
                Some(turn) => ask.turn == turn,
                None => ask.turn > asked_before && ask.permits == it.permits,
            };
            let is_full = asks.len() == ASKS_MAX;
            match asks.last_mut().filter(joins) {
                Some(ask) => {
                    ask.count = ask.count.saturating_add(1);
                    it.turn = Some(ask.turn);
                }
                None if is_full => break,
                None => {
                    let turn = it.turn.unwrap_or_else(|| {
                        self.turns += 1;
                        self.turns
                    });
                    it.turn = Some(turn);
                    asks.push(PermitAsk { turn, permits: it.permits.clone(), count: 1 });
                }
            }
        }
        self.requests += 1;
        self.asked = Some((self.requests, now));
        self.asks_from = now + ASK_EVERY;
        Some(PermitRequest { service: self.service, number: self.requests, asks })
    }

    /// A manager has answered. An answer that comes twice, or too late, counts for nothing.
    pub fn on_answers(&mut self, answers: &PermitAnswers, now: Duration) -> Vec<(Acquire, Decided)> {
        let Some((number, sent_at)) = self.asked.filter(|(number, _)| *number == answers.request) else {
            return Vec::new();
        };
        debug_assert_eq!(number, self.requests, "only the newest request is unanswered");
        self.asked = None;
        let until = sent_at + USED_WITHIN;
        let mut decided = Vec::new();
        for it in answers.granted.iter().filter(|_| now < until) {
            for _ in 0..it.count {
                let Some(acquire) = self.take_first(it.turn) else { break };
                decided.push((acquire, Decided::Until(until)));
            }
        }
        for it in &answers.refused {
            while let Some(acquire) = self.take_first(it.turn) {
                decided.push((acquire, Decided::Refused(it.error.clone())));
            }
        }
        decided
    }

    fn take_first(&mut self, turn: u64) -> Option<Acquire> {
        let at = self.waiting.iter().position(|it| it.turn == Some(turn))?;
        self.waiting.remove(at).map(|it| it.acquire)
    }
}

#[cfg(test)]
#[path = "permits_tests.rs"]
mod tests;
