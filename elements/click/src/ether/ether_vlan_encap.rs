use super::ether_text::format_dashed;
use super::vlan_tag::VlanTagSpec;
use artery_engine::{Arg, Class, Context, Field, Handler, Packet, Show, Simple, Write, parse_value};
use artery_wire::{EtherAddr, EtherType};

pub static CLASS: Class = Class {
    name: "EtherVLANEncap",
    aliases: &["EtherVlanEncap"],
    group: "ether",
    summary: "puts a tagged Ethernet header in front of packets",
    manual: "
Puts an Ethernet header with the given addresses, a VLAN's tag and the type ETHERTYPE in front of each packet.
The tag is VLAN_TCI, or made of VLAN_ID and VLAN_PCP; with `ANNO` it is the VLAN annotation. Packets of VLAN
NATIVE_VLAN get a header without tag; -1 means that all get one.",
    example: "Idle -> EtherVLANEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2, VLAN_ID 5) -> Discard;",
    args: &[
        Arg::required("ETHERTYPE", "number", "type of what the frame carries"),
        Arg::required("SRC", "Ethernet address", "source address"),
        Arg::required("DST", "Ethernet address", "destination address"),
        Arg::optional("VLAN_TCI", "number, or ANNO", "", "the tag"),
        Arg::optional("VLAN_PCP", "0 to 7", "0", "its priority"),
        Arg::keyword("VLAN_ID", "0 to 4095", "0", "its VLAN"),
        Arg::keyword("NATIVE_VLAN", "number", "0", "VLAN whose packets are not tagged, or -1 for none"),
    ],
    handlers: &[
        Handler::read("config", "the arguments", &Show(|e: &mut EtherVlanEncap| e.config())),
        Handler::read("src", "source address", &Show(|e: &mut EtherVlanEncap| format_dashed(e.src)))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| parse_value(text).map(|src| e.src = src))),
        Handler::read("dst", "destination address", &Show(|e: &mut EtherVlanEncap| format_dashed(e.dst)))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| parse_value(text).map(|dst| e.dst = dst))),
        Handler::field(
            "ethertype",
            "type of what the frame carries",
            &Field(|e: &mut EtherVlanEncap| &mut e.ether_type),
        ),
        Handler::read("vlan_tci", "VLAN_TCI", &Show(|e: &mut EtherVlanEncap| e.tag.tci()))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| e.tag.set_tci(text))),
        Handler::read("vlan_id", "VLAN_ID", &Show(|e: &mut EtherVlanEncap| e.tag.id()))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| e.tag.set_id(text))),
        Handler::read("vlan_pcp", "VLAN_PCP", &Show(|e: &mut EtherVlanEncap| e.tag.pcp()))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| e.tag.set_pcp(text))),
        Handler::read("native_vlan", "NATIVE_VLAN", &Show(|e: &mut EtherVlanEncap| e.tag.native()))
            .and_write(&Write(|e: &mut EtherVlanEncap, text, _| e.tag.set_native(text))),
    ],
    live: true,
    build: |args| {
        let (ether_type, src, dst) = (args.read("ETHERTYPE")?, args.read("SRC")?, args.read("DST")?);
        Ok(Box::new(EtherVlanEncap { ether_type, src, dst, tag: VlanTagSpec::with_native(args)? }))
    },
    ..Class::PER_WORKER
};

struct EtherVlanEncap {
    ether_type: u16,
    src: EtherAddr,
    dst: EtherAddr,
    tag: VlanTagSpec,
}

impl EtherVlanEncap {
    fn config(&self) -> String {
        format!(
            "{}, {}, {}, {}",
            self.ether_type,
            format_dashed(self.src),
            format_dashed(self.dst),
            self.tag.config()
        )
    }
}

impl Simple for EtherVlanEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let tci = self.tag.tag_for(&packet);
        let mut header = [0; 18];
        let len = if tci.is_some() { 18 } else { 14 };
        header[..6].copy_from_slice(&self.dst.0);
        header[6..12].copy_from_slice(&self.src.0);
        header[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
        header[14..16].copy_from_slice(&tci.unwrap_or(0).to_be_bytes());
        header[len - 2..len].copy_from_slice(&self.ether_type.to_be_bytes());
        cx.edit_or_discard(packet, |packet| {
            packet.prepend(len)?.copy_from_slice(&header[..len]);
            packet.set_mac_header(0);
            packet.set_network_header(len);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, anno};
    use artery_wire::build::{ether, ip4};

    const ARGS: &str = "0x0800, 2:2:2:2:2:2, 1:1:1:1:1:1";

    #[test]
    fn a_tagged_header_is_put_in_front() {
        let mut bench = Bench::new(&CLASS, &format!("{ARGS}, VLAN_ID 7"));
        bench.push(0, ip4().bytes());
        let packet = bench.expect(0, ether([1; 6], [2; 6]).vlan(7).ip4(ip4()).bytes());
        assert_eq!((packet.mac_offset(), packet.network_offset()), (Some(0), Some(18)));
        let found = bench.read("config", "").unwrap();
        assert_eq!(found, "2048, 02-02-02-02-02-02, 01-01-01-01-01-01, VLAN_ID 7, VLAN_PCP 0");
    }

    #[test]
    fn the_native_vlan_has_no_tag() {
        let mut bench = Bench::new(&CLASS, &format!("{ARGS}, ANNO"));
        for vlan in [0, 9] {
            bench.push_with(0, ip4().bytes(), |packet| packet.set_annotation(anno::VLAN_TCI, [0, vlan]));
        }
        bench.expect(0, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
        bench.expect(0, ether([1; 6], [2; 6]).vlan(9).ip4(ip4()).bytes());
    }
}
