use crate::pattern::{Expr, Headers, Program, Sorter, ip, read_all};
use artery_engine::names::Names;
use artery_engine::{Arg, ArgError, ArgValue, Args, Batch, Class, Context, Element, Handler, Show};

pub static CLASS: Class = Class {
    name: "IPFilter",
    group: "classify",
    summary: "filters IP packets by contents",
    manual: "
Each argument is an action and a pattern. A packet is treated as the first pattern that it matches says; one
that matches none is dropped. An action is the number of an output; `allow`, which is `0`; or `drop` or
`deny`. Patterns are those of IPClassifier: use whichever class is more convenient.

Expects IPv4 packets, data starting at the IP header or the header marked by an earlier element.",
    example: "Idle -> CheckIPHeader -> IPFilter(deny src net 10.0.0.0/8, allow tcp && dst port 80, drop all) \
        -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::rest("RULE", "action and pattern", "what to do with packets that look like this")],
    handlers: &[Handler::read(
        "program",
        "the compiled patterns, one comparison a line",
        &Show(|f: &mut IpFilter| f.program.listing().to_string()),
    )],
    live: true,
    build: |args| Ok(Box::new(IpFilter::new(args)?)),
    ..Class::PER_WORKER
};

struct IpFilter {
    program: Program,
    sorter: Sorter,
}

impl IpFilter {
    fn new(args: &mut Args<'_>) -> Result<IpFilter, ArgError> {
        let (outputs, names) = (args.outputs(), args.names());
        let rules = read_all(args.rest("RULE"), None, |n, text| parse_rule(n, text, outputs, names))?;
        Ok(IpFilter { program: Program::new(rules), sorter: Sorter::default() })
    }
}

/// Reads an argument: a pattern, and the output of what matches it.
fn parse_rule(n: usize, text: &str, outputs: usize, names: &Names) -> Result<(Expr, Option<usize>), String> {
    let text = <String as ArgValue>::parse(text, names)?;
    let words = ip::split_words(&text);
    let (action, pattern) = words.split_first().ok_or_else(|| format!("empty pattern {n}"))?;
    let wrong = |why| format!("pattern {n}: {why}");
    let output = parse_action(action, outputs, names).map_err(wrong)?;
    Ok((ip::parse(pattern, names).map_err(wrong)?, output))
}

fn parse_action(action: &str, outputs: usize, names: &Names) -> Result<Option<usize>, String> {
    match action {
        "allow" if outputs == 0 => Err("'allow' is meaningless, element has zero outputs".into()),
        "allow" => Ok(Some(0)),
        "deny" | "drop" => Ok(None),
        _ => match <i64 as ArgValue>::parse(action, names) {
            Ok(n) => {
                let output = usize::try_from(n).ok().filter(|n| *n < outputs);
                output.map(Some).ok_or_else(|| format!("slot '{n}' out of range"))
            }
            Err(_) => Err(format!("unknown slot ID '{action}'")),
        },
    }
}

impl Element for IpFilter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.sorter.sort_batch(batch, cx, |packet| {
            let headers = Headers::from_packet(packet);
            self.program.match_packet(|base| headers.from(base))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};
    use artery_wire::build::ip4;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let mut bench =
            Bench::setup(&CLASS, "deny src 10.0.0.9, 1 udp, allow tcp, drop all").outputs(2).build().unwrap();
        bench.push(0, ip4().src("10.0.0.9").udp(1, 2).bytes());
        bench.push(0, ip4().udp(1, 2).bytes());
        bench.push(0, ip4().tcp(1, 2).bytes());
        bench.push(0, ip4().icmp_echo(1, 2).bytes());
        bench.expect(1, ip4().udp(1, 2).bytes());
        bench.expect(0, ip4().tcp(1, 2).bytes());
        bench.expect_nothing_more();
        bench.expect_dropped(DropReason::NoMatch, 2);
    }

    #[test]
    fn packets_too_short_for_any_header_reach_the_last_rule() {
        let mut bench = Bench::setup(&CLASS, "0 ip vers 4, 1 all").outputs(2).build().unwrap();
        bench.push(0, []);
        assert!(bench.next_sent(1).is_some());
    }

    #[test]
    fn mistakes_are_told_with_the_rule_and_the_word() {
        for (config, message) in [
            ("2 all", "pattern 0: slot '2' out of range"),
            ("-1 all", "pattern 0: slot '-1' out of range"),
            ("allow tcp, permit udp", "pattern 1: unknown slot ID 'permit'"),
            ("allow tcp, , deny all", "empty pattern 1"),
            ("allow tcp )", "pattern 0: garbage after expression at ')'"),
            (
                "3 tcp, allow tcp, deny host",
                "pattern 0: slot '3' out of range; pattern 2: 'ip host': address missing",
            ),
        ] {
            let error = Bench::setup(&CLASS, config).outputs(2).build().err().expect(config);
            assert_eq!(error[0].to_string(), message, "{config}");
        }
    }

    #[test]
    fn words_that_mean_nothing_here_are_mistakes() {
        let error = Bench::setup(&CLASS, "allow foo").outputs(1).build().err().unwrap();
        let said = error[0].to_string();
        assert!(said.starts_with("pattern 0: empty term near 'foo'; a test is "), "{said}");
        let error = Bench::setup(&CLASS, "allow all").outputs(0).build().err().unwrap();
        assert_eq!(error[0].to_string(), "pattern 0: 'allow' is meaningless, element has zero outputs");
    }
}
