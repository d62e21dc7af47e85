use super::address::{Interface, List};
use super::each::send_each_or_exit;
use super::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_common::ip_header;
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, DropReason, Element, Handler, Level, Packet, Show,
};
use artery_wire::{Ipv4, Malformed};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "CheckIPHeader",
    aliases: &["CheckIPChecksum"],
    group: "ip",
    summary: "checks IPv4 headers and marks where they are",
    manual: "
Expects packets with an IPv4 header `OFFSET` bytes in. Checks length, version, header length, total length and
checksum, and the source address when `INTERFACES` or `BADSRC` is given. Good packets leave by output 0 with
their network and transport header marked, their destination annotation set to the destination address, and
bytes beyond the total length (Ethernet padding) cut off. Others leave by output 1, or are dropped when there
is none; the first one is reported.

`INTERFACES` names this router's addresses with their prefixes. A packet from one of their broadcast
addresses, from 0.0.0.0 or from 255.255.255.255 is bad (RFC 1812 section 5.3.7) unless it is sent to one of
the router's addresses.

The older form `CheckIPHeader(ADDRESSES)` is understood: bad sources, besides 0.0.0.0 and 255.255.255.255.",
    example: "Idle -> Strip(14) -> CheckIPHeader(INTERFACES 18.26.4.9/24 18.32.9.44/28) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: ARGS,
    handlers: HANDLERS,
    build: |args| Ok(Box::new(CheckIpHeader::new(args, args.read("CHECKSUM")?)?)),
    ..Class::PER_WORKER
};

pub(super) const INTERFACES: Arg =
    Arg::keyword("INTERFACES", "addresses with prefixes", "", "this router's addresses");
pub(super) const BADSRC: Arg =
    Arg::keyword("BADSRC", "addresses", "", "source addresses that make a packet bad");
pub(super) const GOODDST: Arg =
    Arg::keyword("GOODDST", "addresses", "", "destination addresses that excuse a bad source");

pub(crate) const ARGS: &[Arg] = &[
    Arg::optional("OFFSET", "bytes", "0", "where the IP header begins"),
    Arg::keyword("CHECKSUM", "bool", "true", "whether to check the header checksum"),
    INTERFACES,
    BADSRC,
    GOODDST,
    VERBOSE,
    DETAILS,
];

pub(crate) const HANDLERS: &[Handler] = &[
    Handler::read("drops", "bad packets so far", &Show(|c: &mut CheckIpHeader| c.failures.drops())).sum(),
    Handler::read(
        "drop_details",
        "bad packets so far, by what was wrong",
        &Show(|c: &mut CheckIpHeader| c.failures.details_text()),
    ),
];

/// In the order of the checks.
pub(super) const KINDS: &[Failure; 6] = &[
    ("tiny packet", DropReason::TooShort),
    ("bad IP version", DropReason::Malformed),
    ("bad IP header length", DropReason::Malformed),
    ("bad IP length", DropReason::Malformed),
    ("bad IP checksum", DropReason::BadChecksum),
    ("bad source address", DropReason::BadSource),
];
const TINY: usize = 0;
const VERSION: usize = 1;
const HEADER_LENGTH: usize = 2;
const LENGTH: usize = 3;
const CHECKSUM: usize = 4;
const SOURCE: usize = 5;

pub(crate) struct CheckIpHeader {
    checks: HeaderChecks,
    failures: Failures<6>,
}

pub(super) struct HeaderChecks {
    offset: usize,
    checksum: bool,
    /// Sources that are bad, unless the destination is one of `good_destinations`.
    bad_sources: Vec<Ipv4Addr>,
    good_destinations: Vec<Ipv4Addr>,
}

/// The first argument: a number of bytes, or the old syntax's list of bad sources.
enum OffsetOrSources {
    Offset(usize),
    Sources(Vec<Ipv4Addr>),
}

impl ArgValue for OffsetOrSources {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        if let Ok(offset) = u32::parse(text, names) {
            return Ok(OffsetOrSources::Offset(offset as usize));
        }
        let addresses = List::parse(text, names).map_err(|_| "a number of bytes")?;
        Ok(OffsetOrSources::Sources(addresses.0))
    }
}

