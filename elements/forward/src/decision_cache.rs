//! Packets that are redirected by their destination annotation. A balancer redirects many packets to few
//! addresses, so decisions about these are cached until the tables change.
use crate::fast_path::{ForwardFamily, LINK};
use crate::flow;
use artery_engine::{Packet, anno};
use artery_l3::PortId;
use artery_l3::path::{ForwardDecision, Outcome};
use artery_wire::EtherType;
use std::net::{IpAddr, Ipv6Addr};

/// The address that a frame's packet is redirected to, if it is not its destination.
pub fn destination_annotation(packet: &Packet, kind: EtherType) -> Option<IpAddr> {
    let to: IpAddr = match kind {
        EtherType::IPV4 => packet.dst_ip().into(),
        EtherType::IPV6 => Ipv6Addr::from(packet.annotation::<16>(anno::DST_IP6)).into(),
        _ => return None,
    };
    let (_, destination) = packet.data().get(LINK..).and_then(flow::source_and_destination)?;
    (!to.is_unspecified() && to != destination).then_some(to)
}

/// Pairs of entries: the last bits of an address select a pair, so two addresses with the same last bits fit.
const PAIRS: usize = 64;

/// Decisions about addresses, valid while nothing changes.
pub(crate) struct DecisionCache<A> {
    entries: Box<[[CachedDecision<A>; 2]; PAIRS]>,
    /// The number of changes before it.
    changes: u64,
}

#[derive(Clone, Copy)]
struct CachedDecision<A> {
    address: A,
    decision: ForwardDecision,
}

impl<A: ForwardFamily> CachedDecision<A> {
    /// An empty entry: packets are never redirected to this address.
    const NOTHING: CachedDecision<A> = CachedDecision { address: A::ZERO, decision: ForwardDecision::NONE };
}

impl<A: ForwardFamily> Default for DecisionCache<A> {
    fn default() -> DecisionCache<A> {
        DecisionCache { entries: Box::new([[CachedDecision::NOTHING; 2]; PAIRS]), changes: 0 }
    }
}

impl<A: ForwardFamily> DecisionCache<A> {
    /// Decides about packets that are all redirected, as
    /// [`PathReader::lookup_path_batch`](artery_l3::path::PathReader::lookup_path_batch) does,
    /// after so many changes. None if the decision about some is not cached: then
    /// decide, and call [`insert_batch`](Self::insert_batch).
    #[inline]
    pub(crate) fn decide_batch(
        &mut self,
        changes: u64,
        addresses: &[A],
        decisions: &mut Vec<ForwardDecision>,
    ) -> Option<Option<PortId>> {
        if self.changes != changes {
            self.changes = changes;
            self.entries.fill([CachedDecision::NOTHING; 2]);
        }
        decisions.resize(addresses.len(), ForwardDecision::NONE);
        let first = addresses.first().map_or(PortId(0), |address| self.cached_entry(*address).decision.port);
        let (mut are_known, mut are_alike) = (true, !addresses.is_empty());
        for (address, to) in addresses.iter().zip(&mut *decisions) {
            let kept = self.cached_entry(*address);
            *to = kept.decision;
            are_known &= kept.address == *address;
            are_alike &= to.port == first;
        }
        are_known.then_some(are_alike.then_some(first))
    }

    /// The entry of an address, or of another one.
    #[inline]
    fn cached_entry(&self, address: A) -> &CachedDecision<A> {
        let pair = &self.entries[address.last_bits() % PAIRS];
        &pair[usize::from(pair[0].address != address)]
    }

    /// Caches decisions, except those that control must see used.
    #[cold]
    pub(crate) fn insert_batch(&mut self, addresses: &[A], decisions: &[ForwardDecision]) {
        for (address, decision) in addresses.iter().zip(decisions) {
            if is_cacheable(decision) && self.cached_entry(*address).address != *address {
                let pair = &mut self.entries[address.last_bits() % PAIRS];
                *pair = [CachedDecision { address: *address, decision: *decision }, pair[0]];
            }
        }
    }
}

/// Whether a decision holds until the tables change, and control need not see its use.
pub(crate) fn is_cacheable(decision: &ForwardDecision) -> bool {
    decision.outcome == Outcome::Forward && decision.link.is_only_ready()
}
