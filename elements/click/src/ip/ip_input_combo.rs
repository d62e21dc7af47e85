use super::address::List;
use super::check_ip_header::{BADSRC, GOODDST, HeaderChecks, INTERFACES, KINDS};
use super::each::send_each_or_exit;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Level, Packet, Show, anno,
};

pub static CLASS: Class = Class {
    name: "IPInputCombo",
    group: "ip",
    summary: "does what IP packets need where they come in, in one element",
    manual: "
Does for each Ethernet frame what `Paint(COLOR) -> Strip(14) -> CheckIPHeader(BADADDRS) -> GetIPAddress(16)`
does: good packets leave painted, without their link header, with their IP header marked and cut to the IP
length, and their destination annotation set. Others are dropped; the first one is reported.

INTERFACES, BADSRC and GOODDST mean what they mean to CheckIPHeader, and so does BADADDRS, its older list.",
    example: "Idle -> IPInputCombo(1, INTERFACES 18.26.4.9/24) -> Discard;",
    args: &[
        Arg::required("COLOR", "0 to 255", "the paint annotation"),
        Arg::optional("BADADDRS", "addresses", "", "bad sources, besides 0.0.0.0 and 255.255.255.255"),
        INTERFACES,
        BADSRC,
        GOODDST,
    ],
    handlers: &[Handler::read("drops", "bad packets so far", &Show(|c: &mut IpInputCombo| c.drops)).sum()],
    finished: true,
    build: |args| Ok(Box::new(IpInputCombo::new(args)?)),
    ..Class::PER_WORKER
};

const LINK_HEADER: usize = 14;

struct IpInputCombo {
    color: u8,
    checks: HeaderChecks,
    drops: u64,
}

impl IpInputCombo {
    fn new(args: &Args<'_>) -> Result<IpInputCombo, ArgError> {
        let sources = match args.is_given("BADADDRS") {
            true => Some(args.read::<List<_>>("BADADDRS")?.0),
            false => None,
        };
        let checks = HeaderChecks::new(args, 0, true, sources)?;
        Ok(IpInputCombo { color: args.read("COLOR")?, checks, drops: 0 })
    }
}

/// Accepts a frame, or returns why it is dropped.
#[inline]
fn accept_frame(color: u8, checks: &HeaderChecks, packet: &mut Packet) -> Result<(), DropReason> {
    packet.set_annotation(anno::PAINT, [color]);
    packet.strip(LINK_HEADER)?;
    checks.accept_packet(packet).map_err(|kind| KINDS[kind].1)
}

impl Element for IpInputCombo {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let IpInputCombo { color, checks, drops } = self;
        let accept = |packet: &mut Packet| accept_frame(*color, checks, packet);
        send_each_or_exit(Level::L2, batch, cx, accept, |reason, packet, cx| {
            if *drops == 0 {
                cx.print_message("IP checksum failed");
            }
            *drops += 1;
            cx.discard(packet, reason);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{ether, ip4};

    fn packet() -> artery_wire::build::Ip4 {
        ip4().src("1.2.3.4").dst("5.6.7.8").udp(1, 2)
    }
    fn frame(packet: artery_wire::build::Ip4) -> Vec<u8> {
        ether("02:00:00:00:00:0b", "02:00:00:00:00:0a").ip4(packet).bytes()
    }

    #[test]
    fn a_good_packet_is_painted_stripped_marked_and_cut() {
        let mut bench = Bench::new(&CLASS, "7");
        bench.push(0, [frame(packet()), vec![0; 9]].concat());
        let packet = bench.expect(0, packet().bytes());
        assert_eq!(packet.paint(), 7);
        assert_eq!(packet.network_offset(), Some(0));
        assert_eq!(packet.transport_offset(), Some(20));
        assert_eq!(packet.dst_ip().octets(), [5, 6, 7, 8]);
    }

    #[test]
    fn others_are_dropped_and_the_first_is_reported() {
        let mut bench = Bench::new(&CLASS, "7");
        let mut wrong = frame(packet());
        wrong[24] ^= 1;
        bench.push(0, wrong);
        bench.push(0, &frame(packet())[..33]);
        bench.push(0, [0; 13]);
        bench.expect_nothing_more();
        bench.expect_dropped(DropReason::BadChecksum, 1);
        bench.expect_dropped(DropReason::TooShort, 2);
        assert_eq!(bench.stderr_text(), "IP checksum failed\n");
        assert_eq!(bench.read("drops", "").unwrap(), "3");
    }

    #[test]
    fn bad_sources_are_dropped() {
        for (config, src, passes) in [
            ("1, 1.2.3.255", "1.2.3.255", false),
            ("1, 1.2.3.255", "0.0.0.0", false),
            ("1, INTERFACES 1.2.3.9/24", "1.2.3.255", false),
            ("1, INTERFACES 1.2.3.9/24", "1.2.3.254", true),
            ("1, BADSRC 1.1.1.1", "1.1.1.1", false),
            ("1, BADSRC 1.1.1.1", "0.0.0.0", true),
            ("1, BADSRC 1.1.1.1, GOODDST 5.6.7.8", "1.1.1.1", true),
        ] {
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, frame(packet().src(src)));
            assert_eq!(bench.next_sent(0).is_some(), passes, "{config} {src}");
        }
    }
}
