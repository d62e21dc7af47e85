//! What all engines agree on: packets, what becomes of them, and the calls by which
//! routes and neighbors change.

use super::tree::Full;
use artery_lpm::Prefix;
use std::fmt;

/// A packet to send, as the layer above hands it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) destination: u32,
    /// The sender's connected socket, by number.
    pub(super) socket: u32,
}

/// A link address, as the low 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Mac(u64);

impl Mac {
    /// That of the n-th neighbor, in a version: it is never given to it, or to another, again.
    pub(super) const fn new(neighbor: u8, version: u32) -> Mac {
        Mac(2 << 40 | (neighbor as u64) << 32 | version as u64)
    }
    pub(super) const fn from_bits(bits: u64) -> Mac {
        Mac(bits & ((1 << 48) - 1))
    }
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
    /// Which neighbor has it.
    pub(super) const fn neighbor(self) -> u8 {
        (self.0 >> 32) as u8
    }
    /// The how-manieth it is.
    pub(super) const fn version(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It leaves by an interface, to a link address.
    Out(u16, Mac),
    /// It waits until the neighbor's link address is known.
    Held,
    /// No route leads there.
    NoRoute,
}

/// An interface, by number.
pub(super) type Interface = u16;
/// How many interfaces there are.
pub(super) const INTERFACES: usize = 2;
/// Packets that a neighbor without link address holds; the oldest makes room.
pub(super) const MOST_HELD: usize = 4;

/// How routes and neighbors change; any thread may, while others send.
pub(super) trait Control {
    /// Gives an interface an address in a network.
    fn connect(&self, prefix: Prefix<u32>, interface: Interface) -> Result<(), Full>;
    /// Takes it away, with all that hangs on it; says how many neighbors went.
    fn disconnect(&self, prefix: Prefix<u32>) -> usize;
    /// Adds a route by a router.
    fn add_route(&self, prefix: Prefix<u32>, gateway: u32) -> Result<(), Full>;
    /// Deletes it; says whether it was there.
    fn delete_route(&self, prefix: Prefix<u32>) -> bool;
    /// A neighbor says its link address. Returns what was held for it, in order.
    fn learn(&self, address: u32, mac: Mac) -> Vec<Packet>;
    /// Forgets a neighbor; says whether it was known.
    fn forget(&self, address: u32) -> bool;
}

/// What sends packets, one of it for each thread.
pub(super) trait Sender {
    /// Finds out what becomes of the packets of a batch, in order.
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>);
    /// The time, in seconds since some instant; called now and then, between batches.
    fn tick(&mut self, _seconds: u32) {}
}

/// For senders that process packets one after the other.
#[inline]
pub(super) fn one_by_one(packets: &[Packet], sent: &mut Vec<Sent>, output: impl FnMut(Packet) -> Sent) {
    sent.clear();
    sent.extend(packets.iter().copied().map(output));
}

/// Tests that every engine has to pass.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A route as a caller of the table sees it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RouteView {
        pub(crate) prefix: Prefix<u32>,
        /// Whether the entry has link-layer information.
        pub(crate) is_neighbor: bool,
    }

    pub(crate) fn prefix(text: &str) -> Prefix<u32> {
        text.parse().unwrap()
    }
    pub(crate) fn ip(text: &str) -> u32 {
        text.parse::<std::net::Ipv4Addr>().unwrap().to_bits()
    }
    pub(crate) fn packet(to: &str, socket: u32) -> Packet {
        Packet { destination: ip(to), socket }
    }
    pub(crate) fn one(sender: &mut impl Sender, to: &str) -> Sent {
        one_by(sender, to, 0)
    }
    pub(crate) fn one_by(sender: &mut impl Sender, to: &str, socket: u32) -> Sent {
        let mut sent = Vec::new();
        sender.send(&[packet(to, socket)], &mut sent);
        assert_eq!(sent.len(), 1);
        sent[0]
    }

    pub(crate) const A: Mac = Mac::new(1, 1);
    pub(crate) const B: Mac = Mac::new(2, 1);

    /// Two networks and a default route.
    pub(crate) fn furnish(control: &impl Control) {
        control.connect(prefix("10.0.0.0/16"), 0).unwrap();
        control.connect(prefix("10.1.0.0/16"), 1).unwrap();
        control.add_route(prefix("0.0.0.0/0"), ip("10.0.0.1")).unwrap();
    }

    /// An engine that keeps packets which wait for a link address keeps the latest, in order.
    pub(crate) fn holds_the_latest(control: &impl Control, sender: &mut impl Sender) {
        furnish(control);
        for socket in 0..6 {
            assert_eq!(one_by(sender, "8.8.8.8", socket), Sent::Held);
        }
        assert_eq!(control.learn(ip("10.0.0.1"), A), [2, 3, 4, 5].map(|n| packet("8.8.8.8", n)));
        assert_eq!(control.learn(ip("10.0.0.1"), A), []);
    }

    /// Every engine, whatever it remembers, follows changes of neighbors with the next packet, and those of
    /// routes too as far as what is deleted goes.
    pub(crate) fn follows_changes(control: &impl Control, sender: &mut impl Sender) {
        assert_eq!(one(sender, "10.0.0.9"), Sent::NoRoute);
        furnish(control);
        assert_ne!(one(sender, "8.8.8.8"), Sent::Out(0, A), "the router is not resolved");
        control.learn(ip("10.0.0.1"), A);
        assert_eq!(one(sender, "8.8.8.8"), Sent::Out(0, A));
        assert_eq!(one(sender, "10.0.0.1"), Sent::Out(0, A));
        control.learn(ip("10.1.0.7"), B);
        assert_eq!(one_by(sender, "10.1.0.7", 1), Sent::Out(1, B));
        // T9, T13: another link address.
        let moved = Mac::new(1, 2);
        control.learn(ip("10.0.0.1"), moved);
        assert_eq!(one(sender, "8.8.8.8"), Sent::Out(0, moved));
        // T13, T17: it is forgotten, and found again.
        assert!(control.forget(ip("10.0.0.1")) && !control.forget(ip("10.0.0.1")));
        assert_eq!(one(sender, "8.8.8.8"), Sent::Held);
        let back = Mac::new(1, 3);
        control.learn(ip("10.0.0.1"), back);
        assert_eq!(one(sender, "8.8.8.8"), Sent::Out(0, back));
        // A route that is deleted is used no more.
        control.add_route(prefix("9.0.0.0/8"), ip("10.1.0.7")).unwrap();
        assert_eq!(one_by(sender, "9.1.1.1", 2), Sent::Out(1, B));
        assert!(control.delete_route(prefix("9.0.0.0/8")) && !control.delete_route(prefix("9.0.0.0/8")));
        assert_eq!(one_by(sender, "9.1.1.1", 2), Sent::Out(0, back));
        // Nor is a network that is gone; its neighbor is not to be reached by the default route.
        assert_eq!(control.disconnect(prefix("10.1.0.0/16")), 1);
        assert_eq!(one_by(sender, "10.1.0.7", 1), Sent::Out(0, back));
        assert_eq!(control.disconnect(prefix("10.1.0.0/16")), 0);
        assert!(control.delete_route(prefix("0.0.0.0/0")));
        assert_eq!(one(sender, "8.8.8.8"), Sent::NoRoute);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_address_says_whose_it_is() {
        let mac = Mac::new(3, 77);
        assert_eq!((mac.neighbor(), mac.version()), (3, 77));
        assert_eq!(Mac::from_bits(mac.bits() | 1 << 60), mac);
        assert_eq!(format!("{mac:?}"), "02030000004d");
    }
}
