use artery_common::ip_header;
use artery_engine::{Arg, Batch, Class, Context, Element, Packet, anno};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "FixIPSrc",
    group: "ip",
    summary: "sets the source address where the annotation asks for it",
    manual: "
Expects marked IP packets. A packet whose fix-source annotation is set gets the source address `IPADDR` and a
new header checksum, and loses the annotation. ICMPError sets it, because an error must come from the address
of the interface that it leaves by. All other packets pass unchanged.",
    example: "Idle -> FixIPSrc(18.26.4.24) -> Discard;",
    args: &[Arg::required("IPADDR", "IP address", "the address of the interface downstream")],
    build: |args| Ok(Box::new(FixIpSrc { address: args.read("IPADDR")? })),
    ..Class::PER_WORKER
};

struct FixIpSrc {
    address: Ipv4Addr,
}

/// Sets a packet's source if its annotation requests that.
#[inline]
pub(super) fn fix_source(packet: &mut Packet, address: Ipv4Addr) {
    if packet.annotation(anno::FIX_IP_SRC) != [0] && packet.network_offset().is_some() {
        set_source(packet, address);
    }
}

#[cold]
fn set_source(packet: &mut Packet, address: Ipv4Addr) {
    packet.set_annotation(anno::FIX_IP_SRC, [0]);
    if let Ok(mut header) = ip_header::ip_mut(packet) {
        header.set_src(address);
        header.fill_checksum();
    }
}

impl Element for FixIpSrc {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| fix_source(packet, self.address));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, ip4};

    fn icmp() -> Ip4 {
        ip4().src("1.1.1.1").icmp_echo(1, 2)
    }

    #[test]
    fn an_annotated_packet_gets_the_address_and_loses_the_annotation() {
        let mut bench = Bench::new(&CLASS, "18.26.4.24");
        let mut packet = bench.packet(icmp().bytes());
        packet.set_annotation(anno::FIX_IP_SRC, [1]);
        packet.set_network_header(0);
        bench.push_packets(0, [packet]);
        let fixed = bench.expect(0, icmp().src("18.26.4.24").bytes());
        assert_eq!(fixed.annotation(anno::FIX_IP_SRC), [0]);
    }

    #[test]
    fn other_packets_pass_unchanged() {
        let mut bench = Bench::new(&CLASS, "18.26.4.24");
        bench.push(0, icmp().bytes());
        bench.expect(0, icmp().bytes());
        survives_anything(&CLASS, "18.26.4.24", 1);
    }
}
