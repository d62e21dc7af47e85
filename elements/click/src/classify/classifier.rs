use crate::pattern::{Program, Sorter, clauses, pattern_count_error, read_all};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Handler, Show};

pub static CLASS: Class = Class {
    name: "Classifier",
    aliases: &["Filter"],
    group: "classify",
    summary: "classifies packets by contents",
    manual: "
Sends each packet by the output of the first pattern that it matches; a packet that matches none is dropped.

A pattern is a list of clauses that must all hold, each `offset/value` or `offset/value%mask`: the bytes from
the decimal offset on have the hexadecimal value, as far as the mask's bits are one. `?` as a digit matches
any. `!` before a clause negates it. A packet that is too short for a clause does not match it. The pattern
`-` matches everything. Offsets count from the start of the packet's data.

There are as many patterns as outputs. More specific patterns come first; an output that no packet can reach
is reported. All patterns together are compiled into one program that looks at no word twice where it can be
avoided; the handler `program` lists it.

IPClassifier and IPFilter have a friendlier language for IP packets.",
    example: "Idle -> c :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
c[0] -> Discard; c[1] -> Discard; c[2] -> Discard; c[3] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::rest("PATTERN", "pattern", "what a packet of this output looks like")],
    handlers: &[Handler::read(
        "program",
        "the compiled patterns, one comparison a line",
        &Show(|c: &mut Classifier| c.program.listing().to_string()),
    )],
    live: true,
    build: |args| Ok(Box::new(Classifier::new(args)?)),
    ..Class::PER_WORKER
};

struct Classifier {
    program: Program,
    sorter: Sorter,
}

impl Classifier {
    fn new(args: &mut Args<'_>) -> Result<Classifier, ArgError> {
        let patterns = args.rest("PATTERN");
        let exprs = read_all(
            patterns,
            pattern_count_error(args.name(), patterns.len(), args.outputs()),
            |n, pattern| {
                let expr = clauses::parse(pattern).map_err(|why| format!("pattern {n}: {why}"))?;
                Ok((expr, Some(n)))
            },
        )?;
        let program = Program::new(exprs);
        program.warn_unused_outputs(args);
        Ok(Classifier { program, sorter: Sorter::default() })
    }
}

impl Element for Classifier {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.sorter.sort_batch(batch, cx, |packet| self.program.match_packet(|_| packet.data()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::{arp_reply, arp_request, ether, ip4};

    const MANUAL: &str = "12/0806 20/0001, 12/0806 20/0002, 12/0800, -";

    #[test]
    fn packets_leave_by_the_first_pattern_that_matches() {
        let mut bench = Bench::setup(&CLASS, MANUAL).outputs(4).build().unwrap();
        let (me, you) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        let frames = [
            arp_request(me, "10.0.0.1", "10.0.0.2").bytes(),
            arp_reply(me, "10.0.0.1", you, "10.0.0.2").bytes(),
            ether(you, me).ip4(ip4().udp(1, 2)).bytes(),
            b"short".to_vec(),
        ];
        frames.iter().for_each(|frame| bench.push(0, frame));
        let batch: Vec<_> = frames.iter().map(|frame| bench.packet(frame)).collect();
        bench.push_packets(0, batch);
        for _ in 0..2 {
            for (output, frame) in frames.iter().enumerate() {
                bench.expect(output, frame);
            }
        }
        bench.expect_nothing_more();
    }

    #[test]
    fn packets_that_match_nothing_are_dropped() {
        let mut bench = Bench::setup(&CLASS, "0/01").outputs(1).build().unwrap();
        let batch = [[1], [2], [1]].map(|bytes| bench.packet(bytes));
        bench.push_packets(0, batch);
        bench.push(0, [3]);
        assert_eq!(bench.drain_sent(0).len(), 2);
        bench.expect_dropped(DropReason::NoMatch, 2);
    }

    #[test]
    fn the_program_tests_what_patterns_share_once() {
        let mut bench = Bench::setup(&CLASS, MANUAL).outputs(4).build().unwrap();
        let program = [
            " 0  12/08060000%ffff0000  yes->step 1  no->step 3",
            " 1  20/00010000%ffff0000  yes->[0]  no->step 2",
            " 2  20/00020000%ffff0000  yes->[1]  no->[3]",
            " 3  12/08000000%ffff0000  yes->[2]  no->[3]",
            "safe length 22",
            "alignment offset 0\n",
        ];
        assert_eq!(bench.read("program", "").unwrap(), program.join("\n"));
    }

    #[test]
    fn an_output_that_no_packet_can_reach_is_warned_of() {
        let bench = Bench::setup(&CLASS, "12/08??, 12/0800, 0/01 0/02").outputs(3).build().unwrap();
        assert_eq!(bench.warnings(), "output 1 matches no packets\noutput 2 matches no packets\n");
    }

    #[test]
    fn mistakes_are_refused() {
        let refuses = |config| match Bench::setup(&CLASS, config).outputs(2).build() {
            Ok(_) => panic!("{config} was accepted"),
            Err(errors) => errors[0].to_string(),
        };
        let need = "need 2 arguments, one per output port; e has";
        let one = format!("{need} 1 pattern and 2 connected outputs: write a pattern for [1] too");
        assert_eq!(refuses("12/0800"), format!("{one}, such as '-' for all other packets"));
        assert_eq!(
            refuses("-, 12/0, 12/08, 13"),
            format!(
                "{need} 4 patterns and 2 connected outputs: connect [2] and [3]; pattern 1: value has less \
                 than 2 hex digits at '0'; pattern 3: expected '/' at the end"
            )
        );
        assert_eq!(refuses("-, 12/080"), "pattern 1: value has odd number of hex digits at '080'");
    }
}
