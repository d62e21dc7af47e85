use artery_engine::{Class, Context, Packet, Simple};
use artery_wire::Ethernet;

pub static CLASS: Class = Class {
    name: "EtherMirror",
    group: "ether",
    summary: "swaps source and destination of Ethernet frames",
    manual: "Swaps source and destination address of each Ethernet frame, so that it goes back to where it \
        came from.",
    example: "Idle -> EtherMirror -> Discard;",
    build: |_| Ok(Box::new(EtherMirror)),
    ..Class::PER_WORKER
};

struct EtherMirror;

impl Simple for EtherMirror {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| {
            let mut frame = Ethernet::new(packet.data_mut())?;
            let (src, dst) = (frame.src(), frame.dst());
            frame.set_src(dst);
            frame.set_dst(src);
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
    fn the_addresses_are_swapped() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
        bench.expect(0, ether([2; 6], [1; 6]).ip4(ip4()).bytes());
    }

    #[test]
    fn a_frame_too_short_for_a_header_is_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, [0; 13]);
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
