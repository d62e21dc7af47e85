use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Arg, ArgError, Args, Class, Handler, Read};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "TCPRewriter",
    group: "rewrite",
    summary: "rewrites addresses and ports of TCP packets",
    manual: "
Expects TCP packets with marked headers. Others, and later fragments, pass where the argument of their input
is `pass`, and are dropped elsewhere.

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
    example: "Idle -> rw :: TCPRewriter(pattern 1.0.0.1 1024-65535 - - 0 1, drop) -> Discard;\n\
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
    ],
    handlers: handlers![
        Handler::read(
            "table",
            "the flows, a line for each direction",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))
        ),
        Handler::read("mappings", "the same", &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))),
        Handler::read(
            "lookup",
            "what packets with the ends `SADDR SPORT DADDR DPORT` become",
            &Read(|r: &mut Rewriter, call, _| r.lookup_text(call))
        )
        .parameters(),
    ],
    own_handlers: Some(&PATTERN_N),
    build: |args| {
        let timeouts = tcp_timeouts(args)?;
        let dst = args.read("DST_ANNO")?;
        Ok(Box::new(Rewriter::new(args, RewriteKind::TcpOnly, [timeouts; 2], dst)?))
    },
    finished: true,
    ..Class::DEFAULT
};

/// The timeouts in the arguments about TCP.
pub(super) fn tcp_timeouts(args: &Args<'_>) -> Result<Timeouts, ArgError> {
    let guarantee = args.read::<Option<Duration>>("TCP_GUARANTEE")?;
    let busy = args.read::<Option<Duration>>("TIMEOUT")?;
    Ok(Timeouts {
        idle: args.read("TCP_NODATA_TIMEOUT")?,
        busy: busy.map_or_else(|| args.read("TCP_TIMEOUT"), Ok)?,
        done: args.read("TCP_DONE_TIMEOUT")?,
        guarantee: guarantee.map_or_else(|| args.read("GUARANTEE"), Ok)?,
    })
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

    /// A TCP packet with these flags.
    fn tcp(src: &str, sport: u16, dst: &str, dport: u16, flags: u8) -> Vec<u8> {
        let mut bytes = ip4().src(src).dst(dst).tcp(sport, dport).bytes();
        bytes[33] = flags;
        bytes
    }
    fn lifetime(bench: &mut Bench) -> String {
        let table = bench.read("table", "").unwrap();
        table.lines().next().unwrap().rsplit(' ').next().unwrap().to_string()
    }

    #[test]
    fn connections_are_found_by_their_ends() {
        let mut bench = bench("pattern 1.0.0.1 5000 - - 0 1");
        push(&mut bench, ip4().src("10.0.0.1").dst("2.0.0.2").tcp(1111, 80).bytes());
        bench.expect(0, ip4().src("1.0.0.1").dst("2.0.0.2").tcp(5000, 80).bytes());
        assert_eq!(bench.read("lookup", "10.0.0.1 1111 2.0.0.2 80").unwrap(), "1.0.0.1 5000 2.0.0.2 80");
        assert_eq!(bench.read("lookup", "2.0.0.2 80 1.0.0.1 5000").unwrap(), "2.0.0.2 80 10.0.0.1 1111");
        assert_eq!(bench.read("lookup", "2.0.0.2 81 1.0.0.1 5000").unwrap(), "");
        assert!(bench.read("lookup", "2.0.0.2").is_err());
    }

    #[test]
    fn closed_connections_live_on_for_a_shorter_time() {
        let mut bench = bench("keep 0 1");
        push(&mut bench, tcp("10.0.0.1", 1, "2.0.0.2", 80, 0x02));
        assert_eq!(lifetime(&mut bench), "exp300");
        push(&mut bench, tcp("10.0.0.1", 1, "2.0.0.2", 80, 0x11));
        push(&mut bench, tcp("2.0.0.2", 80, "10.0.0.1", 1, 0x11));
        assert_eq!(lifetime(&mut bench), "exp240");
    }

    #[test]
    fn packets_of_other_protocols_pass_or_are_dropped() {
        let udp = || ip4().src("10.0.0.1").dst("2.0.0.2").udp(1, 2).bytes();
        let mut dropping = bench("keep 0 1");
        push(&mut dropping, udp());
        dropping.expect_nothing_more();
        let mut passing = bench("pass 0");
        push(&mut passing, udp());
        passing.expect(0, udp());
    }
}
