use super::vlan_tag::VlanTagSpec;
use artery_engine::{Arg, ArgError, Class, Context, Handler, Packet, Show, Simple, Write, anno};

pub static CLASS: Class = Class {
    name: "SetVLANAnno",
    aliases: &["SetVlanAnno"],
    group: "ether",
    summary: "sets the VLAN annotation",
    manual: "
Sets the VLAN annotation of each packet to VLAN_TCI, or to what VLAN_ID and VLAN_PCP make. VLANEncap can make
it a tag.",
    example: "Idle -> SetVLANAnno(VLAN_ID 5) -> VLANEncap(ANNO) -> Discard;",
    args: &[
        Arg::optional("VLAN_TCI", "number", "", "the tag"),
        Arg::optional("VLAN_PCP", "0 to 7", "0", "its priority"),
        Arg::keyword("VLAN_ID", "0 to 4095", "0", "its VLAN"),
    ],
    handlers: &[
        Handler::read(
            "config",
            "the arguments",
            &Show(|s: &mut SetVlanAnno| format!("VLAN_ID {}, VLAN_PCP {}", s.0.id(), s.0.pcp())),
        ),
        Handler::read("vlan_tci", "VLAN_TCI", &Show(|s: &mut SetVlanAnno| s.0.tci()))
            .and_write(&Write(|s: &mut SetVlanAnno, text, _| s.0.set_tci(text))),
        Handler::read("vlan_id", "VLAN_ID", &Show(|s: &mut SetVlanAnno| s.0.id()))
            .and_write(&Write(|s: &mut SetVlanAnno, text, _| s.0.set_id(text))),
        Handler::read("vlan_pcp", "VLAN_PCP", &Show(|s: &mut SetVlanAnno| s.0.pcp()))
            .and_write(&Write(|s: &mut SetVlanAnno, text, _| s.0.set_pcp(text))),
    ],
    live: true,
    build: |args| {
        let tag = VlanTagSpec::new(args)?;
        if tag.from_annotation {
            return Err(ArgError::wrong("VLAN_TCI: invalid number"));
        }
        Ok(Box::new(SetVlanAnno(tag)))
    },
    ..Class::PER_WORKER
};

struct SetVlanAnno(VlanTagSpec);

impl Simple for SetVlanAnno {
    fn process(&mut self, mut packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
        packet.set_annotation(anno::VLAN_TCI, self.0.tci.to_be_bytes());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_annotation_is_set() {
        let mut bench = Bench::new(&CLASS, "VLAN_ID 5, VLAN_PCP 1");
        bench.push(0, b"x");
        assert_eq!(bench.next_sent(0).unwrap().annotation(anno::VLAN_TCI), [0x20, 5]);
        bench.write("vlan_tci", "258").unwrap();
        bench.push(0, b"x");
        assert_eq!(bench.next_sent(0).unwrap().annotation(anno::VLAN_TCI), [1, 2]);
        assert_eq!(bench.read("config", "").unwrap(), "VLAN_ID 258, VLAN_PCP 0");
        assert_eq!(Bench::config_error(&CLASS, "ANNO"), "VLAN_TCI: invalid number");
    }
}
