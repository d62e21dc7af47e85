use crate::ip::each::send_each_or_exit;
use crate::ip::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Level, Packet, Show, anno,
};
use artery_wire::{Ipv6, Malformed};
use std::net::Ipv6Addr;

pub static CLASS: Class = Class {
    name: "CheckIP6Header",
    group: "ip6",
    summary: "checks IPv6 headers and marks where they are",
    manual: "
Expects packets with an IPv6 header `OFFSET` bytes in. Checks length, version and payload length, and that the
source is none of `BADADDRS`. Good packets leave by output 0 with their network header marked, their
destination annotation set to the destination address, and bytes beyond the payload (Ethernet padding) cut
off. Others leave by output 1, or are dropped when there is none; the first one is reported.",
    example: "Idle -> Strip(14) -> CheckIP6Header(::) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::optional("BADADDRS", "IPv6 addresses", "", "source addresses that make a packet bad"),
        Arg::optional("OFFSET", "bytes", "0", "where the IP header begins"),
        VERBOSE,
        DETAILS,
    ],
    handlers: &[
        Handler::read("drops", "bad packets so far", &Show(|c: &mut CheckIp6Header| c.failures.drops()))
            .sum(),
        Handler::read(
            "drop_details",
            "bad packets so far, by what was wrong",
            &Show(|c: &mut CheckIp6Header| c.failures.details_text()),
        ),
    ],
    build: |args| Ok(Box::new(CheckIp6Header::new(args)?)),
    ..Class::PER_WORKER
};

/// In the order of the checks.
const KINDS: &[Failure; 4] = &[
    ("tiny packet", DropReason::TooShort),
    ("bad IP version", DropReason::Malformed),
    ("bad IP length", DropReason::Malformed),
    ("bad source address", DropReason::BadSource),
];
const TINY: usize = 0;
const VERSION: usize = 1;
const LENGTH: usize = 2;
const SOURCE: usize = 3;

const HEADER: usize = Ipv6::<&[u8]>::LEN;

struct CheckIp6Header {
    offset: usize,
    bad_sources: Vec<Ipv6Addr>,
    failures: Failures<4>,
}

impl CheckIp6Header {
    fn new(args: &mut Args<'_>) -> Result<CheckIp6Header, ArgError> {
        let text: Option<String> = args.read("BADADDRS")?;
        let address = |word: &str| {
            let address = word.parse().ok().or_else(|| args.names().lookup_ipv6(word));
            address.ok_or_else(|| {
                ArgError::wrong_at(word, format!("BADADDRS: '{word}' is not a valid IPv6 address"))
            })
        };
        let bad_sources =
            text.unwrap_or_default().split_whitespace().map(address).collect::<Result<_, _>>()?;
        let offset = args.read::<u32>("OFFSET")? as usize;
        Ok(CheckIp6Header { offset, bad_sources, failures: Failures::new(args, "IP6 header", KINDS)? })
    }
}

/// Destination and length of a good packet, or which check it fails.
fn check_header(bytes: &[u8], bad_sources: &[Ipv6Addr]) -> Result<(Ipv6Addr, usize), usize> {
    let header = Ipv6::validate(bytes).map_err(|defect| match defect {
        Malformed::Truncated => TINY,
        Malformed::Length => LENGTH,
        _ => VERSION,
    })?;
    if bad_sources.contains(&header.src()) {
        return Err(SOURCE);
    }
    Ok((header.dst(), HEADER + usize::from(header.payload_length())))
}

impl Element for CheckIp6Header {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let CheckIp6Header { offset, bad_sources, failures } = self;
        let accept = |packet: &mut Packet| {
            let (to, length) = check_header(packet.data().get(*offset..).unwrap_or(&[]), bad_sources)?;
            packet.set_headers(*offset, HEADER);
            packet.truncate(*offset + length);
            packet.set_annotation(anno::DST_IP6, to.octets());
            Ok(())
        };
        send_each_or_exit(Level::L2, batch, cx, accept, |kind, packet, cx| {
            failures.fail_packet(kind, packet, cx)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{Ip6, ip6};

    fn packet() -> Ip6 {
        ip6().src("2001:db8::1").dst("2001:db8::2").udp(1, 2)
    }

    #[test]
    fn a_good_packet_is_marked_annotated_and_cut_to_its_length() {
        let mut bench = Bench::new(&CLASS, "OFFSET 14");
        bench.push(0, [vec![0xee; 14], packet().bytes(), vec![0; 18]].concat());
        let good = bench.next_sent(0).unwrap();
        assert_eq!(good.data(), [vec![0xee; 14], packet().bytes()].concat());
        assert_eq!((good.network_offset(), good.transport_offset()), (Some(14), Some(54)));
        let found = Ipv6Addr::from(good.annotation::<16>(anno::DST_IP6));
        assert_eq!(found, "2001:db8::2".parse::<Ipv6Addr>().unwrap());
    }

    fn damaged(at: usize, value: u8) -> Vec<u8> {
        let mut bytes = packet().bytes();
        bytes[at] = value;
        bytes
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        for (config, bytes, reason) in [
            ("", packet().bytes()[..39].to_vec(), "tiny packet"),
            ("OFFSET 100", packet().bytes(), "tiny packet"),
            ("", damaged(0, 0x45), "bad IP version"),
            ("", damaged(5, 9), "bad IP length"),
            (":: 2001:db8::1", packet().bytes(), "bad source address"),
        ] {
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, &bytes);
            bench.expect(1, &bytes);
            let said = bench.stderr_text();
            assert!(said.ends_with(&format!("IP6 header check failed: {reason}\n")), "{said}");
            assert_eq!(bench.read("drops", "").unwrap(), "1");
        }
    }

    #[test]
    fn without_output_1_bad_packets_are_dropped() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, b"short");
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
