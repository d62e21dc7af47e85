//! Answers to ICMP echo requests (RFC 792).
use crate::ip_header;
use artery_engine::Packet;
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4, checksum};

/// Turns a request into its reply with this time to live; any other packet is unchanged.
pub fn answer_echo(packet: &mut Packet, ttl: u8) -> Option<()> {
    let ip = ip_header::ip(packet).ok()?;
    let header_len = ip.header_len();
    let asks = |icmp: &Icmp<&[u8]>| icmp.icmp_type() == IcmpType::ECHO_REQUEST;
    let message = &ip_header::bytes(packet)[header_len..];
    Icmp::new(message).ok().filter(|icmp| ip.protocol() == IpProtocol::ICMP && asks(icmp))?;

    let (header, message) = ip_header::bytes_mut(packet).split_at_mut(header_len);
    turn_around(&mut Ipv4::new(&mut *header).ok()?, ttl);
    make_reply(message)?;
    let dst = Ipv4::new(&*header).ok()?.dst();
    packet.set_dst_ip(dst);
    Some(())
}

/// Swaps the addresses, which does not affect the checksum, and updates it for the other fields.
fn turn_around(ip: &mut Ipv4<&mut [u8]>, ttl: u8) {
    let (src, dst) = (ip.src(), ip.dst());
    ip.set_src(dst);
    ip.set_dst(src);
    let ttl_word = |ttl: u8, ip: &Ipv4<&mut [u8]>| u16::from_be_bytes([ttl, ip.protocol().0]);
    let sum = checksum::update(ip.checksum(), ip.fragment_field(), 0);
    let sum = checksum::update(sum, ttl_word(ip.ttl(), ip), ttl_word(ttl, ip));
    ip.set_fragment_field(0);
    ip.set_ttl(ttl);
    ip.set_checksum(sum);
}

/// Sets type and code, and corrects the checksum.
fn make_reply(message: &mut [u8]) -> Option<()> {
    let mut icmp = Icmp::new(&mut *message).ok()?;
    let request = u16::from_be_bytes([icmp.icmp_type().0, icmp.code()]);
    let sum = checksum::update(icmp.checksum(), request, 0);
    icmp.set_icmp_type(IcmpType::ECHO_REPLY);
    icmp.set_code(0);
    icmp.set_checksum(sum);
    // Only an all-zero message has the sum zero, which the update can't distinguish from its complement.
    if message.iter().all(|byte| *byte == 0) {
        Icmp::new(message).ok()?.set_checksum(0xffff);
    }
    Some(())
}
