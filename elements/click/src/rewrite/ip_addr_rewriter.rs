use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Class, Handler, Read};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "IPAddrRewriter",
    group: "rewrite",
    summary: "rewrites source addresses, and destinations of replies",
    manual: "
Expects IP packets with a marked header. A packet belongs to the flow of its source, or is a reply to that of
its destination. Replies have their destination annotation set.

Each input has an argument that says what becomes of its packets that belong to no flow yet:

- `drop`: they are dropped.
- `pass OUTPUT`: they leave by OUTPUT, unchanged.
- `keep FOUTPUT ROUTPUT`: they begin a flow that keeps its source.
- `pattern SADDR - FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SADDR may be a range
  or a prefix: one address is chosen by chance, after `#` in turn.
- `pattern NAME FOUTPUT ROUTPUT`: the same, by a pattern that IPRewriterPatterns names.
- the name of a RoundRobinIPMapper: they begin a flow by one of its patterns.

Packets of a flow leave rewritten by its FOUTPUT, replies, with their ends restored, by its ROUTPUT; whichever
input they come from. Checksums are adapted.",
    example: "Idle -> rw :: IPAddrRewriter(pattern 1.0.0.0/24 - 0 1, drop) -> Discard;\n\
        Idle -> [1]rw[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: arguments![],
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
        let timeout = args.read::<Option<Duration>>("TIMEOUT")?.unwrap_or(Duration::from_secs(7200));
        let timeouts = Timeouts::same_for_all(timeout, args.read("GUARANTEE")?);
        Ok(Box::new(Rewriter::new(args, RewriteKind::Source, [timeouts; 2], true)?))
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
    fn a_source_gets_one_address_for_all_it_talks_to() {
        let mut bench = bench("pattern 1.0.0.5-1.0.0.6# - 0 1");
        for (to, port) in [("2.0.0.2", 53), ("3.0.0.3", 54)] {
            push(&mut bench, ip4().src("10.0.0.1").dst(to).udp(1111, port).bytes());
            bench.expect(0, ip4().src("1.0.0.5").dst(to).udp(1111, port).bytes());
        }
        push(&mut bench, ip4().src("3.0.0.3").dst("1.0.0.5").tcp(54, 1111).bytes());
        let packet = bench.expect(1, ip4().src("3.0.0.3").dst("10.0.0.1").tcp(54, 1111).bytes());
        assert_eq!(packet.dst_ip().to_string(), "10.0.0.1");
        let table = "10.0.0.1 => 1.0.0.5 [*0 1] i0 exp7200\n0.0.0.0 => 0.0.0.0 [0 *1] i0 exp7200\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        push(&mut bench, ip4().src("10.0.0.2").dst("2.0.0.2").udp(1, 1).bytes());
        bench.expect(0, ip4().src("1.0.0.6").dst("2.0.0.2").udp(1, 1).bytes());
        push(&mut bench, ip4().src("10.0.0.3").dst("2.0.0.2").udp(1, 1).bytes());
        bench.expect_nothing_more();
    }

    #[test]
    fn what_is_not_ipv4_belongs_to_no_flow() {
        let mut bench = bench("pattern 1.0.0.5 - 0 1");
        push(&mut bench, vec![0x60; 48]);
        bench.expect_nothing_more();
        bench.expect_dropped(artery_engine::DropReason::NoMatch, 1);
    }

    #[test]
    fn patterns_can_not_change_other_ends() {
        let mut bench = bench("pattern 1.0.0.5 5 - - 0 1");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 1).bytes());
        bench.expect_nothing_more();
    }
}
