use artery_common::echo_reply::answer_echo;
use artery_engine::{Class, Context, DropReason, Packet, Simple, anno};

pub static CLASS: Class = Class {
    name: "ICMPPingResponder",
    group: "ip",
    summary: "answers ICMP echo requests",
    manual: "
Expects marked IP packets. An ICMP echo request becomes its reply and leaves by output 0: addresses swapped,
time to live 255, fragment bits cleared, destination annotation set, paint cleared, and the time of now as its
timestamp. Source routes are not reversed. All other packets leave by output 1, or are dropped when there is
none.",
    example: "Idle -> CheckIPHeader -> ICMPPingResponder -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    build: |_| Ok(Box::new(IcmpPingResponder)),
    ..Class::PER_WORKER
};

struct IcmpPingResponder;

impl Simple for IcmpPingResponder {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        // As in Click.
        if answer_echo(&mut packet, u8::MAX).is_none() {
            cx.send_or_discard(1, packet, DropReason::NotForUs);
            return None;
        }
        packet.set_annotation(anno::PAINT, [0]);
        packet.set_timestamp(cx.now());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::Icmp;
    use artery_wire::build::{icmp_echo, ip4};

    #[test]
    fn a_request_becomes_its_reply() {
        for payload in [&b""[..], b"odd", b"even"] {
            let mut bench = Bench::new(&CLASS, "");
            let request = icmp_echo("1.0.0.1", "2.0.0.2", 5, 6).ttl(3).dont_fragment().payload(payload);
            bench.push_with(0, request.bytes(), |packet| packet.set_annotation(anno::PAINT, [3]));
            let reply = ip4().src("2.0.0.2").dst("1.0.0.1").ttl(255).icmp_echo_reply(5, 6).payload(payload);
            let packet = bench.expect(0, reply.bytes());
            assert_eq!((packet.dst_ip().octets(), packet.paint()), ([1, 0, 0, 1], 0));
            assert_eq!(packet.timestamp(), bench.now());
        }
    }

    #[test]
    fn a_reply_of_zeroes_has_a_valid_checksum() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, icmp_echo("1.0.0.1", "2.0.0.2", 0, 0).payload([0; 8]).bytes());
        let reply = bench.next_sent(0).unwrap();
        assert!(Icmp::new(&reply.data()[20..]).unwrap().checksum_is_valid());
    }

    #[test]
    fn everything_else_leaves_by_output_1() {
        let reply = ip4().icmp_echo_reply(1, 2).bytes();
        let mut bench = Bench::new(&CLASS, "");
        for bytes in [&reply, &ip4().udp(1, 2).bytes(), &ip4().raw(1, [8, 0, 0]).bytes()] {
            bench.push(0, bytes);
            bench.expect(1, bytes);
        }
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, reply);
        bench.expect_dropped(DropReason::NotForUs, 1);
        survives_anything(&CLASS, "", 2);
    }
}
