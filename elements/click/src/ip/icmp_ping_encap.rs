use artery_common::ip_header::Fields;
use artery_engine::{Arg, Class, Context, DropReason, Field, Handler, Packet, Simple};
use artery_wire::{Icmp, IcmpType, IpProtocol};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "ICMPPingEncap",
    group: "ip",
    summary: "makes ICMP echo requests of packets",
    manual: "
Puts an ICMP echo request and an IP header, from `SRC` to `DST`, in front of each packet, marks the IP header,
and sets the destination annotation. Sequence number and IP identification begin at 1 and grow by one with
each packet; 0 is left out. A packet that the headers would make longer than 65535 bytes is dropped.",
    example: "InfiniteSource(LIMIT 5) -> ICMPPingEncap(10.0.0.1, 10.0.0.2, IDENTIFIER 7) -> Discard;",
    args: &[
        Arg::required("SRC", "IP address", "source address"),
        Arg::required("DST", "IP address", "destination address"),
        Arg::keyword("IDENTIFIER", "0 to 65535", "0", "the echo's identifier"),
    ],
    handlers: &[
        Handler::field("src", "the source address", &Field(|e: &mut IcmpPingEncap| &mut e.request.src)),
        Handler::field("dst", "the destination address", &Field(|e: &mut IcmpPingEncap| &mut e.request.dst)),
    ],
    build: |args| {
        let (src, dst, identifier) = (args.read("SRC")?, args.read("DST")?, args.read("IDENTIFIER")?);
        Ok(Box::new(IcmpPingEncap { request: EchoRequest { src, dst, ttl: 255, identifier }, sequence: 1 }))
    },
    finished: true,
    ..Class::DEFAULT
};

struct IcmpPingEncap {
    request: EchoRequest,
    /// Sequence number and IP identification of the next packet.
    sequence: u16,
}

/// An echo request, beside its data and its number.
pub(super) struct EchoRequest {
    pub(super) src: Ipv4Addr,
    pub(super) dst: Ipv4Addr,
    pub(super) ttl: u8,
    pub(super) identifier: u16,
}

impl EchoRequest {
    /// Adds the headers of a request; `sequence` is the IP identification, too.
    pub(super) fn prepend_headers(&self, packet: &mut Packet, sequence: u16) -> Result<(), DropReason> {
        packet.prepend(Icmp::<&[u8]>::LEN)?.fill(0);
        let mut icmp = Icmp::new(packet.data_mut())?;
        icmp.set_icmp_type(IcmpType::ECHO_REQUEST);
        icmp.set_echo_id(self.identifier);
        icmp.set_echo_seq(sequence);
        icmp.fill_checksum();
        let (protocol, src, dst, ttl) = (IpProtocol::ICMP, self.src, self.dst, self.ttl);
        Fields { protocol, src, dst, tos: 0, ttl, dont_fragment: false }.prepend_header(packet, sequence)
    }
}

impl Simple for IcmpPingEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| {
            self.request.prepend_headers(packet, self.sequence)?;
            self.sequence = self.sequence.checked_add(1).unwrap_or(1);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, icmp_echo};

    fn ping(sequence: u16) -> Ip4 {
        icmp_echo("1.0.0.1", "2.0.0.2", 7, sequence).id(sequence).ttl(255).payload(b"data!")
    }

    #[test]
    fn packets_become_numbered_requests() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2, IDENTIFIER 7");
        bench.push(0, b"data!");
        bench.push(0, b"data!");
        let first = bench.expect(0, ping(1).bytes());
        assert_eq!((first.network_offset(), first.dst_ip()), (Some(0), Ipv4Addr::new(2, 0, 0, 2)));
        bench.expect(0, ping(2).bytes());
    }

    #[test]
    fn after_65535_comes_1() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2, IDENTIFIER 7");
        for _ in 0..u16::MAX {
            bench.push(0, b"");
            bench.next_sent(0).unwrap();
        }
        bench.push(0, b"data!");
        bench.expect(0, ping(1).bytes());
    }

    #[test]
    fn addresses_can_be_changed_live_and_long_packets_are_dropped() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2");
        bench.write("src", "3.0.0.3").unwrap();
        bench.write("dst", "4.0.0.4").unwrap();
        assert_eq!(bench.read("src", "").unwrap(), "3.0.0.3");
        assert_eq!(bench.read("dst", "").unwrap(), "4.0.0.4");
        bench.push(0, vec![0; 65508]);
        bench.expect_dropped(DropReason::TooLong, 1);
        assert_eq!(Bench::config_error(&CLASS, "1.0.0.1"), "DST: required argument missing");
    }
}
