use artery_engine::{Arg, Class, Context, DropReason, Packet, Simple, anno};

pub static CLASS: Class = Class {
    name: "GetIP6Address",
    group: "ip6",
    summary: "copies an address from the packet to its IPv6 destination annotation",
    manual: "
Copies the 16 bytes at `OFFSET` into the IPv6 destination annotation. `OFFSET` is usually 24, the place of the
destination in an IPv6 header that begins the packet, or 38 behind an Ethernet header. Elements that need to
know where a packet goes, such as LookupIP6Route, read the annotation. Packets too short to hold the address
are dropped.",
    example: "Idle -> GetIP6Address(24) -> Discard;",
    args: &[Arg::required("OFFSET", "bytes", "where the address is")],
    build: |args| Ok(Box::new(GetIp6Address { offset: args.read::<u32>("OFFSET")? as usize })),
    ..Class::PER_WORKER
};

struct GetIp6Address {
    offset: usize,
}

impl Simple for GetIp6Address {
    #[inline]
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| {
            let bytes = packet.data().get(self.offset..).and_then(|bytes| bytes.first_chunk::<16>());
            let address = *bytes.ok_or(DropReason::TooShort)?;
            packet.set_annotation(anno::DST_IP6, address);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_address_is_copied_and_a_packet_without_is_dropped() {
        let mut bench = Bench::new(&CLASS, "2");
        bench.push(0, "ab0123456789abcdef");
        let packet = bench.expect(0, "ab0123456789abcdef");
        assert_eq!(&packet.annotation::<16>(anno::DST_IP6), b"0123456789abcdef");
        bench.push(0, "ab0123456789abcde");
        bench.expect_dropped(DropReason::TooShort, 1);
    }

    #[test]
    fn an_offset_beyond_every_packet_is_legal() {
        let mut bench = Bench::new(&CLASS, "4294967295");
        bench.push(0, "x");
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
