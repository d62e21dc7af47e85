use super::address::Destination;
use super::name::Protocol;
use super::packet_id::PacketIds;
use artery_common::ip_header::Fields;
use artery_engine::{Arg, ArgError, Args, Class, Context, Field, Handler, Packet, Simple};
use artery_wire::IpProtocol;
use std::any::Any;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "IPEncap",
    group: "ip",
    summary: "puts an IP header in front of packets",
    manual: "
Puts an IP header with protocol `PROTO`, source `SRC` and destination `DST` in front of each packet, marks it,
and sets the destination annotation. `DST_ANNO` as `DST` takes the destination from the annotation. The type
of service is either `TOS`, or made of `DSCP` and one of `ECT` (`true`, or `2` for the other code point) and
`CE`. A packet that the header would make longer than 65535 bytes is dropped.",
    example: "Idle -> IPEncap(ipip, 18.26.4.24, 140.247.60.147) -> Discard;",
    args: &[
        Arg::required("PROTO", "IP protocol", "what the packets are, by name or number"),
        Arg::required("SRC", "IP address", "source address"),
        Arg::required("DST", "IP address or DST_ANNO", "destination address"),
        Arg::keyword("TTL", "0 to 255", "250", "time to live"),
        Arg::keyword("DSCP", "0 to 63", "", "differentiated services code point"),
        Arg::keyword("ECT", "bool or 2", "false", "whether to say that the transport understands ECN"),
        Arg::keyword("CE", "bool", "false", "whether to say that congestion was experienced"),
        Arg::keyword("TOS", "0 to 255", "", "the whole type of service"),
        Arg::keyword("DF", "bool", "false", "whether the packet must not be fragmented"),
    ],
    handlers: &[
        Handler::field("src", "the source address", &Field(|e: &mut IpEncap| &mut e.src))
            .sets_argument("SRC"),
        Handler::field("dst", "the destination", &Field(|e: &mut IpEncap| &mut e.dst)).sets_argument("DST"),
    ],
    finished: true,
    live: true,
    build: |args| Ok(Box::new(IpEncap::new(args)?)),
    ..Class::PER_WORKER
};

struct IpEncap {
    protocol: IpProtocol,
    src: Ipv4Addr,
    dst: Destination,
    tos: u8,
    ttl: u8,
    dont_fragment: bool,
    ids: PacketIds,
}

impl IpEncap {
    fn new(args: &mut Args<'_>) -> Result<IpEncap, ArgError> {
        Ok(IpEncap {
            protocol: IpProtocol(args.read::<Protocol>("PROTO")?.0),
            src: args.read("SRC")?,
            dst: args.read("DST")?,
            tos: parse_tos(args)?,
            ttl: args.read("TTL")?,
            dont_fragment: args.read("DF")?,
            ids: PacketIds::starting_at(0, args),
        })
    }
}

/// The type of service from the arguments.
fn parse_tos(args: &Args<'_>) -> Result<u8, ArgError> {
    let (tos, dscp): (Option<u8>, Option<u8>) = (args.read("TOS")?, args.read("DSCP")?);
    let ecn = match (args.read::<String>("ECT")?.as_str(), args.read("CE")?) {
        ("2", false) => 2,
        _ => match (args.read::<bool>("ECT")?, args.read("CE")?) {
            (false, false) => 0,
            (true, false) => 1,
            (false, true) => 3,
            (true, true) => return Err(ArgError::wrong("can set at most one ECN option")),
        },
    };
    match (tos, dscp) {
        (Some(_), Some(_)) => Err(ArgError::wrong("cannot set both TOS and DSCP")),
        (Some(_), None) if ecn > 0 => Err(ArgError::wrong("cannot set both TOS and ECN bits")),
        (Some(tos), None) => Ok(tos),
        (None, Some(64..)) => Err(ArgError::wrong("DSCP too large; max 63")),
        (None, dscp) => Ok(dscp.unwrap_or(0) << 2 | ecn),
    }
}

