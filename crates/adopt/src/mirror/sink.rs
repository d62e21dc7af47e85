//! What the mirror wants forwarded, as told to who forwards.
use crate::kernel::{Family, Link};
use artery_table::{Address, Prefix};
use artery_wire::EtherAddr;
use std::net::IpAddr;

/// The number of a way. Many routes lead to one, so that a change of the way is one word to the sink, however many they
/// are. A number is used again after its way is gone, the one that is free for the longest time first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopSetId(pub u32);

impl NextHopSetId {
    /// Packets are the kernel's. It is the only way that nothing is told of.
    pub const KERNEL: NextHopSetId = NextHopSetId(0);
}

/// What packets do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopSet {
    /// They are the kernel's: they are for the machine, or for nobody and the kernel answers, or the way is one that
    /// only the kernel knows.
    Kernel,
    /// They go out by one of these next hops, of which there is at least one.
    Hops(Vec<Hop>),
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The interface.
    pub link: u32,
    /// Whose link address they are sent to; where there is none, the destination's own.
    pub gateway: Option<IpAddr>,
    /// Its share, from 1.
    pub weight: u16,
}

/// Which packets of a family stay with the kernel whatever the routes say, because of its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    /// None.
    #[default]
    Nothing,
    /// Those that come in by one of these interfaces.
    From(Vec<u32>),
    /// All.
    Everything,
}

/// Who forwards.
pub trait Sink {
    /// A way is this from now on, or is gone. Told before the first route that leads to it, and after the last.
    fn set_next_hops(&mut self, id: NextHopSetId, way: Option<&NextHopSet>);
    /// Packets to this prefix, and to no longer one, go this way from now on; without a way there is no such prefix,
    /// and may not have been.
    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>);
    /// The same for IPv6.
    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>);
    /// The link address of a neighbor, or that there is none that packets can be sent to.
    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>);
    /// An interface is this from now on, or is gone.
    fn set_link(&mut self, index: u32, link: Option<&Link>);
    /// Which packets stay with the kernel from now on; none did before the first call.
    fn exclude(&mut self, family: Family, keep: &Exclusion);
    /// Many routes come now: nothing need be forwarded by them before the end. There may be loads within a load.
    fn begin_load(&mut self) {}
    /// That was all.
    fn end_load(&mut self) {}
}

/// An address whose routes can be told to a sink.
pub(crate) trait FamilySink: Address {
    fn notify(sink: &mut dyn Sink, prefix: Prefix<Self>, way: Option<NextHopSetId>);
}

impl FamilySink for u32 {
    #[inline]
    fn notify(sink: &mut dyn Sink, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        sink.set_route4(prefix, way);
    }
}

impl FamilySink for u128 {
    #[inline]
    fn notify(sink: &mut dyn Sink, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        sink.set_route6(prefix, way);
    }
}
