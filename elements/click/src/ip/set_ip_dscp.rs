//! SetIPDSCP and SetIP6DSCP.
use super::each::edit_each;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Show, Write,
    parse_value,
};
use artery_wire::Ipv6;

pub static CLASS: Class = Class {
    name: "SetIPDSCP",
    group: "ip",
    summary: "sets the differentiated services code point",
    manual: "
Expects IP packets and sets the upper six bits of their type of service to `DSCP`, correcting the header
checksum. Packets without a whole IP header are dropped.",
    example: "Idle -> CheckIPHeader -> SetIPDSCP(46) -> Discard;",
    args: &[Arg::required("DSCP", "0 to 63", "the code point")],
    handlers: &[Handler::read("dscp", "the code point", &Show(|s: &mut SetDscp| s.tos >> 2))
        .and_write(&Write(|s: &mut SetDscp, text, _| {
            s.tos = tos_bits(parse_value(text)?).ok_or_else(|| HandlerError::refused(RANGE))?;
            Ok(())
        }))
        .sets_argument("DSCP")],
    live: true,
    build: |args| Ok(Box::new(SetDscp { tos: read_dscp(args.read("DSCP"))?, is_v6: false })),
    ..Class::PER_WORKER
};

pub static IP6: Class = Class {
    name: "SetIP6DSCP",
    group: "ip6",
    summary: "sets the differentiated services code point of IPv6 packets",
    manual: "
Expects IPv6 packets, data starting at the IP header or the header marked by an earlier element, and sets the
upper six bits of their traffic class to `DSCP`. Packets without a whole IPv6 header are dropped.",
    example: "Idle -> CheckIP6Header -> SetIP6DSCP(46) -> Discard;",
    build: |args| Ok(Box::new(SetDscp { tos: read_dscp(args.read("DSCP"))?, is_v6: true })),
    ..CLASS
};

const RANGE: &str = "diffserv code point out of range";
const ECN: u8 = 3;

struct SetDscp {
    /// The code point, shifted to its position in the type of service or traffic class.
    tos: u8,
    is_v6: bool,
}

fn read_dscp(dscp: Result<u32, ArgError>) -> Result<u8, ArgError> {
    tos_bits(dscp?).ok_or_else(|| ArgError::wrong(RANGE))
}

fn tos_bits(dscp: u32) -> Option<u8> {
    u8::try_from(dscp).ok().filter(|dscp| *dscp < 64).map(|dscp| dscp << 2)
}

fn set_ipv4(packet: &mut Packet, dscp: u8) -> Result<(), DropReason> {
    let mut header = ip_header::ip_mut(packet)?;
    let tos = dscp | header.tos() & ECN;
    ip_header::change_tos(&mut header, tos);
    Ok(())
}

fn set_ipv6(packet: &mut Packet, dscp: u8) -> Result<(), DropReason> {
    let mut header = Ipv6::new(ip_header::bytes_mut(packet))?;
    header.set_traffic_class(dscp | header.traffic_class() & ECN);
    Ok(())
}

impl Element for SetDscp {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        match self.is_v6 {
            false => edit_each(batch, cx, |packet| set_ipv4(packet, self.tos)),
            true => edit_each(batch, cx, |packet| set_ipv6(packet, self.tos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{ip4, ip6};

    #[test]
    fn the_code_point_changes_and_the_ecn_bits_stay() {
        for ecn in 0..4 {
            let mut bench = Bench::new(&CLASS, "46");
            bench.push(0, ip4().tos(0x10 | ecn).udp(1, 2).bytes());
            bench.expect(0, ip4().tos(46 << 2 | ecn).udp(1, 2).bytes());
        }
        survives_anything(&CLASS, "46", 1);
    }

    #[test]
    fn the_code_point_changes_and_the_ecn_bits_and_the_flow_label_stay() {
        let packet = |class: u8| {
            let mut bytes = ip6().udp(1, 2).bytes();
            let mut header = Ipv6::new(&mut bytes[..]).unwrap();
            header.set_traffic_class(class);
            header.set_flow_label(0xabcde);
            bytes
        };
        let mut bench = Bench::new(&IP6, "46");
        for ecn in 0..4 {
            bench.push(0, packet(0x10 | ecn));
            bench.expect(0, packet(46 << 2 | ecn));
        }
        bench.write("dscp", "1").unwrap();
        bench.push(0, packet(0));
        bench.expect(0, packet(4));
    }

    #[test]
    fn the_code_point_can_be_changed_live() {
        for class in [&CLASS, &IP6] {
            let mut bench = Bench::new(class, "46");
            bench.write("dscp", "1").unwrap();
            assert_eq!(bench.read("dscp", "").unwrap(), "1");
            assert!(bench.write("dscp", "64").is_err());
            assert_eq!(Bench::config_error(class, "64"), RANGE);
        }
    }

    #[test]
    fn what_is_no_ipv6_is_dropped() {
        let mut bench = Bench::new(&IP6, "46");
        bench.push(0, [0x60; 39]);
        bench.expect_dropped(DropReason::TooShort, 1);
        survives_anything(&IP6, "46", 1);
    }
}
