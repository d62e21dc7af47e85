use super::ether_text::format_dashed;
use artery_engine::{Arg, Class, Context, Handler, Packet, Show, Simple, Write, parse_value};
use artery_wire::{EtherAddr, Ethernet};

pub static CLASS: Class = Class {
    name: "EtherRewrite",
    group: "ether",
    summary: "replaces both addresses of Ethernet frames",
    manual: "
Sets source and destination address of each frame; its type stays. Useful where a link has only one possible
next hop. The frame starts at the link header that an earlier element marked, if it is still in the data, else
at the data.",
    example: "Idle -> EtherRewrite(1:1:1:1:1:1, 2:2:2:2:2:2) -> Discard;",
    args: &[
        Arg::required("SRC", "Ethernet address", "new source address"),
        Arg::required("DST", "Ethernet address", "new destination address"),
    ],
    handlers: &[
        Handler::read("src", "new source address", &Show(|e: &mut EtherRewrite| format_dashed(e.src)))
            .and_write(&Write(|e: &mut EtherRewrite, text, _| parse_value(text).map(|src| e.src = src)))
            .sets_argument("SRC"),
        Handler::read("dst", "new destination address", &Show(|e: &mut EtherRewrite| format_dashed(e.dst)))
            .and_write(&Write(|e: &mut EtherRewrite, text, _| parse_value(text).map(|dst| e.dst = dst)))
            .sets_argument("DST"),
    ],
    live: true,
    build: |args| Ok(Box::new(EtherRewrite { src: args.read("SRC")?, dst: args.read("DST")? })),
    ..Class::PER_WORKER
};

struct EtherRewrite {
    src: EtherAddr,
    dst: EtherAddr,
}

impl Simple for EtherRewrite {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let offset = packet.mac_offset().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        cx.edit_or_discard(packet, |packet| {
            let mut frame = Ethernet::new(packet.data_mut().get_mut(offset..).unwrap_or_default())?;
            frame.set_src(self.src);
            frame.set_dst(self.dst);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::{ether, ip4};

    #[test]
    fn both_addresses_are_replaced() {
        let mut bench = Bench::new(&CLASS, "1:1:1:1:1:1, 2:2:2:2:2:2");
        bench.push(0, ether([9; 6], [8; 6]).ip4(ip4()).bytes());
        bench.expect(0, ether([2; 6], [1; 6]).ip4(ip4()).bytes());
        bench.write("dst", "4:4:4:4:4:4").unwrap();
        assert_eq!(bench.read("dst", "").unwrap(), "04-04-04-04-04-04");
        bench.push(0, ether([9; 6], [8; 6]).ip4(ip4()).bytes());
        bench.expect(0, ether([4; 6], [1; 6]).ip4(ip4()).bytes());
    }

    #[test]
    fn a_frame_too_short_for_a_header_is_dropped() {
        let mut bench = Bench::new(&CLASS, "1:1:1:1:1:1, 2:2:2:2:2:2");
        bench.push(0, [0; 13]);
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
