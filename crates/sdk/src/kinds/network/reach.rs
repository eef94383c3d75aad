//! Classifies addresses: public, not public, or those at which clouds serve credentials.
//!
//! The networks are those of IANA's registries of special addresses (RFC 6890 and its updates). `IpAddr::is_global` of the
//! standard library is unstable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// From the least to the most sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Routed on the internet.
    Public,
    /// Loopback, private, shared, documentation, multicast or reserved.
    Private,
    /// Link-local, or one of the addresses at which clouds serve the credentials of a machine.
    Credentials,
}

/// Networks whose addresses are not public, with the lengths of their prefixes.
const V4: [([u8; 4], u32); 14] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// Link-local; Azure; Alibaba Cloud.
const CREDENTIALS_V4: [([u8; 4], u32); 3] =
    [([169, 254, 0, 0], 16), ([168, 63, 129, 16], 32), ([100, 100, 100, 200], 32)];

/// All public addresses are in this network, except the translated ones.
const GLOBAL_V6: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
/// Networks in it whose addresses are not public.
const V6: [([u16; 8], u32); 3] = [
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];
/// Link-local; Amazon's metadata and pod identity; Google Cloud.
const CREDENTIALS_V6: [([u16; 8], u32); 4] = [
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
];
/// Prefixes that are followed by an IPv4 address: 6to4 and NAT64.
const SIX_TO_FOUR: ([u16; 8], u32) = ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
const TRANSLATED: ([u16; 8], u32) = ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
/// Translation within one network. The addresses are not public, whatever they contain.
const TRANSLATED_LOCALLY: [([u16; 8], u32); 2] =
    [([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96)];

pub(super) fn reach(address: IpAddr) -> Reach {
    match address.to_canonical() {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let is_in = |(network, length): ([u8; 4], u32)| {
        (address.to_bits() ^ Ipv4Addr::from(network).to_bits()) >> (32 - length) == 0
    };
    match () {
        () if CREDENTIALS_V4.into_iter().any(is_in) => Reach::Credentials,
        () if V4.into_iter().any(is_in) => Reach::Private,
        () => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let bits = address.to_bits();
    let is_in = |(network, length): ([u16; 8], u32)| {
        (bits ^ Ipv6Addr::from(network).to_bits()) >> (128 - length) == 0
    };
    let embedded = |shift: u32| reach_v4(Ipv4Addr::from_bits((bits >> shift & u128::from(u32::MAX)) as u32));
    match () {
        () if CREDENTIALS_V6.into_iter().any(is_in) => Reach::Credentials,
        () if is_in(TRANSLATED) => embedded(0),
        () if TRANSLATED_LOCALLY.into_iter().any(is_in) => embedded(0).max(Reach::Private),
        () if is_in(SIX_TO_FOUR) => embedded(80),
        () if !is_in(GLOBAL_V6) || V6.into_iter().any(is_in) => Reach::Private,
        () => Reach::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_addresses_of_each_network_belong_to_it() {
        let of = |text: &str| reach(text.parse().unwrap());
        let belong = |pairs: &[&str], expected: Reach| {
            for pair in pairs {
                let (first, last) = pair.split_once(' ').unwrap();
                assert_eq!((of(first), of(last)), (expected, expected), "{pair}");
            }
        };
        let pairs = [
            "0.0.0.0 0.255.255.255",
            "10.0.0.0 10.255.255.255",
            "100.64.0.0 100.127.255.255",
            "100.100.100.199 100.100.100.201",
            "127.0.0.0 127.255.255.255",
            "172.16.0.0 172.31.255.255",
            "192.0.0.0 192.0.0.255",
            "192.0.2.0 192.0.2.255",
            "192.168.0.0 192.168.255.255",
            "198.18.0.0 198.19.255.255",
            "203.0.113.0 203.0.113.255",
            "224.0.0.0 255.255.255.255",
            ":: ::1",
            "2001:: 2001:1ff:ffff::",
            "2001:db8:: 2001:db8:ffff::",
            "3fff:: 3fff:fff::",
            "fc00:: fdff:ffff::",
            "ff00:: ffff::",
            "64:ff9b::10.0.0.0 64:ff9b::127.0.0.1",
            "2002:7f00:1:: 2002:a00::1",
            "::ffff:127.0.0.1 ::ffff:192.168.1.1",
            "64:ff9b:1::808:808 ::ffff:0:808:808",
            "fd00:ec2::253 fd20:ce::255",
        ];
        belong(&pairs, Reach::Private);
        let pairs = [
            "169.254.0.0 169.254.255.255",
            "fe80:: febf:ffff::",
            "64:ff9b::169.254.169.254 2002:a9fe:a9fe::",
            "168.63.129.16 100.100.100.200",
            "fd00:ec2::254 fd00:ec2::23",
            "fd20:ce::254 ::ffff:168.63.129.16",
            "64:ff9b:1::a9fe:a9fe ::ffff:0:a9fe:a9fe",
        ];
        belong(&pairs, Reach::Credentials);
        for public in [
            "1.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::",
            "2001:db7:ffff::",
            "2606:4700::1111",
            "3ffe::",
            "64:ff9b::8.8.8.8",
            "2002:808:808::",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(of(public), Reach::Public, "{public}");
        }
    }
}
