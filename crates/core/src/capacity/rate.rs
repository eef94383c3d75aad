//! Rates: how many permits of a key all services together may use, as a token bucket with a line of those that wait.
//!
//! A service uses a grant at most [`GRANT_VALID`] after it sent its request. In a window of length w, permits of grants
//! from `GRANT_VALID` before the window may be used, so at most (bucket) + (w + `GRANT_VALID`) × rate. This is
//! burst + w × rate if the bucket holds `GRANT_VALID` × rate less than the burst.

use crate::clock::{Timestamp, friendly, parse_duration, show};
use crate::id::{RateKey, ServiceId};
use crate::observer::definition::FieldError;
use crate::wire::permits::{
    ASKS_MAX, PermitAnswers, PermitAsk, PermitRequest, PermitsGranted, PermitsRefused, RATES_MAX,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How long after its request was sent a grant may be used.
pub const GRANT_VALID: Duration = Duration::from_secs(2);
/// How long an unmet request keeps its turn after it was last asked for. Services ask once a second.
pub const TURN_KEPT: Duration = Duration::from_secs(3);
/// The most turns in the line of a key; further requests get no turn until the line is shorter.
pub const LINE_MAX: usize = 1000;
const PERMITS_MAX: u32 = 1_000_000;
const BURST_MAX: u32 = 10_000_000;
const PER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);

/// A rate: in any window of length w, all services together use at most `burst` + w × `permits` / `per` permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub permits: u32,
    #[serde(with = "friendly")]
    pub per: Duration,
    pub burst: u32,
}

impl Rate {
    /// # Errors
    /// Each member that is wrong, with the reason and the limit.
    pub fn parse(body: Value) -> Result<Self, Vec<FieldError>> {
        let Value::Object(mut members) = body else {
            return Err(vec![wrong("", "must be a JSON object".to_owned())]);
        };
        let mut errors = Vec::new();
        let permits = number(&mut members, ("permits", 1..=PERMITS_MAX), &mut errors);
        let per = per(&mut members, &mut errors);
        let burst = number(&mut members, ("burst", 1..=BURST_MAX), &mut errors);
        for member in members.keys() {
            let member: String = member.chars().take(100).collect();
            let detail = "is unknown: a rate has the fields permits, per and burst";
            errors.push(wrong(&member, detail.to_owned()));
        }
        let (Some(permits), Some(per), Some(burst)) = (permits, per, burst) else { return Err(errors) };
        let rate = Self { permits, per, burst };
        let least = rate.least_burst();
        if u64::from(burst) < least {
            let of_rate = least - 1;
            let detail =
                format!("must be at least {least} = {} of the rate ({of_rate}) + 1", show(GRANT_VALID));
            errors.push(wrong("burst", detail));
        }
        if errors.is_empty() { Ok(rate) } else { Err(errors) }
    }

    /// The most permits that one request can get at once: what the bucket holds.
    #[must_use]
    pub fn bucket(&self) -> u32 {
        u32::try_from(self.size() / self.unit()).unwrap_or(u32::MAX)
    }

    fn least_burst(&self) -> u64 {
        self.refilled(GRANT_VALID).div_ceil(self.unit()) + 1
    }
    /// One permit, in the unit in which a bucket counts: the part of a permit that a rate of one per `per` refills in 1 ms.
    /// Thus every refill is a whole number, and no part of it is lost.
    fn unit(&self) -> u64 {
        millis(self.per).max(1)
    }
    fn refilled(&self, time: Duration) -> u64 {
        millis(time).saturating_mul(self.permits.into())
    }
    fn size(&self) -> u64 {
        u64::from(self.burst).saturating_mul(self.unit()).saturating_sub(self.refilled(GRANT_VALID))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn wrong(member: &str, detail: String) -> FieldError {
    let pointer = if member.is_empty() { String::new() } else { format!("/{member}") };
    FieldError { pointer, detail }
}

fn number(
    members: &mut Map<String, Value>,
    (member, range): (&str, RangeInclusive<u32>),
    errors: &mut Vec<FieldError>,
) -> Option<u32> {
    let value = members.remove(member).unwrap_or_default();
    let number = value.as_u64().and_then(|it| u32::try_from(it).ok()).filter(|it| range.contains(it));
    if number.is_none() {
        let (from, to) = range.into_inner();
        errors.push(wrong(member, format!("is {value}: write a whole number from {from} to {to}")));
    }
    number
}

fn per(members: &mut Map<String, Value>, errors: &mut Vec<FieldError>) -> Option<Duration> {
    let value = members.remove("per").unwrap_or_default();
    let per = value.as_str().and_then(|text| parse_duration(text).ok()).filter(|it| PER.contains(it));
    if per.is_none() {
        let (from, to) = (show(*PER.start()), show(*PER.end()));
        errors
            .push(wrong("per", format!("is {value}: write a duration from {from} to {to}, such as \"1m\"")));
    }
    per
}

/// What a key has left, and who waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// In units of [`Rate::unit`].
    level: u64,
    /// When the level was counted, by the database's clock.
    at: Timestamp,
    /// First come, first served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    line: Vec<Turn>,
}

/// The place in line of acquires that a service asks for together, for one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    service: ServiceId,
    turn: u64,
    cost: u32,
    count: u32,
    asked_at: Timestamp,
}

