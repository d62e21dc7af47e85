use artery_common::ip_header;
use artery_engine::{Arg, Class, Context, DropReason, Handler, Packet, Show, Simple};

pub static CLASS: Class = Class {
    name: "MarkIPCE",
    group: "ip",
    summary: "marks IP packets as having experienced congestion",
    manual: "
Expects IP packets and sets their ECN field to Congestion Experienced (RFC 3168), correcting the header
checksum. A packet whose ECN field is zero does not understand the mark and is dropped, unless `FORCE` is
true.",
    example: "Idle -> CheckIPHeader -> MarkIPCE -> Discard;",
    args: &[Arg::optional("FORCE", "bool", "false", "whether to mark packets that do not understand it")],
    handlers: &[Handler::read(
        "drops",
        "packets that do not understand the mark",
        &Show(|m: &mut MarkIpCe| m.drops),
    )
    .sum()],
    build: |args| Ok(Box::new(MarkIpCe { force: args.read("FORCE")?, drops: 0 })),
    ..Class::PER_WORKER
};

const CONGESTION_EXPERIENCED: u8 = 3;

struct MarkIpCe {
    force: bool,
    drops: u64,
}

impl Simple for MarkIpCe {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let drop = match ip_header::ip_mut(&mut packet) {
            Ok(mut header) if self.force || header.tos() & CONGESTION_EXPERIENCED != 0 => {
                let tos = header.tos() | CONGESTION_EXPERIENCED;
                ip_header::change_tos(&mut header, tos);
                return Some(packet);
            }
            Ok(_) => {
                self.drops += 1;
                DropReason::Discarded
            }
            Err(malformed) => malformed.into(),
        };
        cx.discard(packet, drop);
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
    fn packets_that_understand_are_marked() {
        let mut bench = Bench::new(&CLASS, "");
        for tos in [0x41, 0x42, 0x43] {
            bench.push(0, ip4().tos(tos).udp(1, 2).bytes());
            bench.expect(0, ip4().tos(0x43).udp(1, 2).bytes());
        }
    }

    #[test]
    fn others_are_dropped_unless_forced() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().tos(0x40).udp(1, 2).bytes());
        bench.expect_dropped(DropReason::Discarded, 1);
        assert_eq!(bench.read("drops", "").unwrap(), "1");
        let mut bench = Bench::new(&CLASS, "FORCE true");
        bench.push(0, ip4().tos(0x40).udp(1, 2).bytes());
        bench.expect(0, ip4().tos(0x43).udp(1, 2).bytes());
        survives_anything(&CLASS, "", 1);
    }
}
