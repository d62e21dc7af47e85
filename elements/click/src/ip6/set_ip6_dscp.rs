use crate::ip::each::send_each;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Batch, Class, Context, Element, Handler, HandlerError, Packet, Show, Write, parse_value,
};
use artery_wire::Ipv6;

pub static CLASS: Class = Class {
    name: "SetIP6DSCP",
    group: "ip6",
    summary: "sets the differentiated services code point of IPv6 packets",
    manual: "
Expects IPv6 packets, data starting at the IP header or the header marked by an earlier element, and sets the
upper six bits of their traffic class to `DSCP`. Packets without a whole IPv6 header are dropped.",
    example: "Idle -> CheckIP6Header -> SetIP6DSCP(46) -> Discard;",
    args: &[Arg::required("DSCP", "0 to 63", "the code point")],
    handlers: &[Handler::read("dscp", "the code point", &Show(|s: &mut SetIp6Dscp| s.class >> 2))
        .and_write(&Write(|s: &mut SetIp6Dscp, text, _| {
            s.class = dscp_to_class(parse_value(text)?).ok_or_else(|| HandlerError::refused(RANGE))?;
            Ok(())
        }))
        .sets_argument("DSCP")],
    live: true,
    build: |args| {
        let class = dscp_to_class(args.read("DSCP")?).ok_or_else(|| ArgError::wrong(RANGE))?;
        Ok(Box::new(SetIp6Dscp { class }))
    },
    ..Class::PER_WORKER
};

const RANGE: &str = "diffserv code point out of range";
const ECN: u8 = 3;

struct SetIp6Dscp {
    /// The code point, shifted to its position in the traffic class.
    class: u8,
}

fn dscp_to_class(dscp: u32) -> Option<u8> {
    u8::try_from(dscp).ok().filter(|dscp| *dscp < 64).map(|dscp| dscp << 2)
}

impl Element for SetIp6Dscp {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let set = |packet: &mut Packet| {
            let mut header = Ipv6::new(ip_header::bytes_mut(packet)).map_err(ip_header::drop_reason)?;
            header.set_traffic_class(self.class | header.traffic_class() & ECN);
            Ok(())
        };
        send_each(batch, cx, set, |reason, packet, cx| cx.discard(packet, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::ip6;

    #[test]
    fn the_code_point_changes_and_the_ecn_bits_and_the_flow_label_stay() {
        let packet = |class: u8| {
            let mut bytes = ip6().udp(1, 2).bytes();
            let mut header = Ipv6::new(&mut bytes[..]).unwrap();
            header.set_traffic_class(class);
            header.set_flow_label(0xabcde);
            bytes
        };
        let mut bench = Bench::new(&CLASS, "46");
        for ecn in 0..4 {
            bench.push(0, packet(0x10 | ecn));
            bench.expect(0, packet(46 << 2 | ecn));
        }
        bench.write("dscp", "1").unwrap();
        assert_eq!(bench.read("dscp", "").unwrap(), "1");
        bench.push(0, packet(0));
        bench.expect(0, packet(4));
    }

    #[test]
    fn what_is_no_ipv6_is_dropped_and_what_is_no_code_point_refused() {
        let mut bench = Bench::new(&CLASS, "46");
        bench.push(0, [0x60; 39]);
        bench.expect_dropped(DropReason::TooShort, 1);
        assert!(bench.write("dscp", "64").is_err());
        assert_eq!(Bench::config_error(&CLASS, "64"), RANGE);
        survives_anything(&CLASS, "46", 1);
    }
}
