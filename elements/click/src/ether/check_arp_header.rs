use crate::ip::failures::{DETAILS, Failure, Failures, VERBOSE};
use artery_engine::{Arg, Class, Context, DropReason, Handler, Packet, Show, Simple};
use artery_wire::EtherType;

pub static CLASS: Class = Class {
    name: "CheckARPHeader",
    group: "ether",
    summary: "checks ARP headers and marks where they are",
    manual: "
Expects packets with an ARP header OFFSET bytes in. Checks that the packet holds the addresses that the header
tells of, that hardware addresses have 6 bytes on Ethernet, and protocol addresses 4 bytes with IPv4, 16 with
IPv6. Good packets leave by output 0 with their network header marked at the ARP header, and the transport
header behind its addresses. Others leave by output 1, or are dropped when there is none; the first one is
reported.",
    example: "Idle -> Strip(14) -> CheckARPHeader -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::optional("OFFSET", "bytes", "0", "where the ARP header begins"), VERBOSE, DETAILS],
    handlers: &[
        Handler::read("drops", "bad packets so far", &Show(|c: &mut CheckArpHeader| c.failures.drops()))
            .sum(),
        Handler::read(
            "drop_details",
            "bad packets so far, by what was wrong",
            &Show(|c: &mut CheckArpHeader| c.failures.details_text()),
        ),
    ],
    build: |args| {
        let offset = args.read::<u32>("OFFSET")? as usize;
        Ok(Box::new(CheckArpHeader {
            offset,
            failures: Failures::new(args, "ARP header", KINDS)?.without_name(),
        }))
    },
    ..Class::PER_WORKER
};

/// In the order of the checks.
const KINDS: &[Failure; 4] = &[
    ("tiny packet", DropReason::TooShort),
    ("too small for addresses", DropReason::TooShort),
    ("bad hardware type/length", DropReason::Malformed),
    ("bad protocol type/length", DropReason::Malformed),
];
const TINY: usize = 0;
const ADDRESSES: usize = 1;
const HARDWARE: usize = 2;
const PROTOCOL: usize = 3;

/// Length of what stands before the addresses.
const FIXED: usize = 8;
const ETHERNET: u16 = 1;

struct CheckArpHeader {
    offset: usize,
    failures: Failures<4>,
}

/// The length of a header with its addresses, or which check it fails (RFC 826).
fn check_header(bytes: &[u8]) -> Result<usize, usize> {
    let &[h0, h1, p0, p1, hardware_len, protocol_len, _, _] = bytes.first_chunk::<FIXED>().ok_or(TINY)?;
    let (hardware, protocol) = (u16::from_be_bytes([h0, h1]), EtherType(u16::from_be_bytes([p0, p1])));
    let length = FIXED + 2 * usize::from(hardware_len) + 2 * usize::from(protocol_len);
    let right_protocol_len = match protocol {
        EtherType::IPV4 => 4,
        EtherType::IPV6 => 16,
        _ => protocol_len,
    };
    if bytes.len() < length {
        Err(ADDRESSES)
    } else if hardware == ETHERNET && hardware_len != 6 {
        Err(HARDWARE)
    } else if protocol_len != right_protocol_len {
        Err(PROTOCOL)
    } else {
        Ok(length)
    }
}

impl Simple for CheckArpHeader {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        match check_header(packet.data().get(self.offset..).unwrap_or(&[])) {
            Ok(length) => {
                packet.set_headers(self.offset, length);
                Some(packet)
            }
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
    use artery_engine::Bench;
    use artery_wire::build::arp_request;

    fn frame() -> Vec<u8> {
        arp_request("02:00:00:00:00:01", "10.0.0.1", "10.0.0.2").bytes()
    }

    #[test]
    fn good_headers_are_marked() {
        let mut bench = Bench::new(&CLASS, "14");
        bench.push(0, frame());
        let packet = bench.expect(0, frame());
        assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(14), Some(42)));
    }

    #[test]
    fn other_kinds_of_addresses_may_have_other_lengths() {
        let mut bench = Bench::new(&CLASS, "");
        let bytes = [[0, 7, 0x12, 0x34, 1, 2, 0, 1], [0; 8]].concat();
        bench.push(0, &bytes[..14]);
        bench.expect(0, &bytes[..14]);
    }

    #[test]
    fn each_mistake_is_named_and_leaves_by_output_1() {
        let changed = |at: usize, to: u8| {
            let mut bytes = [&frame()[14..], &[0; 8][..]].concat();
            bytes[at] = to;
            bytes
        };
        for (bytes, kind) in [
            (frame()[14..21].to_vec(), "tiny packet"),
            (frame()[14..41].to_vec(), "too small for addresses"),
            (changed(4, 7), "bad hardware type/length"),
            (changed(5, 3), "bad protocol type/length"),
        ] {
            let mut bench = Bench::new(&CLASS, "");
            bench.push(0, &bytes);
            bench.expect(1, &bytes);
            assert_eq!(bench.stderr_text(), format!("ARP header check failed: {kind}\n"));
            assert!(bench.read("drop_details", "").unwrap().contains(&format!("1\t{kind}\n")));
            assert_eq!(bench.read("drops", "").unwrap(), "1");
        }
    }
}
