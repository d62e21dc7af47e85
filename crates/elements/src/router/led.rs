//! Packets that are led: their destination annotation says where they go. A balancer leads many to a few addresses, so it
//! is decided about each of these once in a batch.
use super::forward::Forwarded;
use artery_engine::{Packet, anno};
use artery_rcu::Turn;
use artery_table::PortId;
use artery_table::path::{Decision, PathReader};
use artery_wire::EtherType;
use std::net::{IpAddr, Ipv6Addr};

/// Where a frame's packet is led, if it is.
pub(super) fn towards(packet: &Packet, kind: EtherType) -> Option<IpAddr> {
    let to: IpAddr = match kind {
        EtherType::IPV4 => packet.dst_ip().into(),
        EtherType::IPV6 => Ipv6Addr::from(packet.annotation::<16>(anno::DST_IP6)).into(),
        _ => return None,
    };
    (!to.is_unspecified()).then_some(to)
}

/// Addresses that are told apart by their last bits.
const SLOTS: usize = 64;

/// The addresses of a batch, each once; kept for its storage.
pub(super) struct Led<A> {
    /// By last bits: an address, the batch that had it, and its place among those of the batch.
    slots: Box<[(A, u32, u16); SLOTS]>,
    batch: u32,
    few: Vec<A>,
    /// Of all packets: the place of theirs.
    places: Vec<u16>,
    decisions: Vec<Decision>,
}

impl<A: Forwarded> Default for Led<A> {
    fn default() -> Led<A> {
        let slots = Box::new([(A::ZERO, 0, 0); SLOTS]);
        Led { slots, batch: 0, few: Vec::new(), places: Vec::new(), decisions: Vec::new() }
    }
}

impl<A: Forwarded> Led<A> {
    /// Decides about all packets of a batch as [`PathReader::decide_batch`] does. None if it can't be done so, since the
    /// packets to an address take several ways.
    #[inline(never)]
    pub(super) fn decide(
        &mut self,
        path: &mut PathReader<A>,
        turn: &Turn<'_>,
        addresses: &[A],
        decisions: &mut Vec<Decision>,
    ) -> Option<Option<PortId>> {
        self.sort(addresses);
        let mut are_several = false;
        let asked = |_, _| {
            are_several = true;
            0
        };
        let port = path.decide_batch(turn, &self.few, asked, &mut self.decisions);
        if are_several {
            return None;
        }
        decisions.clear();
        decisions.extend(self.places.iter().map(|place| self.decisions[usize::from(*place)]));
        Some(port)
    }

    /// Finds the addresses, each once but for a few that have their last bits in common.
    fn sort(&mut self, addresses: &[A]) {
        let Led { slots, batch, few, places, .. } = self;
        few.clear();
        places.resize(addresses.len(), 0);
        *batch = batch.wrapping_add(1);
        let batch = *batch;
        for (address, place) in addresses.iter().zip(places) {
            let slot = &mut slots[address.last_bits() % SLOTS];
            if slot.1 != batch || slot.0 != *address {
                *slot = (*address, batch, few.len() as u16);
                few.push(*address);
            }
            *place = slot.2;
        }
    }
}
