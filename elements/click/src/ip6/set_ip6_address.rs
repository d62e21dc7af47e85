use artery_engine::{Arg, ArgError, Args, Class, Context, Packet, Simple, anno};
use std::net::Ipv6Addr;

pub static CLASS: Class = Class {
    name: "SetIP6Address",
    group: "ip6",
    summary: "sets the IPv6 destination annotation to a fixed address",
    manual: "Sets the IPv6 destination annotation of every packet to `IPADDR`. The packet's bytes stay as \
        they are.",
    example: "Idle -> SetIP6Address(2001:db8::1) -> Discard;",
    args: &[Arg::required("IPADDR", "IPv6 address", "the address")],
    live: true,
    build: |args| Ok(Box::new(SetIp6Address { address: read_address(args)? })),
    ..Class::PER_WORKER
};

struct SetIp6Address {
    address: Ipv6Addr,
}

fn read_address(args: &Args<'_>) -> Result<Ipv6Addr, ArgError> {
    let text: String = args.read("IPADDR")?;
    let address = text.parse().ok().or_else(|| args.names().lookup_ipv6(&text));
    address.ok_or_else(|| ArgError::wrong_at(&text, format!("IPADDR: '{text}' is not a valid IPv6 address")))
}

impl Simple for SetIp6Address {
    fn process(&mut self, mut packet: Packet, _cx: &mut Context<'_>) -> Option<Packet> {
        packet.set_annotation(anno::DST_IP6, self.address.octets());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_annotation_is_set() {
        let mut bench = Bench::new(&CLASS, "2001:db8::7");
        bench.push(0, b"x");
        let address: Ipv6Addr = "2001:db8::7".parse().unwrap();
        assert_eq!(bench.expect(0, b"x").annotation::<16>(anno::DST_IP6), address.octets());
    }
}
