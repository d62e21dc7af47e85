use super::vlan_tag::VlanTagSpec;
use artery_engine::{Arg, Class, Context, DropReason, Handler, Packet, Show, Simple, Write, parse_value};

pub static CLASS: Class = Class {
    name: "VLANEncap",
    group: "ether",
    summary: "tags Ethernet frames with a VLAN",
    manual: "
Inserts a tag into each frame, behind its addresses. The tag is VLAN_TCI, or made of VLAN_ID and VLAN_PCP;
with `ANNO` it is the VLAN annotation. Frames of VLAN NATIVE_VLAN stay as they are; -1 means that all are
tagged.",
    example: "Idle -> VLANEncap(VLAN_ID 5) -> Discard;",
    args: &[
        Arg::optional("VLAN_TCI", "number, or ANNO", "", "the tag"),
        Arg::optional("VLAN_PCP", "0 to 7", "0", "its priority"),
        Arg::keyword("VLAN_ID", "0 to 4095", "0", "its VLAN"),
        Arg::keyword("NATIVE_VLAN", "number", "0", "VLAN whose frames are not tagged, or -1 for none"),
        Arg::keyword("ETHERTYPE", "number", "0x8100", "the type that says that a tag follows"),
    ],
    handlers: &[
        Handler::read("config", "the arguments", &Show(|e: &mut VlanEncap| e.tag.config())),
        Handler::read("vlan_tci", "VLAN_TCI", &Show(|e: &mut VlanEncap| e.tag.tci()))
            .and_write(&Write(|e: &mut VlanEncap, text, _| e.tag.set_tci(text))),
        Handler::read("vlan_id", "VLAN_ID", &Show(|e: &mut VlanEncap| e.tag.id()))
            .and_write(&Write(|e: &mut VlanEncap, text, _| e.tag.set_id(text))),
        Handler::read("vlan_pcp", "VLAN_PCP", &Show(|e: &mut VlanEncap| e.tag.pcp()))
            .and_write(&Write(|e: &mut VlanEncap, text, _| e.tag.set_pcp(text))),
        Handler::read("native_vlan", "NATIVE_VLAN", &Show(|e: &mut VlanEncap| e.tag.native()))
            .and_write(&Write(|e: &mut VlanEncap, text, _| e.tag.set_native(text))),
        Handler::read("ethertype", "ETHERTYPE", &Show(|e: &mut VlanEncap| format!("0x{:04x}", e.ether_type)))
            .and_write(&Write(|e: &mut VlanEncap, text, _| {
                parse_value(text).map(|ether_type| e.ether_type = ether_type)
            })),
    ],
    build: |args| {
        Ok(Box::new(VlanEncap { tag: VlanTagSpec::with_native(args)?, ether_type: args.read("ETHERTYPE")? }))
    },
    finished: true,
    ..Class::PER_WORKER
};

/// Bytes in front of the tag, and of it.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

struct VlanEncap {
    tag: VlanTagSpec,
    ether_type: u16,
}

impl VlanEncap {
    fn encapsulate(&self, packet: &mut Packet) -> Result<(), DropReason> {
        packet.set_mac_header(0);
        let Some(tci) = self.tag.tag_for(packet) else { return Ok(()) };
        if packet.len() < ADDRESSES {
            return Err(DropReason::TooShort);
        }
        packet.prepend(TAG)?;
        let frame = packet.data_mut();
        frame.copy_within(TAG..TAG + ADDRESSES, 0);
        frame[ADDRESSES..ADDRESSES + 2].copy_from_slice(&self.ether_type.to_be_bytes());
        frame[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tci.to_be_bytes());
        packet.set_mac_header(0);
        Ok(())
    }
}

impl Simple for VlanEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| self.encapsulate(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, anno};
    use artery_wire::build::{ether, ip4};

    #[test]
    fn a_tag_is_inserted() {
        for config in ["VLAN_ID 7", "7", "0x7, 0"] {
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
            bench.expect(0, ether([1; 6], [2; 6]).vlan(7).ip4(ip4()).bytes());
        }
        let mut bench = Bench::new(&CLASS, "VLAN_ID 7, VLAN_PCP 1, ETHERTYPE 0x88a8");
        bench.push(0, [0; 14]);
        assert_eq!(bench.next_sent(0).unwrap().data()[12..16], [0x88, 0xa8, 0x20, 7]);
    }

    #[test]
    fn the_annotation_can_be_the_tag_and_a_vlan_can_go_without() {
        let mut bench = Bench::new(&CLASS, "ANNO, NATIVE_VLAN 3");
        for vlan in [9, 3] {
            let mut packet = bench.packet([0; 14]);
            packet.set_annotation(anno::VLAN_TCI, [0, vlan]);
            bench.push_packets(0, [packet]);
        }
        assert_eq!(bench.next_sent(0).unwrap().data()[12..16], [0x81, 0, 0, 9]);
        bench.expect(0, [0; 14]);
    }

    #[test]
    fn parts_of_the_tag_can_be_changed() {
        let mut bench = Bench::new(&CLASS, "VLAN_ID 7, VLAN_PCP 2");
        assert_eq!(bench.read("config", "").unwrap(), "VLAN_ID 7, VLAN_PCP 2");
        bench.write("vlan_id", "8").unwrap();
        bench.write("vlan_pcp", "1").unwrap();
        bench.write("native_vlan", "-1").unwrap();
        assert_eq!(bench.read("vlan_tci", "").unwrap(), "8200");
        assert_eq!(bench.read("native_vlan", "").unwrap(), "-1");
        bench.write("vlan_tci", "ANNO").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "ANNO, NATIVE_VLAN -1");
        assert!(bench.write("vlan_id", "4096").is_err());
        bench.write("ethertype", "0x88a8").unwrap();
        assert_eq!(bench.read("ethertype", "").unwrap(), "0x88a8");
        bench.push(0, [0; 14]);
        assert_eq!(bench.next_sent(0).unwrap().data()[12..14], [0x88, 0xa8]);
    }

    #[test]
    fn arguments_are_checked_and_short_frames_dropped() {
        assert_eq!(Bench::config_error(&CLASS, "VLAN_ID 4096"), "VLAN_ID: out of range, bound 4095");
        assert_eq!(Bench::config_error(&CLASS, "1, 8"), "VLAN_PCP: out of range, bound 7");
        let mut bench = Bench::new(&CLASS, "5");
        bench.push(0, [0; 11]);
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
