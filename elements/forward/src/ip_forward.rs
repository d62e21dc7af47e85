use crate::fast_path::{ForwardFamily, FrameCheck, LINK, write_link};
use crate::forward::{self, Forward};
use artery_engine::{Class, Packet};
use artery_l3::path::PathReader;
use artery_l3::router::Readers;
use artery_wire::checksum;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "IPForward",
    group: "router",
    summary: "forwards IPv4 frames between the ports of a router",
    manual: "
Forwards whole Ethernet frames by the routes and neighbors of ROUTER, an IPRouter, in one pass over a batch:
all that CheckIPHeader, LookupNextHop, DecIPTTL and LinkHeader do together. Input I takes the IPv4 frames that
port I of the router received, output I leads to port I. A forwarded frame has its time-to-live decremented
and its checksum updated (RFC 1624), the link addresses of its next hop and of the port, and no padding;
nothing else of it changes. A packet with a destination annotation, as FlowBalancer gives it, goes where that
leads instead of to its destination.

Exceptions leave unchanged by the last output, behind those of the ports, with the number of the port that
received them as paint annotation. It leads to the same input of ROUTER, the slow path. Exceptions are:
- frames that are truncated, damaged, not IPv4, or sent to another MAC address
- packets with options, with no hop left, or from a source address that no packet may have
- packets for the router itself, and to multicast and broadcast addresses
- packets without a route, or whose neighbor is not known
- packets longer than the next hop's MTU; of packets that hosts leave uncut, each segment has to fit
- packets that would leave by the port they came by, unless that has REDIRECTS off, or the whole batch has
  destination annotations
- all frames for a moment after a neighbor became known, so that they stay behind those that ROUTER had queued

With `--ipfix ADDR,sample=N` one of N frames that come here is exported to a collector, with `--psample N` to
the kernel's PSAMPLE group, as it arrived, with the interfaces of both ports; frames with a destination
annotation are not.

Frames of a port that is monitored (see FromDevice) end here at l2, once they were checked, and at l3, once
all was decided and done.",
    example: "\
ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2);
f4 :: IPForward(ip);
Idle -> f4; Idle -> [1] f4;
f4[0] -> Discard; f4[1] -> Discard;
f4[2] -> slow :: PaintSwitch; slow[0] -> ip; slow[1] -> [1] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: forward::ARGS,
    build: |args| Ok(Box::new(Forward::<u32>::new(args, &CLASS)?)),
    ..Class::PER_WORKER
};

/// Bytes of link header and IP header without options.
const HEADERS: usize = LINK + 20;
/// EtherType and the first byte of a header without options, as the first three bytes
/// of a little-endian word.
const PLAIN: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
const PLAIN_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);
/// What a hop adds to a sum, in the machine's order.
const HOP: u32 = u16::from_ne_bytes([1, 0]) as u32;

