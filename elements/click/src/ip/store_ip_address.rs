use artery_common::ip_header;
use artery_engine::{Arg, ArgError, ArgValue, Args, Class, Context, DropReason, Packet, Simple};
use artery_wire::{IpProtocol, Ipv4, Tcp, Udp, checksum};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "StoreIPAddress",
    group: "ip",
    summary: "stores an address in the packet",
    manual: "
`StoreIPAddress(OFFSET)` writes the destination annotation into the packet at `OFFSET`; when the annotation is
zero, the packet stays as it is. `StoreIPAddress(ADDR, OFFSET)` writes the address `ADDR`, which may be zero.

`OFFSET` is a number of bytes, or `src` or `dst`: then the packet must be an IP packet, the field of its
header is written, and the checksums of the IP header and of TCP or UDP are corrected. With a number no
checksum is touched; SetIPChecksum, SetTCPChecksum and SetUDPChecksum do that.

A packet too short for the address leaves by output 1, or is dropped when there is none.",
    example: "Idle -> StoreIPAddress(10.0.0.1, src) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::optional("ADDR", "IP address", "", "the address, instead of the destination annotation"),
        Arg::optional("OFFSET", "bytes, src or dst", "", "where to write; alone, it is the first argument"),
    ],
    build: |args| Ok(Box::new(StoreIpAddress::new(args)?)),
    ..Class::PER_WORKER
};

struct StoreIpAddress {
    /// The address to write, or none for the annotation.
    address: Option<Ipv4Addr>,
    place: AddressField,
}

#[derive(Clone, Copy)]
enum AddressField {
    Data(usize),
    Source,
    Destination,
}

impl StoreIpAddress {
    fn new(args: &Args<'_>) -> Result<StoreIpAddress, ArgError> {
        let (address, place) = match (args.is_given("ADDR"), args.is_given("OFFSET")) {
            (false, false) => return Err(ArgError::Missing("OFFSET")),
            (true, false) => (None, parse_field(args, "ADDR")?),
            (false, true) => (None, parse_field(args, "OFFSET")?),
            (true, true) => (Some(args.read("ADDR")?), parse_field(args, "OFFSET")?),
        };
        Ok(StoreIpAddress { address, place })
    }

    /// Writes the address; false if the packet is too short for it.
    fn store_address(&self, packet: &mut Packet, address: Ipv4Addr) -> bool {
        match self.place {
            AddressField::Data(offset) => {
                match packet.data_mut().get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
                    Some(field) => *field = address.octets(),
                    None => return false,
                }
            }
            AddressField::Source | AddressField::Destination => {
                return self.rewrite_address(packet, address).is_some();
            }
        }
        true
    }

    /// Changes an address of the header and corrects all checksums that cover it.
    fn rewrite_address(&self, packet: &mut Packet, address: Ipv4Addr) -> Option<()> {
        let header_len = ip_header::ip(packet).ok()?.header_len();
        let left = ip_header::needs_checksum(packet, header_len);
        let mut header = ip_header::ip_mut(packet).ok()?;
        let is_source = matches!(self.place, AddressField::Source);
        let old = if is_source { header.src() } else { header.dst() };
        let correct = |sum| checksum::update_u32(sum, old.to_bits(), address.to_bits());
        header.set_checksum(correct(header.checksum()));
        if is_source {
            header.set_src(address);
        } else {
            header.set_dst(address);
        }
        // A checksum that is still to be computed holds the sum of the pseudo-header: the
        // complement of a checksum.
        correct_transport(&mut header, |sum| if left { !correct(!sum) } else { correct(sum) });
        Some(())
    }
}

/// Corrects the checksum of what follows the header, if it has one.
fn correct_transport(header: &mut Ipv4<&mut [u8]>, correct: impl Fn(u16) -> u16) {
    if header.fragment_offset() > 0 {
        return;
    }
    match header.protocol() {
        IpProtocol::TCP => {
            if let Ok(mut tcp) = Tcp::new(header.payload_mut()) {
                tcp.set_checksum(correct(tcp.checksum()));
            }
        }
        IpProtocol::UDP => {
            if let Some(mut udp) = Udp::new(header.payload_mut()).ok().filter(|udp| udp.checksum() != 0) {
                udp.set_checksum(checksum::never_zero(correct(udp.checksum())));
            }
        }
        _ => {}
    }
}