impl Turn {
    fn is_of(&self, service: ServiceId, ask: &PermitAsk) -> bool {
        self.service == service && self.turn == ask.turn
    }
    fn permits(&self) -> u64 {
        u64::from(self.cost) * u64::from(self.count)
    }
}

impl Bucket {
    /// The bucket of a new rate.
    #[must_use]
    pub fn full(rate: &Rate, now: Timestamp) -> Self {
        Self { level: rate.size(), at: now, line: Vec::new() }
    }
    /// The bucket of a rate whose latest grants are unknown, because the database was restored from a backup.
    #[must_use]
    pub fn empty(now: Timestamp) -> Self {
        Self { level: 0, at: now, line: Vec::new() }
    }

    /// Brings the level and the line up to this time.
    ///
    /// A clock that is set back refills nothing for the time before: the level then counts from the earlier time on. If it
    /// counted from the later one, a clock that was an hour fast would stop the rate for an hour.
    fn refill(&mut self, rate: &Rate, now: Timestamp) {
        if now < self.at {
            self.line.iter_mut().for_each(|turn| turn.asked_at = turn.asked_at.min(now));
        }
        let refilled = rate.refilled(now.since(self.at));
        self.level = self.level.saturating_add(refilled).min(rate.size());
        self.at = now;
        self.line.retain(|turn| now.since(turn.asked_at) < TURN_KEPT);
    }

    /// The rate of this bucket is changed: what is left stays, as far as the new bucket can hold it.
    pub fn change(&mut self, from: &Rate, to: &Rate, now: Timestamp) {
        self.refill(from, now);
        let level = u128::from(self.level) * u128::from(to.unit()) / u128::from(from.unit());
        self.level = u64::try_from(level).unwrap_or(u64::MAX).min(to.size());
    }

    /// The number of permits that the bucket holds at `now`.
    #[must_use]
    pub fn available(&self, rate: &Rate, now: Timestamp) -> u32 {
        let mut bucket = self.clone();
        bucket.refill(rate, now);
        u32::try_from(bucket.level / rate.unit()).unwrap_or(u32::MAX)
    }

    /// The permits for which services wait at this time.
    #[must_use]
    pub fn waiting(&self, now: Timestamp) -> u64 {
        let waiting = self.line.iter().filter(|turn| now.since(turn.asked_at) < TURN_KEPT);
        waiting.map(Turn::permits).sum()
    }

    /// The number of acquires of this ask that the bucket can grant. The asks ahead of it in the line keep their permits:
    /// a later ask therefore delays no earlier one, however many permits the earlier one needs.
    fn grantable(&self, rate: &Rate, (service, ask): (ServiceId, &PermitAsk), cost: u32) -> u64 {
        let ahead = self.line.iter().take_while(|turn| !turn.is_of(service, ask));
        let ahead: u64 = ahead.map(Turn::permits).sum();
        let free = self.level.saturating_sub(ahead.saturating_mul(rate.unit()));
        free / (u64::from(cost).saturating_mul(rate.unit()).max(1))
    }

    fn take(&mut self, rate: &Rate, (service, ask): (ServiceId, &PermitAsk), (cost, count): (u32, u32)) {
        let permits = u64::from(cost) * u64::from(count);
        self.level = self.level.saturating_sub(permits.saturating_mul(rate.unit()));
        for turn in self.line.iter_mut().filter(|turn| turn.is_of(service, ask)) {
            turn.count = turn.count.saturating_sub(count);
        }
        self.line.retain(|turn| turn.count > 0);
    }
}

/// A rate with its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRow {
    pub key: RateKey,
    pub rate: Rate,
    pub bucket: Bucket,
}

impl RateRow {
    /// A new rate, with a full bucket.
    #[must_use]
    pub fn new(key: RateKey, rate: Rate, now: Timestamp) -> Self {
        Self { key, rate, bucket: Bucket::full(&rate, now) }
    }
    /// The same key with another rate.
    #[must_use]
    pub fn changed(mut self, rate: Rate, now: Timestamp) -> Self {
        self.bucket.change(&self.rate, &rate, now);
        Self { rate, ..self }
    }
}

