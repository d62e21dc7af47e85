//! ARP messages as frames.
use artery_wire::{Arp, ArpOperation, EtherAddr, EtherType, Ethernet};
use std::net::Ipv4Addr;

/// Bytes of a link header and of an ARP message behind one.
pub const HEADER: usize = 14;
pub const FRAME: usize = HEADER + 28;

/// The link address and IP address of an ARP sender or target.
pub type ArpEndpoint = (EtherAddr, Ipv4Addr);

/// The link header of a frame.
pub fn link_header(dst: EtherAddr, src: EtherAddr, ether_type: EtherType) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..6].copy_from_slice(&dst.0);
    header[6..12].copy_from_slice(&src.0);
    header[12..].copy_from_slice(&ether_type.0.to_be_bytes());
    header
}

/// A whole ARP message to `dst`.
pub fn arp_frame(
    dst: EtherAddr,
    operation: ArpOperation,
    sender: ArpEndpoint,
    target: ArpEndpoint,
) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let (link, message) = frame.split_at_mut(HEADER);
    link.copy_from_slice(&link_header(dst, sender.0, EtherType::ARP));
    let mut arp = Arp::init(message).expect("the rest of the frame is as long as a message");
    arp.set_operation(operation);
    arp.set_sender(sender.0, sender.1);
    arp.set_target(target.0, target.1);
    frame
}

/// The ARP message in an untagged frame.
pub fn arp_in(frame: &[u8]) -> Option<Arp<&[u8]>> {
    let link = Ethernet::new(frame).ok().filter(|link| link.ether_type() == EtherType::ARP)?;
    debug_assert_eq!(link.payload_offset(), HEADER);
    Arp::new(frame.get(HEADER..)?).ok()
}
