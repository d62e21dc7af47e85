use crate::fast_path::{ForwardFamily, FrameCheck, LINK, write_link};
use crate::forward::{self, Forward};
use artery_engine::{Class, Packet, anno};
use artery_l3::path::PathReader;
use artery_l3::router::Readers;

pub static CLASS: Class = Class {
    name: "IP6Forward",
    group: "router",
    summary: "forwards IPv6 frames between the ports of a router",
    manual: "
Forwards whole Ethernet frames by the routes and neighbors of ROUTER, an IPRouter, in one pass over a batch:
all that CheckIP6Header, LookupNextHop, DecIP6HLIM and LinkHeader do together. Input I takes the IPv6 frames
that port I of the router received, output I leads to port I. A forwarded frame has its hop limit decremented,
the link addresses of its next hop and of the port, and no padding; nothing else of it changes. A packet with
an IPv6 destination annotation, as FlowBalancer gives it, goes where that leads instead of to its destination:
one that came out of an IPv4 tunnel must have none.

Exceptions leave unchanged by the last output, behind those of the ports, with the number of the port that
received them as paint annotation. It leads to the same input of ROUTER, the slow path. Exceptions are:
- frames that are truncated, not IPv6, or sent to another MAC address
- packets with hop-by-hop options, with no hop left, or from a source address that no packet may have; other
  extension headers are not looked at
- packets for the router itself, to multicast addresses, and from or to link-local addresses
- packets without a route, or whose neighbor is not known
- packets longer than the next hop's MTU; of packets that hosts leave uncut, each segment has to fit
- packets that would leave by the port they came by, unless that has REDIRECTS off, or the whole batch has
  destination annotations

With `--ipfix ADDR,sample=N` one of N frames that come here is exported to a collector, with `--psample N` to
the kernel's PSAMPLE group, as it arrived, with the interfaces of both ports; frames with a destination
annotation are not.

Frames of a port that is monitored (see FromDevice) end here at l2, once they were checked, and at l3, once
all was decided and done.",
    example: "\
ip :: IPRouter(PORT eth1 2001:db8:1::1/64 ETHER 2:0:0:0:0:1, PORT eth2 2001:db8:2::1/64 ETHER 2:0:0:0:0:2);
f6 :: IP6Forward(ip);
Idle -> f6; Idle -> [1] f6;
f6[0] -> Discard; f6[1] -> Discard;
f6[2] -> slow :: PaintSwitch; slow[0] -> ip; slow[1] -> [1] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: forward::ARGS,
    build: |args| Ok(Box::new(Forward::<u128>::new(args, &CLASS)?)),
    ..Class::PER_WORKER
};

/// Bytes of an IPv6 header, and of that with a link header.
const HEADER: usize = 40;
const HEADERS: usize = LINK + HEADER;
/// EtherType and version, as bits of the first four bytes from the EtherType on.
const PLAIN: u32 = 0x86dd_6000;
const PLAIN_MASK: u32 = 0xffff_f000;
/// The next header of options that every hop must process.
const HOP_BY_HOP: u8 = 0;

impl ForwardFamily for u128 {
    #[inline]
    fn check_header(frame: &[u8], gate: &FrameCheck<'_>) -> (u128, bool) {
        let Some(head) = frame.first_chunk::<HEADERS>() else { return (0, false) };
        let [d0, d1, d2, d3, d4, d5, s0, s1, _, _, _, _, t0, t1, v0, v1, _, _, l0, l1, next, hops, ..] =
            *head;
        // The first word of a frame has two bytes beyond its destination.
        let station = u64::from_le_bytes([d0, d1, d2, d3, d4, d5, s0, s1]) << 16;
        let kind = u32::from_be_bytes([t0, t1, v0, v1]) & PLAIN_MASK;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let is_whole = length <= frame.len() - HEADERS;
        let (source, destination) = read_addresses(head);
        let is_plain =
            (station == gate.mac_address) & (kind == PLAIN) & is_whole & (next != HOP_BY_HOP) & (hops > 1);
        (destination, is_plain & !is_exception_source(source))
    }

    fn recheck_header(_: &[u8], _: &FrameCheck<'_>) -> bool {
        false
    }

    #[inline]
    fn source_and_destination(frame: &[u8]) -> (u128, u128) {
        frame.first_chunk().map_or((0, 0), read_addresses)
    }

    #[inline]
    fn destination_annotation(packet: &Packet) -> u128 {
        u128::from_be_bytes(packet.annotation(anno::DST_IP6))
    }

    #[inline]
    fn redirect_packet(packet: &mut Packet, towards: u128) {
        packet.set_annotation(anno::DST_IP6, towards.to_be_bytes());
    }

    #[inline]
    fn last_bits(self) -> usize {
        (self ^ self >> 16 ^ self >> 64) as usize
    }

    #[inline]
    fn rewrite_headers(frame: &mut [u8], header: (u64, u32), most: usize) -> Option<usize> {
        let head: &mut [u8; HEADERS] = frame.first_chunk_mut()?;
        let length = HEADER + usize::from(u16::from_be_bytes([head[LINK + 4], head[LINK + 5]]));
        if length > most {
            return None;
        }
        head[LINK + 7] = head[LINK + 7].wrapping_sub(1);
        write_link(head.first_chunk_mut()?, header);
        Some(LINK + length)
    }

    fn path_reader(readers: &Readers) -> &PathReader<u128> {
        &readers.v6
    }
}

#[inline]
fn read_addresses(head: &[u8; HEADERS]) -> (u128, u128) {
    let address = |at: usize| {
        let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        u128::from(word(at)) << 64 | u128::from(word(at + 8))
    };
    (address(LINK + 8), address(LINK + 24))
}

/// Whether packets with this source need the slow path: groups, link-local addresses, and all below 1::, such
/// as the unspecified address, loopback and embedded IPv4 addresses.
#[inline]
fn is_exception_source(source: u128) -> bool {
    let first = (source >> 112) as u16;
    (first >> 8 == 0xff) | (first & 0xffc0 == 0xfe80) | (first == 0)
}
