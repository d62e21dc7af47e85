use super::fix_ip_src;
use super::ip_gw_options::{OptionsError, process_options, send_mistaken};
use artery_common::ip_header;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet, PacketType};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "IPOutputCombo",
    group: "ip",
    summary: "does what IP packets need where they leave, in one element",
    manual: "
Expects marked IP packets and does what this chain does:

```
DropBroadcasts -> p :: PaintTee(COLOR) -> g :: IPGWOptions(IPADDR) -> FixIPSrc(IPADDR)
               -> d :: DecIPTTL -> l :: CheckLength(MTU);
```

Packets that may leave do so by output 0, copies of those with paint COLOR, about which a redirect is sent, by
output 1. Those with bad options leave by output 2, those whose time-to-live ran out by output 3, and those
longer than MTU by output 4, for an IPFragmenter. What came as a broadcast is dropped.",
    example: "Idle -> c :: IPOutputCombo(1, 18.26.4.24, 1500) -> Discard;\n\
        c[1] -> Discard; c[2] -> Discard; c[3] -> Discard; c[4] -> Discard;",
    ports: "1/5",
    processing: "h/h",
    args: &[
        Arg::required("COLOR", "0 to 255", "paint of packets that came by this interface"),
        Arg::required("IPADDR", "IP address", "the interface's address"),
        Arg::required("MTU", "bytes", "most bytes that a packet may have"),
    ],
    finished: true,
    build: |args| Ok(Box::new(IpOutputCombo::new(args)?)),
    ..Class::PER_WORKER
};

const REDIRECT: usize = 1;
const BAD_OPTION: usize = 2;
const EXPIRED: usize = 3;
const TOO_LONG: usize = 4;

struct IpOutputCombo {
    color: u8,
    address: Ipv4Addr,
    mtu: usize,
}

impl IpOutputCombo {
    fn new(args: &Args<'_>) -> Result<IpOutputCombo, ArgError> {
        let mtu = args.read::<u32>("MTU")? as usize;
        Ok(IpOutputCombo { color: args.read("COLOR")?, address: args.read("IPADDR")?, mtu })
    }

    fn send_packet(&self, mut packet: Packet, cx: &mut Context<'_>) {
        if matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast) {
            return cx.discard(packet, DropReason::Broadcast);
        }
        if packet.paint() == self.color
            && let Some(copy) = cx.duplicate_packet(&packet)
        {
            cx.send(REDIRECT, copy);
        }
        match process_options(&mut packet, self.address, &[self.address], cx.now()) {
            Ok(()) => {}
            Err(OptionsError::NoHeader(malformed)) => {
                return cx.discard(packet, malformed.into());
            }
            Err(OptionsError::Option(mistake)) => return send_mistaken(BAD_OPTION, packet, mistake, cx),
        }
        fix_ip_src::fix_source(&mut packet, self.address);
        let Ok(mut header) = ip_header::ip_mut(&mut packet) else {
            return cx.discard(packet, DropReason::Malformed);
        };
        if header.ttl() <= 1 {
            return cx.send(EXPIRED, packet);
        }
        header.decrement_ttl();
        let output = if packet.len() > self.mtu { TOO_LONG } else { 0 };
        cx.send(output, packet);
    }
}

impl Element for IpOutputCombo {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.drain().for_each(|packet| self.send_packet(packet, cx));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, anno};
    use artery_wire::build::{Ip4, ip4};

    const CONFIG: &str = "7, 1.2.3.4, 100";

    fn bench() -> Bench {
        Bench::setup(&CLASS, CONFIG).outputs(5).build().unwrap()
    }
    fn push(bench: &mut Bench, packet: &Ip4, change: impl Fn(&mut Packet)) {
        let mut packet = bench.packet(packet.clone().bytes());
        let header_len = usize::from(packet.data()[0] & 0xf) * 4;
        ip_header::mark_header(&mut packet, 0, header_len);
        change(&mut packet);
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn a_packet_that_may_leave_has_a_hop_less() {
        let mut bench = bench();
        push(&mut bench, &ip4().ttl(9).udp(1, 2), |_| {});
        bench.expect(0, ip4().ttl(8).udp(1, 2).bytes());
        bench.expect_nothing_more();
    }

    #[test]
    fn a_packet_that_came_from_here_is_copied_as_it_came() {
        let mut bench = bench();
        push(&mut bench, &ip4().ttl(9).udp(1, 2), |packet| packet.set_annotation(anno::PAINT, [7]));
        bench.expect(1, ip4().ttl(9).udp(1, 2).bytes());
        bench.expect(0, ip4().ttl(8).udp(1, 2).bytes());
    }

    #[test]
    fn a_broadcast_is_dropped() {
        let mut bench = bench();
        push(&mut bench, &ip4().udp(1, 2), |packet| packet.set_packet_type(PacketType::Broadcast));
        bench.expect_dropped(DropReason::Broadcast, 1);
    }

    #[test]
    fn options_are_heeded() {
        let mut bench = bench();
        push(&mut bench, &ip4().ttl(9).options([7, 7, 4, 0, 0, 0, 0, 0]).udp(1, 2), |_| {});
        bench.expect(0, ip4().ttl(8).options([7, 7, 8, 1, 2, 3, 4, 0]).udp(1, 2).bytes());
        let bad = ip4().ttl(9).options([7, 1, 0, 0]).udp(1, 2);
        push(&mut bench, &bad, |_| {});
        assert_eq!(bench.expect(2, bad.bytes()).annotation(anno::ICMP_PARAM_PROB), [21]);
    }

    #[test]
    fn the_source_is_fixed_where_that_is_asked_for() {
        let mut bench = bench();
        push(&mut bench, &ip4().ttl(9).icmp_echo(1, 2), |packet| {
            packet.set_annotation(anno::FIX_IP_SRC, [1])
        });
        bench.expect(0, ip4().src("1.2.3.4").ttl(8).icmp_echo(1, 2).bytes());
    }

    #[test]
    fn expired_and_long_packets_are_turned_aside() {
        let mut bench = bench();
        push(&mut bench, &ip4().ttl(1).udp(1, 2), |_| {});
        bench.expect(3, ip4().ttl(1).udp(1, 2).bytes());
        let sized = |ttl, payload| ip4().ttl(ttl).udp(1, 2).payload(vec![1; payload]);
        push(&mut bench, &sized(9, 72), |_| {});
        bench.expect(0, sized(8, 72).bytes());
        push(&mut bench, &sized(9, 73), |_| {});
        bench.expect(4, sized(8, 73).bytes());
    }
}
