use super::each::edit_each;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Batch, Class, Context, Element, Handler, HandlerError, Show, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "SetIPECN",
    group: "ip",
    summary: "sets the bits of explicit congestion notification",
    manual: "
Expects IP packets and sets the lower two bits of their type of service (RFC 3168), correcting the header
checksum. ECN is 0 to 3, or a word: `no` or `-` for 0, `ect1` or `ECT(1)` for 1, `ect2` or `ECT(0)` for 2,
`ce` or `CE` for 3. Packets without a whole IP header are dropped.",
    example: "Idle -> CheckIPHeader -> SetIPECN(ce) -> Discard;",
    args: &[Arg::required("ECN", "0 to 3, no, ect1, ect2 or ce", "the bits")],
    handlers: &[Handler::read("ecn", "the bits", &Show(|s: &mut SetIpEcn| s.given.clone())).and_write(
        &Write(|s: &mut SetIpEcn, text, _| {
            *s = SetIpEcn::new(parse_value(text)?).ok_or_else(|| HandlerError::refused(WRONG))?;
            Ok(())
        }),
    )],
    build: |args| Ok(Box::new(SetIpEcn::new(args.read("ECN")?).ok_or_else(|| ArgError::wrong(WRONG))?)),
    ..Class::PER_WORKER
};

const WRONG: &str = "bad ECN argument: it is 0 to 3, no, ect1, ect2 or ce";
const DSCP: u8 = 0xfc;

struct SetIpEcn {
    /// As it was written.
    given: String,
    bits: u8,
}

impl SetIpEcn {
    fn new(given: String) -> Option<SetIpEcn> {
        let bits = match given.as_str() {
            "0" | "no" | "-" => 0,
            "1" | "ect1" | "ECT(1)" => 1,
            "2" | "ect2" | "ECT(0)" => 2,
            "3" | "ce" | "CE" => 3,
            _ => return None,
        };
        Some(SetIpEcn { given, bits })
    }
}

impl Element for SetIpEcn {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        edit_each(batch, cx, |packet| {
            let mut header = ip_header::ip_mut(packet)?;
            let tos = header.tos() & DSCP | self.bits;
            ip_header::change_tos(&mut header, tos);
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
    fn the_bits_change_and_the_code_point_stays() {
        for (ecn, bits) in
            [("0", 0), ("no", 0), ("-", 0), ("ect1", 1), ("ECT(1)", 1), ("ect2", 2), ("ECT(0)", 2), ("CE", 3)]
        {
            let mut bench = Bench::new(&CLASS, ecn);
            bench.push(0, ip4().tos(46 << 2 | 1).udp(1, 2).bytes());
            bench.expect(0, ip4().tos(46 << 2 | bits).udp(1, 2).bytes());
        }
        survives_anything(&CLASS, "3", 1);
    }

    #[test]
    fn the_bits_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, "ce");
        assert_eq!(bench.read("ecn", "").unwrap(), "ce");
        bench.write("ecn", "1").unwrap();
        assert_eq!(bench.read("ecn", "").unwrap(), "1");
        bench.push(0, ip4().tos(0).udp(1, 2).bytes());
        bench.expect(0, ip4().tos(1).udp(1, 2).bytes());
        assert!(bench.write("ecn", "4").is_err());
        assert_eq!(Bench::config_error(&CLASS, "maybe"), WRONG);
    }
}
