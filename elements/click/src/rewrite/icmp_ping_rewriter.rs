use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Arg, Class, Handler, Read};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "ICMPPingRewriter",
    group: "rewrite",
    summary: "rewrites addresses and identifiers of ICMP echo requests and replies",
    manual: "
Expects ICMP echo requests and replies with marked headers. A flow is identified by both addresses and the
identifier, which takes the place of the source's port. Other packets, later fragments, and replies to no
request of a flow pass where the argument of their input is `pass`, and are dropped elsewhere.

Each input has an argument that says what becomes of its requests that belong to no flow yet:

- `drop`: they are dropped.
- `pass OUTPUT`: they leave by OUTPUT, unchanged.
- `keep FOUTPUT ROUTPUT`: they begin a flow that keeps its addresses and identifier.
- `pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SPORT
  stands for the identifier and may be a range: an identifier in it that fits stays, else one is chosen by
  chance, after `1024-65535?` always, after `1024-65535#` in turn. DPORT does not matter.
- `pattern NAME FOUTPUT ROUTPUT`: the same, by a pattern that IPRewriterPatterns names.
- the name of a RoundRobinIPMapper: they begin a flow by one of its patterns.

Requests of a flow leave rewritten by its FOUTPUT, replies, with addresses and identifier restored, by its
ROUTPUT; whichever input they come from. Checksums are adapted. ICMPRewriter does the same for errors.",
    example: "Idle -> rw :: ICMPPingRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop) -> Discard;\n\
        Idle -> [1]rw[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: arguments![Arg::keyword("DST_ANNO", "bool", "true", "whether to set the destination annotation")],
    handlers: handlers![
        Handler::read(
            "table",
            "the flows, a line for each direction: `(SRC, DST, IDENTIFIER)`",
            &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))
        ),
        Handler::read("mappings", "the same", &Read(|r: &mut Rewriter, _, cx| Ok(r.table_text(0, cx.now())))),
    ],
    own_handlers: Some(&PATTERN_N),
    build: |args| {
        let timeout = args.read::<Option<Duration>>("TIMEOUT")?.unwrap_or(Duration::from_secs(300));
        let timeouts = Timeouts::same_for_all(timeout, args.read("GUARANTEE")?);
        let dst = args.read("DST_ANNO")?;
        Ok(Box::new(Rewriter::new(args, RewriteKind::Echo, [timeouts; 2], dst)?))
    },
    finished: true,
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::{icmp_echo, ip4};
    use artery_wire::checksum;

    /// A bench with two outputs, and a packet's bytes with its headers marked.
    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(2).build().unwrap()
    }
    fn push(bench: &mut Bench, bytes: Vec<u8>) {
        let mut packet = bench.packet(bytes);
        packet.set_headers(0, 20);
        bench.push_packets(0, [packet]);
    }
    fn request(src: &str, dst: &str, identifier: u16) -> Vec<u8> {
        icmp_echo(src, dst, identifier, 7).payload("ping").bytes()
    }
    fn reply(src: &str, dst: &str, identifier: u16) -> Vec<u8> {
        let mut bytes = request(src, dst, identifier);
        bytes[20] = 0;
        fill_checksum(&mut bytes);
        bytes
    }
    fn fill_checksum(bytes: &mut [u8]) {
        bytes[22..24].fill(0);
        let sum = checksum::checksum(&bytes[20..]);
        bytes[22..24].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn requests_and_replies_are_rewritten() {
        let mut bench = bench("pattern 1.0.0.1 5000-5010# - - 0 1");
        push(&mut bench, request("10.0.0.1", "2.0.0.2", 77));
        let packet = bench.expect(0, request("1.0.0.1", "2.0.0.2", 5000));
        assert_eq!(packet.dst_ip().to_string(), "2.0.0.2");
        push(&mut bench, reply("2.0.0.2", "1.0.0.1", 5000));
        let packet = bench.expect(1, reply("2.0.0.2", "10.0.0.1", 77));
        assert_eq!(packet.dst_ip().to_string(), "10.0.0.1");
        let table = "(10.0.0.1, 2.0.0.2, 77) => (1.0.0.1, 2.0.0.2, 5000) [*0 1] i0 exp300\n\
                     (2.0.0.2, 1.0.0.1, 5000) => (2.0.0.2, 10.0.0.1, 77) [0 *1] i0 exp300\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        assert_eq!(bench.read("nmappings", "").unwrap(), "1");
    }

    #[test]
    fn an_identifier_that_fits_stays_and_none_is_used_twice_for_a_destination() {
        let mut bench = bench("pattern 1.0.0.1 5000-5001 - - 0 1");
        for (from, dst) in [("10.0.0.1", "2.0.0.2"), ("10.0.0.2", "2.0.0.2"), ("10.0.0.1", "3.0.0.3")] {
            push(&mut bench, request(from, dst, 5001));
        }
        bench.expect(0, request("1.0.0.1", "2.0.0.2", 5001));
        bench.expect(0, request("1.0.0.1", "2.0.0.2", 5000));
        bench.expect(0, request("1.0.0.1", "3.0.0.3", 5001));
        push(&mut bench, request("10.0.0.3", "2.0.0.2", 5000));
        bench.expect_nothing_more();
        assert_eq!(bench.read("mapping_failures", "").unwrap(), "1");
    }

    #[test]
    fn requests_in_both_directions_with_one_identifier_are_two_flows() {
        let mut bench = bench("keep 0 1");
        push(&mut bench, request("10.0.0.1", "2.0.0.2", 9));
        push(&mut bench, request("2.0.0.2", "10.0.0.1", 9));
        assert_eq!(bench.drain_sent(0).len(), 2);
        push(&mut bench, reply("2.0.0.2", "10.0.0.1", 9));
        bench.expect(1, reply("2.0.0.2", "10.0.0.1", 9));
        assert_eq!(bench.read("size", "").unwrap(), "2");
    }

    #[test]
    fn replies_that_nobody_asked_for_and_other_packets_pass_or_are_dropped() {
        let mut unreachable = request("10.0.0.1", "2.0.0.2", 9);
        unreachable[20] = 3;
        let strangers = [
            reply("2.0.0.2", "1.0.0.1", 5000),
            unreachable,
            ip4().udp(1, 2).bytes(),
            ip4().fragment(64, true).raw(1, [8; 24]).bytes(),
        ];
        let mut dropping = bench("pattern 1.0.0.1 5000-5010 - - 0 1");
        let mut passing = bench("pass 1");
        for stranger in &strangers {
            push(&mut dropping, stranger.clone());
            push(&mut passing, stranger.clone());
            passing.expect(1, stranger);
        }
        dropping.expect_nothing_more();
        dropping.expect_dropped(DropReason::NoMatch, 4);
        assert_eq!(dropping.read("mapping_failures", "").unwrap(), "0");
    }

    #[test]
    fn the_greatest_identifier_is_like_any_other() {
        let mut bench = bench("pattern 1.0.0.1 65535-65535 - - 0 1");
        push(&mut bench, request("10.0.0.1", "2.0.0.2", 65535));
        bench.expect(0, request("1.0.0.1", "2.0.0.2", 65535));
        push(&mut bench, reply("2.0.0.2", "1.0.0.1", 65535));
        bench.expect(1, reply("2.0.0.2", "10.0.0.1", 65535));
    }

    #[test]
    fn the_checksum_of_nothing_but_zeros_is_all_ones() {
        let zeros = |src, dst, identifier: u16| {
            let mut bytes = icmp_echo(src, dst, identifier, 0).bytes();
            bytes[20] = 0;
            fill_checksum(&mut bytes);
            bytes
        };
        let mut bench = bench("pattern 1.0.0.1 5 - - 0 1");
        push(&mut bench, request("10.0.0.1", "2.0.0.2", 0));
        bench.next_sent(0).unwrap();
        push(&mut bench, zeros("2.0.0.2", "1.0.0.1", 5));
        let expected = zeros("2.0.0.2", "10.0.0.1", 0);
        assert_eq!(expected[22..24], [0xff, 0xff]);
        bench.expect(1, expected);
    }

    #[test]
    fn flows_end_after_their_timeout_and_the_annotation_stays_when_told() {
        let mut bench = bench("keep 0 1, TIMEOUT 10, REAP_INTERVAL 1, DST_ANNO false");
        push(&mut bench, request("10.0.0.1", "2.0.0.2", 9));
        assert_eq!(bench.next_sent(0).unwrap().dst_ip().to_string(), "0.0.0.0");
        bench.advance_time(Duration::from_secs(9));
        assert_eq!(bench.read("size", "").unwrap(), "1");
        bench.advance_time(Duration::from_secs(3));
        assert_eq!(bench.read("size", "").unwrap(), "0");
    }

    #[test]
    fn nothing_that_comes_panics() {
        use crate::testing::survives_anything;
        survives_anything(&CLASS, "pattern 1.0.0.1 5000-6000 - - 0 1, CAPACITY 20, GUARANTEE 0", 2);
        survives_anything(&CLASS, "keep 0 1", 2);
    }
}
