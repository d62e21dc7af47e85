use artery_engine::{Arg, ArgError, Args, Class, Context, DropReason, Packet, Simple, anno};
use artery_wire::EtherType;

pub static CLASS: Class = Class {
    name: "StripEtherVLANHeader",
    aliases: &["StripEtherVlanHeader"],
    group: "ether",
    summary: "strips an Ethernet header, tagged or not",
    manual: "
A frame of type 0x8100 (802.1Q) loses its 18-byte header; the tag goes to the VLAN annotation. Of any other
frame the VLAN annotation becomes NATIVE_VLAN, and its 14-byte header is stripped. If NATIVE_VLAN is negative,
such frames leave by output 1, or are dropped when there is none.",
    example: "Idle -> StripEtherVLANHeader -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::optional("NATIVE_VLAN", "number", "0", "VLAN of untagged frames, or -1 for none")],
    live: true,
    build: |args| Ok(Box::new(StripEtherVlanHeader { native_vlan: native_vlan(args)? })),
    ..Class::PER_WORKER
};

const UNTAGGED: usize = 14;
const TAGGED: usize = 18;

struct StripEtherVlanHeader {
    native_vlan: Option<u16>,
}

fn native_vlan(args: &Args<'_>) -> Result<Option<u16>, ArgError> {
    let vlan: i32 = args.read("NATIVE_VLAN")?;
    if vlan > 0xfff {
        return Err(ArgError::wrong("bad NATIVE_VLAN"));
    }
    Ok(u16::try_from(vlan).ok())
}

impl StripEtherVlanHeader {
    /// The tag, and how many bytes to strip; None for a frame that does not pass.
    fn read_tag(&self, frame: &[u8]) -> Option<([u8; 2], usize)> {
        let tagged = frame.get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes());
        match (tagged, frame.get(14..16)) {
            (true, Some(tag)) => Some(([tag[0], tag[1]], TAGGED)),
            _ => self.native_vlan.map(|vlan| (vlan.to_be_bytes(), UNTAGGED)),
        }
    }
}

impl Simple for StripEtherVlanHeader {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let Some((tag, len)) = self.read_tag(packet.data()) else {
            cx.send_or_discard(1, packet, DropReason::NoMatch);
            return None;
        };
        if packet.strip(len).is_err() {
            cx.discard(packet, DropReason::TooShort);
            return None;
        }
        packet.set_annotation(anno::VLAN_TCI, tag);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{ether, ip4};

    #[test]
    fn tagged_and_untagged_headers_are_stripped() {
        let mut bench = Bench::new(&CLASS, "5");
        bench.push(0, ether([1; 6], [2; 6]).vlan(7).ip4(ip4()).bytes());
        bench.push(0, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
        for vlan in [7, 5] {
            let packet = bench.expect(0, ip4().bytes());
            assert_eq!(packet.annotation(anno::VLAN_TCI), [0, vlan]);
        }
    }

    #[test]
    fn without_a_native_vlan_untagged_frames_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "-1");
        bench.push(0, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
        bench.expect(1, ether([1; 6], [2; 6]).ip4(ip4()).bytes());
    }

    #[test]
    fn frames_too_short_for_their_header_are_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        let frame = ether([1; 6], [2; 6]).vlan(7).ip4(ip4()).bytes();
        for len in [0, 13, 16, 17] {
            bench.push(0, &frame[..len]);
        }
        bench.expect_dropped(DropReason::TooShort, 4);
        assert_eq!(Bench::config_error(&CLASS, "4096"), "bad NATIVE_VLAN");
    }
}
