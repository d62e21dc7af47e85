use super::each::send_each;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Batch, Class, Context, Element, Handler, HandlerError, Packet, Show, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "SetIPDSCP",
    group: "ip",
    summary: "sets the differentiated services code point",
    manual: "
Expects IP packets and sets the upper six bits of their type of service to `DSCP`, correcting the header
checksum. Packets without a whole IP header are dropped.",
    example: "Idle -> CheckIPHeader -> SetIPDSCP(46) -> Discard;",
    args: &[Arg::required("DSCP", "0 to 63", "the code point")],
    handlers: &[Handler::read("dscp", "the code point", &Show(|s: &mut SetIpDscp| s.tos >> 2))
        .and_write(&Write(|s: &mut SetIpDscp, text, _| {
            s.tos = tos_bits(parse_value(text)?).ok_or_else(|| HandlerError::refused(RANGE))?;
            Ok(())
        }))
        .sets_argument("DSCP")],
    live: true,
    build: |args| {
        let tos = tos_bits(args.read("DSCP")?).ok_or_else(|| ArgError::wrong(RANGE))?;
        Ok(Box::new(SetIpDscp { tos }))
    },
    ..Class::PER_WORKER
};

const RANGE: &str = "diffserv code point out of range";
const ECN: u8 = 3;

struct SetIpDscp {
    /// The code point, shifted to its position in the byte.
    tos: u8,
}

fn tos_bits(dscp: u32) -> Option<u8> {
    u8::try_from(dscp).ok().filter(|dscp| *dscp < 64).map(|dscp| dscp << 2)
}

impl Element for SetIpDscp {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let set = |packet: &mut Packet| {
            let mut header = ip_header::ip_mut(packet).map_err(ip_header::drop_reason)?;
            let tos = self.tos | header.tos() & ECN;
            ip_header::change_tos(&mut header, tos);
            Ok(())
        };
        send_each(batch, cx, set, |reason, packet, cx| cx.discard(packet, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

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
    fn the_code_point_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "46");
        bench.write("dscp", "1").unwrap();
        assert_eq!(bench.read("dscp", "").unwrap(), "1");
        assert!(bench.write("dscp", "64").is_err());
        assert_eq!(Bench::config_error(&CLASS, "64"), RANGE);
    }
}
