//! Neighbor discovery for IPv6 on Ethernet (RFC 4861, RFC 2464): its five messages, whether they may be
//! believed, and frames that send them.
//!
//! A view reads or writes one message from its ICMPv6 header on. [`NdMessage`] is what came by a packet that
//! passed all checks. What to do about a message is not here.

mod check;
mod frames;
mod option;

pub use crate::LinkEndpoint;
pub use check::{NdFault, NdMessage};
pub use frames::{
    AdvertisementFlags, neighbor_advertisement, neighbor_solicitation, redirect, router_solicitation,
    unsolicited_advertisement,
};
pub use option::{NdOption, NdOptions, PrefixInformation};

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::bytes::{at_least, clear_header, u16_at, u32_at};
use crate::fields::fields;
use crate::{EtherAddr, Icmp6Type, Malformed};

/// All nodes of a link (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of a link (RFC 4291 section 2.7.1).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The hop limit of every message: no router has forwarded it (RFC 4861 section 3.1).
pub const HOP_LIMIT: u8 = 255;

/// Returns the multicast address to which solicitations for `address` are sent (RFC 4291 section 2.7.1).
#[inline]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | address.to_bits() & 0xff_ffff)
}

/// Says whether an address is one of those that [`solicited_node`] returns.
#[inline]
pub const fn is_solicited_node(address: Ipv6Addr) -> bool {
    solicited_node(address).to_bits() == address.to_bits()
}

const TYPE: usize = 0;
const FLAGS: usize = 4;
const TARGET: usize = 8;

/// Places within a router advertisement.
const CURRENT_HOP_LIMIT: usize = 4;
const ROUTER_FLAGS: usize = 5;
const LIFETIME: usize = 6;
const REACHABLE: usize = 8;
const RETRANSMIT: usize = 12;

const IS_ROUTER: u8 = 0x80;
const IS_SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;
const IS_MANAGED: u8 = 0x80;
const HAS_OTHER: u8 = 0x40;

