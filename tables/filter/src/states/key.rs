//! The key of a state, and its hash.
use crate::dissect::address_from_u128;
use crate::facts::{Direction, Family};
use crate::states::NarrowKey;
use artery_wire::IpProtocol;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Both ends of a connection as they are seen at an interface: first the end beyond the interface, then that
/// on this side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Addresses; of IPv4 in the lowest 32 bits.
    pub addresses: [u128; 2],
    /// Ports of both ends, in the order of the addresses.
    pub ports: [u16; 2],
    /// The protocol number of IP.
    pub protocol: IpProtocol,
    /// The family of the addresses.
    pub family: Family,
}

impl Key {
    /// The part that an entry keeps beside what changes: all of it for IPv4, enough for a
    /// first look for IPv6.
    #[inline(always)]
    pub(super) fn narrow_key(&self) -> NarrowKey {
        let addresses = match self.family {
            Family::Inet => self.addresses.map(|address| address as u32),
            Family::Inet6 => self.addresses.map(|address| address as u32 ^ (address >> 64) as u32),
        };
        NarrowKey::from_ends(addresses, self.ports)
    }

    /// The key of IPv4 with this narrow part.
    pub(crate) fn of_narrow(narrow: NarrowKey, protocol: IpProtocol) -> Key {
        let (addresses, ports) = narrow.to_ends();
        Key { addresses: addresses.map(u128::from), ports, protocol, family: Family::Inet }
    }

    /// An end's address: 0 is that beyond the interface.
    pub fn address(&self, end: usize) -> IpAddr {
        address_from_u128(self.addresses[end], self.family)
    }

    /// Source and destination, address and port, of a packet with this key that goes this way.
    #[inline]
    pub(crate) fn packet_ends(&self, direction: Direction) -> ([u128; 2], [u16; 2]) {
        let ([a, b], [p, q]) = (self.addresses, self.ports);
        match direction {
            Direction::In => ([a, b], [p, q]),
            Direction::Out => ([b, a], [q, p]),
        }
    }
}

/// Secret words on which hashes depend.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 4]);

impl Secret {
    /// Words that the system chose.
    pub(crate) fn random() -> Secret {
        Secret([0_u8, 1, 2, 3].map(|word| RandomState::new().hash_one(word) | 1))
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let [a, b] = key.addresses;
        if key.family == Family::Inet {
            return self.hash_narrow(key.narrow_key(), key.protocol.0);
        }
        let ports = u64::from(key.ports[0]) << 48 | u64::from(key.ports[1]) << 32 | u64::from(key.protocol.0);
        let halves = [a as u64, (a >> 64) as u64, b as u64, (b >> 64) as u64, ports];
        let keys = [self.0[0], self.0[1], self.0[0], self.0[1], self.0[0]];
        let state =
            halves.iter().zip(keys).fold(self.0[3], |state, (half, key)| fold_product(state ^ half, key));
        fold_product(state ^ self.0[2].rotate_left(32), self.0[3])
    }

    /// The hash of a key of IPv4, by its narrow part.
    #[inline(always)]
    pub(crate) fn hash_narrow(&self, narrow: NarrowKey, protocol: u8) -> u64 {
        let (addresses, ports) = narrow.to_words();
        let rest = u64::from(ports) << 32 | u64::from(protocol);
        fold_product(fold_product(self.0[2] ^ addresses, self.0[1] ^ rest) ^ self.0[0], self.0[3])
    }
}

/// Both halves of a product, one over the other.
#[inline(always)]
fn fold_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