/// The fields of a valid header.
struct ValidHeader {
    header_len: usize,
    total_len: usize,
    destination: Ipv4Addr,
}

/// Which check a packet fails that has this defect.
fn failed_check(defect: Malformed, bytes: &[u8]) -> usize {
    match defect {
        Malformed::Truncated if bytes.len() < Ipv4::<&[u8]>::MIN_LEN => TINY,
        Malformed::Version => VERSION,
        Malformed::HeaderLength => HEADER_LENGTH,
        Malformed::Checksum => CHECKSUM,
        _ => LENGTH,
    }
}

impl CheckIpHeader {
    pub(crate) fn new(args: &mut Args<'_>, checksum: bool) -> Result<CheckIpHeader, ArgError> {
        let (offset, sources) = match args.read("OFFSET")? {
            OffsetOrSources::Offset(offset) => (offset, None),
            OffsetOrSources::Sources(sources) => (0, Some(sources)),
        };
        let checks = HeaderChecks::new(args, offset, checksum, sources)?;
        Ok(CheckIpHeader { checks, failures: Failures::new(args, "IP header", KINDS)? })
    }
}

impl HeaderChecks {
    /// Reads INTERFACES, BADSRC and GOODDST; `sources` is the older list of bad sources, if there is one.
    pub(super) fn new(
        args: &Args<'_>,
        offset: usize,
        checksum: bool,
        sources: Option<Vec<Ipv4Addr>>,
    ) -> Result<HeaderChecks, ArgError> {
        let List(interfaces) = args.read::<List<Interface>>("INTERFACES")?;
        let List(mut bad_sources) = args.read("BADSRC")?;
        let List(mut good_destinations) = args.read("GOODDST")?;
        bad_sources.extend(interfaces.iter().map(|interface| interface.prefix.last()));
        good_destinations.extend(interfaces.iter().map(|interface| interface.address));
        if sources.is_some() || args.is_given("INTERFACES") {
            bad_sources.extend([Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]);
        }
        bad_sources.extend(sources.unwrap_or_default());
        Ok(HeaderChecks { offset, checksum, bad_sources, good_destinations })
    }

    /// The header's lengths and destination, or which check it fails.
    #[inline]
    fn check_header(&self, data: &[u8]) -> Result<ValidHeader, usize> {
        let bytes = data.get(self.offset..).unwrap_or(&[]);
        let packet = if self.checksum { Ipv4::validate(bytes) } else { Ipv4::validate_lengths(bytes) };
        let packet = packet.map_err(|defect| failed_check(defect, bytes))?;
        let (header_len, total_len) = (packet.header_len(), packet.total_length().into());
        let destination = packet.dst();
        if self.bad_sources.contains(&packet.src()) && !self.good_destinations.contains(&destination) {
            return Err(SOURCE);
        }
        Ok(ValidHeader { header_len, total_len, destination })
    }

    /// Checks a packet, marks its header and cuts it to its length.
    #[inline]
    pub(super) fn accept_packet(&self, packet: &mut Packet) -> Result<(), usize> {
        let good = self.check_header(packet.data())?;
        ip_header::mark_header(packet, self.offset, good.header_len);
        packet.truncate(self.offset + good.total_len);
        packet.set_dst_ip(good.destination);
        Ok(())
    }
}

impl Element for CheckIpHeader {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let CheckIpHeader { checks, failures } = self;
        send_each_or_exit(
            Level::L2,
            batch,
            cx,
            |packet| checks.accept_packet(packet),
            |kind, packet, cx| failures.fail_packet(kind, packet, cx),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, ip4};