/// Eight bytes of the headers, the first one the least.
#[inline]
fn read_word(head: &[u8; HEADERS], at: usize) -> u64 {
    head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// See [`ForwardFamily::check_header`]. `oddity` is zero for sources that packets may have.
#[inline(always)]
fn check_ipv4_frame(frame: &[u8], gate: &FrameCheck<'_>, oddity: impl FnOnce(u32) -> u8) -> (u32, bool) {
    let Some(head) = frame.first_chunk::<HEADERS>() else { return (0, false) };
    // The first word of a frame has two bytes beyond its destination, the second EtherType to identification,
    // the third that to checksum.
    let (station, second, third, ends) =
        (read_word(head, 0) << 16, read_word(head, 12), read_word(head, 18), read_word(head, 26));
    let length = usize::from(((second >> 32) as u16).swap_bytes());
    let is_whole = length.wrapping_sub(20) <= frame.len() - HEADERS;
    // Without EtherType, and identification only once.
    let total = checksum::add_with_carry((second >> 16) + (third >> 16), ends);
    // Together, what must be zero: fewer steps than one by one.
    let unfit = (station ^ gate.mac_address)
        | u64::from((second as u32 ^ PLAIN) & PLAIN_MASK)
        | u64::from(oddity((ends as u32).swap_bytes()));
    let (is_sound, has_hops) = (checksum::is_total_valid(total), (third >> 32) as u8 > 1);
    (((ends >> 32) as u32).swap_bytes(), (unfit == 0) & has_hops & is_whole & is_sound)
}

impl ForwardFamily for u32 {
    #[inline]
    fn check_header(frame: &[u8], gate: &FrameCheck<'_>) -> (u32, bool) {
        check_ipv4_frame(frame, gate, |source| gate.exception_sources.source_kinds(source))
    }

    fn recheck_header(frame: &[u8], gate: &FrameCheck<'_>) -> bool {
        check_ipv4_frame(frame, gate, |source| gate.exception_sources.contains(source).into()).1
    }

    #[inline]
    fn source_and_destination(frame: &[u8]) -> (u32, u32) {
        let Some([.., s0, s1, s2, s3, a0, a1, a2, a3]) = frame.first_chunk::<HEADERS>() else {
            return (0, 0);
        };
        (u32::from_be_bytes([*s0, *s1, *s2, *s3]), u32::from_be_bytes([*a0, *a1, *a2, *a3]))
    }

    #[inline]
    fn destination_annotation(packet: &Packet) -> u32 {
        packet.dst_ip().to_bits()
    }

    #[inline]
    fn redirect_packet(packet: &mut Packet, towards: u32) {
        packet.set_dst_ip(Ipv4Addr::from_bits(towards));
    }

    #[inline]
    fn last_bits(self) -> usize {
        (self ^ self >> 8 ^ self >> 16) as usize
    }

    #[inline(always)]
    fn rewrite_headers(frame: &mut [u8], header: (u64, u32), most: usize) -> Option<usize> {
        let head: &mut [u8; HEADERS] = frame.first_chunk_mut()?;
        let [.., l0, l1, _, _, _, _, ttl, _, c0, c1, _, _, _, _, _, _, _, _] = head;
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        if length > most {
            return None;
        }
        // RFC 1624 equation 3, simplified for an old word that is one more than the new one.
        let sum = u32::from(u16::from_ne_bytes([*c0, *c1])) + HOP;
        [*c0, *c1] = ((sum + u32::from(sum >= 0xffff)) as u16).to_ne_bytes();
        *ttl = ttl.wrapping_sub(1);
        write_link(head.first_chunk_mut()?, header);
        Some(LINK + length)
    }

    fn path_reader(readers: &Readers) -> &PathReader<u32> {
        &readers.v4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_l3::path::ExceptionSources;
    use artery_wire::build::{ether, ip4};
    use artery_wire::{EtherType, Ipv4};

    #[test]
    fn the_check_of_a_frame_passes_what_validation_does_if_any_router_may_forward_it() {
        let sources = ExceptionSources::new([], false);
        let gate = FrameCheck {
            mac_address: u64::from_le_bytes([0, 0, 2, 0, 0, 0, 0, 1]),
            exception_sources: &sources,
        };
        let packet = ip4().src("10.0.0.1").dst("10.9.0.1").ttl(2).udp(1, 2);
        let whole = ether("02:00:00:00:00:01", "02:00:00:00:00:09").ip4(packet).bytes();
        let mut passed = 0;
        let mut compare = |frame: &[u8]| {
            let valid = Ipv4::validate(&frame[LINK.min(frame.len())..]);
            let is_plain = valid.is_ok_and(|ip| ip.options().is_empty() && ip.ttl() > 1);
            let expected = is_plain && frame[12..LINK] == EtherType::IPV4.0.to_be_bytes();
            assert_eq!(check_ipv4_frame(frame, &gate, |_| 0).1, expected, "{frame:02x?}");
            passed += u32::from(expected);
        };
        for (at, byte) in (12..HEADERS).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
            let mut frame = whole.clone();
            frame[at] = byte;
            compare(&frame);
            if let Ok(mut ip) = Ipv4::new(&mut frame[LINK..]) {
                ip.fill_checksum();
            }
            compare(&frame);
        }
        (0..whole.len()).for_each(|len| compare(&whole[..len]));
        compare(&[&whole[..], b"padding"].concat());
        assert!(passed > 2000, "{passed}");
    }

    #[test]
    fn every_checksum_becomes_what_an_update_makes_of_it() {
        let mut frame = [0; HEADERS];
        for old in 0..=u16::MAX {
            for hops in [1, 64, 255] {
                (frame[22], frame[23]) = (hops, 17);
                frame[24..26].copy_from_slice(&old.to_be_bytes());
                assert_eq!(u32::rewrite_headers(&mut frame, (0, 0), 20), Some(LINK));
                let word = |hops| u16::from_be_bytes([hops, 17]);
                let expected = checksum::update(old, word(hops), word(hops - 1));
                assert_eq!((frame[22], &frame[24..26]), (hops - 1, &expected.to_be_bytes()[..]), "{old:04x}");
            }
        }
    }
}
