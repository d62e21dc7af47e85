//! CheckTCPHeader, CheckUDPHeader and CheckICMPHeader: one element, and for each protocol what is checked.
use super::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_common::ip_header;
use artery_engine::{ArgError, Args, Class, Context, DropReason, Element, Handler, Packet, Show, Simple};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4, Tcp, Udp, checksum};
use std::marker::PhantomData;

pub static TCP: Class = Class {
    name: "CheckTCPHeader",
    summary: "checks TCP headers",
    manual: "
Expects marked IP packets that carry TCP. Checks the TCP header length, and the checksum over the length that
the IP header says. Good packets leave by output 0. Others leave by output 1, or are dropped when there is
none; the first one is reported.",
    example: "Idle -> CheckIPHeader -> CheckTCPHeader -> Discard;",
    ..CheckHeader::<TcpCheck>::CLASS
};

pub static UDP: Class = Class {
    name: "CheckUDPHeader",
    summary: "checks UDP headers",
    manual: "
Expects marked IP packets that carry UDP. Checks the UDP length, and the checksum unless it is zero, which
means that there is none. Good packets leave by output 0. Others leave by output 1, or are dropped when there
is none; the first one is reported.",
    example: "Idle -> CheckIPHeader -> CheckUDPHeader -> Discard;",
    ..CheckHeader::<UdpCheck>::CLASS
};

pub static ICMP: Class = Class {
    name: "CheckICMPHeader",
    summary: "checks ICMP headers",
    manual: "
Expects marked IP packets that carry ICMP. Checks that the message is as long as its type asks for, and its
checksum. Good packets leave by output 0. Others leave by output 1, or are dropped when there is none; the
first one is reported.",
    example: "Idle -> CheckIPHeader -> CheckICMPHeader -> Discard;",
    ..CheckHeader::<IcmpCheck>::CLASS
};

/// The place of each failure in [`Check::FAILURES`], in the order of the checks.
const WRONG_PROTOCOL: usize = 0;
const LENGTH: usize = 1;
const CHECKSUM: usize = 2;

/// What is checked of a protocol.
trait Check: Send + 'static {
    const PROTOCOL: IpProtocol;
    /// The subject of messages.
    const WHAT: &'static str;
    /// The class as Click names it in messages; None where it names no element.
    const CLASS_NAME: Option<&'static str>;
    const FAILURES: &'static [Failure; 3];

    /// Which check a packet fails, from its IP header on.
    fn check(packet: &Packet, ip: &Ipv4<&[u8]>, from_ip: &[u8]) -> Result<(), usize>;
}

struct CheckHeader<C> {
    failures: Failures<3>,
    check: PhantomData<C>,
}

impl<C: Check> CheckHeader<C> {
    const CLASS: Class = Class {
        group: "ip",
        ports: "1/1-2",
        processing: "a/ah",
        args: &[VERBOSE, DETAILS],
        handlers: &[
            Handler::read("drops", "bad packets so far", &Show(|c: &mut CheckHeader<C>| c.failures.drops()))
                .sum(),
            Handler::read(
                "drop_details",
                "bad packets so far, by what was wrong",
                &Show(|c: &mut CheckHeader<C>| c.failures.details_text()),
            ),
        ],
        build: CheckHeader::<C>::build,
        ..Class::PER_WORKER
    };

    fn build(args: &mut Args<'_>) -> Result<Box<dyn Element>, ArgError> {
        let failures = Failures::new(args, C::WHAT, C::FAILURES)?;
        let failures = match C::CLASS_NAME {
            Some(class) => failures.with_class(class),
            None => failures.without_name(),
        };
        Ok(Box::new(CheckHeader::<C> { failures, check: PhantomData }))
    }
}

/// Which check the packet fails.
fn check_header<C: Check>(packet: &Packet) -> Result<(), usize> {
    let from_ip = packet.network().ok_or(WRONG_PROTOCOL)?;
    let ip = Ipv4::new(from_ip).map_err(|_| WRONG_PROTOCOL)?;
    if ip.protocol() != C::PROTOCOL {
        return Err(WRONG_PROTOCOL);
    }
    C::check(packet, &ip, from_ip)
}

impl<C: Check> Simple for CheckHeader<C> {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        match check_header::<C>(&packet) {
            Ok(()) => Some(packet),
            Err(kind) => {
                self.failures.fail_packet(kind, packet, cx);
                None
            }
        }
    }
}

