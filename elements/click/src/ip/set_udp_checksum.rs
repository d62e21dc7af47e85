use artery_common::ip_header::{self, pseudo_header_sum};
use artery_engine::{Args, Class, Context, DropReason, Packet, Simple};
use artery_wire::{IpProtocol, Udp, checksum};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub static CLASS: Class = Class {
    name: "SetUDPChecksum",
    group: "ip",
    summary: "computes UDP checksums",
    manual: "
Expects UDP packets (the protocol is not looked at), computes their UDP checksum and sets it. A fragment, or a
packet shorter than its UDP length, leaves by output 1, or is dropped when there is none; the first one
dropped is reported.",
    example: "Idle -> CheckIPHeader -> SetUDPChecksum -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    build: |args| Ok(Box::new(SetUdpChecksum::new(args))),
    ..Class::PER_WORKER
};

struct SetUdpChecksum {
    was_reported: Arc<AtomicBool>,
}

impl SetUdpChecksum {
    fn new(args: &mut Args<'_>) -> SetUdpChecksum {
        SetUdpChecksum { was_reported: args.shared_value(|| AtomicBool::new(false)) }
    }
}

/// Sets the checksum, unless the packet is a fragment or shorter than its UDP length.
fn set_checksum(packet: &mut Packet) -> Option<()> {
    let ip = ip_header::ip(packet).ok().filter(|ip| !ip.is_fragment())?;
    let header_len = ip.header_len();
    let length = usize::from(Udp::new(bytes_after(packet, header_len)?).ok()?.length());
    let pseudo = pseudo_header_sum(&ip, IpProtocol::UDP, length);
    let left = ip_header::needs_checksum(packet, header_len);
    let datagram = ip_header::bytes_mut(packet).get_mut(header_len..header_len + length)?;
    let mut udp = Udp::new(&mut *datagram).ok()?;
    if left {
        udp.set_checksum(pseudo);
        return Some(());
    }
    udp.set_checksum(0);
    let sum = !checksum::add(pseudo, checksum::sum(datagram));
    datagram[6..8].copy_from_slice(&checksum::never_zero(sum).to_be_bytes());
    Some(())
}

fn bytes_after(packet: &Packet, header_len: usize) -> Option<&[u8]> {
    ip_header::bytes(packet).get(header_len..)
}

impl Simple for SetUdpChecksum {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if set_checksum(&mut packet).is_some() {
            return Some(packet);
        }
        if cx.outputs() == 1 && !self.was_reported.swap(true, Relaxed) {
            let line = format!("{}: fragment or short packet", cx.name());
            cx.print_message(&line);
        }
        cx.send_or_discard(1, packet, DropReason::Malformed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn a_wrong_or_missing_checksum_becomes_right() {
        for payload in [&b""[..], b"odd", b"even"] {
            let right = ip4().options([1; 4]).udp(1, 2).payload(payload).bytes();
            for wrong in [0, 0x5a] {
                let mut bytes = right.clone();
                bytes[30..32].fill(wrong);
                let mut bench = Bench::new(&CLASS, "");
                bench.push(0, bytes);
                bench.expect(0, &right);
            }
        }
    }

    #[test]
    fn fragments_and_short_packets_leave_by_output_1() {
        let whole = ip4().udp(1, 2).payload([0; 16]);
        let mut bench = Bench::new(&CLASS, "");
        for bytes in [whole.clone().fragment(0, true).bytes(), whole.bytes()[..40].to_vec()] {
            bench.push(0, &bytes);
            bench.expect(1, &bytes);
        }
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, b"short");
        bench.push(0, b"short");
        bench.expect_dropped(DropReason::Malformed, 2);
        assert!(bench.stderr_text().ends_with(": fragment or short packet\n"));
        assert_eq!(bench.stderr_text(), "");
        survives_anything(&CLASS, "", 2);
    }
}
