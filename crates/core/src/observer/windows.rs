//! Windows: the hours of the week in which an observer may run.

use crate::clock::Timestamp;
use crate::observer::time_zone;
use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most openings of one observer.
const OPENINGS_MAX: usize = 32;
/// The most dates without an opening.
const EXCEPTIONS_MAX: usize = 366;
/// A time without a gap that is longer than this many days counts as endless.
const ENDLESS_DAYS: usize = 3660;

const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES_OF_A_DAY: u16 = 24 * 60;

/// The hours of the week in which an observer may run, by the clocks of a time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// A name of the IANA time zone database, for example `America/New_York`.
    pub time_zone: String,
    pub open: Vec<Opening>,
    /// Local dates on which nothing opens, for example `2026-12-25`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub except: Vec<Date>,
}

/// One window: it opens on each of these days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// For example `mon-fri` or `mon,wed,sat`; every day if it is missing.
    #[serde(default)]
    #[schemars(with = "String")]
    pub days: Days,
    /// For example `09:30`.
    #[schemars(with = "String")]
    pub from: TimeOfDay,
    /// For example `16:00`. A time before `from` is one on the next day; `24:00` is the end of the day.
    #[schemars(with = "String")]
    pub to: TimeOfDay,
}

/// Days of the week.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Days([bool; 7]);

/// Minutes since midnight, by the clocks of a time zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

/// A time in which an observer may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// If this is in the past, the window may have opened even earlier.
    pub from: Timestamp,
    /// `None` if it is open for the next ten years.
    pub until: Option<Timestamp>,
}

impl Default for Days {
    fn default() -> Self {
        Self([true; 7])
    }
}

impl Days {
    fn contains(self, day: Weekday) -> bool {
        self.0[usize::from(day.to_monday_zero_offset().unsigned_abs())]
    }
}

fn day(name: &str) -> Result<usize, String> {
    let name = name.trim().to_ascii_lowercase();
    DAY_NAMES.iter().position(|known| *known == name).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        format!("`{name}` is not a day: write {}, ranges (mon-fri) and lists (mon,sat)", DAY_NAMES.join(", "))
    })
}

impl FromStr for Days {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut days = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (mut next, last) = (day(first)?, day(last)?);
            days[next] = true;
            while next != last {
                next = (next + 1) % 7;
                days[next] = true;
            }
        }
        Ok(Self(days))
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let mut next = 0;
        while next < 7 {
            let length = self.0[next..].iter().take_while(|is_open| **is_open).count();
            match length {
                0 => {}
                1 => parts.push(DAY_NAMES[next].to_owned()),
                _ => parts.push(format!("{}-{}", DAY_NAMES[next], DAY_NAMES[next + length - 1])),
            }
            next += length.max(1);
        }
        f.write_str(&parts.join(","))
    }
}