    fn packet() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").udp(1, 2)
    }

    #[track_caller]
    fn expect_bad(config: &str, bytes: &[u8], reason: &str) {
        let mut bench = Bench::new(&CLASS, config);
        bench.push(0, bytes);
        bench.expect(1, bytes);
        let found = bench.stderr_text();
        assert_eq!(found, format!("{}: IP header check failed: {reason}\n", element_name(&mut bench)));
        let details = bench.read("drop_details", "").unwrap();
        assert!(details.contains(&format!("1\t{reason}\n")), "{details}");
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    fn element_name(bench: &mut Bench) -> String {
        bench.read("name", "").unwrap()
    }

    #[test]
    fn a_good_packet_is_marked_annotated_and_cut_to_its_length() {
        let mut bench = Bench::new(&CLASS, "14");
        let frame = [vec![0xee; 14], packet().bytes(), vec![0; 18]].concat();
        bench.push(0, frame);
        let good = bench.next_sent(0).unwrap();
        assert_eq!(good.data(), [vec![0xee; 14], packet().bytes()].concat());
        assert_eq!((good.network_offset(), good.transport_offset()), (Some(14), Some(34)));
        assert_eq!(good.dst_ip(), Ipv4Addr::new(2, 0, 0, 2));
    }

    #[test]
    fn options_count_as_header() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().options([1, 1, 1, 0]).udp(1, 2).bytes());
        assert_eq!(bench.next_sent(0).unwrap().transport_offset(), Some(24));
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        let damaged = |at: usize, value: u8| {
            let mut bytes = packet().bytes();
            bytes[at] = value;
            bytes
        };
        expect_bad("", &packet().bytes()[..19], "tiny packet");
        expect_bad("OFFSET 100", &packet().bytes(), "tiny packet");
        expect_bad("", &damaged(0, 0x65), "bad IP version");
        expect_bad("", &damaged(0, 0x44), "bad IP header length");
        expect_bad("", &damaged(2, 1), "bad IP length");
        expect_bad("", &damaged(3, 19), "bad IP length");
        expect_bad("", &damaged(8, 1), "bad IP checksum");
        expect_bad("BADSRC 1.0.0.1", &packet().bytes(), "bad source address");
    }

    #[test]
    fn interfaces_forbid_broadcast_sources_save_to_the_router_itself() {
        let config = "INTERFACES 18.26.4.9/24 18.32.9.44/28";
        for source in ["18.26.4.255", "18.32.9.47", "0.0.0.0", "255.255.255.255"] {
            expect_bad(config, &packet().src(source).bytes(), "bad source address");
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, packet().src(source).dst("18.26.4.9").bytes());
            assert!(bench.next_sent(0).is_some(), "{source}");
        }
        expect_bad("18.26.4.255", &packet().src("0.0.0.0").bytes(), "bad source address");
    }

    #[test]
    fn without_output_1_bad_packets_are_dropped_and_only_the_first_is_reported() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, b"short");
        bench.push(0, b"short");
        bench.expect_dropped(DropReason::TooShort, 2);
        assert_eq!(bench.stderr_text().lines().count(), 1);
        let mut verbose = Bench::setup(&CLASS, "VERBOSE true").outputs(1).build().unwrap();
        verbose.push(0, b"short");
        verbose.push(0, b"short");
        assert_eq!(verbose.stderr_text().lines().count(), 2);
    }

    #[test]
    fn good_packets_of_a_monitored_port_end_here_and_bad_ones_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "");
        bench.set_monitor(7, "l2");
        let from = |bench: &Bench, port, bytes: &[u8]| {
            let mut packet = bench.packet(bytes);
            packet.set_in_port(port);
            packet
        };
        let good = packet().bytes();
        let batch = [from(&bench, 7, &good), from(&bench, 8, &good), from(&bench, 7, &good)];
        bench.push_packets(0, batch);
        bench.expect(0, &good);
        bench.expect_dropped(DropReason::Monitored, 2);
        let batch = [from(&bench, 7, b"bad"), from(&bench, 7, &good), from(&bench, 8, &good)];
        bench.push_packets(0, batch);
        bench.expect(1, b"bad");
        bench.expect(0, &good);
        bench.expect_dropped(DropReason::Monitored, 3);
        bench.set_monitor(7, "l3");
        let batch = [from(&bench, 7, &good)];
        bench.push_packets(0, batch);
        bench.expect(0, &good);
    }

    #[test]
    fn the_checksum_is_ignored_when_told() {
        let mut bytes = packet().bytes();
        bytes[10] ^= 1;
        let mut bench = Bench::new(&CLASS, "CHECKSUM false");
        bench.push(0, &bytes);
        bench.expect(0, &bytes);
    }

    #[test]
    fn any_bytes_are_survived() {
        for config in ["", "3", "INTERFACES 10.0.0.1/24, CHECKSUM false"] {
            survives_anything(&CLASS, config, 2);
        }
    }
}
