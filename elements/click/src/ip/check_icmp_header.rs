use super::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_engine::{Class, Context, DropReason, Handler, Packet, Read, Simple};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4};

pub static CLASS: Class = Class {
    name: "CheckICMPHeader",
    group: "ip",
    summary: "checks ICMP headers",
    manual: "
Expects marked IP packets that carry ICMP. Checks that the message is as long as its type asks for, and its
checksum. Good packets leave by output 0. Others leave by output 1, or are dropped when there is none; the
first one is reported.",
    example: "Idle -> CheckIPHeader -> CheckICMPHeader -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[VERBOSE, DETAILS],
    handlers: &[
        Handler::read(
            "drops",
            "bad packets so far",
            &Read(|c: &mut CheckIcmpHeader, _, _| Ok(c.failures.drops().to_string())),
        )
        .sum(),
        Handler::read(
            "drop_details",
            "bad packets so far, by what was wrong",
            &Read(|c: &mut CheckIcmpHeader, _, _| Ok(c.failures.details_text())),
        ),
    ],
    per_worker: true,
    build: |args| {
        Ok(Box::new(CheckIcmpHeader {
            failures: Failures::new(args, "ICMP header", KINDS)?.with_class("CheckICMPHeader"),
        }))
    },
    ..Class::DEFAULT
};

/// In the order of the checks.
const KINDS: &[Failure; 3] = &[
    ("not ICMP", DropReason::Malformed),
    ("bad packet length", DropReason::Malformed),
    ("bad ICMP checksum", DropReason::BadChecksum),
];
const NOT_ICMP: usize = 0;
const LENGTH: usize = 1;
const CHECKSUM: usize = 2;

struct CheckIcmpHeader {
    failures: Failures<3>,
}

const HEADER: usize = Icmp::<&[u8]>::LEN;
/// What an error quotes at least: an IP header and 64 bits.
const QUOTED: usize = 28;
/// Bytes of the three timestamps in a timestamp message.
const TIMESTAMPS: usize = 12;

/// Which check the packet fails. A message reaches to the end of the packet.
fn check_header(packet: &Packet) -> Result<(), usize> {
    let marked = packet.network().ok_or(NOT_ICMP)?;
    let ip = Ipv4::new(marked).map_err(|_| NOT_ICMP)?;
    if ip.protocol() != IpProtocol::ICMP {
        return Err(NOT_ICMP);
    }
    let message = &marked[ip.header_len()..];
    let icmp = Icmp::new(message).map_err(|_| LENGTH)?;
    let long_enough = match icmp.icmp_type() {
        kind if kind.is_error() => message.len() >= HEADER + QUOTED,
        IcmpType(13 | 14) => message.len() == HEADER + TIMESTAMPS,
        // Information requests and replies consist of the header only.
        IcmpType(15 | 16) => message.len() == HEADER,
        _ => true,
    };
    match (long_enough, icmp.checksum_is_valid()) {
        (false, _) => Err(LENGTH),
        (true, false) => Err(CHECKSUM),
        (true, true) => Ok(()),
    }
}

impl Simple for CheckIcmpHeader {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        match check_header(&packet) {
            Ok(()) => Some(packet),
            Err(kind) => {
                self.failures.fail_packet(kind, packet, cx);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_common::ip_header;
    use artery_engine::Bench;
    use artery_wire::build::{icmp_echo, ip4};

    fn push_marked(bench: &mut Bench, bytes: &[u8]) {
        let mut packet = bench.packet(bytes);
        ip_header::mark_header(&mut packet, 0, 20);
        bench.push_packets(0, [packet]);
    }

    #[track_caller]
    fn expect_bad(bytes: &[u8], kind: &str) {
        let mut bench = Bench::new(&CLASS, "");
        push_marked(&mut bench, bytes);
        bench.expect(1, bytes);
        assert!(
            bench
                .stderr_text()
                .ends_with(&format!(" :: CheckICMPHeader: ICMP header check failed: {kind}\n"))
        );
        assert!(bench.read("drop_details", "").unwrap().contains(&format!("1\t{kind}\n")));
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    fn message(icmp_type: u8, payload: usize) -> Vec<u8> {
        ip4().icmp(IcmpType(icmp_type), 0, [0; 4]).payload(vec![1; payload]).bytes()
    }

    #[test]
    fn good_messages_pass_unchanged() {
        let echo = icmp_echo("1.0.0.1", "1.0.0.2", 1, 2).payload("odd").bytes();
        for bytes in [echo, message(3, 28), message(11, 28), message(13, 12), message(16, 0), message(200, 0)]
        {
            let mut bench = Bench::new(&CLASS, "");
            push_marked(&mut bench, &bytes);
            bench.expect(0, &bytes);
        }
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        expect_bad(&ip4().tcp(1, 2).bytes(), "not ICMP");
        for bytes in [message(3, 27), message(5, 0), message(13, 11), message(14, 13), message(15, 1)] {
            expect_bad(&bytes, "bad packet length");
        }
        expect_bad(&message(8, 0)[..27], "bad packet length");
        let mut bytes = message(8, 4);
        bytes[31] ^= 1;
        expect_bad(&bytes, "bad ICMP checksum");
    }

    #[test]
    fn an_unmarked_packet_is_not_icmp() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, message(8, 0));
        bench.expect_dropped(DropReason::Malformed, 1);
        survives_anything(&CLASS, "VERBOSE true, DETAILS true", 2);
    }
}
