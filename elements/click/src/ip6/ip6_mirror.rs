use crate::ip::each::edit_each;
use artery_common::ip_header;
use artery_engine::{Batch, Class, Context, DropReason, Element, Packet};
use artery_wire::{IpProtocol, Ipv6};

pub static CLASS: Class = Class {
    name: "IP6Mirror",
    group: "ip6",
    summary: "swaps source and destination of IPv6 packets",
    manual: "
Expects IPv6 packets, data starting at the IP header or the header marked by an earlier element, and swaps
their source and destination addresses. Where a TCP or UDP header follows the IPv6 header at once, its ports
are swapped, too. Checksums stay right by that. Annotations stay as they are. Packets without a whole IPv6
header are dropped.",
    example: "Idle -> CheckIP6Header -> IP6Mirror -> Discard;",
    finished: true,
    build: |_| Ok(Box::new(Ip6Mirror)),
    ..Class::PER_WORKER
};

struct Ip6Mirror;

/// Bytes of a transport header that must be there for its ports to be swapped.
const TRANSPORT: usize = 8;

#[inline]
fn swap_addresses(packet: &mut Packet) -> Result<(), DropReason> {
    let bytes = ip_header::bytes_mut(packet);
    let mut ip = Ipv6::new(&mut *bytes)?;
    let (src, dst, next) = (ip.src(), ip.dst(), ip.next_header());
    ip.set_src(dst);
    ip.set_dst(src);
    let transport = bytes.get_mut(Ipv6::<&[u8]>::LEN..).filter(|header| header.len() >= TRANSPORT);
    if let Some(header) = transport.filter(|_| matches!(next, IpProtocol::TCP | IpProtocol::UDP)) {
        header[..4].rotate_left(2);
    }
    Ok(())
}

impl Element for Ip6Mirror {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        edit_each(batch, cx, swap_addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip6;

    #[test]
    fn ends_are_swapped_and_checksums_stay_right() {
        let there = || ip6().src("2001:db8::1").dst("2001:db8::2");
        let back = || ip6().src("2001:db8::2").dst("2001:db8::1");
        let mut bench = Bench::new(&CLASS, "");
        for (packet, mirrored) in [
            (there().udp(1, 2).payload("hi").bytes(), back().udp(2, 1).payload("hi").bytes()),
            (there().tcp(1, 2).seq(7).bytes(), back().tcp(2, 1).seq(7).bytes()),
        ] {
            bench.push(0, packet);
            bench.expect(0, mirrored);
        }
    }

    #[test]
    fn what_is_no_ipv6_is_dropped_and_any_bytes_are_survived() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, [0x60; 39]);
        bench.push(0, [0x45; 40]);
        bench.expect_dropped(DropReason::TooShort, 1);
        bench.expect_dropped(DropReason::Malformed, 1);
        survives_anything(&CLASS, "", 1);
    }
}
