use super::address::List;
use super::name::{IcmpTypeName, read_icmp_code};
use super::packet_id::PacketIds;
use super::strip_to_network_header::start_at_network;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Args, Class, Context, DropReason, Field, Handler, Packet, PacketType, Simple, anno,
};
use artery_wire::{AnswerHeader, Forbidden, IcmpAnswer, IcmpError as Error, IcmpType};
use std::any::Any;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "ICMPError",
    group: "ip",
    summary: "makes ICMP errors of packets",
    manual: "
Expects marked IP packets, and makes of each an ICMP error about it, from `SRC` to the packet's sender, which
quotes as much of the packet as `MTU` leaves room for. Sets the destination annotation and, unless
`SET_FIX_ANNO` is false, the fix-source annotation, by which FixIPSrc puts in the address of the interface
that the error leaves by. Its output belongs where packets from a device go: to the routing table.

`TYPE` and `CODE` are numbers or names: `unreachable` (`net`, `host`, `protocol`, `port`, `needfrag`, …),
`sourcequench`, `redirect` (`net`, `host`, …), `timeexceeded` (`transit`, `reassembly`), `parameterproblem`
(`erroratptr`, `missingopt`, `length`). A redirect names the destination annotation as gateway; `needfrag`
tells `PMTU`; `erroratptr` points where the parameter-problem annotation says, which IPGWOptions sets. A
source route of the packet is reversed.

No error is made about an ICMP error, a fragment but the first, a link-level broadcast or multicast, a packet
to a broadcast or multicast address or one of `BADADDRS`, or a packet from no host's address (RFC 1812 section
4.3.2.7): these are dropped. Rates are limited by an element after it, such as RatedSplitter.",
    example: "Idle -> CheckIPHeader -> dt :: DecIPTTL -> Discard;
dt[1] -> ICMPError(18.26.4.24, timeexceeded) -> Discard;",
    args: &[
        Arg::required("SRC", "IP address", "source of the errors"),
        Arg::required("TYPE", "ICMP type", "what the errors are"),
        Arg::optional("CODE", "ICMP code", "0", "which errors of that type"),
        Arg::optional(
            "BADADDRS",
            "IP addresses",
            "",
            "addresses that no error is about, such as the networks' broadcasts",
        ),
        Arg::keyword("MTU", "bytes", "576", "longest error"),
        Arg::keyword("PMTU", "bytes", "0", "next-hop MTU that needfrag tells"),
        Arg::keyword("SET_FIX_ANNO", "bool", "true", "whether to set the fix-source annotation"),
        Arg::keyword("USE_FIX_ANNO", "bool", "", "the same, as Click's manual calls it"),
    ],
    handlers: &[
        Handler::field("src", "source of the errors", &Field(|e: &mut IcmpError| &mut e.src)),
        Handler::field("mtu", "longest error", &Field(|e: &mut IcmpError| &mut e.mtu)),
        Handler::field("pmtu", "MTU that needfrag tells", &Field(|e: &mut IcmpError| &mut e.path_mtu)),
    ],
    live: true,
    build: |args| Ok(Box::new(IcmpError::new(args)?)),
    ..Class::PER_WORKER
};

const TTL: u8 = 200;

struct IcmpError {
    src: Ipv4Addr,
    icmp_type: IcmpType,
    code: u8,
    bad_addresses: Vec<Ipv4Addr>,
    mtu: u16,
    path_mtu: u16,
    fix_source: bool,
    ids: PacketIds,
}