macro_rules! message {
    ($(#[$doc:meta])* $name:ident, $icmp_type:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<T: AsRef<[u8]>>(T);

        impl<T: AsRef<[u8]>> $name<T> {
            /// Length of the message without options.
            pub const LEN: usize = $len;

            /// Takes bytes for a message from its ICMPv6 header on if they are of its type and
            /// hold its fixed part.
            #[inline]
            pub fn new(bytes: T) -> Result<Self, Malformed> {
                check_message(bytes.as_ref(), Icmp6Type::$icmp_type, Self::LEN)?;
                Ok($name(bytes))
            }

            /// Returns the options, to be read one after the other.
            #[inline]
            pub fn options(&self) -> NdOptions<'_> {
                NdOptions::new(&self.0.as_ref()[Self::LEN..])
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            /// Makes a message of the first bytes: the type is set, all else is zero.
            #[inline]
            pub fn init(mut bytes: T) -> Result<Self, Malformed> {
                clear_header(bytes.as_mut(), Self::LEN)?[TYPE] = Icmp6Type::$icmp_type.0;
                Ok($name(bytes))
            }
        }
    };
}

fn check_message(bytes: &[u8], icmp_type: Icmp6Type, len: usize) -> Result<(), Malformed> {
    at_least(bytes, len)?;
    if bytes[TYPE] == icmp_type.0 { Ok(()) } else { Err(Malformed::Protocol) }
}

message! {
    /// A neighbor solicitation: which host has the target?
    NeighborSolicitation, NEIGHBOR_SOLICITATION, 24
}

message! {
    /// A neighbor advertisement: the target is here.
    NeighborAdvertisement, NEIGHBOR_ADVERTISEMENT, 24
}

message! {
    /// A router solicitation: which routers are on the link?
    RouterSolicitation, ROUTER_SOLICITATION, 8
}

message! {
    /// A router advertisement: I route, and this holds for the link.
    RouterAdvertisement, ROUTER_ADVERTISEMENT, 16
}

message! {
    /// A redirect: the destination is better reached by the target.
    Redirect, REDIRECT, 40
}

fields! {
    NeighborSolicitation {
        target / set_target: Ipv6Addr = TARGET, "the address whose owner is asked for";
    }
}

impl<T: AsRef<[u8]>> NeighborSolicitation<T> {
    /// Returns the sender's link address, if the option is there.
    #[inline]
    pub fn source_link(&self) -> Option<EtherAddr> {
        self.options().source_link()
    }
}

fields! {
    NeighborAdvertisement {
        target / set_target: Ipv6Addr = TARGET, "the address that is advertised";
    }
}

impl<T: AsRef<[u8]>> NeighborAdvertisement<T> {
    /// Says whether the owner is a router (R).
    #[inline]
    pub fn is_router(&self) -> bool {
        self.flag(IS_ROUTER)
    }

    /// Says whether this answers a solicitation (S), so that the neighbor can be reached.
    #[inline]
    pub fn is_solicited(&self) -> bool {
        self.flag(IS_SOLICITED)
    }

    /// Says whether another link address known for the target gives way to this one (O).
    #[inline]
    pub fn overrides(&self) -> bool {
        self.flag(OVERRIDES)
    }

    /// Returns the target's link address, if the option is there.
    #[inline]
    pub fn target_link(&self) -> Option<EtherAddr> {
        self.options().target_link()
    }

    #[inline]
    fn flag(&self, flag: u8) -> bool {
        self.0.as_ref()[FLAGS] & flag != 0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> NeighborAdvertisement<T> {
    /// Sets the three flags.
    #[inline]
    pub fn set_flags(&mut self, flags: AdvertisementFlags) {
        let bits = [(flags.router, IS_ROUTER), (flags.solicited, IS_SOLICITED), (flags.overrides, OVERRIDES)];
        self.0.as_mut()[FLAGS] = bits.into_iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
    }
}

impl<T: AsRef<[u8]>> RouterSolicitation<T> {
    /// Returns the sender's link address, if the option is there.
    #[inline]
    pub fn source_link(&self) -> Option<EtherAddr> {
        self.options().source_link()
    }
}

impl<T: AsRef<[u8]>> RouterAdvertisement<T> {
    /// Returns the hop limit that hosts should send with; 0 says nothing about it.
    #[inline]
    pub fn current_hop_limit(&self) -> u8 {
        self.0.as_ref()[CURRENT_HOP_LIMIT]
    }

    /// Says whether addresses are to be had by DHCPv6 (M).
    #[inline]
    pub fn is_managed(&self) -> bool {
        self.0.as_ref()[ROUTER_FLAGS] & IS_MANAGED != 0
    }

    /// Says whether other settings are to be had by DHCPv6 (O).
    #[inline]
    pub fn has_other_configuration(&self) -> bool {
        self.0.as_ref()[ROUTER_FLAGS] & HAS_OTHER != 0
    }

    /// Returns for how long the sender is a default router; zero says that it is none.
    #[inline]
    pub fn router_lifetime(&self) -> Duration {
        Duration::from_secs(u16_at(self.0.as_ref(), LIFETIME).into())
    }

    /// Returns for how long a neighbor counts as reachable after it has answered; zero says nothing about it.
    #[inline]
    pub fn reachable_time(&self) -> Duration {
        Duration::from_millis(u32_at(self.0.as_ref(), REACHABLE).into())
    }

    /// Returns the time between solicitations; zero says nothing about it.
    #[inline]
    pub fn retransmit_time(&self) -> Duration {
        Duration::from_millis(u32_at(self.0.as_ref(), RETRANSMIT).into())
    }

    /// Returns the sender's link address, if the option is there.
    #[inline]
    pub fn source_link(&self) -> Option<EtherAddr> {
        self.options().source_link()
    }
}

fields! {
    Redirect {
        target / set_target: Ipv6Addr = TARGET, "the better first hop, or the destination if it is on the \
            link";
        destination / set_destination: Ipv6Addr = 24, "the address whose packets should go there";
    }
}

impl<T: AsRef<[u8]>> Redirect<T> {
    /// Returns the target's link address, if the option is there.
    #[inline]
    pub fn target_link(&self) -> Option<EtherAddr> {
        self.options().target_link()
    }
}
