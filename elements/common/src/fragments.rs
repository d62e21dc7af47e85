//! An IPv4 packet split into fragments (RFC 791 section 3.2).
use crate::ip_header;
use artery_engine::{Batch, Context, DropReason, Packet, Time};
use artery_wire::Ipv4;

const MIN_HEADER: usize = 20;
const MAX_HEADER: usize = 60;

/// Bits of the fragment field.
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// How packets are split.
pub struct Fragmenter {
    /// Most bytes of a fragment, with its IP header.
    pub mtu: usize,
    /// Least room for headers in front of the fragments.
    pub headroom: usize,
}

/// The header of later fragments: only options with the copied flag are in it.
struct FragmentHeader {
    bytes: [u8; MAX_HEADER],
    len: usize,
}

/// The flags and the offset of a fragment whose payload is at `at` in that of a packet with this field.
fn fragment_field(field: u16, at: usize, is_last: bool) -> u16 {
    let more = if is_last { field & MORE_FRAGMENTS } else { MORE_FRAGMENTS };
    field & !(OFFSET | MORE_FRAGMENTS) | (field + (at / 8) as u16) & OFFSET | more
}

impl Fragmenter {
    /// Adds all fragments but the first to `rest`, and makes the packet the first, with so much payload. A
    /// packet that can't be split is unchanged.
    pub fn split_packet(
        &self,
        packet: &mut Packet,
        first: usize,
        rest: &mut Batch,
        cx: &mut Context<'_>,
    ) -> Option<()> {
        let ip = ip_header::ip(packet).ok()?;
        let (header_len, field) = (ip.header_len(), ip.fragment_field());
        let excess = ip_header::bytes(packet).len().checked_sub(header_len + first)?;
        let mut header = FragmentHeader::after_first(ip.header());
        let payload = ip.payload();
        let chunk = self.mtu.checked_sub(header.len)? & !7;
        let mut at = first;
        while at < payload.len() {
            let part = &payload[at..payload.len().min(at + chunk)];
            let is_last = at + part.len() == payload.len();
            header.set_lengths(part.len(), fragment_field(field, at, is_last))?;
            match self.build_fragment(packet, &header, part, cx) {
                Some(fragment) => rest.push(fragment),
                None => cx.count_discarded(DropReason::PoolEmpty, 1),
            }
            at += part.len();
        }
        if payload.len() > first {
            let mut ip = ip_header::ip_mut(packet).ok()?;
            ip.set_total_length((header_len + first) as u16);
            ip.set_fragment_field(field | MORE_FRAGMENTS);
            ip.fill_checksum();
            return packet.trim(excess).ok();
        }
        // Only bytes beyond the total length made the packet too long.
        let excess = ip_header::bytes(packet).len() - usize::from(ip.total_length());
        ip_header::ip_mut(packet).ok()?.fill_checksum();
        packet.trim(excess).ok()
    }

    fn build_fragment(
        &self,
        of: &Packet,
        header: &FragmentHeader,
        part: &[u8],
        cx: &Context<'_>,
    ) -> Option<Packet> {
        let len = header.len + part.len();
        let mut packet = cx.pool().alloc_packet_for(len + self.headroom)?;
        let bytes = packet.append(len).ok()?;
        bytes[..header.len].copy_from_slice(&header.bytes[..header.len]);
        bytes[header.len..].copy_from_slice(part);
        if packet.headroom() < self.headroom {
            packet.make_room(self.headroom, 0).ok()?;
        }
        ip_header::mark_header(&mut packet, 0, header.len);
        copy_annotations(&mut packet, of);
        Some(packet)
    }
}

pub fn copy_annotations(to: &mut Packet, from: &Packet) {
    to.set_annotation(0, from.annotation::<20>(0));
    let cold = from.annotation::<28>(20);
    if cold != [0; 28] {
        to.set_annotation(20, cold);
    }
    if from.timestamp() != Time::ZERO {
        to.set_timestamp(from.timestamp());
    }
    to.set_packet_type(from.packet_type());
    to.set_in_port(from.in_port());
    to.copy_mark(from);
}

impl FragmentHeader {
    /// The header of a fragment after the first, without its lengths and offset.
    fn after_first(first: &[u8]) -> FragmentHeader {
        let mut header = FragmentHeader { bytes: [0; MAX_HEADER], len: MIN_HEADER };
        header.bytes[..MIN_HEADER].copy_from_slice(&first[..MIN_HEADER]);
        let mut options = &first[MIN_HEADER..];
        while let [kind, rest @ ..] = options {
            options = match (kind, rest.first()) {
                (0, _) => break,
                (1, _) => rest,
                (_, Some(len)) if (2..=options.len()).contains(&usize::from(*len)) => {
                    let (option, after) = options.split_at((*len).into());
                    header.copy_option(option);
                    after
                }
                _ => break,
            };
        }
        header.len = header.len.next_multiple_of(4);
        header.bytes[0] = 0x40 | (header.len / 4) as u8;
        header
    }

    /// Copies an option whose copied flag is set.
    fn copy_option(&mut self, option: &[u8]) {
        if option[0] & 0x80 != 0 {
            self.bytes[self.len..self.len + option.len()].copy_from_slice(option);
            self.len += option.len();
        }
    }

    fn set_lengths(&mut self, payload: usize, field: u16) -> Option<()> {
        let total = (self.len + payload) as u16;
        let mut ip = Ipv4::new(&mut self.bytes[..self.len]).ok()?;
        ip.set_total_length(total);
        ip.set_fragment_field(field);
        ip.fill_checksum();
        Some(())
    }
}