impl FromStr for TimeOfDay {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let minutes = text.split_once(':').and_then(|(hours, minutes)| {
            let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            let two = |text: &str| digits(text).then(|| text.parse::<u16>().ok()).flatten();
            let (hours, minutes) = (two(hours)?, two(minutes)?);
            (minutes < 60).then_some(hours * 60 + minutes).filter(|all| *all <= MINUTES_OF_A_DAY)
        });
        minutes.map(Self).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            format!("`{text}` is not a time of day from 00:00 to 24:00: write two digits for the hours and two for the minutes, as in 09:30")
        })
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl TimeOfDay {
    /// This time on a date, and `24:00` at the start of the next one.
    fn on(self, date: Date) -> Option<DateTime> {
        let (hour, minute) = (i8::try_from(self.0 / 60).ok()?, i8::try_from(self.0 % 60).ok()?);
        if self.0 == MINUTES_OF_A_DAY {
            return Some(date.tomorrow().ok()?.to_datetime(Time::midnight()));
        }
        Some(date.to_datetime(Time::new(hour, minute, 0, 0).ok()?))
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let openings: Vec<String> =
            self.open.iter().map(|Opening { days, from, to }| format!("{days} {from}-{to}")).collect();
        write!(f, "{} in {}", openings.join("; "), self.time_zone)?;
        for (place, date) in self.except.iter().enumerate() {
            write!(f, "{} {date}", if place == 0 { ", except" } else { "," })?;
        }
        Ok(())
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

as_text!(Days);
as_text!(TimeOfDay);

/// Which of two times with the same local time is meant: in autumn, clocks show an hour twice.
#[derive(Clone, Copy)]
enum Repeated {
    First,
    Last,
}

/// The time at which the clocks of the zone show this local time; if they skip it, the time at which they are set forward.
fn instant(zone: &TimeZone, time: DateTime, repeated: Repeated) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    let found = match (ambiguous.offset(), repeated) {
        (AmbiguousOffset::Unambiguous { .. }, _) => ambiguous.compatible(),
        (AmbiguousOffset::Fold { .. }, Repeated::First) => ambiguous.earlier(),
        (AmbiguousOffset::Fold { .. }, Repeated::Last) => ambiguous.later(),
        (AmbiguousOffset::Gap { .. }, _) => {
            let after = ambiguous.later().ok()?.checked_add(1.nanosecond()).ok()?;
            Ok(zone.preceding(after).next()?.timestamp())
        }
    };
    found.ok().map(|it| Timestamp(it.as_millisecond()))
}

impl Windows {
    /// # Errors
    /// The place of each member that is wrong, below the windows, and the rule: an unknown time zone, no opening or too
    /// many, an opening that is empty.
    pub fn check(&self) -> Result<(), Vec<(String, String)>> {
        let mut errors = Vec::new();
        let mut wrong = |pointer: String, rule: String| errors.push((pointer, rule));
        if let Err(rule) = time_zone::check(&self.time_zone) {
            wrong("/time_zone".to_owned(), rule);
        }
        if self.open.is_empty() {
            let rule = "is empty, so the observer would never run: add an opening, or leave windows out";
            wrong("/open".to_owned(), rule.to_owned());
        }
        if self.open.len() > OPENINGS_MAX {
            wrong("/open".to_owned(), format!("at most {OPENINGS_MAX} openings"));
        }
        if self.except.len() > EXCEPTIONS_MAX {
            wrong("/except".to_owned(), format!("at most {EXCEPTIONS_MAX} dates"));
        }
        for (place, Opening { from, to, .. }) in self.open.iter().enumerate() {
            if from == to {
                let rule = format!(
                    "is {to}, as `from` is, so the window is empty: write 00:00 to 24:00 for a whole day"
                );
                wrong(format!("/open/{place}/to"), rule);
            } else if from.0 == MINUTES_OF_A_DAY {
                let rule = "is 24:00, the end of the day: write 00:00 and the next day";
                wrong(format!("/open/{place}/from"), rule.to_owned());
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The time around `now` in which the observer may run, or the next one. Openings without a gap between them count as
    /// one. `None` if no opening is left, or if the time zone is no longer known.
    #[must_use]
    pub fn open_at(&self, now: Timestamp) -> Option<Open> {
        let zone = time_zone::find(&self.time_zone)?;
        let local = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
        let mut found: Option<(Timestamp, Timestamp)> = None;
        let mut date = local.yesterday().ok()?;
        // Each date without an opening may take the only opening of a week.
        let fruitless = (self.except.len() + 2) * 7;
        for days in 0.. {
            let patience = if found.is_some() { ENDLESS_DAYS } else { fruitless };
            if days > patience {
                break;
            }
            for (from, until) in self.on(date, &zone) {
                match &mut found {
                    _ if until <= now => {}
                    None => found = Some((from, until)),
                    Some((_, end)) if from <= *end => *end = until.max(*end),
                    Some((start, end)) => return Some(Open { from: *start, until: Some(*end) }),
                }
            }
            if let Some((start, end)) = found
                && instant(&zone, date.to_datetime(Time::midnight()), Repeated::First)? > end
            {
                return Some(Open { from: start, until: Some(end) });
            }
            date = date.checked_add(1.day()).ok()?;
        }
        found.map(|(from, _)| Open { from, until: None })
    }

    /// The openings that begin on this date, in order.
    fn on(&self, date: Date, zone: &TimeZone) -> Vec<(Timestamp, Timestamp)> {
        if self.except.contains(&date) {
            return Vec::new();
        }
        let opens = self.open.iter().filter(|opening| opening.days.contains(date.weekday()));
        let times = opens.filter_map(|Opening { from, to, .. }| {
            let last = if to < from { date.tomorrow().ok()? } else { date };
            let from = instant(zone, from.on(date)?, Repeated::First)?;
            let until = instant(zone, to.on(last)?, Repeated::Last)?;
            // Both ends of a short opening may be skipped.
            (from < until).then_some((from, until))
        });
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        times
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
