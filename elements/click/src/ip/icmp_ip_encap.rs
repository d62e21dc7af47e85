use super::name::{IcmpTypeName, read_icmp_code};
use artery_common::ip_header::Fields;
use artery_engine::{Arg, ArgError, Args, Class, Context, DropReason, Field, Handler, Packet, Simple};
use artery_wire::{Icmp, IpProtocol};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "ICMPIPEncap",
    group: "ip",
    summary: "puts ICMP and IP headers in front of packets",
    manual: "
Puts an ICMP header of TYPE and CODE, and an IP header from SRC to DST, in front of each packet, marks the IP
header, and sets the destination annotation. Echoes, timestamps and information requests and replies have
IDENTIFIER and a sequence number, which begins at 1 and grows by one with each packet, as the IP
identification does; 0 is left out. A packet that the headers would make longer than 65535 bytes is dropped.",
    example: "InfiniteSource(LIMIT 5) -> ICMPIPEncap(10.0.0.1, 10.0.0.2, echo) -> Discard;",
    args: &[
        Arg::required("SRC", "IP address", "source address"),
        Arg::required("DST", "IP address", "destination address"),
        Arg::required("TYPE", "ICMP type", "type by name or number"),
        Arg::optional("CODE", "ICMP code", "0", "code by name or number"),
        Arg::keyword("IDENTIFIER", "0 to 65535", "0", "identifier of messages that have one"),
    ],
    handlers: &[
        Handler::field("src", "the source address", &Field(|e: &mut IcmpIpEncap| &mut e.src)),
        Handler::field("dst", "the destination address", &Field(|e: &mut IcmpIpEncap| &mut e.dst)),
    ],
    build: |args| Ok(Box::new(IcmpIpEncap::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

struct IcmpIpEncap {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    kind: u8,
    code: u8,
    identifier: u16,
    /// Sequence number and IP identification of the next packet.
    sequence: u16,
}

impl IcmpIpEncap {
    fn new(args: &Args<'_>) -> Result<IcmpIpEncap, ArgError> {
        let IcmpTypeName(kind) = args.read("TYPE")?;
        let code = read_icmp_code(kind, &args.read::<String>("CODE")?);
        Ok(IcmpIpEncap {
            src: args.read("SRC")?,
            dst: args.read("DST")?,
            kind,
            code: code.ok_or_else(|| ArgError::wrong("invalid CODE"))?,
            identifier: args.read("IDENTIFIER")?,
            sequence: 1,
        })
    }

    /// Timestamps have three times behind the header that all messages have.
    fn header_len(&self) -> usize {
        if matches!(self.kind, 13 | 14) { 20 } else { Icmp::<&[u8]>::LEN }
    }

    fn encapsulate(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let header = packet.prepend(self.header_len())?;
        header.fill(0);
        header[..2].copy_from_slice(&[self.kind, self.code]);
        let mut icmp = Icmp::new(packet.data_mut())?;
        if matches!(self.kind, 0 | 8 | 13..=16) {
            icmp.set_echo_id(self.identifier);
            icmp.set_echo_seq(self.sequence);
        }
        icmp.fill_checksum();
        let (protocol, src, dst) = (IpProtocol::ICMP, self.src, self.dst);
        Fields { protocol, src, dst, tos: 0, ttl: 255, dont_fragment: false }
            .prepend_header(packet, self.sequence)
    }
}

impl Simple for IcmpIpEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| {
            self.encapsulate(packet)?;
            self.sequence = self.sequence.checked_add(1).unwrap_or(1);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::icmp_echo;

    #[test]
    fn echoes_are_numbered() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2, echo, IDENTIFIER 7");
        for sequence in [1, 2] {
            bench.push(0, b"data!");
            let ping = icmp_echo("1.0.0.1", "2.0.0.2", 7, sequence).id(sequence).ttl(255).payload(b"data!");
            let packet = bench.expect(0, ping.bytes());
            assert_eq!((packet.network_offset(), packet.dst_ip()), (Some(0), Ipv4Addr::new(2, 0, 0, 2)));
        }
    }

    #[test]
    fn types_and_codes_have_names() {
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2, unreachable, port, IDENTIFIER 7");
        bench.push(0, b"x");
        let packet = bench.next_sent(0).unwrap();
        assert_eq!(packet.len(), 29);
        assert_eq!(&packet.data()[20..22], &[3, 3][..]);
        assert_eq!(&packet.data()[24..28], &[0; 4][..]);
        let mut bench = Bench::new(&CLASS, "1.0.0.1, 2.0.0.2, timestamp");
        bench.push(0, b"");
        assert_eq!(bench.next_sent(0).unwrap().len(), 40);
        assert_eq!(Bench::config_error(&CLASS, "1.0.0.1, 2.0.0.2, echo, port"), "invalid CODE");
        bench.write("dst", "3.0.0.3").unwrap();
        assert_eq!(bench.read("dst", "").unwrap(), "3.0.0.3");
    }
}
