//! How many requests each client may send in a second.

use crate::quota::Client;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A client that was silent may send as many requests at once as it may send in this time.
const BURST: Duration = Duration::from_secs(2);
/// How many clients have a rate of their own. All further clients share one.
const CLIENTS_MAX: usize = 10_000;
/// The shortest time between two removals of idle clients.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Limits the requests of each client.
///
/// For each client, the limiter keeps the time at which its allowance is full again. Each request moves that time
/// forward by `worth`. A request that would move it more than [`BURST`] ahead is refused.
#[derive(Debug)]
pub struct Rate {
    /// How far one request moves the time at which the client's allowance is full again.
    worth: Duration,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    /// When the allowance of each client is full again.
    unused_at: HashMap<Client, Instant>,
    forgot_at: Option<Instant>,
}

impl Rate {
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        Self { worth: Duration::from_secs(1) / per_second.get(), clients: Mutex::default() }
    }

    /// Whether a client may send this request. One that is refused does not count.
    pub fn admits(&self, client: impl Into<Client>, now: Instant) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = clients.known(client.into(), now);
        let unused_at = clients.unused_at.get(&client).copied().map_or(now, |at| at.max(now));
        let ahead = unused_at.duration_since(now) + self.worth;
        let admitted = ahead <= BURST;
        if admitted {
            clients.unused_at.insert(client, unused_at + self.worth);
        }
        admitted
    }
}

impl Clients {
    /// The key under which this client is counted; `Unknown` if it shares the rate of all further clients.
    fn known(&mut self, client: Client, now: Instant) -> Client {
        if self.unused_at.len() < CLIENTS_MAX || self.unused_at.contains_key(&client) {
            return client;
        }
        if self.forgot_at.is_none_or(|at| now.duration_since(at) >= FORGET_EVERY) {
            self.forgot_at = Some(now);
            self.unused_at.retain(|_, unused_at| *unused_at > now);
        }
        if self.unused_at.len() < CLIENTS_MAX { client } else { Client::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn rate(per_second: u32) -> Rate {
        Rate::new(NonZeroU32::new(per_second).unwrap())
    }
    fn client(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_client_may_send_its_rate_and_a_burst_and_no_more() {
        let (rate, now) = (rate(10), Instant::now());
        let admitted = |of: u32, at: Instant| (0..100).filter(|_| rate.admits(client(of), at)).count();
        assert_eq!(admitted(1, now), 20);
        assert_eq!(admitted(2, now), 20, "another client has a rate of its own");
        assert_eq!(admitted(1, now + Duration::from_millis(100)), 1);
        assert_eq!(admitted(1, now + Duration::from_millis(199)), 0);
        assert_eq!(admitted(1, now + Duration::from_secs(60)), 20, "silence earns no more than a burst");
    }

    #[test]
    fn clients_beyond_the_most_share_one_rate_until_others_are_silent() {
        let (rate, now) = (rate(1), Instant::now());
        let most = u32::try_from(CLIENTS_MAX).unwrap();
        assert!((0..most + 2).all(|number| rate.admits(client(number), now)));
        assert!(!rate.admits(client(most + 2), now));
        let known = || rate.clients.lock().unwrap().unused_at.len();
        assert_eq!(known(), CLIENTS_MAX + 1);
        assert!(rate.admits(client(most + 2), now + Duration::from_secs(5)));
        assert_eq!(known(), 1);
    }
}
