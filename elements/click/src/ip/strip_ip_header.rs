use super::each::edit_each;
use crate::basic::strip::apply_offloads_before;
use artery_common::ip_header;
use artery_engine::{Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "StripIPHeader",
    group: "ip",
    summary: "strips the outermost IP header",
    manual: "
Expects marked IP packets and strips everything before the transport header. The marks stay, so that
UnstripIPHeader can undo it; a packet in a packet needs a CheckIPHeader or MarkIPHeader after this. Packets
that end before their transport header, or whose header is marked nowhere, are dropped.",
    example: "Idle -> CheckIPHeader -> StripIPHeader -> CheckIPHeader -> Discard;",
    build: |_| Ok(Box::new(StripIpHeader)),
    ..Class::PER_WORKER
};

struct StripIpHeader;

/// Bytes before the transport header; negative when it was stripped already.
fn before_transport(packet: &Packet) -> Option<isize> {
    let by_header = || ip_header::ip(packet).ok().map(|ip| ip.header_len() as isize);
    packet.transport_offset().or_else(by_header)
}

/// Bytes to be stripped.
fn strip_length(packet: &Packet) -> Option<usize> {
    before_transport(packet).map(|bytes| usize::try_from(bytes).unwrap_or(0))
}

impl Element for StripIpHeader {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        apply_offloads_before(batch, cx, |packet| strip_length(packet).unwrap_or(0));
        edit_each(batch, cx, |packet| {
            strip_length(packet).and_then(|length| packet.strip(length).ok()).ok_or(DropReason::TooShort)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn header_options_and_what_precedes_them_are_stripped() {
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = bench.packet([vec![0; 14], ip4().options([1; 4]).raw(4, b"inner").bytes()].concat());
        ip_header::mark_header(&mut packet, 14, 24);
        bench.push_packets(0, [packet]);
        assert_eq!(bench.expect(0, b"inner").network_offset(), Some(-24));
        bench.push(0, ip4().raw(4, b"inner").bytes());
        bench.expect(0, b"inner");
    }

    #[test]
    fn a_packet_that_ends_before_its_transport_header_is_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, &ip4().udp(1, 2).bytes()[..19]);
        bench.expect_dropped(DropReason::TooShort, 1);
        survives_anything(&CLASS, "", 1);
    }
}