fn has_checksum(ip: &Ipv4<&[u8]>, protocol: IpProtocol, payload: &[u8]) -> Result<(), usize> {
    let pseudo = ip_header::pseudo_header_sum(ip, protocol, payload.len());
    let is_right = checksum::is_valid(checksum::add(pseudo, checksum::sum(payload)));
    if is_right { Ok(()) } else { Err(CHECKSUM) }
}

struct TcpCheck;

impl Check for TcpCheck {
    const PROTOCOL: IpProtocol = IpProtocol::TCP;
    const WHAT: &'static str = "TCP header";
    const CLASS_NAME: Option<&'static str> = Some("CheckTCPHeader");
    const FAILURES: &'static [Failure; 3] = &[
        ("not TCP", DropReason::Malformed),
        ("bad packet length", DropReason::Malformed),
        ("bad TCP checksum", DropReason::BadChecksum),
    ];

    fn check(packet: &Packet, ip: &Ipv4<&[u8]>, _: &[u8]) -> Result<(), usize> {
        ip.check_total_length().map_err(|_| LENGTH)?;
        let segment = ip.payload();
        Tcp::new(segment).map_err(|_| LENGTH)?;
        if ip_header::needs_checksum(packet, ip.header_len()) {
            return Ok(());
        }
        has_checksum(ip, IpProtocol::TCP, segment)
    }
}

struct UdpCheck;

impl Check for UdpCheck {
    const PROTOCOL: IpProtocol = IpProtocol::UDP;
    const WHAT: &'static str = "UDP header";
    const CLASS_NAME: Option<&'static str> = None;
    const FAILURES: &'static [Failure; 3] = &[
        ("not UDP", DropReason::Malformed),
        ("bad packet length", DropReason::Malformed),
        ("bad UDP checksum", DropReason::BadChecksum),
    ];

    fn check(packet: &Packet, ip: &Ipv4<&[u8]>, from_ip: &[u8]) -> Result<(), usize> {
        let upper = &from_ip[ip.header_len()..];
        let udp = Udp::new(upper).map_err(|_| LENGTH)?;
        let length = usize::from(udp.length());
        let datagram = upper.get(..length).filter(|_| length >= Udp::<&[u8]>::LEN).ok_or(LENGTH)?;
        if udp.checksum() == 0 || ip_header::needs_checksum(packet, ip.header_len()) {
            return Ok(());
        }
        has_checksum(ip, IpProtocol::UDP, datagram)
    }
}

struct IcmpCheck;

impl Check for IcmpCheck {
    const PROTOCOL: IpProtocol = IpProtocol::ICMP;
    const WHAT: &'static str = "ICMP header";
    const CLASS_NAME: Option<&'static str> = Some("CheckICMPHeader");
    const FAILURES: &'static [Failure; 3] = &[
        ("not ICMP", DropReason::Malformed),
        ("bad packet length", DropReason::Malformed),
        ("bad ICMP checksum", DropReason::BadChecksum),
    ];

    /// A message reaches to the end of the packet.
    fn check(_: &Packet, ip: &Ipv4<&[u8]>, from_ip: &[u8]) -> Result<(), usize> {
        let message = &from_ip[ip.header_len()..];
        let icmp = Icmp::new(message).map_err(|_| LENGTH)?;
        if !is_long_enough(icmp.icmp_type(), message.len()) {
            return Err(LENGTH);
        }
        if icmp.checksum_is_valid() { Ok(()) } else { Err(CHECKSUM) }
    }
}

