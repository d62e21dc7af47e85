use artery_engine::{Arg, Class, Context, Packet, Simple, anno};

pub static CLASS: Class = Class {
    name: "VLANDecap",
    group: "ether",
    summary: "removes VLAN tags from Ethernet frames",
    manual: "
Removes the tag of each frame that has one, which then begins with a plain Ethernet header; others stay as
they are. With ANNO the VLAN annotation becomes the tag, or zero.",
    example: "Idle -> VLANDecap -> Discard;",
    args: &[
        Arg::optional("ANNO", "bool", "true", "whether to set the VLAN annotation"),
        Arg::keyword("ETHERTYPE", "number", "0x8100", "the type that says that a tag follows"),
    ],
    build: |args| {
        Ok(Box::new(VlanDecap { annotates: args.read("ANNO")?, ether_type: args.read("ETHERTYPE")? }))
    },
    finished: true,
    ..Class::PER_WORKER
};

/// Bytes in front of the tag, and of it.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

struct VlanDecap {
    annotates: bool,
    ether_type: u16,
}

impl Simple for VlanDecap {
    fn process(&mut self, mut packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
        let mut tci = [0, 0];
        let frame = packet.data_mut();
        let tag = frame.get(ADDRESSES..ADDRESSES + TAG);
        if let Some(&[_, _, high, low]) = tag.filter(|tag| tag[..2] == self.ether_type.to_be_bytes()) {
            tci = [high, low];
            frame.copy_within(0..ADDRESSES, TAG);
            // The tag is in the frame, so it is long enough.
            let _ = packet.strip(TAG);
        }
        packet.set_mac_header(0);
        if self.annotates {
            packet.set_annotation(anno::VLAN_TCI, tci);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{ether, ip4};

    #[test]
    fn tags_are_removed_and_remembered() {
        let mut bench = Bench::new(&CLASS, "");
        let plain = ether([1; 6], [2; 6]).ip4(ip4()).bytes();
        bench.push(0, ether([1; 6], [2; 6]).vlan(7).ip4(ip4()).bytes());
        bench.push(0, &plain);
        for vlan in [7, 0] {
            let packet = bench.expect(0, &plain);
            assert_eq!((packet.annotation(anno::VLAN_TCI), packet.mac_offset()), ([0, vlan], Some(0)));
        }
    }

    #[test]
    fn the_annotation_may_stay_and_short_frames_pass() {
        let mut bench = Bench::new(&CLASS, "false");
        let mut packet = bench.packet([0x81; 15]);
        packet.set_annotation(anno::VLAN_TCI, [1, 2]);
        bench.push_packets(0, [packet]);
        assert_eq!(bench.expect(0, [0x81; 15]).annotation(anno::VLAN_TCI), [1, 2]);
    }
}
