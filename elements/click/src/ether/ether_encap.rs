use super::ether_text::format_dashed;
use artery_common::arp_frame::{HEADER, link_header};
use artery_engine::{
    Arg, ArgError, Args, Class, Context, Handler, Packet, Read, Show, Simple, Write, parse_value,
};
use artery_wire::{EtherAddr, EtherType};

pub static CLASS: Class = Class {
    name: "EtherEncap",
    group: "ether",
    summary: "puts an Ethernet header in front of packets",
    manual: "
Puts a 14-byte Ethernet header with the given addresses and type in front of each packet. ETHERTYPE is a
number such as 0x0800. For IP packets, ARPQuerier finds the destination by itself.",
    example: "Idle -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> Discard;",
    args: &[
        Arg::required("ETHERTYPE", "number", "type of what the frame carries"),
        Arg::required("SRC", "Ethernet address", "source address"),
        Arg::required("DST", "Ethernet address", "destination address"),
    ],
    handlers: &[
        Handler::read("src", "source address", &Show(|e: &mut EtherEncap| format_dashed(e.src)))
            .and_write(&Write(|e: &mut EtherEncap, text, _| {
                e.src = parse_value(text)?;
                e.build_header();
                Ok(())
            }))
            .sets_argument("SRC"),
        Handler::read("dst", "destination address", &Show(|e: &mut EtherEncap| format_dashed(e.dst)))
            .and_write(&Write(|e: &mut EtherEncap, text, _| {
                e.dst = parse_value(text)?;
                e.build_header();
                Ok(())
            }))
            .sets_argument("DST"),
        Handler::read("ethertype", "type of what the frame carries", &READ_TYPE)
            .and_write(&WRITE_TYPE)
            .sets_argument("ETHERTYPE"),
        Handler::read("etht", "older name of ethertype", &READ_TYPE)
            .and_write(&WRITE_TYPE)
            .sets_argument("ETHERTYPE"),
    ],
    live: true,
    build: |args| Ok(Box::new(EtherEncap::new(args)?)),
    ..Class::PER_WORKER
};

static READ_TYPE: Read<EtherEncap> = Read(|e, _, _| Ok(e.ether_type.to_string()));
static WRITE_TYPE: Write<EtherEncap> = Write(|e, text, _| {
    e.ether_type = parse_value(text)?;
    e.build_header();
    Ok(())
});

struct EtherEncap {
    src: EtherAddr,
    dst: EtherAddr,
    ether_type: u16,
    header: [u8; HEADER],
}

impl EtherEncap {
    fn new(args: &Args<'_>) -> Result<EtherEncap, ArgError> {
        let (ether_type, src, dst) = (args.read("ETHERTYPE")?, args.read("SRC")?, args.read("DST")?);
        let mut encap = EtherEncap { src, dst, ether_type, header: [0; HEADER] };
        encap.build_header();
        Ok(encap)
    }
    fn build_header(&mut self) {
        self.header = link_header(self.dst, self.src, EtherType(self.ether_type));
    }
}

impl Simple for EtherEncap {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| {
            packet.prepend(HEADER)?.copy_from_slice(&self.header);
            packet.set_mac_header(0);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ether;

    #[test]
    fn the_header_is_put_in_front() {
        let mut bench = Bench::new(&CLASS, "0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2");
        bench.push(0, b"data");
        let packet = bench.expect(0, ether([2; 6], [1; 6]).raw(EtherType(0x0800), b"data").bytes());
        assert_eq!(packet.mac_offset(), Some(0));
    }

    #[test]
    fn its_parts_can_be_read_and_changed() {
        let mut bench = Bench::new(&CLASS, "0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2");
        assert_eq!(bench.read("src", "").unwrap(), "01-01-01-01-01-01");
        assert_eq!(bench.read("ethertype", "").unwrap(), "2048");
        bench.write("src", "3:3:3:3:3:3").unwrap();
        bench.write("dst", "4:4:4:4:4:4").unwrap();
        bench.write("ethertype", "0x86dd").unwrap();
        bench.push(0, []);
        bench.expect(0, ether([4; 6], [3; 6]).raw(EtherType(0x86dd), []).bytes());
        assert!(bench.write("src", "x").is_err());
    }
}