impl IcmpError {
    fn new(args: &mut Args<'_>) -> Result<IcmpError, ArgError> {
        let icmp_type = IcmpType(args.read::<IcmpTypeName>("TYPE")?.0);
        if !icmp_type.is_error() {
            return Err(ArgError::wrong(format!("ICMP type {} is not an error type", icmp_type.0)));
        }
        let code = read_icmp_code(icmp_type.0, &args.read::<String>("CODE")?);
        let code =
            code.ok_or_else(|| ArgError::wrong("argument 2 takes ICMP code (integer between 0 and 255)"))?;
        let List(bad_addresses) = args.read("BADADDRS")?;
        let fix_source = match args.read::<Option<bool>>("USE_FIX_ANNO")? {
            Some(fix) => fix,
            None => args.read("SET_FIX_ANNO")?,
        };
        Ok(IcmpError {
            src: args.read("SRC")?,
            icmp_type,
            code,
            bad_addresses,
            mtu: args.read("MTU")?,
            path_mtu: args.read("PMTU")?,
            fix_source,
            ids: PacketIds::starting_at(1, args),
        })
    }

    /// The ICMP error about a packet.
    fn build_error(&self, packet: &Packet) -> Error {
        let error = match (self.icmp_type, self.code) {
            (IcmpType::PARAMETER_PROBLEM, Error::AT_POINTER) => {
                let [pointer] = packet.annotation(anno::ICMP_PARAM_PROB);
                Error::parameter_problem(pointer)
            }
            (IcmpType::REDIRECT, _) => Error::redirect(packet.dst_ip()),
            (IcmpType::UNREACHABLE, Error::NEED_FRAGMENTATION) => Error::need_fragmentation(self.path_mtu),
            (icmp_type, code) => Error { icmp_type, code, rest: [0; 4] },
        };
        Error { code: self.code, ..error }
    }

    fn build_answer(&self, packet: &Packet) -> Result<IcmpAnswer, Forbidden> {
        let to_group = matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast);
        let network = packet.network().ok_or(Forbidden::Malformed)?;
        self.build_error(packet).answer_to(network, to_group, |address| self.bad_addresses.contains(&address))
    }

    /// Turns the packet into the error about itself: its first bytes are what the error quotes.
    fn convert_packet(&mut self, packet: &mut Packet, answer: &IcmpAnswer) -> Result<(), DropReason> {
        let headers = answer.headers_len();
        start_at_network(packet)?;
        let quoted = packet.len().min(usize::from(self.mtu).saturating_sub(headers));
        packet.trim(packet.len() - quoted)?;
        packet.prepend(headers)?.fill(0);
        packet.clear_metadata();
        packet.clear_offload();
        let header = AnswerHeader { src: self.src, id: self.ids.next_id(), ttl: TTL, tos: 0 };
        answer.write_headers(packet.data_mut(), header)?;
        ip_header::mark_header(packet, 0, answer.ip_header_len());
        packet.set_dst_ip(answer.destination());
        packet.set_annotation(anno::FIX_IP_SRC, [u8::from(self.fix_source)]);
        Ok(())
    }
}

