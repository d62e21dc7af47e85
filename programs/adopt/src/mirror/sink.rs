//! What the mirror wants forwarded, and the trait of those that receive it.
use super::vrf::FibBinding;
use crate::kernel::{Family, Link};
use artery_lpm::{Address, Prefix};
use artery_wire::EtherAddr;
use std::net::IpAddr;

/// The number of a next-hop set. Many routes lead to one, so that its change is one call of the
/// sink, however many they are. A number is used again after its set is gone: the one that is free
/// for the longest time first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopSetId(pub u32);

impl NextHopSetId {
    /// Packets are left to the kernel. A sink is never sent this next-hop set: it is predefined.
    pub const KERNEL: NextHopSetId = NextHopSetId(0);
}

/// Where packets of a route go: to the kernel, or out by a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopSet {
    /// The kernel handles the packets: they are for the machine, or the kernel answers them with an error, or
    /// only the kernel knows the route.
    Kernel,
    /// They go out by one of these next hops, of which there is at least one.
    Hops(Vec<Hop>),
}

/// A neighbor, or a whole network, that packets are sent to by one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The kernel's index of the interface.
    pub link: u32,
    /// Whose link address they are sent to; where there is none, the destination's own.
    pub gateway: Option<IpAddr>,
    /// Its share, from 1.
    pub weight: u16,
}

/// Which packets of a family stay with the kernel whatever the routes say, because of its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    /// No packets are excluded by rules.
    #[default]
    Nothing,
    /// Those that come in by one of these interfaces.
    From(Vec<u32>),
    /// All packets of the family.
    Everything,
}

/// Receives the mirror's changes: the accelerator, a graph, or a record for tests.
pub trait Sink {
    /// Sets or removes (`None`) a next-hop set, which routes of this family lead to. Called before the first
    /// route that does, and after the last.
    fn set_next_hops(&mut self, family: Family, id: NextHopSetId, way: Option<&NextHopSet>);
    /// Packets to this prefix, and to no longer one, use this next-hop set from now on; `None` removes the
    /// prefix, which may not have been there.
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>);
    /// The same for IPv6.
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>);
    /// The link address of a neighbor, or that there is none that packets can be sent to.
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>);
    /// An interface is this from now on, or is gone.
    fn set_link(&mut self, index: u32, link: Option<&Link>);
    /// Which packets stay with the kernel from now on; none did before the first call.
    fn exclude(&mut self, family: Family, keep: &Exclusion);
    /// Many routes come now: nothing need be forwarded by them before the end. There may be
    /// loads within a load.
    fn begin_load(&mut self) {}
    /// Ends a load that [`begin_load`](Self::begin_load) began.
    fn end_load(&mut self) {}
    /// Whether packets that come in by this interface, which belongs to a VRF, are to be forwarded by the
    /// routes of the VRF. A sink that knows no VRFs leaves them to the kernel.
    fn follows_vrf(&self, _: &Link) -> bool {
        false
    }
    /// By which routes packets that come in by an interface are forwarded from now on; before the first call
    /// by those for interfaces that belong to no VRF.
    fn bind_link(&mut self, _: u32, _: FibBinding) {}
    /// Begins a load of many routes of the VRF that has this table, which the sink may not know yet. For this
    /// VRF alone nothing need be forwarded before the end.
    fn begin_vrf(&mut self, _: u32) {}
    /// Ends what [`begin_vrf`](Self::begin_vrf) began.
    fn end_vrf(&mut self, _: u32) {}
    /// Forgets a VRF and its routes; no interface is bound to it.
    fn remove_vrf(&mut self, _: u32) {}
    /// The same as [`set_route4`](Self::set_route4) for the VRF that has this table.
    fn set_vrf_route4(&mut self, _: u32, _: Prefix<u32>, _: Option<NextHopSetId>) {}
    /// The same for IPv6.
    fn set_vrf_route6(&mut self, _: u32, _: Prefix<u128>, _: Option<NextHopSetId>) {}
}

/// An address family whose routes a sink receives.
pub(crate) trait FamilySink: Address {
    /// Sends a route of the VRF that has this table, or of none.
    fn notify(sink: &mut dyn Sink, vrf: Option<u32>, prefix: Prefix<Self>, way: Option<NextHopSetId>);
}

impl FamilySink for u32 {
    #[inline]
    fn notify(sink: &mut dyn Sink, vrf: Option<u32>, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        match vrf {
            None => sink.set_route4(prefix, way),
            Some(table) => sink.set_vrf_route4(table, prefix, way),
        }
    }
}

impl FamilySink for u128 {
    #[inline]
    fn notify(sink: &mut dyn Sink, vrf: Option<u32>, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        match vrf {
            None => sink.set_route6(prefix, way),
            Some(table) => sink.set_vrf_route6(table, prefix, way),
        }
    }
}