impl Simple for IpEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let dst = match self.dst {
            Destination::Annotation => packet.dst_ip(),
            Destination::Fixed(address) => address,
        };
        let &mut IpEncap { protocol, src, tos, ttl, dont_fragment, .. } = self;
        let fields = Fields { protocol, src, dst, tos, ttl, dont_fragment };
        cx.edit_or_discard(packet, |packet| fields.prepend_header(packet, self.ids.next_id()))
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IpEncap>() {
            self.ids.resume_from(&mut old.ids, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::Ipv4;
    use artery_wire::build::{Ip4, ip4};

    fn header() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").ttl(250).raw(4, b"inner")
    }

    #[test]
    fn packets_get_a_header_with_consecutive_identifications() {
        let mut bench = Bench::new(&CLASS, "ipip, 1.0.0.1, 2.0.0.2");
        bench.push(0, b"inner");
        bench.push(0, b"inner");
        let first = bench.expect(0, header().id(0).bytes());
        assert_eq!((first.network_offset(), first.transport_offset()), (Some(0), Some(20)));
        assert_eq!(first.dst_ip(), Ipv4Addr::new(2, 0, 0, 2));
        bench.expect(0, header().id(1).bytes());
    }

    #[test]
    fn identifications_go_on_when_arguments_change_and_config_tells_them() {
        let mut bench = Bench::new(&CLASS, "ipip, DST 3.0.0.3, SRC 1.0.0.1");
        bench.push(0, b"inner");
        assert!(bench.next_sent(0).is_some());
        bench.write("dst", "2.0.0.2").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "ipip, SRC 1.0.0.1, DST 2.0.0.2");
        bench.write("config", "4, 1.0.0.9, 2.0.0.2, TTL 250").unwrap();
        bench.write("src", "1.0.0.1").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "4, 1.0.0.1, 2.0.0.2, TTL 250");
        bench.push(0, b"inner");
        bench.expect(0, header().id(1).bytes());
        bench.write("config", "ipip, TTL 9, 1.0.0.1, 2.0.0.2").unwrap();
        bench.write("dst", "3.0.0.3").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "ipip, TTL 9, 1.0.0.1, 3.0.0.3");
    }

    #[test]
    fn an_heir_repeats_no_identification_while_its_predecessor_still_runs_elsewhere() {
        let [mut old, mut new] = [(); 2].map(|()| Bench::new(&CLASS, "ipip, 1.0.0.1, 2.0.0.2"));
        let id = |bench: &mut Bench| {
            bench.push(0, b"inner");
            Ipv4::new(bench.next_sent(0).unwrap().data()).unwrap().id()
        };
        let ids = |bench: &mut Bench| (0..300).map(|_| id(bench)).collect::<Vec<_>>();
        let before = ids(&mut old);
        new.take_state(&mut old);
        let after = [ids(&mut new), ids(&mut old), ids(&mut new)].concat();
        assert_eq!(after[0], before[299] + 1);
        let all: std::collections::HashSet<u16> = before.into_iter().chain(after).collect();
        assert_eq!(all.len(), 1200);
    }

    #[test]
    fn the_destination_may_come_from_the_annotation() {
        let mut bench = Bench::new(&CLASS, "4, 1.0.0.1, DST_ANNO");
        bench.push_with(0, b"inner", |packet| packet.set_dst_ip(Ipv4Addr::new(9, 9, 9, 9)));
        bench.expect(0, header().dst("9.9.9.9").bytes());
        assert_eq!(bench.read("dst", "").unwrap(), "DST_ANNO");
    }

    #[test]
    fn keywords_set_the_other_fields() {
        for (config, tos) in [
            ("TOS 0x41", 0x41),
            ("DSCP 63", 63 << 2),
            ("DSCP 1, ECT true", 1 << 2 | 1),
            ("ECT 2", 2),
            ("CE true", 3),
        ] {
            let mut bench = Bench::new(&CLASS, &format!("4, 1.0.0.1, 2.0.0.2, TTL 7, DF true, {config}"));
            bench.push(0, b"inner");
            bench.expect(0, header().ttl(7).dont_fragment().tos(tos).bytes());
        }
    }

    #[test]
    fn keywords_that_contradict_each_other_are_refused() {
        for (config, error) in [
            ("TOS 1, DSCP 1", "cannot set both TOS and DSCP"),
            ("TOS 1, CE true", "cannot set both TOS and ECN bits"),
            ("ECT true, CE true", "can set at most one ECN option"),
            ("DSCP 64", "DSCP too large; max 63"),
            ("TOS 256", "TOS: out of range, bound 255"),
            ("ECT x", "ECT: parse error"),
        ] {
            assert_eq!(Bench::config_error(&CLASS, &format!("4, 1.0.0.1, 2.0.0.2, {config}")), error);
        }
        assert_eq!(Bench::config_error(&CLASS, "256, 1.0.0.1, 2.0.0.2"), "PROTO: parse error");
    }

    #[test]
    fn addresses_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "4, 1.0.0.1, 2.0.0.2");
        bench.write("src", "3.0.0.3").unwrap();
        bench.write("dst", "4.0.0.4").unwrap();
        assert_eq!(bench.read("src", "").unwrap(), "3.0.0.3");
        assert_eq!(bench.read("dst", "").unwrap(), "4.0.0.4");
        bench.push(0, b"inner");
        bench.expect(0, header().src("3.0.0.3").dst("4.0.0.4").bytes());
    }

    #[test]
    fn a_packet_that_would_be_too_long_is_dropped() {
        let mut bench = Bench::new(&CLASS, "4, 1.0.0.1, 2.0.0.2");
        bench.push(0, vec![0; 65516]);
        bench.expect_dropped(DropReason::TooLong, 1);
        bench.push(0, vec![0; 65515]);
        assert!(Ipv4::new(bench.next_sent(0).unwrap().data()).unwrap().checksum_is_valid());
    }
}
