use super::each::edit_each;
use artery_common::ip_header;
use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, Packet};
use artery_wire::IpProtocol;

pub static CLASS: Class = Class {
    name: "IPMirror",
    group: "ip",
    summary: "swaps source and destination",
    manual: "
Expects IP packets and swaps their source and destination addresses. Where a TCP or UDP header follows, which
a fragment but the first doesn't have, ports are swapped, too, and with TCP the sequence and acknowledgement
numbers. Checksums stay right by that. The destination annotation becomes the new destination, unless DST_ANNO
is false. Packets without a whole IP header are dropped.",
    example: "Idle -> CheckIPHeader -> IPMirror -> Discard;",
    args: &[Arg::optional("DST_ANNO", "bool", "true", "whether to set the destination annotation")],
    finished: true,
    build: |args| Ok(Box::new(IpMirror { set_annotation: args.read("DST_ANNO")? })),
    ..Class::PER_WORKER
};

struct IpMirror {
    set_annotation: bool,
}

impl IpMirror {
    #[inline]
    fn mirror_packet(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let mut ip = ip_header::ip_mut(packet)?;
        let (src, dst) = (ip.src(), ip.dst());
        ip.set_src(dst);
        ip.set_dst(src);
        let (protocol, header_len) = (ip.protocol(), ip.header_len());
        if ip.fragment_offset() == 0 {
            swap_ports(protocol, ip_header::bytes_mut(packet).get_mut(header_len..).unwrap_or(&mut []));
        }
        if self.set_annotation {
            packet.set_dst_ip(src);
        }
        Ok(())
    }
}

/// Swaps the ports in a TCP or UDP header, as far as a first fragment has them.
#[inline]
fn swap_ports(protocol: IpProtocol, bytes: &mut [u8]) {
    let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
    let Some(ports) = bytes.get_mut(..4).filter(|_| has_ports) else { return };
    ports.rotate_left(2);
    if let Some(numbers) = bytes.get_mut(4..12).filter(|_| protocol == IpProtocol::TCP) {
        numbers.rotate_left(4);
    }
}

impl Element for IpMirror {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        edit_each(batch, cx, |packet| self.mirror_packet(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn ends_are_swapped_and_checksums_stay_right() {
        let there = || ip4().src("1.2.3.4").dst("5.6.7.8");
        let back = || ip4().src("5.6.7.8").dst("1.2.3.4");
        let mut bench = Bench::new(&CLASS, "");
        for (packet, mirrored) in [
            (there().udp(1, 2).payload("hi").bytes(), back().udp(2, 1).payload("hi").bytes()),
            (there().tcp(1, 2).seq(7).ack(9).bytes(), back().tcp(2, 1).seq(9).ack(7).bytes()),
        ] {
            bench.push(0, packet);
            assert_eq!(bench.expect(0, mirrored).dst_ip().octets(), [1, 2, 3, 4]);
        }
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let later = |src, dst, ports: [u8; 4]| {
            let mut bytes = ip4().src(src).dst(dst).fragment(64, false).udp(0, 0).payload([1; 8]).bytes();
            bytes[20..24].copy_from_slice(&ports);
            bytes
        };
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, later("1.2.3.4", "5.6.7.8", [1, 2, 3, 4]));
        bench.expect(0, later("5.6.7.8", "1.2.3.4", [1, 2, 3, 4]));
    }

    #[test]
    fn a_first_fragment_may_end_within_the_header() {
        let start = |src, dst, from, to| {
            let bytes = ip4().src(src).dst(dst).fragment(0, true).tcp(from, to).seq(7).bytes();
            bytes[..28].to_vec()
        };
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, start("1.2.3.4", "5.6.7.8", 1, 2));
        bench.expect(0, start("5.6.7.8", "1.2.3.4", 2, 1));
    }

    #[test]
    fn the_annotation_stays_when_told() {
        let mut bench = Bench::new(&CLASS, "false");
        bench.push(0, ip4().src("1.2.3.4").dst("5.6.7.8").udp(1, 2).bytes());
        assert_eq!(bench.next_sent(0).unwrap().dst_ip().octets(), [0; 4]);
    }

    #[test]
    fn any_bytes_are_survived() {
        survives_anything(&CLASS, "", 1);
    }
}
