use super::each::edit_each;
use artery_common::ip_header;
use artery_engine::{Annotation, Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "GetIPAddress",
    group: "ip",
    summary: "copies an address from the packet to its destination annotation",
    manual: "
Copies the 4 bytes at `OFFSET` into the destination annotation, or into `ANNO`. `OFFSET` is usually 16, the
place of the destination in an IP header. `IP src` or `IP dst` names a field of the marked IP header instead.
Elements that need to know where a packet goes, such as ARPQuerier and the routing tables, read the
annotation. Packets too short to hold the address are dropped.",
    example: "Idle -> GetIPAddress(16) -> Discard;",
    args: &[
        Arg::optional("OFFSET", "bytes", "", "where the address is"),
        Arg::optional("ANNO", "annotation", "DST_IP", "the annotation to set"),
        Arg::keyword("IP", "src or dst", "", "the field of the IP header to copy, instead of OFFSET"),
    ],
    build: |args| Ok(Box::new(GetIpAddress::new(args)?)),
    ..Class::PER_WORKER
};

struct GetIpAddress {
    place: AddressLocation,
    annotation: usize,
}

/// Where the address is.
enum AddressLocation {
    Data(usize),
    Header(usize),
}

impl GetIpAddress {
    fn new(args: &Args<'_>) -> Result<GetIpAddress, ArgError> {
        let annotation = args.read::<Annotation<4>>("ANNO")?.offset;
        let field: Option<String> = args.read("IP")?;
        let place = match (args.read::<Option<u32>>("OFFSET")?, field.as_deref()) {
            (Some(offset), None) => AddressLocation::Data(offset as usize),
            (None, Some("src")) => AddressLocation::Header(12),
            (None, Some("dst")) => AddressLocation::Header(16),
            (None, Some(_)) => return Err(ArgError::wrong("bad IP: it is src or dst")),
            _ => return Err(ArgError::wrong("set one of OFFSET, IP")),
        };
        Ok(GetIpAddress { place, annotation })
    }

    #[inline]
    fn read_address(&self, packet: &Packet) -> Option<[u8; 4]> {
        let (bytes, offset) = match self.place {
            AddressLocation::Data(offset) => (packet.data(), offset),
            AddressLocation::Header(offset) => (ip_header::bytes(packet), offset),
        };
        bytes.get(offset..)?.first_chunk().copied()
    }
}

impl Element for GetIpAddress {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        edit_each(batch, cx, |packet| {
            let address = self.read_address(packet).ok_or(DropReason::TooShort)?;
            packet.set_annotation(self.annotation, address);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn the_address_is_copied_from_an_offset_or_a_field() {
        for (config, expected) in [("16", [5, 6, 7, 8]), ("IP dst", [5, 6, 7, 8]), ("IP src", [1, 2, 3, 4])] {
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, ip4().src("1.2.3.4").dst("5.6.7.8").bytes());
            assert_eq!(bench.next_sent(0).unwrap().dst_ip().octets(), expected, "{config}");
        }
    }

    #[test]
    fn another_annotation_can_be_named() {
        let mut bench = Bench::new(&CLASS, "16, 20");
        bench.push(0, ip4().dst("5.6.7.8").bytes());
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.dst_ip().octets(), packet.annotation(20)), ([0; 4], [5, 6, 7, 8]));
    }

    #[test]
    fn a_short_packet_is_dropped() {
        let mut bench = Bench::new(&CLASS, "16");
        bench.push(0, [0; 19]);
        bench.expect_dropped(DropReason::TooShort, 1);
        survives_anything(&CLASS, "IP src", 1);
        survives_anything(&CLASS, "4294967295", 1);
    }
}
