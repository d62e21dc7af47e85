//! The two address families, as experiments see them.
use artery_lpm::Prefix;
use artery_lpm::synthetic::{FULL_FEED_V4, FULL_FEED_V6, Shape};

/// An address family to measure.
pub trait Family: Shape {
    /// The version of IP: 4 or 6.
    const NUMBER: u8;
    /// Routes of the synthetic full table.
    const FULL_FEED: usize;
    /// Bits of prefixes that have a great part of the table below them.
    const BUSY: &'static [u8];

    /// Where uniform traffic goes.
    fn unicast() -> Prefix<Self>;
    /// The address as bytes, in network order for IPv6 and in the machine's for IPv4: as DPDK takes them.
    fn raw(self) -> Vec<u8>;
}

impl Family for u32 {
    const NUMBER: u8 = 4;
    const FULL_FEED: usize = FULL_FEED_V4;
    const BUSY: &'static [u8] = &[8, 1];

    fn unicast() -> Prefix<u32> {
        Prefix::ALL
    }
    fn raw(self) -> Vec<u8> {
        self.to_ne_bytes().to_vec()
    }
}

impl Family for u128 {
    const NUMBER: u8 = 6;
    const FULL_FEED: usize = FULL_FEED_V6;
    const BUSY: &'static [u8] = &[20, 12, 3];

    fn unicast() -> Prefix<u128> {
        Prefix::of(1 << 125, 3)
    }
    fn raw(self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }
}