impl Simple for IcmpError {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let now = cx.now();
        cx.edit_or_discard(packet, |packet| {
            let answer = self.build_answer(packet).map_err(|_| DropReason::IcmpForbidden)?;
            self.convert_packet(packet, &answer)?;
            packet.set_timestamp(now);
            Ok(())
        })
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IcmpError>() {
            self.ids.resume_from(&mut old.ids, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_packet::{PacketOffload, SegmentKind, Segments};
    use artery_wire::build::{Ip4, ip4};
    use artery_wire::{Ipv4, checksum};

    fn cause() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").udp(1, 2).payload([7; 20])
    }

    fn error(icmp_type: IcmpType, code: u8, detail: [u8; 4], quoted: &[u8]) -> Ip4 {
        ip4().src("3.0.0.3").dst("1.0.0.1").ttl(200).id(1).icmp(icmp_type, code, detail).payload(quoted)
    }

    fn marked(bench: &Bench, bytes: &[u8]) -> Packet {
        let mut packet = bench.packet(bytes);
        packet.set_network_header(0);
        packet
    }

    #[track_caller]
    fn expect_none(config: &str, bytes: &[u8]) {
        let mut bench = Bench::new(&CLASS, config);
        let packet = marked(&bench, bytes);
        bench.push_packets(0, [packet]);
        bench.expect_dropped(DropReason::IcmpForbidden, 1);
    }

    #[test]
    fn an_error_quotes_the_packet_and_goes_to_its_sender() {
        let mut bench = Bench::new(&CLASS, "3.0.0.3, timeexceeded");
        let frame = [vec![0xee; 14], cause().bytes()].concat();
        let mut packet = bench.packet(frame);
        packet.set_network_header(14);
        packet.set_annotation(anno::PAINT, [9]);
        bench.push_packets(0, [packet]);
        let sent = bench.expect(0, error(IcmpType::TIME_EXCEEDED, 0, [0; 4], &cause().bytes()).bytes());
        assert_eq!((sent.dst_ip(), sent.paint()), (Ipv4Addr::new(1, 0, 0, 1), 0));
        assert_eq!(sent.annotation(anno::FIX_IP_SRC), [1]);
        assert_eq!((sent.network_offset(), sent.transport_offset()), (Some(0), Some(20)));
        assert_eq!(sent.timestamp(), bench.now());
    }

    #[test]
    fn errors_carry_what_their_type_asks_for() {
        for (config, icmp_type, code, detail) in [
            ("redirect, host", IcmpType::REDIRECT, 1, [9, 8, 7, 6]),
            ("unreachable, needfrag, PMTU 1280", IcmpType::UNREACHABLE, 4, [0, 0, 5, 0]),
            ("parameterproblem", IcmpType::PARAMETER_PROBLEM, 0, [22, 0, 0, 0]),
            ("12, 1", IcmpType::PARAMETER_PROBLEM, 1, [0; 4]),
            ("sourcequench", IcmpType::SOURCE_QUENCH, 0, [0; 4]),
        ] {
            let mut bench = Bench::new(&CLASS, &format!("3.0.0.3, {config}"));
            let mut packet = marked(&bench, &cause().bytes());
            packet.set_dst_ip(Ipv4Addr::new(9, 8, 7, 6));
            packet.set_annotation(anno::ICMP_PARAM_PROB, [22]);
            bench.push_packets(0, [packet]);
            bench.expect(0, error(icmp_type, code, detail, &cause().bytes()).bytes());
        }
    }

    #[test]
    fn an_error_is_no_longer_than_the_mtu() {
        let long = cause().payload(vec![1; 3000]).bytes();
        for (config, mtu) in [("", 576), (", MTU 100", 100), (", MTU 0", 28)] {
            let mut bench = Bench::new(&CLASS, &format!("3.0.0.3, unreachable{config}"));
            let packet = marked(&bench, &long);
            bench.push_packets(0, [packet]);
            bench.expect(0, error(IcmpType::UNREACHABLE, 0, [0; 4], &long[..mtu - 28]).bytes());
        }
    }

    #[test]
    fn an_error_about_an_unfinished_packet_is_finished_itself() {
        let long = cause().payload(vec![1; 3000]).bytes();
        let mut bench = Bench::new(&CLASS, "3.0.0.3, unreachable, needfrag");
        let segments = Some(Segments { network: 0, kind: SegmentKind::Udp, size: 1472 });
        for segments in [segments, None] {
            let mut packet = marked(&bench, &long);
            packet.set_offload(PacketOffload { transport: 20, checksum: 6, segments }).unwrap();
            bench.push_packets(0, [packet]);
            let sent = bench.next_sent(0).unwrap();
            assert_eq!((sent.has_offload(), &sent.data()[28..]), (false, &long[..548]));
            let ip = Ipv4::new(sent.data()).unwrap();
            assert!(ip.checksum_is_valid() && checksum::is_valid(checksum::sum(ip.payload())));
        }
        bench.expect_nothing_more();
    }

    #[test]
    fn no_error_is_made_where_the_rules_forbid_it() {
        let config = "3.0.0.3, unreachable, host, 2.0.0.255";
        expect_none(config, &cause().icmp(IcmpType::UNREACHABLE, 0, [0; 4]).bytes());
        expect_none(config, &cause().fragment(8, false).bytes());
        for dst in ["255.255.255.255", "224.0.0.5", "2.0.0.255"] {
            expect_none(config, &cause().dst(dst).bytes());
        }
        for src in ["0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "2.0.0.255"] {
            expect_none(config, &cause().src(src).bytes());
        }
        expect_none(config, &cause().bytes()[..19]);
        expect_none(config, &cause().raw(1, [8, 0, 0]).bytes());
        for link in [PacketType::Broadcast, PacketType::Multicast] {
            let mut bench = Bench::new(&CLASS, config);
            let mut packet = marked(&bench, &cause().bytes());
            packet.set_packet_type(link);
            bench.push_packets(0, [packet]);
            bench.expect_dropped(DropReason::IcmpForbidden, 1);
        }
    }

    #[test]
    fn echo_requests_and_first_fragments_are_answered() {
        for bytes in [cause().icmp_echo(1, 2).bytes(), cause().fragment(0, true).bytes()] {
            let mut bench = Bench::new(&CLASS, "3.0.0.3, unreachable");
            let packet = marked(&bench, &bytes);
            bench.push_packets(0, [packet]);
            bench.expect(0, error(IcmpType::UNREACHABLE, 0, [0; 4], &bytes).bytes());
        }
    }

    #[test]
    fn a_source_route_is_reversed_unless_the_error_is_about_it() {
        let routed = cause().options([131, 15, 12, 1, 1, 1, 1, 2, 2, 2, 2, 9, 9, 9, 9, 0]).bytes();
        let back = [131, 11, 4, 2, 2, 2, 2, 1, 1, 1, 1, 0];
        for (pointer, options) in [(19, &back[..]), (22, &[])] {
            let mut bench = Bench::new(&CLASS, "3.0.0.3, parameterproblem");
            let mut packet = marked(&bench, &routed);
            packet.set_annotation(anno::ICMP_PARAM_PROB, [pointer]);
            bench.push_packets(0, [packet]);
            let error = error(IcmpType::PARAMETER_PROBLEM, 0, [pointer, 0, 0, 0], &routed);
            bench.expect(0, error.options(options).bytes());
        }
        expect_none("3.0.0.3, redirect", &routed);
    }

    #[test]
    fn addresses_and_lengths_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "9.0.0.9, unreachable, needfrag, SET_FIX_ANNO false");
        for (handler, value) in [("src", "3.0.0.3"), ("mtu", "100"), ("pmtu", "1280")] {
            bench.write(handler, value).unwrap();
            assert_eq!(bench.read(handler, "").unwrap(), value);
        }
        let packet = marked(&bench, &cause().bytes());
        bench.push_packets(0, [packet]);
        let sent = bench.expect(0, error(IcmpType::UNREACHABLE, 4, [0, 0, 5, 0], &cause().bytes()).bytes());
        assert_eq!(sent.annotation(anno::FIX_IP_SRC), [0]);
    }

    #[test]
    fn types_that_are_no_errors_are_refused() {
        assert_eq!(Bench::config_error(&CLASS, "1.1.1.1, echo"), "ICMP type 8 is not an error type");
        assert_eq!(Bench::config_error(&CLASS, "1.1.1.1, nonsense"), "TYPE: parse error");
        let code = "argument 2 takes ICMP code (integer between 0 and 255)";
        assert_eq!(Bench::config_error(&CLASS, "1.1.1.1, timeexceeded, port"), code);
    }

    #[test]
    fn any_bytes_are_survived() {
        survives_anything(&CLASS, "3.0.0.3, parameterproblem", 1);
        survives_anything(&CLASS, "3.0.0.3, timeexceeded, MTU 40", 1);
    }
}
