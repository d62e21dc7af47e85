use artery_engine::{Arg, ArgError, Args, Class, Context, DropReason, Packet, Simple};
use artery_wire::{EtherAddr, EtherType, Ethernet};

pub static CLASS: Class = Class {
    name: "EnsureEther",
    group: "ether",
    summary: "gives IP packets an Ethernet header unless they have one",
    manual: "
Expects marked IP packets. Those with an Ethernet header in front pass unchanged. Where one was stripped, and
is still marked as the packet's link-level header, it is put back. All others lose what is in front of the IP
header and get an Ethernet header of ETHERTYPE, SRC and DST. Packets in which no network header is marked, or
one that lies in front of their data, pass unchanged.",
    example: "FromDump(trace.pcap, FORCE_IP true) -> EnsureEther -> ToDump(ether.pcap);",
    args: &[
        Arg::optional("ETHERTYPE", "Ethernet type", "0x0800", "type of the header that is added"),
        Arg::optional("SRC", "Ethernet address", "1:1:1:1:1:1", "its source"),
        Arg::optional("DST", "Ethernet address", "2:2:2:2:2:2", "its destination"),
    ],
    finished: true,
    build: |args| Ok(Box::new(EnsureEther::new(args)?)),
    ..Class::PER_WORKER
};

const HEADER: usize = Ethernet::<&[u8]>::LEN;

struct EnsureEther {
    header: [u8; HEADER],
}

impl EnsureEther {
    fn new(args: &Args<'_>) -> Result<EnsureEther, ArgError> {
        let (src, dst): (EtherAddr, EtherAddr) = (args.read("SRC")?, args.read("DST")?);
        let ethertype = u16::try_from(args.read::<u32>("ETHERTYPE")?)
            .map_err(|_| ArgError::wrong("argument 1 (Ethernet encapsulation type) must be <= 0xFFFF"))?;
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&dst.octets());
        header[6..12].copy_from_slice(&src.octets());
        header[12..].copy_from_slice(&ethertype.to_be_bytes());
        Ok(EnsureEther { header })
    }

    fn ensure_header(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let Some(front) = packet.network_offset().and_then(|offset| usize::try_from(offset).ok()) else {
            return Ok(());
        };
        if front == HEADER && is_ip_frame(packet.data()) {
            return Ok(());
        }
        if front == 0 && packet.mac_offset() == Some(-(HEADER as isize)) {
            packet.unstrip(HEADER)?;
            if is_ip_frame(packet.data()) {
                return Ok(());
            }
            return self.replace_header(HEADER, packet);
        }
        self.replace_header(front, packet)
    }
    /// Replaces the bytes before the IP header by the header.
    fn replace_header(&self, front: usize, packet: &mut Packet) -> Result<(), DropReason> {
        packet.strip(front)?;
        packet.prepend(HEADER)?.copy_from_slice(&self.header);
        packet.set_mac_header(0);
        Ok(())
    }
}

fn is_ip_frame(frame: &[u8]) -> bool {
    Ethernet::new(frame).is_ok_and(|frame| matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6))
}

impl Simple for EnsureEther {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| self.ensure_header(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{ether, ip4};

    fn marked(bench: &Bench, bytes: &[u8], at: usize) -> Packet {
        let mut packet = bench.packet(bytes);
        packet.set_headers(at, 20);
        packet
    }
    fn ip() -> Vec<u8> {
        ip4().udp(1, 2).bytes()
    }
    fn frame() -> Vec<u8> {
        ether("02:00:00:00:00:0b", "02:00:00:00:00:0a").ip4(ip4().udp(1, 2)).bytes()
    }
    fn added() -> Vec<u8> {
        [&[2; 6][..], &[1; 6], &[8, 0], &ip()].concat()
    }

    #[test]
    fn a_packet_with_a_header_passes_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        let packet = marked(&bench, &frame(), 14);
        bench.push_packets(0, [packet]);
        bench.expect(0, frame());
    }

    #[test]
    fn a_header_that_was_stripped_comes_back() {
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = marked(&bench, &frame(), 14);
        packet.set_mac_header(0);
        packet.strip(14).unwrap();
        bench.push_packets(0, [packet]);
        bench.expect(0, frame());
    }

    #[test]
    fn others_get_one_instead_of_what_is_in_front() {
        let mut bench = Bench::new(&CLASS, "");
        let mut stripped = marked(&bench, &[&[9; 14][..], &ip()].concat(), 14);
        stripped.set_mac_header(0);
        stripped.strip(14).unwrap();
        let bare = marked(&bench, &ip(), 0);
        let other = marked(&bench, &[&[9; 14][..], &ip()].concat(), 14);
        let short = marked(&bench, &[&[9; 4][..], &ip()].concat(), 4);
        bench.push_packets(0, [stripped, bare, other, short]);
        for _ in 0..4 {
            let packet = bench.expect(0, added());
            assert_eq!((packet.mac_offset(), packet.network_offset()), (Some(0), Some(14)));
        }
    }

    #[test]
    fn the_header_can_be_chosen() {
        let mut bench = Bench::new(&CLASS, "0x86dd, 02:00:00:00:00:0a, 02:00:00:00:00:0b");
        let packet = marked(&bench, b"abc", 0);
        bench.push_packets(0, [packet]);
        bench.expect(0, ether("02:00:00:00:00:0b", "02:00:00:00:00:0a").raw(EtherType::IPV6, "abc").bytes());
        assert!(Bench::config_error(&CLASS, "0x10000").ends_with("must be <= 0xFFFF"));
    }

    #[test]
    fn packets_that_are_not_marked_pass_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"abc");
        bench.expect(0, b"abc");
    }
}
