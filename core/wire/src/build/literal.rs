//! Addresses as they may be written.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::EtherAddr;

/// What may be written where an address is wanted.
pub trait Literal<A> {
    /// Converts to the address; panics on text that is not one.
    fn address(self) -> A;
}

macro_rules! literals {
    ($($address:ty: $octets:ty),*) => {$(
        impl Literal<$address> for $address {
            fn address(self) -> $address {
                self
            }
        }
        impl Literal<$address> for $octets {
            fn address(self) -> $address {
                self.into()
            }
        }
        impl Literal<$address> for &str {
            fn address(self) -> $address {
                self.parse().unwrap_or_else(|_| panic!("{self:?} is not a {}", stringify!($address)))
            }
        }
    )*};
}

literals!(Ipv4Addr: [u8; 4], Ipv6Addr: [u8; 16], EtherAddr: [u8; 6]);
