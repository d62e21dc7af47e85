use artery_common::ip_header::{self, pseudo_header_sum};
use artery_engine::{Arg, Class, Context, DropReason, Packet, Simple};
use artery_wire::{IpProtocol, checksum};

pub static CLASS: Class = Class {
    name: "SetTCPChecksum",
    group: "ip",
    summary: "computes TCP checksums",
    manual: "
Expects TCP packets, computes their TCP checksum over the length that the IP header says, and sets it. With
`FIXOFF` a TCP header length that is too small or too big is put right first. Packets too short for a TCP
header, or shorter than the IP header says, are dropped and reported.",
    example: "Idle -> CheckIPHeader -> SetTCPChecksum -> Discard;",
    args: &[Arg::optional("FIXOFF", "bool", "false", "whether to put wrong header lengths right")],
    build: |args| Ok(Box::new(SetTcpChecksum { fix_offset: args.read("FIXOFF")? })),
    ..Class::PER_WORKER
};

const MIN_LEN: usize = 20;

struct SetTcpChecksum {
    fix_offset: bool,
}

impl SetTcpChecksum {
    /// Sets the checksum, if the segment is whole.
    fn set_checksum(&self, packet: &mut Packet) -> Option<()> {
        let ip = ip_header::ip(packet).ok()?;
        let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_length()));
        let length = total_len.checked_sub(header_len).filter(|length| *length >= MIN_LEN)?;
        let left = ip_header::needs_checksum(packet, header_len);
        let (pseudo, fragment) = (pseudo_header_sum(&ip, IpProtocol::TCP, length), ip.is_fragment());
        let segment = ip_header::bytes_mut(packet).get_mut(header_len..total_len)?;
        if self.fix_offset {
            fix_offset(segment, fragment);
        }
        if left {
            segment[16..18].copy_from_slice(&pseudo.to_be_bytes());
            return Some(());
        }
        segment[16..18].fill(0);
        let sum = !checksum::add(pseudo, checksum::sum(segment));
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Limits the header length to at least the minimum and at most that of the segment.
fn fix_offset(segment: &mut [u8], fragment: bool) {
    let header_len = usize::from(segment[12] >> 4) * 4;
    let right = if header_len < MIN_LEN {
        MIN_LEN
    } else if header_len > segment.len() && !fragment {
        segment.len()
    } else {
        return;
    };
    segment[12] = segment[12] & 0xf | ((right / 4) as u8) << 4;
}

impl Simple for SetTcpChecksum {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if self.set_checksum(&mut packet).is_some() {
            return Some(packet);
        }
        cx.print_message("SetTCPChecksum: bad lengths");
        cx.discard(packet, DropReason::Malformed);
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
    fn a_wrong_checksum_becomes_right() {
        for payload in [&b""[..], b"odd", b"even"] {
            let right = ip4().options([1; 4]).tcp(1, 2).payload(payload).bytes();
            let mut wrong = right.clone();
            wrong[40] ^= 0x5a;
            let mut bench = Bench::new(&CLASS, "");
            bench.push(0, wrong);
            bench.expect(0, &right);
        }
    }

    #[test]
    fn wrong_header_lengths_are_put_right_when_told() {
        let right = ip4().tcp(1, 2).bytes();
        for wrong in [0x10, 0xf0] {
            let mut bytes = right.clone();
            bytes[32] = wrong;
            let mut bench = Bench::new(&CLASS, "true");
            bench.push(0, bytes);
            bench.expect(0, &right);
        }
    }

    #[test]
    fn packets_that_are_not_whole_are_dropped_and_reported() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, &ip4().tcp(1, 2).payload([0; 9]).bytes()[..48]);
        bench.push(0, ip4().raw(6, [0; 19]).bytes());
        bench.expect_dropped(DropReason::Malformed, 2);
        assert_eq!(bench.stderr_text(), "SetTCPChecksum: bad lengths\n".repeat(2));
        survives_anything(&CLASS, "true", 1);
    }
}
