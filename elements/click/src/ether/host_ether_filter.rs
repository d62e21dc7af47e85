use super::ether_text::format_dashed;
use artery_engine::{
    Arg, ArgError, Args, Class, Context, DropReason, Handler, Packet, PacketType, Show, Simple, Write,
    parse_value,
};
use artery_wire::{EtherAddr, Ethernet};

pub static CLASS: Class = Class {
    name: "HostEtherFilter",
    group: "ether",
    summary: "drops Ethernet frames for other hosts",
    manual: "
Does what the hardware of a network card with address ETHER does. Marks each frame as addressed to this host,
to all (broadcast), to a group or to another host, by its destination address. Frames for other hosts, unless
DROP_OTHER is false, and frames from ETHER, if DROP_OWN is true, leave by output 1, or are dropped when there
is none. All others leave by output 0.",
    example: "Idle -> HostEtherFilter(02:00:00:00:00:01) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::required("ETHER", "Ethernet address", "this host's address"),
        Arg::optional("DROP_OWN", "bool", "false", "whether to filter frames that this host sent"),
        Arg::optional("DROP_OTHER", "bool", "true", "whether to filter frames for other hosts"),
        Arg::keyword("OFFSET", "bytes", "0", "where in the packet the Ethernet header starts"),
    ],
    handlers: &[Handler::read(
        "ether",
        "this host's address",
        &Show(|f: &mut HostEtherFilter| format_dashed(f.ether)),
    )
    .and_write(&Write(|f: &mut HostEtherFilter, text, _| parse_value(text).map(|ether| f.ether = ether)))],
    live: true,
    build: |args| Ok(Box::new(HostEtherFilter::new(args)?)),
    ..Class::PER_WORKER
};

struct HostEtherFilter {
    ether: EtherAddr,
    drop_own: bool,
    drop_other: bool,
    offset: usize,
}

impl HostEtherFilter {
    fn new(args: &Args<'_>) -> Result<HostEtherFilter, ArgError> {
        Ok(HostEtherFilter {
            ether: args.read("ETHER")?,
            drop_own: args.read("DROP_OWN")?,
            drop_other: args.read("DROP_OTHER")?,
            offset: args.read::<u32>("OFFSET")? as usize,
        })
    }
}

impl Simple for HostEtherFilter {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let Some(Ok(frame)) = packet.data().get(self.offset..).map(Ethernet::new) else {
            cx.discard(packet, DropReason::TooShort);
            return None;
        };
        let (dst, own) = (frame.dst(), frame.src() == self.ether);
        if self.drop_own && own {
            cx.send_or_discard(1, packet, DropReason::NotForUs);
            return None;
        }
        let packet_type = match dst {
            dst if dst == self.ether => PacketType::Host,
            dst if dst.is_broadcast() => PacketType::Broadcast,
            dst if dst.is_group() => PacketType::Multicast,
            _ => PacketType::OtherHost,
        };
        packet.set_packet_type(packet_type);
        if self.drop_other && packet_type == PacketType::OtherHost {
            cx.send_or_discard(1, packet, DropReason::NotForUs);
            return None;
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{ether, ip4};

    fn frame(dst: &str, src: &str) -> Vec<u8> {
        ether(dst, src).ip4(ip4()).bytes()
    }

    #[test]
    fn frames_are_marked_and_those_for_others_filtered() {
        let mut bench = Bench::new(&CLASS, "2:0:0:0:0:1");
        for (dst, packet_type) in [
            ("2:0:0:0:0:1", PacketType::Host),
            ("ff:ff:ff:ff:ff:ff", PacketType::Broadcast),
            ("1:0:5e:0:0:1", PacketType::Multicast),
        ] {
            bench.push(0, frame(dst, "2:0:0:0:0:1"));
            assert_eq!(bench.next_sent(0).unwrap().packet_type(), packet_type);
        }
        bench.push(0, frame("2:0:0:0:0:2", "2:0:0:0:0:9"));
        assert_eq!(bench.next_sent(1).unwrap().packet_type(), PacketType::OtherHost);
    }

    #[test]
    fn own_frames_are_filtered_and_those_of_others_pass_when_told() {
        let mut bench =
            Bench::setup(&CLASS, "2:0:0:0:0:1, true, false, OFFSET 2").outputs(1).build().unwrap();
        bench.push(0, [&[0, 0][..], &frame("2:0:0:0:0:2", "2:0:0:0:0:1")].concat());
        bench.expect_dropped(DropReason::NotForUs, 1);
        bench.push(0, [&[0, 0][..], &frame("2:0:0:0:0:2", "2:0:0:0:0:9")].concat());
        assert_eq!(bench.next_sent(0).unwrap().packet_type(), PacketType::OtherHost);
        bench.push(0, [0; 15]);
        bench.push(0, [0; 1]);
        bench.expect_dropped(DropReason::TooShort, 2);
    }

    #[test]
    fn the_address_can_be_read_and_changed() {
        let mut bench = Bench::new(&CLASS, "2:0:0:0:0:1");
        bench.write("ether", "2:0:0:0:0:2").unwrap();
        assert_eq!(bench.read("ether", "").unwrap(), "02-00-00-00-00-02");
        bench.push(0, frame("2:0:0:0:0:2", "2:0:0:0:0:9"));
        assert!(bench.next_sent(0).is_some());
        assert_eq!(Bench::config_error(&CLASS, "x"), "ETHER: parse error");
    }
}
