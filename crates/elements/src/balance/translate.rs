//! Other addresses and ports for a packet, with the checksums that cover them (RFC 3022, 4.1 and 4.2).
use crate::ip::ip_header;
use artery_engine::Packet;
use artery_wire::{IpProtocol, Ipv4, Ipv6, checksum};
use std::net::IpAddr;

/// Which end of a packet is to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// Where the checksum of a protocol is, behind its header's start.
fn checksum_at(protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP => Some(6),
        _ => None,
    }
}

/// Gives an end of a whole TCP or UDP packet this address and, if there is one, this port. Says whether it is such a
/// packet, of the address's family; others stay as they are.
pub(super) fn translate(packet: &mut Packet, end: End, address: IpAddr, port: Option<u16>) -> bool {
    let is_left = |packet: &Packet, header_len| ip_header::leaves_checksum(packet, header_len);
    match address {
        IpAddr::V4(address) => {
            let Ok(ip) = Ipv4::new(ip_header::bytes(packet)) else { return false };
            let (header_len, protocol) = (ip.header_len(), ip.protocol());
            let left = is_left(packet, header_len);
            let Ok(mut ip) = Ipv4::new(ip_header::bytes_mut(packet)) else { return false };
            let old = if end == End::Source { ip.src() } else { ip.dst() };
            let Some(mut upper) = Upper::new(ip.payload_mut(), protocol, left) else { return false };
            upper.set(end, &old.octets(), &address.octets(), port);
            let sum = checksum::update_u32(ip.checksum(), old.to_bits(), address.to_bits());
            ip.set_checksum(sum);
            if end == End::Source {
                ip.set_src(address)
            } else {
                ip.set_dst(address)
            }
            true
        }
        IpAddr::V6(address) => {
            let Ok(ip) = Ipv6::new(ip_header::bytes(packet)) else { return false };
            let protocol = ip.next_header();
            let left = is_left(packet, Ipv6::<&[u8]>::LEN);
            let Ok(mut ip) = Ipv6::new(ip_header::bytes_mut(packet)) else { return false };
            let old = if end == End::Source { ip.src() } else { ip.dst() };
            let Some(mut upper) = Upper::new(ip.payload_mut(), protocol, left) else { return false };
            upper.set(end, &old.octets(), &address.octets(), port);
            if end == End::Source {
                ip.set_src(address)
            } else {
                ip.set_dst(address)
            }
            true
        }
    }
}

/// The header of TCP or UDP.
struct Upper<'a> {
    bytes: &'a mut [u8],
    checksum: usize,
    protocol: IpProtocol,
    /// The checksum is still to be made: its field holds the sum of the pseudo-header, which has the addresses alone.
    is_left: bool,
}

impl<'a> Upper<'a> {
    fn new(bytes: &'a mut [u8], protocol: IpProtocol, is_left: bool) -> Option<Upper<'a>> {
        let checksum = checksum_at(protocol)?;
        (bytes.len() >= checksum + 2).then_some(Upper { bytes, checksum, protocol, is_left })
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }
    fn set_word(&mut self, at: usize, word: u16) {
        self.bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }

    fn set(&mut self, end: End, old: &[u8], new: &[u8], port: Option<u16>) {
        let words = |bytes: &[u8], n: usize| u16::from_be_bytes([bytes[2 * n], bytes[2 * n + 1]]);
        for n in 0..old.len() / 2 {
            self.update(words(old, n), words(new, n));
        }
        let Some(port) = port else { return };
        let at = if end == End::Source { 0 } else { 2 };
        let before = self.word(at);
        self.set_word(at, port);
        if !self.is_left {
            self.update(before, port);
        }
    }

    /// Corrects the checksum, if there is one.
    fn update(&mut self, old: u16, new: u16) {
        let sum = self.word(self.checksum);
        let updated = if self.is_left {
            !checksum::update(!sum, old, new)
        } else if self.protocol == IpProtocol::UDP {
            if sum == 0 { 0 } else { checksum::never_zero(checksum::update(sum, old, new)) }
        } else {
            checksum::update(sum, old, new)
        };
        self.set_word(self.checksum, updated);
    }
}
