use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Arg, ArgError, Args, Class, Handler, Read};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "UDPRewriter",
    group: "rewrite",
    summary: "rewrites addresses and ports of UDP and TCP packets",
    manual: "
Expects TCP and UDP packets with marked headers. Both share one table; IPRewriter keeps them apart. Others,
and later fragments, pass where the argument of their input is `pass`, and are dropped elsewhere.

Each input has an argument that says what becomes of its packets that belong to no flow yet:

- `drop`: they are dropped.
- `pass OUTPUT`: they leave by OUTPUT, unchanged.
- `keep FOUTPUT ROUTPUT`: they begin a flow that keeps its addresses and ports.
- `pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SPORT
  may be a range: a port in it that fits stays, else one is chosen by chance, after `1024-65535?` always,
  after `1024-65535#` in turn.
- `pattern NAME FOUTPUT ROUTPUT`: the same, by a pattern that IPRewriterPatterns names.
- the name of a RoundRobinIPMapper: they begin a flow by one of its patterns.

Packets of a flow leave rewritten by its FOUTPUT, replies, with their ends restored, by its ROUTPUT; whichever
input they come from. Checksums are adapted.",
    example: "Idle -> rw :: UDPRewriter(pattern 1.0.0.1 1024-65535 - - 0 1, drop) -> Discard;\n\
        Idle -> [1]rw[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: arguments![
        Arg::keyword("DST_ANNO", "bool", "true", "whether to set the destination annotation"),
        Arg::keyword("UDP_TIMEOUT", "seconds", "300", "how long UDP flows live on without packets"),
        Arg::keyword(
            "UDP_STREAMING_TIMEOUT",
            "seconds",
            "",
            "how long those live on that have replies, after three packets"
        ),
        Arg::keyword("UDP_GUARANTEE", "seconds", "", "GUARANTEE of UDP flows"),
        Arg::keyword("STREAMING_TIMEOUT", "seconds", "", "the same as UDP_STREAMING_TIMEOUT"),
    ],
    handlers: handlers![
        Handler::read(
            "table",
            "the flows, a line for each direction",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))
        ),
        Handler::read("mappings", "the same", &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))),
    ],
    own_handlers: Some(&PATTERN_N),
    build: |args| {
        let timeouts = udp_timeouts(args, true)?;
        let dst = args.read("DST_ANNO")?;
        Ok(Box::new(Rewriter::new(args, RewriteKind::AnyPorts, [timeouts; 2], dst)?))
    },
    finished: true,
    ..Class::DEFAULT
};

/// The timeouts in the arguments about UDP; `alone` if TIMEOUT is about UDP, too.
pub(super) fn udp_timeouts(args: &Args<'_>, alone: bool) -> Result<Timeouts, ArgError> {
    let read = |name| args.read::<Option<Duration>>(name);
    let idle = if alone { read("TIMEOUT")? } else { None };
    let idle = idle.map_or_else(|| args.read("UDP_TIMEOUT"), Ok)?;
    let streaming = if alone { read("STREAMING_TIMEOUT")? } else { None };
    let busy = read("UDP_STREAMING_TIMEOUT")?.or(streaming).unwrap_or(idle);
    let guarantee = read("UDP_GUARANTEE")?.map_or_else(|| args.read("GUARANTEE"), Ok)?;
    Ok(Timeouts { busy, ..Timeouts::same_for_all(idle, guarantee) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    /// A bench with two outputs, and a packet's bytes with its headers marked.
    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(2).build().unwrap()
    }
    fn push(bench: &mut Bench, bytes: Vec<u8>) {
        let mut packet = bench.packet(bytes);
        packet.set_headers(0, 20);
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn packets_and_replies_are_rewritten() {
        let mut bench = bench("pattern 1.0.0.1 5000-5010# - - 0 1");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 53).bytes());
        let packet = bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 53).bytes());
        assert_eq!(packet.dst_ip().to_string(), "2.0.0.2");
        push(&mut bench, ip4().src("2.0.0.2").dst("1.0.0.1").udp(53, 5000).bytes());
        bench.expect(1, ip4().src("2.0.0.2").dst("10.0.0.1").udp(53, 1111).bytes());
        let table = "(10.0.0.1, 1111, 2.0.0.2, 53) => (1.0.0.1, 5000, 2.0.0.2, 53) [*0 1] i0 exp300\n\
                     (2.0.0.2, 53, 1.0.0.1, 5000) => (2.0.0.2, 53, 10.0.0.1, 1111) [0 *1] i0 exp300\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        assert_eq!(bench.read("patterns", "").unwrap(), "1.0.0.1 5000-5010 - - [1]\n");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1112, 53).bytes());
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5001, 53).bytes());
        assert_eq!(bench.read("nmappings", "").unwrap(), "2");
        bench.write("clear", "").unwrap();
        assert_eq!(bench.read("size", "").unwrap(), "0");
    }

    #[test]
    fn a_port_that_fits_stays_and_none_is_used_twice() {
        let mut bench = bench("pattern 1.0.0.1 5000-5001 - - 0 1");
        for (from, port) in [("10.0.0.1", 5001), ("10.0.0.2", 5001)] {
            push(&mut bench, ip4().src(from).dst("2.0.0.2").udp(port, 53).bytes());
        }
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5001, 53).bytes());
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 53).bytes());
        push(&mut bench, ip4().src("10.0.0.3").dst("2.0.0.2").udp(5001, 53).bytes());
        bench.expect_nothing_more();
        assert_eq!(bench.read("mapping_failures", "").unwrap(), "1");
    }

    #[test]
    fn other_arguments_pass_keep_and_drop() {
        let packet = || ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes();
        let mut passing = bench("pass 1");
        push(&mut passing, packet());
        passing.expect(1, packet());
        assert_eq!(
            (passing.read("pattern0", "").unwrap(), passing.read("size", "").unwrap()),
            ("<nochange>\n".into(), "0".into())
        );
        let mut keeping = bench("keep 0 1");
        push(&mut keeping, packet());
        keeping.expect(0, packet());
        assert_eq!(keeping.read("pattern0", "").unwrap(), "<keep> [1]\n");
        keeping.write("pattern0", "drop").unwrap();
        push(&mut keeping, packet());
        keeping.expect_nothing_more();
    }

    #[test]
    fn mistakes_are_named() {
        let refused =
            |config: &str| Bench::setup(&CLASS, config).outputs(2).build().err().unwrap()[0].to_string();
        assert_eq!(refused(""), "need 1 arguments, one per input port");
        assert_eq!(refused("frob"), "input spec 0: unknown specification");
        assert_eq!(refused("pass 2"), "input spec 0: output port out of range");
        assert_eq!(refused("pattern - - - - 0 7"), "input spec 0: output port out of range");
        assert_eq!(refused("pattern x - - - 0 1"), "input spec 0: bad source address");
        assert_eq!(refused("pattern lost 0 1"), "input spec 0: no such pattern 'lost'");
        assert_eq!(refused("keep 0"), "input spec 0: bad forward port");
    }
}
