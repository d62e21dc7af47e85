use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, arguments, handlers};
use super::tcp_rewriter::tcp_timeouts;
use super::udp_rewriter::udp_timeouts;
use artery_engine::{Arg, Class, Handler, Read};

pub static CLASS: Class = Class {
    name: "IPRewriter",
    group: "rewrite",
    summary: "rewrites addresses and ports of TCP and UDP packets",
    manual: "
Expects TCP and UDP packets with marked headers. Others, and later fragments, pass where the argument of their
input is `pass`, and are dropped elsewhere.

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
    example: "Idle -> rw :: IPRewriter(pattern 1.0.0.1 1024-65535 - - 0 1, drop) -> Discard;\n\
        Idle -> [1]rw[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: arguments![
        Arg::keyword("DST_ANNO", "bool", "true", "whether to set the destination annotation"),
        Arg::keyword(
            "TCP_TIMEOUT",
            "seconds",
            "86400",
            "how long connections live on that have data in both directions"
        ),
        Arg::keyword("TCP_NODATA_TIMEOUT", "seconds", "300", "how long others live on"),
        Arg::keyword("TCP_DONE_TIMEOUT", "seconds", "240", "how long connections live on that are closed"),
        Arg::keyword("TCP_GUARANTEE", "seconds", "", "GUARANTEE of connections"),
        Arg::keyword("UDP_TIMEOUT", "seconds", "300", "how long UDP flows live on without packets"),
        Arg::keyword(
            "UDP_STREAMING_TIMEOUT",
            "seconds",
            "",
            "how long those live on that have replies, after three packets"
        ),
        Arg::keyword("UDP_GUARANTEE", "seconds", "", "GUARANTEE of UDP flows"),
    ],
    handlers: handlers![
        Handler::read(
            "tcp_table",
            "the TCP connections, a line for each direction",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))
        ),
        Handler::read(
            "udp_table",
            "the UDP flows, a line for each direction",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(1, cx.now())))
        ),
        Handler::read(
            "tcp_mappings",
            "the same as tcp_table",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))
        ),
        Handler::read(
            "udp_mappings",
            "the same as udp_table",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(1, cx.now())))
        ),
        Handler::read(
            "tcp_lookup",
            "what TCP packets with the ends `SADDR SPORT DADDR DPORT` become",
            &Read(|r: &mut Rewriter, call, _| r.lookup_text(call))
        )
        .parameters(),
    ],
    own_handlers: Some(&PATTERN_N),
    build: |args| {
        let timeouts = [tcp_timeouts(args)?, udp_timeouts(args, false)?];
        let dst = args.read("DST_ANNO")?;
        Ok(Box::new(Rewriter::new(args, RewriteKind::TcpAndUdp, timeouts, dst)?))
    },
    finished: true,
    ..Class::DEFAULT
};

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
    fn tcp_and_udp_have_tables_of_their_own() {
        let mut bench = bench("pattern 1.0.0.1 5000 - - 0 1");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").tcp(1111, 80).bytes());
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 80).bytes());
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").tcp(5000, 80).bytes());
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").udp(5000, 80).bytes());
        for handler in ["tcp_table", "udp_table"] {
            assert_eq!(bench.read(handler, "").unwrap().lines().count(), 2, "{handler}");
        }
        assert_eq!(bench.read("size", "").unwrap(), "2");
        assert_eq!(bench.read("tcp_lookup", "10.0.0.1 1111 2.0.0.2 80").unwrap(), "1.0.0.1 5000 2.0.0.2 80");
    }

    #[test]
    fn flows_that_are_too_many_take_the_place_of_old_ones_or_none() {
        let mut bench = bench("keep 0 1, CAPACITY 1, GUARANTEE 0");
        for port in [1, 2] {
            push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(port, 80).bytes());
        }
        assert_eq!((bench.drain_sent(0).len(), bench.read("size", "").unwrap()), (2, "1".to_string()));
        let mut guaranteed = super::tests::bench("keep 0 1, CAPACITY 1");
        for port in [1, 2] {
            push(&mut guaranteed, ip4().src("10.0.0.1").dst("2.0.0.2").udp(port, 80).bytes());
        }
        assert_eq!(guaranteed.drain_sent(0).len(), 1);
        guaranteed.write("capacity", "5").unwrap();
        assert_eq!(guaranteed.read("capacity", "").unwrap(), "5");
    }

    #[test]
    fn a_successor_takes_over_the_flows_of_what_has_not_changed() {
        let mut old = bench("pattern 1.0.0.1 5000-6000 - - 0 1");
        push(&mut old, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 80).bytes());
        let table = old.read("udp_table", "").unwrap();
        let mut same = bench("pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 9");
        same.take_state(&mut old);
        assert_eq!((same.read("udp_table", "").unwrap(), table.lines().count()), (table, 2));
        let mut changed = bench("pattern 1.0.0.2 5000-6000 - - 0 1");
        changed.take_state(&mut same);
        assert_eq!(changed.read("size", "").unwrap(), "0");
    }

    #[test]
    fn replies_get_an_annotation_of_the_first_packet() {
        let mut bench = bench("keep 0 1, REPLY_ANNO PAINT");
        let mut packet = bench.packet(ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes());
        packet.set_headers(0, 20);
        packet.set_annotation(16, [9]);
        bench.push_packets(0, [packet]);
        push(&mut bench, ip4().src("2.0.0.2").dst("10.0.0.1").udp(2, 1).bytes());
        assert_eq!(bench.next_sent(1).unwrap().annotation(16), [9]);
    }

    #[test]
    fn nothing_that_comes_panics() {
        use crate::testing::survives_anything;
        survives_anything(
            &CLASS,
            "pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 20, GUARANTEE 0, DST_ANNO true",
            2,
        );
        survives_anything(&super::super::udp_rewriter::CLASS, "pattern - 1-9 2.0.0.2 - 0 1", 2);
        survives_anything(&super::super::tcp_rewriter::CLASS, "keep 0 1", 2);
        survives_anything(&super::super::ip_addr_rewriter::CLASS, "pattern 1.0.0.1-1.0.0.9 - 0 1", 2);
        survives_anything(&super::super::ip_addr_pair_rewriter::CLASS, "pattern 1.0.0.1 2.0.0.2 0 1", 2);
    }
}