fn is_long_enough(kind: IcmpType, length: usize) -> bool {
    const HEADER: usize = Icmp::<&[u8]>::LEN;
    /// What an error quotes at least: an IP header and 64 bits.
    const QUOTED: usize = 28;
    /// Bytes of the three timestamps in a timestamp message.
    const TIMESTAMPS: usize = 12;
    match kind {
        kind if kind.is_error() => length >= HEADER + QUOTED,
        IcmpType(13 | 14) => length == HEADER + TIMESTAMPS,
        // Information requests and replies consist of the header only.
        IcmpType(15 | 16) => length == HEADER,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{icmp_echo, ip4};

    fn push_marked(bench: &mut Bench, bytes: &[u8]) {
        let mut packet = bench.packet(bytes);
        ip_header::mark_header(&mut packet, 0, 20);
        bench.push_packets(0, [packet]);
    }

    #[track_caller]
    fn expect_good(class: &'static Class, bytes: &[u8]) {
        let mut bench = Bench::new(class, "");
        push_marked(&mut bench, bytes);
        bench.expect(0, bytes);
    }

    #[track_caller]
    fn expect_bad(class: &'static Class, bytes: &[u8], kind: &str) {
        let mut bench = Bench::new(class, "");
        push_marked(&mut bench, bytes);
        bench.expect(1, bytes);
        let message = match class.name {
            "CheckTCPHeader" => " :: CheckTCPHeader: TCP header check failed: ",
            "CheckUDPHeader" => "UDP header check failed: ",
            _ => " :: CheckICMPHeader: ICMP header check failed: ",
        };
        assert!(bench.stderr_text().ends_with(&format!("{message}{kind}\n")));
        assert!(bench.read("drop_details", "").unwrap().contains(&format!("1\t{kind}\n")));
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    fn with_changed(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        bytes[at] = byte;
        bytes
    }

    fn message(icmp_type: u8, payload: usize) -> Vec<u8> {
        ip4().icmp(IcmpType(icmp_type), 0, [0; 4]).payload(vec![1; payload]).bytes()
    }

    #[test]
    fn good_segments_and_datagrams_pass_unchanged_those_of_udp_also_without_checksum() {
        for payload in [&b""[..], b"odd", b"even"] {
            expect_good(&TCP, &ip4().tcp(1, 2).payload(payload).bytes());
            let mut bytes = ip4().udp(1, 2).payload(payload).bytes();
            expect_good(&UDP, &bytes);
            bytes[26..28].fill(0);
            expect_good(&UDP, &bytes);
        }
    }

    #[test]
    fn good_messages_pass_unchanged() {
        let echo = icmp_echo("1.0.0.1", "1.0.0.2", 1, 2).payload("odd").bytes();
        for bytes in [echo, message(3, 28), message(11, 28), message(13, 12), message(16, 0), message(200, 0)]
        {
            expect_good(&ICMP, &bytes);
        }
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        let tcp = ip4().tcp(1, 2).payload("data").bytes();
        let udp = ip4().udp(1, 2).payload("data").bytes();
        let echo = message(8, 4);
        expect_bad(&TCP, &udp, "not TCP");
        expect_bad(&TCP, &tcp[..43], "bad packet length");
        for offset in [0x40, 0x70] {
            expect_bad(&TCP, &with_changed(tcp.clone(), 32, offset), "bad packet length");
        }
        expect_bad(&TCP, &with_changed(tcp.clone(), 43, tcp[43] ^ 1), "bad TCP checksum");

        expect_bad(&UDP, &tcp, "not UDP");
        expect_bad(&UDP, &udp[..31], "bad packet length");
        expect_bad(&UDP, &with_changed(udp.clone(), 25, 7), "bad packet length");
        expect_bad(&UDP, &with_changed(udp.clone(), 31, udp[31] ^ 1), "bad UDP checksum");

        expect_bad(&ICMP, &tcp, "not ICMP");
        for bytes in [message(3, 27), message(5, 0), message(13, 11), message(14, 13), message(15, 1)] {
            expect_bad(&ICMP, &bytes, "bad packet length");
        }
        expect_bad(&ICMP, &message(8, 0)[..27], "bad packet length");
        expect_bad(&ICMP, &with_changed(echo.clone(), 31, echo[31] ^ 1), "bad ICMP checksum");
    }

    #[test]
    fn an_unmarked_packet_is_of_none_of_the_protocols() {
        for (class, bytes) in
            [(&TCP, ip4().tcp(1, 2).bytes()), (&UDP, ip4().udp(1, 2).bytes()), (&ICMP, message(8, 0))]
        {
            let mut bench = Bench::setup(class, "").outputs(1).build().unwrap();
            bench.push(0, bytes);
            bench.expect_dropped(DropReason::Malformed, 1);
            assert_eq!(class.name == UDP.name, bench.stderr_text() == "UDP header check failed: not UDP\n");
            survives_anything(class, "VERBOSE true, DETAILS true", 2);
        }
    }
}
