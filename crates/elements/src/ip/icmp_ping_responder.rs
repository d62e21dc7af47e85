use super::ip_header;
use artery_engine::{Class, Context, DropReason, Packet, Simple, anno};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4, checksum};

pub static CLASS: Class = Class {
    name: "ICMPPingResponder",
    group: "ip",
    summary: "answers ICMP echo requests",
    manual: "
Expects marked IP packets. An ICMP echo request becomes its reply and leaves by output 0: addresses swapped, time to live
255, fragment bits cleared, destination annotation set, paint cleared, and the time of now as its timestamp. Source
routes are not reversed. All other packets leave by output 1, or are dropped when there is none.",
    example: "Idle -> CheckIPHeader -> ICMPPingResponder -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    per_worker: true,
    build: |_| Ok(Box::new(IcmpPingResponder)),
    ..Class::DEFAULT
};

struct IcmpPingResponder;

/// Turns a request into its reply with this time to live; any other packet is unchanged.
pub(crate) fn answer_echo(packet: &mut Packet, ttl: u8) -> Option<()> {
    let ip = ip_header::ip(packet).ok()?;
    let header_len = ip.header_len();
    let asks = |icmp: &Icmp<&[u8]>| icmp.icmp_type() == IcmpType::ECHO_REQUEST;
    let message = &ip_header::bytes(packet)[header_len..];
    Icmp::new(message).ok().filter(|icmp| ip.protocol() == IpProtocol::ICMP && asks(icmp))?;

    let (header, message) = ip_header::bytes_mut(packet).split_at_mut(header_len);
    turn_around(&mut Ipv4::new(&mut *header).ok()?, ttl);
    make_reply(message)?;
    let dst = Ipv4::new(&*header).ok()?.dst();
    packet.set_dst_ip(dst);
    Some(())
}

/// Swaps the addresses, which does not affect the checksum, and updates it for the other fields.
fn turn_around(ip: &mut Ipv4<&mut [u8]>, ttl: u8) {
    let (src, dst) = (ip.src(), ip.dst());
    ip.set_src(dst);
    ip.set_dst(src);
    let ttl_word = |ttl: u8, ip: &Ipv4<&mut [u8]>| u16::from_be_bytes([ttl, ip.protocol().0]);
    let sum = checksum::update(ip.checksum(), ip.fragment_field(), 0);
    let sum = checksum::update(sum, ttl_word(ip.ttl(), ip), ttl_word(ttl, ip));
    ip.set_fragment_field(0);
    ip.set_ttl(ttl);
    ip.set_checksum(sum);
}

/// Sets type and code, and corrects the checksum.
fn make_reply(message: &mut [u8]) -> Option<()> {
    let mut icmp = Icmp::new(&mut *message).ok()?;
    let request = u16::from_be_bytes([icmp.icmp_type().0, icmp.code()]);
    let sum = checksum::update(icmp.checksum(), request, 0);
    icmp.set_icmp_type(IcmpType::ECHO_REPLY);
    icmp.set_code(0);
    icmp.set_checksum(sum);
    // Only an all-zero message has the sum zero, which the update can't distinguish from its complement.
    if message.iter().all(|byte| *byte == 0) {
        Icmp::new(message).ok()?.set_checksum(0xffff);
    }
    Some(())
}

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
    use crate::ip::ip_header::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{icmp_echo, ip4};

    #[test]
    fn a_request_becomes_its_reply() {
        for payload in [&b""[..], b"odd", b"even"] {
            let mut bench = Bench::new(&CLASS, "");
            let request = icmp_echo("1.0.0.1", "2.0.0.2", 5, 6).ttl(3).dont_fragment().payload(payload);
            let mut packet = bench.packet(request.bytes());
            packet.set_annotation(anno::PAINT, [3]);
            bench.push_packets(0, [packet]);
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
