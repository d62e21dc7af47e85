//! Packets that are led: their destination annotation says where they go. A balancer leads many to a few addresses, so what
//! was decided about these is kept until anything changes.
use super::icmp;
use super::plain::{Forwarded, LINK};
use artery_engine::{Packet, anno};
use artery_table::PortId;
use artery_table::path::{Decision, Outcome};
use artery_wire::EtherType;
use std::net::{IpAddr, Ipv6Addr};

/// Where a frame's packet is led, if that is not its destination.
pub(super) fn towards(packet: &Packet, kind: EtherType) -> Option<IpAddr> {
    let to: IpAddr = match kind {
        EtherType::IPV4 => packet.dst_ip().into(),
        EtherType::IPV6 => Ipv6Addr::from(packet.annotation::<16>(anno::DST_IP6)).into(),
        _ => return None,
    };
    let (_, destination) = packet.data().get(LINK..).and_then(icmp::ends)?;
    (!to.is_unspecified() && to != destination).then_some(to)
}

/// Pairs of places: addresses are told apart by their last bits, and two with the same ones have room beside each other.
const PAIRS: usize = 64;

/// What was decided about addresses while nothing changed.
pub(super) struct Led<A> {
    kept: Box<[[Kept<A>; 2]; PAIRS]>,
    /// The number of changes before it.
    changes: u64,
}

#[derive(Clone, Copy)]
struct Kept<A> {
    address: A,
    decision: Decision,
}

impl<A: Forwarded> Kept<A> {
    /// Packets are not led to this address.
    const NOTHING: Kept<A> = Kept { address: A::ZERO, decision: Decision::NONE };
}

impl<A: Forwarded> Default for Led<A> {
    fn default() -> Led<A> {
        Led { kept: Box::new([[Kept::NOTHING; 2]; PAIRS]), changes: 0 }
    }
}

impl<A: Forwarded> Led<A> {
    /// Decides about packets that are all led, as [`PathReader::decide_batch`](artery_table::path::PathReader::decide_batch) does, after so many changes. None if it is
    /// not known what becomes of some: then [`learn`](Self::learn) what is decided about them.
    #[inline]
    pub(super) fn decide(
        &mut self,
        changes: u64,
        addresses: &[A],
        decisions: &mut Vec<Decision>,
    ) -> Option<Option<PortId>> {
        if self.changes != changes {
            self.changes = changes;
            self.kept.fill([Kept::NOTHING; 2]);
        }
        decisions.resize(addresses.len(), Decision::NONE);
        let first = addresses.first().map_or(PortId(0), |address| self.kept(*address).decision.port);
        let (mut are_known, mut are_alike) = (true, !addresses.is_empty());
        for (address, to) in addresses.iter().zip(&mut *decisions) {
            let kept = self.kept(*address);
            *to = kept.decision;
            are_known &= kept.address == *address;
            are_alike &= to.port == first;
        }
        are_known.then_some(are_alike.then_some(first))
    }

    /// What is kept for an address, or for another one.
    #[inline]
    fn kept(&self, address: A) -> &Kept<A> {
        let pair = &self.kept[address.last_bits() % PAIRS];
        &pair[usize::from(pair[0].address != address)]
    }

    /// Keeps what was decided about packets, unless control wants to hear of their use.
    #[cold]
    pub(super) fn learn(&mut self, addresses: &[A], decisions: &[Decision]) {
        for (address, decision) in addresses.iter().zip(decisions) {
            if lasts(decision) && self.kept(*address).address != *address {
                let pair = &mut self.kept[address.last_bits() % PAIRS];
                *pair = [Kept { address: *address, decision: *decision }, pair[0]];
            }
        }
    }
}

/// Whether what was decided about an address holds until anything changes, and needs nobody's attention.
pub(super) fn lasts(decision: &Decision) -> bool {
    decision.outcome == Outcome::Forward && decision.link.is_only_ready()
}