fn parse_field(args: &Args<'_>, name: &'static str) -> Result<AddressField, ArgError> {
    let text: String = args.read(name)?;
    match text.to_ascii_lowercase().as_str() {
        "src" => Ok(AddressField::Source),
        "dst" => Ok(AddressField::Destination),
        _ => match u32::parse(&text, args.names()) {
            Ok(offset) => Ok(AddressField::Data(offset as usize)),
            Err(_) => Err(ArgError::wrong("type mismatch: OFFSET requires integer, src or dst")),
        },
    }
}

impl Simple for StoreIpAddress {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let address = self.address.unwrap_or_else(|| packet.dst_ip());
        if self.address.is_none() && address.is_unspecified() || self.store_address(&mut packet, address) {
            return Some(packet);
        }
        cx.send_or_discard(1, packet, DropReason::TooShort);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn an_offset_takes_the_annotation() {
        let mut bench = Bench::new(&CLASS, "2");
        let mut packet = bench.packet([0; 6]);
        packet.set_dst_ip(Ipv4Addr::new(1, 2, 3, 4));
        bench.push_packets(0, [packet]);
        bench.expect(0, [0, 0, 1, 2, 3, 4]);
        bench.push(0, [9; 6]);
        bench.expect(0, [9; 6]);
    }

    #[test]
    fn a_given_address_may_be_zero() {
        let mut bench = Bench::new(&CLASS, "0.0.0.0, 2");
        bench.push(0, [9; 6]);
        bench.expect(0, [9, 9, 0, 0, 0, 0]);
    }

    #[test]
    fn header_fields_are_written_with_all_checksums_corrected() {
        for (field, text) in [("src", "src"), ("dst", "DST")] {
            for packet in
                [ip4().udp(1, 2).payload("data"), ip4().tcp(1, 2).payload("data"), ip4().raw(99, "data")]
            {
                let mut bench = Bench::new(&CLASS, &format!("9.8.7.6, {text}"));
                bench.push(0, packet.bytes());
                let changed = if field == "src" { packet.src("9.8.7.6") } else { packet.dst("9.8.7.6") };
                bench.expect(0, changed.bytes());
            }
        }
    }

    #[test]
    fn a_later_fragment_and_udp_without_checksum_keep_their_payload() {
        let fragment = ip4().fragment(8, false).raw(17, [1; 8]);
        let mut bench = Bench::new(&CLASS, "9.8.7.6, dst");
        bench.push(0, fragment.bytes());
        bench.expect(0, fragment.dst("9.8.7.6").bytes());
        let bare = |dst: &str| ip4().dst(dst).raw(17, [0, 1, 0, 2, 0, 8, 0, 0]).bytes();
        bench.push(0, bare("1.1.1.1"));
        bench.expect(0, bare("9.8.7.6"));
    }

    #[test]
    fn a_packet_too_short_leaves_by_output_1() {
        let mut bench = Bench::new(&CLASS, "1.2.3.4, 2");
        bench.push(0, b"short");
        bench.expect(1, b"short");
        let mut bench = Bench::setup(&CLASS, "1.2.3.4, src").outputs(1).build().unwrap();
        bench.push(0, b"short");
        bench.expect_dropped(DropReason::TooShort, 1);
        survives_anything(&CLASS, "1.2.3.4, dst", 2);
        survives_anything(&CLASS, "21", 2);
    }

    #[test]
    fn a_place_must_be_given() {
        assert_eq!(Bench::config_error(&CLASS, ""), "OFFSET: required argument missing");
        let wrong = "type mismatch: OFFSET requires integer, src or dst";
        assert_eq!(Bench::config_error(&CLASS, "-1"), wrong);
        assert_eq!(Bench::config_error(&CLASS, "1.2.3.4, ttl"), wrong);
    }
}
