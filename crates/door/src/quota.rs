//! Limits a resource that clients hold for a while, for all clients together and for each client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// How many may be held at once, by all clients together and by each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub total: usize,
    pub per_client: usize,
}

/// What clients currently hold.
#[derive(Debug)]
pub struct Quota {
    limit: Limit,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    in_all: usize,
    /// Clients that hold no permit are not in it, so it never has more entries than there are permits.
    by: HashMap<Client, usize>,
}

/// Whom a limit counts as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    /// All addresses of a 64-bit IPv6 network count as one client, because one machine can choose freely among them.
    Network(IpAddr),
    /// An authenticated user, wherever its requests come from.
    Principal(String),
    /// Without an address.
    Unknown,
}

impl From<Option<IpAddr>> for Client {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unknown, |address| Self::Network(network(address)))
    }
}

/// One unit of the resource, held until it is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Quota>,
    client: Client,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// All clients together hold as many as they may.
    Total,
    /// This client holds as many as one client may.
    PerClient,
}

impl Quota {
    #[must_use]
    pub fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::default() })
    }

    /// A permit for a client.
    ///
    /// # Errors
    /// Whose limit is reached.
    pub fn acquire(self: &Arc<Self>, client: impl Into<Client>) -> Result<Permit, Exceeded> {
        let client = client.into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.in_all >= self.limit.total {
            return Err(Exceeded::Total);
        }
        let per_client = held.by.get(&client).copied().unwrap_or_default();
        if per_client >= self.limit.per_client {
            return Err(Exceeded::PerClient);
        }
        held.in_all += 1;
        held.by.insert(client.clone(), per_client + 1);
        drop(held);
        Ok(Permit { of: Arc::clone(self), client })
    }

    /// The number of permits that are currently held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).in_all
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.in_all -= 1;
        if let Some(count) = held.by.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                held.by.remove(&self.client);
            }
        }
    }
}

/// The network that counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn one_client_leaves_seats_to_others() {
        let quota = Quota::new(Limit { total: 3, per_client: 2 });
        let first = quota.acquire(of("10.0.0.1")).unwrap();
        let _second = quota.acquire(of("10.0.0.1")).unwrap();
        assert_eq!(quota.acquire(of("10.0.0.1")).unwrap_err(), Exceeded::PerClient);
        let _other = quota.acquire(of("10.0.0.2")).unwrap();
        assert_eq!(quota.acquire(of("10.0.0.3")).unwrap_err(), Exceeded::Total);
        drop(first);
        let _again = quota.acquire(of("10.0.0.1")).unwrap();
        assert_eq!(quota.held(), 3);
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let quota = Quota::new(Limit { total: 9, per_client: 1 });
        let _v6 = quota.acquire(of("2001:db8::1")).unwrap();
        assert_eq!(quota.acquire(of("2001:db8::2")).unwrap_err(), Exceeded::PerClient);
        let _elsewhere = quota.acquire(of("2001:db8:0:1::2")).unwrap();
        let _v4 = quota.acquire(of("10.0.0.1")).unwrap();
        assert_eq!(quota.acquire(of("::ffff:10.0.0.1")).unwrap_err(), Exceeded::PerClient);
        let _none = quota.acquire(None).unwrap();
        assert_eq!(quota.acquire(None).unwrap_err(), Exceeded::PerClient);
        let user = |name: &str| Client::Principal(name.to_owned());
        let _user = quota.acquire(user("anna")).unwrap();
        assert_eq!(quota.acquire(user("anna")).unwrap_err(), Exceeded::PerClient);
        let _other = quota.acquire(user("10.0.0.1")).unwrap();
    }

    #[test]
    fn nothing_is_remembered_of_those_who_have_left() {
        let quota = Quota::new(Limit { total: 2, per_client: 2 });
        for last in 0..=255 {
            drop(quota.acquire(of(&format!("10.0.0.{last}"))).unwrap());
        }
        assert_eq!((quota.held(), quota.held.lock().unwrap().by.len()), (0, 0));
    }
}
