use super::each::edit_each;
use crate::basic::strip::apply_offloads_before;
use artery_engine::{Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "StripToNetworkHeader",
    group: "ip",
    summary: "strips everything before the network header",
    manual: "
Makes packets start at their marked network header: strips what precedes it, or puts it back when it was
stripped. A packet in which none is marked passes unchanged; one that ends before its header is dropped.",
    example: "Idle -> CheckIPHeader(14) -> StripToNetworkHeader -> Discard;",
    build: |_| Ok(Box::new(StripToNetworkHeader)),
    ..Class::PER_WORKER
};

struct StripToNetworkHeader;

/// Removes the bytes before the network header.
pub(crate) fn start_at_network(packet: &mut Packet) -> Result<(), DropReason> {
    let offset = packet.network_offset().unwrap_or(0);
    match usize::try_from(offset) {
        Ok(before) => packet.strip(before).map_err(|_| DropReason::TooShort),
        Err(_) => packet.unstrip(offset.unsigned_abs()).map_err(|_| DropReason::NoRoom),
    }
}

impl Element for StripToNetworkHeader {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        // The marked header may be that of a packet in a packet.
        let before = |packet: &Packet| packet.network_offset().and_then(|offset| offset.try_into().ok());
        apply_offloads_before(batch, cx, |packet| before(packet).unwrap_or(0));
        edit_each(batch, cx, start_at_network);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;

    #[test]
    fn packets_start_at_their_network_header_wherever_it_is() {
        let mut bench = Bench::new(&CLASS, "");
        let mut before = bench.packet(b"linknetwork");
        before.set_network_header(4);
        let mut stripped = bench.packet(b"network");
        stripped.set_network_header(0);
        stripped.strip(3).unwrap();
        let unmarked = bench.packet(b"linknetwork");
        bench.push_packets(0, [before, stripped, unmarked]);
        bench.expect(0, b"network");
        bench.expect(0, b"network");
        bench.expect(0, b"linknetwork");
    }

    #[test]
    fn a_packet_that_ends_before_its_header_is_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push_with(0, b"link", |packet| packet.set_network_header(14));
        bench.expect_dropped(DropReason::TooShort, 1);
        survives_anything(&CLASS, "", 1);
    }
}
