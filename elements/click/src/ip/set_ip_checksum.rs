use artery_common::ip_header;
use artery_engine::{Class, Context, DropReason, Handler, Packet, Show, Simple};
use artery_wire::checksum;

pub static CLASS: Class = Class {
    name: "SetIPChecksum",
    group: "ip",
    summary: "computes the IP header checksum",
    manual: "
Expects IP packets, marked or with the header at the start of data. Computes the header checksum and sets it.
Rarely needed: elements that change a header correct its checksum. Packets whose header is not whole are
dropped; the first one is reported.",
    example: "Idle -> StoreIPAddress(10.0.0.1, 12) -> SetIPChecksum -> Discard;",
    handlers: &[Handler::read(
        "drops",
        "packets without a whole header",
        &Show(|s: &mut SetIpChecksum| s.drops),
    )
    .sum()],
    build: |_| Ok(Box::new(SetIpChecksum { drops: 0 })),
    ..Class::PER_WORKER
};

struct SetIpChecksum {
    drops: u64,
}

/// The header by its length field, of any version.
fn header_bytes(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let header_len = usize::from(bytes.first()? & 0xf) * 4;
    bytes.get_mut(..header_len).filter(|header| header.len() >= 20)
}

impl Simple for SetIpChecksum {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let Some(header) = header_bytes(ip_header::bytes_mut(&mut packet)) else {
            self.drops += 1;
            if self.drops == 1 {
                cx.print_message("SetIPChecksum: bad input packet");
            }
            cx.discard(packet, DropReason::TooShort);
            return None;
        };
        header[10..12].fill(0);
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn a_wrong_checksum_becomes_right_and_a_right_one_stays() {
        for right in [ip4().udp(1, 2).bytes(), ip4().options([1, 1, 1, 1, 1]).udp(1, 2).bytes()] {
            let mut wrong = right.clone();
            wrong[10] ^= 0x55;
            let mut bench = Bench::new(&CLASS, "");
            bench.push(0, wrong);
            bench.push(0, &right);
            bench.expect(0, &right);
            bench.expect(0, &right);
        }
    }

    #[test]
    fn packets_without_a_whole_header_are_dropped_and_the_first_is_reported() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, &ip4().udp(1, 2).bytes()[..19]);
        bench.push(0, b"");
        bench.expect_dropped(DropReason::TooShort, 2);
        assert_eq!(bench.stderr_text().as_str(), "SetIPChecksum: bad input packet\n");
        assert_eq!(bench.read("drops", "").unwrap().as_str(), "2");
        survives_anything(&CLASS, "", 1);
    }
}
