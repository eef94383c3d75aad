//! The database's clock as a service knows it: managers announce its time, and the service counts on by its monotonic
//! clock.
//!
//! The obvious clock is that of the machine. But two machines differ by seconds or, when one of them is set wrong, by
//! hours, and an observer that moves between them would end early or not at all.

use crate::clock::Timestamp;
use std::time::Duration;

/// An announcement that has waited in a queue makes the clock slow, and a drifting monotonic clock makes it fast. So the
/// clock follows an earlier time slowly: by 1 ms for each second since the last announcement, one part in this many.
const FOLLOWS_BACK: u32 = 1000;

/// The database's time at the service's monotonic time zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseClock {
    announced: Option<Announced>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Announced {
    zero: Timestamp,
    at: Duration,
}

impl DatabaseClock {
    /// The clock of a session that begins now, at monotonic time zero, if an earlier session knew the time.
    #[must_use]
    pub fn beginning_at(time: Timestamp) -> Self {
        Self { announced: Some(Announced { zero: time, at: Duration::ZERO }) }
    }

    /// The time that managers have announced, counted on until now; `None` if none has.
    #[must_use]
    pub fn announced(&self, now: Duration) -> Option<Timestamp> {
        self.announced.map(|it| it.zero.plus(now))
    }

    /// A manager has announced the time.
    pub fn announce(&mut self, time: Timestamp, now: Duration) {
        let zero = time.minus(now);
        let zero = match self.announced {
            Some(known) if zero < known.zero => {
                zero.max(known.zero.minus(now.saturating_sub(known.at) / FOLLOWS_BACK))
            }
            Some(_) | None => zero,
        };
        self.announced = Some(Announced { zero, at: now });
    }

    /// The time; before the first announcement, that of the service's wall clock.
    #[must_use]
    pub fn time(&self, now: Duration, wall: Timestamp) -> Timestamp {
        self.announced(now).unwrap_or(wall)
    }

    /// How long it takes until that moment.
    #[must_use]
    pub fn until(&self, moment: Timestamp, now: Duration, wall: Timestamp) -> Duration {
        moment.since(self.time(now, wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Timestamp = Timestamp(7);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_wall_clock_counts_until_a_manager_announces_the_time() {
        let mut clock = DatabaseClock::default();
        assert_eq!(clock.time(secs(5), WALL), WALL);
        clock.announce(Timestamp(1_000_000), secs(5));
        assert_eq!(clock.time(secs(5), WALL), Timestamp(1_000_000));
        assert_eq!(clock.time(secs(8), WALL), Timestamp(1_003_000));
        assert_eq!(clock.until(Timestamp(1_010_000), secs(8), WALL), secs(7));
        assert_eq!(clock.until(Timestamp(1_000_000), secs(8), WALL), Duration::ZERO);
        let next_session = DatabaseClock::beginning_at(clock.announced(secs(8)).unwrap());
        assert_eq!(next_session.time(secs(1), WALL), Timestamp(1_004_000));
    }

    #[test]
    fn a_later_time_counts_at_once_and_an_earlier_one_slowly() {
        let mut clock = DatabaseClock::default();
        clock.announce(Timestamp(0), secs(0));
        clock.announce(Timestamp(62_000), secs(60));
        assert_eq!(clock.time(secs(60), WALL), Timestamp(62_000), "it was two seconds slow");
        // This one waited for half a minute, for example because the process was frozen.
        clock.announce(Timestamp(92_000), secs(120));
        assert_eq!(clock.time(secs(120), WALL), Timestamp(122_000 - 60));
        // The clock of the database was set back by 20 ms.
        clock.announce(Timestamp(122_000 - 60 + 60_000 - 20), secs(180));
        assert_eq!(clock.time(secs(180), WALL), Timestamp(122_000 - 60 + 60_000 - 20));
    }
}
