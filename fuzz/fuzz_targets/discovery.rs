//! Any bytes as a message of neighbor discovery, with a right checksum and without: read or refused, and what
//! is read is in the bytes.
#![no_main]
use artery_wire::nd::{LinkEndpoint, NdMessage, NdOptions, redirect};
use artery_wire::{EtherAddr, Icmp6, IpProtocol, Ipv6};
use libfuzzer_sys::fuzz_target;
use std::net::Ipv6Addr;

fuzz_target!(|data: &[u8]| {
    let _ = NdMessage::parse_packet(data);
    let router = LinkEndpoint { ether: EtherAddr([2; 6]), ip: Ipv6Addr::LOCALHOST };
    if let Ok(frame) = redirect(router, router, Ipv6Addr::LOCALHOST, None, data) {
        assert!(frame.len() <= 14 + 1280);
    }
    let Some((addresses, message)) = data.split_first_chunk::<2>() else { return };
    if let Some(packet) = believable(*addresses, message) {
        judge(&packet);
    }
});

/// The message from and to one of a few addresses, with all that makes any message of its type a sound one.
fn believable(addresses: [u8; 2], message: &[u8]) -> Option<Vec<u8>> {
    let [src, dst] = addresses.map(|which| match which % 4 {
        0 => Ipv6Addr::UNSPECIFIED,
        1 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        2 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    });
    let mut packet = vec![0; 40];
    packet.extend(message);
    let mut ip = Ipv6::init(&mut packet).ok()?;
    ip.set_payload_length(message.len().try_into().ok()?);
    ip.set_next_header(IpProtocol::ICMPV6);
    ip.set_hop_limit(255);
    ip.set_src(src);
    ip.set_dst(dst);
    Icmp6::new(ip.payload_mut()).ok()?.fill_checksum(src, dst);
    Some(packet)
}

fn judge(packet: &[u8]) {
    let options = match NdMessage::parse_packet(packet) {
        Ok(NdMessage::NeighborSolicitation(message)) => sound(message.target(), message.options()),
        Ok(NdMessage::NeighborAdvertisement(message)) => sound(message.target(), message.options()),
        Ok(NdMessage::Redirect(message)) => sound(message.target(), message.options()),
        Ok(NdMessage::RouterSolicitation(message)) => message.options().count(),
        Ok(NdMessage::RouterAdvertisement(message)) => message.options().count(),
        Err(_) => 0,
    };
    assert!(options <= packet.len() / 8);
}

fn sound(target: Ipv6Addr, options: NdOptions<'_>) -> usize {
    assert!(!target.is_multicast() && options.check_all().is_ok());
    options.count()
}