/// Grants the acquires of one service for which the buckets hold permits, and keeps turns for the others. `rows` are the
/// rates of the keys that the request names; a key without a rate is missing.
pub fn grant(rows: &mut [RateRow], request: &PermitRequest, now: Timestamp) -> PermitAnswers {
    let service = request.service;
    let mut rows: BTreeMap<RateKey, &mut RateRow> =
        rows.iter_mut().map(|row| (row.key.clone(), row)).collect();
    for row in rows.values_mut() {
        row.bucket.refill(&row.rate, now);
        // A request names everything that its service waits for: it has given up the other turns.
        let is_asked = |turn: &Turn| request.asks.iter().any(|ask| turn.is_of(service, ask));
        row.bucket.line.retain(|turn| turn.service != service || is_asked(turn));
    }
    let mut answers = PermitAnswers::new(service, request.number);
    for ask in request.asks.iter().take(ASKS_MAX) {
        if let Some(error) = refusal(&rows, ask) {
            answers.refused.push(PermitsRefused { turn: ask.turn, error });
        } else if queue(&mut rows, (service, ask), now) {
            let count = granted(&mut rows, (service, ask));
            if count > 0 {
                answers.granted.push(PermitsGranted { turn: ask.turn, count });
            }
        }
    }
    answers
}

/// Why this ask can never be granted.
fn refusal(rows: &BTreeMap<RateKey, &mut RateRow>, ask: &PermitAsk) -> Option<String> {
    if ask.permits.is_empty() {
        return Some("no rate is named".to_owned());
    }
    if ask.permits.len() > RATES_MAX {
        return Some(format!("permits of {} rates: at most {RATES_MAX} at once", ask.permits.len()));
    }
    ask.permits.iter().find_map(|(key, cost)| {
        let Some(row) = rows.get(key) else {
            return Some(format!("there is no rate `{key}`: create it with `everwatch rate set {key} --permits N --per TIME --burst N`"));
        };
        let most = row.rate.bucket();
        let burst = row.rate.burst;
        match cost {
            0 => Some(format!("0 permits of rate `{key}`: acquire at least 1")),
            cost if *cost > most => Some(format!(
                "{cost} permits of rate `{key}`: at most {most} at once, its burst of {burst} less {} of the rate",
                show(GRANT_VALID)
            )),
            _ => None,
        }
    })
}

/// Gives this ask a turn in the line of each of its keys, or renews it; `false` if a line is full.
///
/// An ask that has lost one of its turns goes to the end of all its lines. Any two asks therefore have the same order in
/// every line that both are in, and cannot wait for each other.
fn queue(
    rows: &mut BTreeMap<RateKey, &mut RateRow>,
    (service, ask): (ServiceId, &PermitAsk),
    now: Timestamp,
) -> bool {
    let mut has_all = true;
    for (key, cost) in &ask.permits {
        let turns = rows.get_mut(key).into_iter().flat_map(|row| row.bucket.line.iter_mut());
        let turn = turns.into_iter().find(|turn| turn.is_of(service, ask) && turn.cost == *cost);
        match turn {
            Some(turn) => (turn.count, turn.asked_at) = (ask.count.max(1), now),
            None => has_all = false,
        }
    }
    if has_all {
        return true;
    }
    for key in ask.permits.keys() {
        if let Some(row) = rows.get_mut(key) {
            row.bucket.line.retain(|turn| !turn.is_of(service, ask));
        }
    }
    let has_room = |key: &RateKey| rows.get(key).is_some_and(|row| row.bucket.line.len() < LINE_MAX);
    if !ask.permits.keys().all(has_room) {
        return false;
    }
    for (key, cost) in &ask.permits {
        if let Some(row) = rows.get_mut(key) {
            let (turn, cost, count) = (ask.turn, *cost, ask.count.max(1));
            row.bucket.line.push(Turn { service, turn, cost, count, asked_at: now });
        }
    }
    true
}

/// Takes the permits of as many acquires as all keys have room for.
fn granted(rows: &mut BTreeMap<RateKey, &mut RateRow>, (service, ask): (ServiceId, &PermitAsk)) -> u32 {
    let of_key = |(key, cost): (&RateKey, &u32)| {
        rows.get(key).map_or(0, |row| row.bucket.grantable(&row.rate, (service, ask), *cost))
    };
    let most = ask.permits.iter().map(of_key).min().unwrap_or(0);
    let count = u32::try_from(most).unwrap_or(u32::MAX).min(ask.count.max(1));
    if count > 0 {
        for (key, cost) in &ask.permits {
            if let Some(row) = rows.get_mut(key) {
                row.bucket.take(&row.rate, (service, ask), (*cost, count));
            }
        }
    }
    count
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
