use artery_engine::{Annotation, Arg, Class, Context, Field, Handler, Packet, Simple};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "SetIPAddress",
    group: "ip",
    summary: "sets the destination annotation to a fixed address",
    manual: "Sets the destination annotation, or `ANNO`, of every packet to `IPADDR`. The packet's bytes \
        stay as they are.",
    example: "Idle -> SetIPAddress(10.0.0.1) -> Discard;",
    args: &[
        Arg::required("IPADDR", "IP address", "the address"),
        Arg::keyword("ANNO", "annotation", "DST_IP", "the annotation to set"),
    ],
    handlers: &[Handler::field("addr", "the address", &Field(|s: &mut SetIpAddress| &mut s.address))],
    live: true,
    build: |args| {
        let annotation = args.read::<Annotation<4>>("ANNO")?.offset;
        Ok(Box::new(SetIpAddress { address: args.read("IPADDR")?, annotation }))
    },
    ..Class::PER_WORKER
};

struct SetIpAddress {
    address: Ipv4Addr,
    annotation: usize,
}

impl Simple for SetIpAddress {
    fn process(&mut self, mut packet: Packet, _cx: &mut Context<'_>) -> Option<Packet> {
        packet.set_annotation(self.annotation, self.address.octets());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_annotation_is_set_and_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "1.2.3.4");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").dst_ip(), Ipv4Addr::new(1, 2, 3, 4));
        bench.write("addr", "5.6.7.8").unwrap();
        assert_eq!(bench.read("addr", "").unwrap(), "5.6.7.8");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").dst_ip(), Ipv4Addr::new(5, 6, 7, 8));
        assert!(bench.write("addr", "nonsense").is_err());
    }

    #[test]
    fn another_annotation_can_be_named() {
        let mut bench = Bench::new(&CLASS, "1.2.3.4, ANNO AGGREGATE");
        bench.push(0, b"x");
        assert_eq!(bench.expect(0, b"x").annotation(20), [1, 2, 3, 4]);
    }
}
