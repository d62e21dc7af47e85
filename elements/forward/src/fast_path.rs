//! Fast-path frames: the conditions for one to be forwarded without the slow path, and how it is rewritten,
//! in place.
//!
//! What differs between IPv4 and IPv6 is in the files of their elements.
use artery_engine::Packet;
use artery_l3::neighbor::Key;
use artery_l3::path::{ExceptionSources, PathReader};
use artery_l3::router::{PortView, Readers};
use artery_lpm::Family;

/// Bytes of the link header.
pub const LINK: usize = 14;

/// An address family whose frames are forwarded.
pub trait ForwardFamily: Family + Key {
    /// The destination of a frame, and whether it is complete and valid, was sent to this port, and may be
    /// forwarded by any router. It is computed without branches, since mixed traffic would mispredict them,
    /// and rejects a few valid frames.
    fn check_header(frame: &[u8], gate: &FrameCheck<'_>) -> (Self, bool);
    /// Whether a frame that did not pass the check should have.
    fn recheck_header(frame: &[u8], gate: &FrameCheck<'_>) -> bool;
    /// Source and destination of a frame that passed the check.
    fn source_and_destination(frame: &[u8]) -> (Self, Self);
    /// The destination annotation, which redirects a packet; zero if it has none.
    fn destination_annotation(packet: &Packet) -> Self;
    /// Redirects a packet by its destination annotation.
    fn redirect_packet(packet: &mut Packet, towards: Self);
    /// The last bits of an address.
    fn last_bits(self) -> usize;
    /// Writes a link header (see [`write_link`]) and decrements the hop limit of a frame that passed the
    /// check, unless it is longer than `most` bytes, without link header and padding. Returns its length
    /// with the link header.
    fn rewrite_headers(frame: &mut [u8], header: (u64, u32), most: usize) -> Option<usize>;
    /// What decides about this family's packets.
    fn path_reader(readers: &Readers) -> &PathReader<Self>;
}

/// The conditions for a frame that depend on its ingress port.
#[derive(Clone, Copy)]
pub struct FrameCheck<'t> {
    /// The port's link address, as the upper bytes of a little-endian word whose others are zero.
    pub(crate) mac_address: u64,
    /// IPv4 sources that packets should not have.
    pub(crate) exception_sources: &'t ExceptionSources,
}

impl<'t> FrameCheck<'t> {
    #[inline]
    pub fn new(port: &'t PortView) -> FrameCheck<'t> {
        let [a, b, c, d, e, f] = port.address.0;
        FrameCheck {
            mac_address: u64::from_le_bytes([0, 0, a, b, c, d, e, f]),
            exception_sources: &port.exception_sources,
        }
    }
}

/// Rewrites a frame that passed the check and is to be forwarded with this link header (see [`write_link`]).
/// Returns false if the frame is too long.
#[inline]
pub fn rewrite_frame<A: ForwardFamily>(packet: &mut Packet, header: (u64, u32), mtu: u16) -> bool {
    let most = if packet.has_offload() { max_packet_len(packet, mtu) } else { mtu.into() };
    rewrite_within::<A>(packet, header, most)
}

/// The same, unless it is longer than `most` bytes, without link header and padding.
#[inline(always)]
pub(crate) fn rewrite_within<A: ForwardFamily>(packet: &mut Packet, header: (u64, u32), most: usize) -> bool {
    let len = A::rewrite_headers(packet.data_mut(), header, most);
    len.inspect(|len| packet.truncate(*len)).is_some()
}

/// How long a packet may be so that its segments are no longer than the MTU.
#[cold]
fn max_packet_len(packet: &Packet, mtu: u16) -> usize {
    if packet.segment_len(LINK) <= mtu.into() { usize::MAX } else { mtu.into() }
}

/// Writes a link header without its EtherType, which stays as it is: the destination with the first two bytes
/// of the source, and the rest of the source.
#[inline]
pub fn write_link(frame: &mut [u8; LINK], header: (u64, u32)) {
    let [first @ .., a, b, c, d, _, _] = frame;
    *first = header.0.to_le_bytes();
    [*a, *b, *c, *d] = header.1.to_le_bytes();
}
