use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Class, Handler, Read};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "IPAddrPairRewriter",
    group: "rewrite",
    summary: "rewrites both addresses of packets",
    manual: "
Expects IP packets with a marked header, which it tells apart by both addresses. Packets have their
destination annotation set.

Each input has an argument that says what becomes of its packets that belong to no flow yet:

- `drop`: they are dropped.
- `pass OUTPUT`: they leave by OUTPUT, unchanged.
- `keep FOUTPUT ROUTPUT`: they begin a flow that keeps its addresses.
- `pattern SADDR DADDR FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SADDR may be a
  range or a prefix: one address is chosen by chance, after `#` in turn.
- `pattern NAME FOUTPUT ROUTPUT`: the same, by a pattern that IPRewriterPatterns names.
- the name of a RoundRobinIPMapper: they begin a flow by one of its patterns.

Packets of a flow leave rewritten by its FOUTPUT, replies, with their ends restored, by its ROUTPUT; whichever
input they come from. Checksums are adapted.",
    example: "Idle -> rw :: IPAddrPairRewriter(pattern 1.0.0.1 2.0.0.2 0 1, drop) -> Discard;\n\
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
        Ok(Box::new(Rewriter::new(args, RewriteKind::Addresses, [timeouts; 2], true)?))
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
    fn both_addresses_are_rewritten_and_restored() {
        let mut bench = bench("pattern 1.0.0.5 7.0.0.7 0 1");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").udp(1111, 53).bytes());
        bench.expect(0, ip4().src("1.0.0.5").dst("7.0.0.7").udp(1111, 53).bytes());
        push(&mut bench, ip4().src("7.0.0.7").dst("1.0.0.5").udp(53, 1111).bytes());
        bench.expect(1, ip4().src("2.0.0.2").dst("10.0.0.1").udp(53, 1111).bytes());
        let table = "(10.0.0.1, 2.0.0.2) => (1.0.0.5, 7.0.0.7) [*0 1] i0 exp7200\n\
                     (7.0.0.7, 1.0.0.5) => (2.0.0.2, 10.0.0.1) [0 *1] i0 exp7200\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
    }
}
