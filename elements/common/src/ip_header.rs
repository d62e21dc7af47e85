//! Where a packet's IP header is: at its network header, or at the start of data when none is marked.
use artery_engine::{DropReason, Packet};
use artery_wire::{IpProtocol, Ipv4, Malformed, checksum};
use std::net::Ipv4Addr;

/// The bytes from the IP header on.
#[inline]
pub fn bytes(packet: &Packet) -> &[u8] {
    if packet.network_offset().is_some() { packet.network().unwrap_or(&[]) } else { packet.data() }
}

/// The bytes from the IP header on, to change.
#[inline]
pub fn bytes_mut(packet: &mut Packet) -> &mut [u8] {
    if packet.network_offset().is_some() {
        packet.network_mut().unwrap_or(&mut [])
    } else {
        packet.data_mut()
    }
}

/// The IP header and what follows.
#[inline]
pub fn ip(packet: &Packet) -> Result<Ipv4<&[u8]>, Malformed> {
    Ipv4::new(bytes(packet))
}

/// The IP header and what follows, to change.
#[inline]
pub fn ip_mut(packet: &mut Packet) -> Result<Ipv4<&mut [u8]>, Malformed> {
    Ipv4::new(bytes_mut(packet))
}

/// Whether the transport checksum behind an IP header of `header_len` bytes is still to be computed: its
/// field holds the sum of the pseudo-header.
#[inline]
pub fn needs_checksum(packet: &Packet, header_len: usize) -> bool {
    let offset = packet.network_offset().map_or(Some(0), |offset| usize::try_from(offset).ok());
    packet.has_offload() && offset.is_some_and(|offset| packet.needs_checksum_at(offset + header_len))
}

/// Sets where the IP header and the transport header start.
#[inline]
pub fn mark_header(packet: &mut Packet, offset: usize, header_len: usize) {
    packet.set_headers(offset, header_len);
}

/// Sets the type of service and corrects the header checksum (RFC 1624).
#[inline]
pub fn change_tos(header: &mut Ipv4<&mut [u8]>, tos: u8) {
    let first = u16::from_be_bytes([header.version() << 4 | header.ihl(), 0]);
    let sum = checksum::update(header.checksum(), first | u16::from(header.tos()), first | u16::from(tos));
    header.set_tos(tos);
    header.set_checksum(sum);
}

/// The sum of the pseudo-header of a packet whose upper layer has `length` bytes.
#[inline]
pub fn pseudo_header_sum<T: AsRef<[u8]>>(ip: &Ipv4<T>, protocol: IpProtocol, length: usize) -> u16 {
    checksum::pseudo_v4(ip.src(), ip.dst(), protocol, length as u16)
}

/// Writes an IP header without options before data: `length` counts it.
pub struct Fields {
    pub protocol: IpProtocol,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub tos: u8,
    pub ttl: u8,
    pub dont_fragment: bool,
}

impl Fields {
    /// Adds a header before the packet's data, marks it, and sets the destination annotation.
    pub fn prepend_header(&self, packet: &mut Packet, id: u16) -> Result<(), DropReason> {
        let length = u16::try_from(packet.len() + Ipv4::<&[u8]>::MIN_LEN).map_err(|_| DropReason::TooLong)?;
        let bytes = packet.prepend(Ipv4::<&[u8]>::MIN_LEN)?;
        let mut header = Ipv4::init(bytes)?;
        header.set_tos(self.tos);
        header.set_total_length(length);
        header.set_id(id);
        header.set_fragment(self.dont_fragment, false, 0);
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_src(self.src);
        header.set_dst(self.dst);
        header.fill_checksum();
        mark_header(packet, 0, Ipv4::<&[u8]>::MIN_LEN);
        packet.set_dst_ip(self.dst);
        Ok(())
    }
}
