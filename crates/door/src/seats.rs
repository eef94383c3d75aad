//! A limited resource that clients hold for a while: all of them together, and each of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// How many may be held at once, by all clients together and by each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    pub of_all: usize,
    pub of_one: usize,
}

/// What clients currently hold.
#[derive(Debug)]
pub struct Seats {
    most: Most,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    in_all: usize,
    /// Clients that hold no seat are not in it, so it never has more entries than there are seats.
    by: HashMap<Option<IpAddr>, usize>,
}

/// One unit of the resource, held until it is dropped.
#[derive(Debug)]
pub struct Seat {
    of: Arc<Seats>,
    client: Option<IpAddr>,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All clients together hold as many as they may.
    All,
    /// This client holds as many as one client may.
    One,
}

impl Seats {
    #[must_use]
    pub fn new(most: Most) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// A seat for a client. All addresses of a 64-bit IPv6 network count as one client, because one machine
    /// can choose freely among them. `None` is a client without an address.
    ///
    /// # Errors
    /// Whose limit is reached.
    pub fn take(self: &Arc<Self>, client: Option<IpAddr>) -> Result<Seat, Full> {
        let client = client.map(network);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.in_all >= self.most.of_all {
            return Err(Full::All);
        }
        let of_one = held.by.get(&client).copied().unwrap_or_default();
        if of_one >= self.most.of_one {
            return Err(Full::One);
        }
        held.in_all += 1;
        held.by.insert(client, of_one + 1);
        drop(held);
        Ok(Seat { of: Arc::clone(self), client })
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).in_all
    }
}

impl Drop for Seat {
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
        let seats = Seats::new(Most { of_all: 3, of_one: 2 });
        let first = seats.take(of("10.0.0.1")).unwrap();
        let _second = seats.take(of("10.0.0.1")).unwrap();
        assert_eq!(seats.take(of("10.0.0.1")).unwrap_err(), Full::One);
        let _other = seats.take(of("10.0.0.2")).unwrap();
        assert_eq!(seats.take(of("10.0.0.3")).unwrap_err(), Full::All);
        drop(first);
        let _again = seats.take(of("10.0.0.1")).unwrap();
        assert_eq!(seats.held(), 3);
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let seats = Seats::new(Most { of_all: 9, of_one: 1 });
        let _v6 = seats.take(of("2001:db8::1")).unwrap();
        assert_eq!(seats.take(of("2001:db8::2")).unwrap_err(), Full::One);
        let _elsewhere = seats.take(of("2001:db8:0:1::2")).unwrap();
        let _v4 = seats.take(of("10.0.0.1")).unwrap();
        assert_eq!(seats.take(of("::ffff:10.0.0.1")).unwrap_err(), Full::One);
        let _none = seats.take(None).unwrap();
        assert_eq!(seats.take(None).unwrap_err(), Full::One);
    }

    #[test]
    fn nothing_is_remembered_of_those_who_have_left() {
        let seats = Seats::new(Most { of_all: 2, of_one: 2 });
        for last in 0..=255 {
            drop(seats.take(of(&format!("10.0.0.{last}"))).unwrap());
        }
        assert_eq!((seats.held(), seats.held.lock().unwrap().by.len()), (0, 0));
    }
}
