use artery_engine::{Class, Context, Packet, Simple};

pub static CLASS: Class = Class {
    name: "UnstripIPHeader",
    group: "ip",
    summary: "puts a stripped IP header back",
    manual: "
Puts back the IP header, and all that was stripped after it, of a packet whose header CheckIPHeader or
MarkIPHeader marked. A packet that still has its header, or in which none is marked, passes unchanged.",
    example: "Idle -> CheckIPHeader -> StripIPHeader -> UnstripIPHeader -> Discard;",
    build: |_| Ok(Box::new(UnstripIpHeader)),
    ..Class::PER_WORKER
};

struct UnstripIpHeader;

impl Simple for UnstripIpHeader {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let stripped = packet.network_offset().map_or(0, |offset| usize::try_from(-offset).unwrap_or(0));
        cx.edit_or_discard(packet, |packet| Ok(packet.unstrip(stripped)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn what_was_stripped_comes_back_and_the_rest_passes() {
        let bytes = ip4().udp(1, 2).bytes();
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = bench.packet(&bytes);
        packet.set_network_header(0);
        packet.strip(20).unwrap();
        bench.push_packets(0, [packet]);
        bench.expect(0, &bytes);
        bench.push(0, &bytes);
        bench.expect(0, &bytes);
        survives_anything(&CLASS, "", 1);
    }
}
