//! Plain frames: what one must be like to be forwarded as far as it says itself, and what is done to it then, in place.
//!
//! What differs between IPv4 and IPv6 is in the files of their elements.
use artery_engine::Packet;
use artery_table::Family;
use artery_table::neighbor::Key;
use artery_table::path::{OddSources, PathReader};
use artery_table::router::{PortView, Readers};

/// Bytes of the link header.
pub(crate) const LINK: usize = 14;

/// An address family whose frames are forwarded.
pub(crate) trait Forwarded: Family + Key {
    /// The destination of a frame, and whether it is whole and sound, was sent to this port, and may be forwarded by any
    /// router. Decided without branches, since what comes by turns can't be foreseen; of a few that may be forwarded it
    /// says no.
    fn check(frame: &[u8], gate: &Gate<'_>) -> (Self, bool);
    /// Whether a frame that did not pass the check should have.
    fn check_again(frame: &[u8], gate: &Gate<'_>) -> bool;
    /// Source and destination of a frame that passed the check.
    fn ends(frame: &[u8]) -> (Self, Self);
    /// The destination annotation, by which a packet goes instead of its destination; zero if it has none.
    fn towards(packet: &Packet) -> Self;
    /// Sets it.
    fn lead(packet: &mut Packet, towards: Self);
    /// The last bits of an address.
    fn last_bits(self) -> usize;
    /// Writes a link header (see [`write_link`]) and takes a hop from those that are left to a frame that passed the
    /// check, unless it is longer than `most` bytes, without link header and padding. Returns its length with the link
    /// header.
    fn rewrite(frame: &mut [u8], header: (u64, u32), most: usize) -> Option<usize>;
    /// What decides about this family's packets.
    fn path(readers: &Readers) -> &PathReader<Self>;
}

/// What a frame must be like to be forwarded, as far as that depends on the port it came by.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'t> {
    /// The port's link address, as the upper bytes of a little-endian word whose others are zero.
    pub(super) station: u64,
    /// IPv4 sources that packets should not have.
    pub(super) odd_sources: &'t OddSources,
}

impl<'t> Gate<'t> {
    pub(crate) fn new(port: &'t PortView) -> Gate<'t> {
        let [a, b, c, d, e, f] = port.address.0;
        Gate { station: u64::from_le_bytes([0, 0, a, b, c, d, e, f]), odd_sources: &port.odd_sources }
    }
}

/// Rewrites a frame that passed the check and is to be forwarded with this link header (see [`write_link`]), unless it is
/// too long. Says whether it isn't.
#[inline]
pub(crate) fn forward<A: Forwarded>(packet: &mut Packet, header: (u64, u32), mtu: u16) -> bool {
    let most = if packet.is_unfinished() { longest(packet, mtu) } else { mtu.into() };
    rewrite::<A>(packet, header, most)
}

/// The same, unless it is longer than `most` bytes, without link header and padding.
#[inline(always)]
pub(super) fn rewrite<A: Forwarded>(packet: &mut Packet, header: (u64, u32), most: usize) -> bool {
    let len = A::rewrite(packet.data_mut(), header, most);
    len.inspect(|len| packet.truncate(*len)).is_some()
}

/// How long a packet may be so that its segments are no longer than the MTU.
#[cold]
fn longest(packet: &Packet, mtu: u16) -> usize {
    if packet.segment_len(LINK) <= mtu.into() { usize::MAX } else { mtu.into() }
}

/// Writes a link header but for its EtherType, which stays as it is: the destination with the first two bytes of the
/// source, and the rest of the source.
#[inline]
pub(super) fn write_link(frame: &mut [u8; LINK], header: (u64, u32)) {
    let [first @ .., a, b, c, d, _, _] = frame;
    *first = header.0.to_le_bytes();
    [*a, *b, *c, *d] = header.1.to_le_bytes();
}
