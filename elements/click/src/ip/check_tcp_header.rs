use super::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_common::ip_header;
use artery_engine::{Class, Context, DropReason, Handler, Packet, Read, Simple};
use artery_wire::{IpProtocol, Ipv4, Tcp, checksum};

pub static CLASS: Class = Class {
    name: "CheckTCPHeader",
    group: "ip",
    summary: "checks TCP headers",
    manual: "
Expects marked IP packets that carry TCP. Checks the TCP header length, and the checksum over the length that
the IP header says. Good packets leave by output 0. Others leave by output 1, or are dropped when there is
none; the first one is reported.",
    example: "Idle -> CheckIPHeader -> CheckTCPHeader -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[VERBOSE, DETAILS],
    handlers: &[
        Handler::read(
            "drops",
            "bad packets so far",
            &Read(|c: &mut CheckTcpHeader, _, _| Ok(c.failures.drops().to_string())),
        )
        .sum(),
        Handler::read(
            "drop_details",
            "bad packets so far, by what was wrong",
            &Read(|c: &mut CheckTcpHeader, _, _| Ok(c.failures.details_text())),
        ),
    ],
    per_worker: true,
    build: |args| {
        Ok(Box::new(CheckTcpHeader {
            failures: Failures::new(args, "TCP header", KINDS)?.with_class("CheckTCPHeader"),
        }))
    },
    ..Class::DEFAULT
};

/// In the order of the checks.
const KINDS: &[Failure; 3] = &[
    ("not TCP", DropReason::Malformed),
    ("bad packet length", DropReason::Malformed),
    ("bad TCP checksum", DropReason::BadChecksum),
];
const NOT_TCP: usize = 0;
const LENGTH: usize = 1;
const CHECKSUM: usize = 2;

struct CheckTcpHeader {
    failures: Failures<3>,
}

/// Which check the packet fails.
fn check_header(packet: &Packet) -> Result<(), usize> {
    let marked = packet.network().ok_or(NOT_TCP)?;
    let ip = Ipv4::new(marked).map_err(|_| NOT_TCP)?;
    if ip.protocol() != IpProtocol::TCP {
        return Err(NOT_TCP);
    }
    ip.check_total_length().map_err(|_| LENGTH)?;
    let segment = ip.payload();
    Tcp::new(segment).map_err(|_| LENGTH)?;
    if ip_header::needs_checksum(packet, ip.header_len()) {
        return Ok(());
    }
    let pseudo = ip_header::pseudo_header_sum(&ip, IpProtocol::TCP, segment.len());
    let right = checksum::is_valid(checksum::add(pseudo, checksum::sum(segment)));
    if right { Ok(()) } else { Err(CHECKSUM) }
}

impl Simple for CheckTcpHeader {
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
    use artery_engine::Bench;
    use artery_wire::build::ip4;

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
            bench.stderr_text().ends_with(&format!(" :: CheckTCPHeader: TCP header check failed: {kind}\n"))
        );
        assert!(bench.read("drop_details", "").unwrap().contains(&format!("1\t{kind}\n")));
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    #[test]
    fn good_segments_pass_unchanged() {
        for payload in [&b""[..], b"odd", b"even"] {
            let bytes = ip4().tcp(1, 2).payload(payload).bytes();
            let mut bench = Bench::new(&CLASS, "");
            push_marked(&mut bench, &bytes);
            bench.expect(0, &bytes);
        }
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        let good = ip4().tcp(1, 2).payload("data");
        expect_bad(&ip4().udp(1, 2).bytes(), "not TCP");
        expect_bad(&good.bytes()[..43], "bad packet length");
        for offset in [0x40, 0x70] {
            let mut bytes = good.bytes();
            bytes[32] = offset;
            expect_bad(&bytes, "bad packet length");
        }
        let mut bytes = good.bytes();
        bytes[43] ^= 1;
        expect_bad(&bytes, "bad TCP checksum");
    }

    #[test]
    fn an_unmarked_packet_is_not_tcp() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, ip4().tcp(1, 2).bytes());
        bench.expect_dropped(DropReason::Malformed, 1);
        survives_anything(&CLASS, "VERBOSE true, DETAILS true", 2);
    }
}
