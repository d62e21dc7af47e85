use super::address::Destination;
use super::name::UdpPort;
use super::packet_id::PacketIds;
use artery_common::ip_header::Fields;
use artery_engine::{
    Arg, ArgError, Args, Class, Context, DropReason, Field, Handler, Packet, Show, Simple, Write, parse_value,
};
use artery_wire::{IpProtocol, Udp, checksum};
use std::any::Any;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "UDPIPEncap",
    group: "ip",
    summary: "puts UDP and IP headers in front of packets",
    manual: "
Puts a UDP and an IP header in front of each packet, from `SRC` and `SPORT` to `DST` and `DPORT`, marks the IP
header, and sets the destination annotation. `DST_ANNO` as `DST` takes the destination from the annotation.
The UDP checksum is computed unless `CHECKSUM` is false. A packet that the headers would make longer than
65535 bytes is dropped.",
    example: "Idle -> UDPIPEncap(1.0.0.1, 1234, 2.0.0.2, 1234) -> Discard;",
    args: &[
        Arg::required("SRC", "IP address", "source address"),
        Arg::required("SPORT", "UDP port", "source port"),
        Arg::required("DST", "IP address or DST_ANNO", "destination address"),
        Arg::required("DPORT", "UDP port", "destination port"),
        Arg::optional("CHECKSUM", "bool", "true", "whether to compute the UDP checksum"),
    ],
    handlers: &[
        Handler::field("src", "the source address", &Field(|u: &mut UdpIpEncap| &mut u.src))
            .sets_argument("SRC"),
        Handler::read("sport", "the source port", &Show(|u: &mut UdpIpEncap| u.src_port))
            .and_write(&Write(|u: &mut UdpIpEncap, text, _| {
                u.src_port = parse_value::<UdpPort>(text)?.0;
                Ok(())
            }))
            .sets_argument("SPORT"),
        Handler::field("dst", "the destination address", &Field(|u: &mut UdpIpEncap| &mut u.dst))
            .sets_argument("DST"),
        Handler::read("dport", "the destination port", &Show(|u: &mut UdpIpEncap| u.dst_port))
            .and_write(&Write(|u: &mut UdpIpEncap, text, _| {
                u.dst_port = parse_value::<UdpPort>(text)?.0;
                Ok(())
            }))
            .sets_argument("DPORT"),
    ],
    finished: true,
    live: true,
    build: |args| Ok(Box::new(UdpIpEncap::new(args)?)),
    ..Class::PER_WORKER
};

struct UdpIpEncap {
    src: Ipv4Addr,
    src_port: u16,
    dst: Destination,
    dst_port: u16,
    checksum: bool,
    ids: PacketIds,
}

impl UdpIpEncap {
    fn new(args: &mut Args<'_>) -> Result<UdpIpEncap, ArgError> {
        Ok(UdpIpEncap {
            src: args.read("SRC")?,
            src_port: args.read::<UdpPort>("SPORT")?.0,
            dst: args.read("DST")?,
            dst_port: args.read::<UdpPort>("DPORT")?.0,
            checksum: args.read("CHECKSUM")?,
            ids: PacketIds::starting_at(0, args),
        })
    }

    fn encapsulate(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        let dst = match self.dst {
            Destination::Annotation => packet.dst_ip(),
            Destination::Fixed(address) => address,
        };
        self.prepend_udp(packet, dst)?;
        let (protocol, src) = (IpProtocol::UDP, self.src);
        Fields { protocol, src, dst, tos: 0, ttl: 250, dont_fragment: false }
            .prepend_header(packet, self.ids.next_id())
    }

    fn prepend_udp(&self, packet: &mut Packet, dst: Ipv4Addr) -> Result<(), DropReason> {
        let length = u16::try_from(packet.len() + Udp::<&[u8]>::LEN).map_err(|_| DropReason::TooLong)?;
        packet.prepend(Udp::<&[u8]>::LEN)?;
        let mut udp = Udp::new(packet.data_mut())?;
        udp.set_src_port(self.src_port);
        udp.set_dst_port(self.dst_port);
        udp.set_length(length);
        udp.set_checksum(0);
        if self.checksum {
            let pseudo = checksum::pseudo_v4(self.src, dst, IpProtocol::UDP, length);
            let sum = !checksum::add(pseudo, checksum::sum(packet.data()));
            let bytes = checksum::never_zero(sum).to_be_bytes();
            packet.data_mut()[6..8].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

impl Simple for UdpIpEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| self.encapsulate(packet))
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<UdpIpEncap>() {
            self.ids.resume_from(&mut old.ids, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, ip4};

    fn datagram() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").ttl(250).udp(1234, 53).payload(b"data!")
    }

    #[test]
    fn packets_get_both_headers_with_right_checksums() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 1234, 2.0.0.2, dns");
        bench.push(0, b"data!");
        bench.push(0, b"data!");
        let first = bench.expect(0, datagram().bytes());
        assert_eq!((first.network_offset(), first.transport_offset()), (Some(0), Some(20)));
        assert_eq!(first.dst_ip(), Ipv4Addr::new(2, 0, 0, 2));
        bench.expect(0, datagram().id(1).bytes());
    }

    #[test]
    fn the_checksum_is_left_out_when_told() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 1234, 2.0.0.2, 53, false");
        bench.push(0, b"data!");
        let mut expected = datagram().bytes();
        expected[26..28].fill(0);
        bench.expect(0, expected);
    }

    #[test]
    fn the_destination_may_come_from_the_annotation() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 1234, DST_ANNO, 53");
        bench.push_with(0, b"data!", |packet| packet.set_dst_ip(Ipv4Addr::new(9, 9, 9, 9)));
        bench.expect(0, datagram().dst("9.9.9.9").bytes());
    }

    #[test]
    fn all_four_ends_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 1234, 2.0.0.2, 53");
        for (handler, value) in [("src", "3.0.0.3"), ("sport", "7"), ("dst", "4.0.0.4"), ("dport", "8")] {
            bench.write(handler, value).unwrap();
            assert_eq!(bench.read(handler, "").unwrap(), value);
        }
        bench.push(0, b"data!");
        let expected = ip4().src("3.0.0.3").dst("4.0.0.4").ttl(250).udp(7, 8).payload(b"data!");
        bench.expect(0, expected.bytes());
    }

    #[test]
    fn wrong_arguments_are_refused_and_long_packets_dropped() {
        assert_eq!(Bench::config_error(&CLASS, "1.0.0.1, 65536, 2.0.0.2, 53"), "SPORT: parse error");
        assert_eq!(Bench::config_error(&CLASS, "1.0.0.1, 1, x, 53"), "DST: parse error");
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 1234, 2.0.0.2, 53");
        bench.push(0, vec![0; 65508]);
        bench.expect_dropped(DropReason::TooLong, 1);
        bench.push(0, vec![0; 65507]);
        assert!(bench.next_sent(0).is_some());
    }
}
