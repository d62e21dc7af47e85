use crate::pattern::{Expr, Headers, Program, Sorter, ip, pattern_count_error, read_all};
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, Element, Handler, HandlerError, Read, Show, Write,
};

pub static CLASS: Class = Class {
    name: "IPClassifier",
    group: "classify",
    summary: "classifies IP packets by contents, in words",
    manual: "
Sends each packet by the output of the first pattern that it matches; a packet that matches none is dropped.
There are as many patterns as outputs. Expects IPv4 packets, data starting at the IP header or the header
marked by an earlier element.

A pattern is made of these tests:

- `ip proto PROTO`, or the protocol's name alone
- `[DIR] host ADDR`, or the address alone; DIR is `src`, `dst`, `src or dst` (the default) or `src and dst`
- `[DIR] net ADDR/BITS` or `[DIR] net ADDR mask MASK`, or the network alone
- `[DIR] [tcp | udp] port PORT`, or the port's name alone
- `ip vers`, `ip hl`, `ip id`, `ip len`, `ip tos`, `ip dscp`, `ip ttl` with a number
- `ip ect`, `ip ce`: the sender knows of congestion notification; congestion was met
- `ip frag`, `ip unfrag`: the packet is a fragment, or a whole packet
- `tcp opt FLAG`, or the flag alone: `syn fin ack rst psh urg`
- `tcp win NUMBER`
- `icmp type TYPE`, a number or a name
- `ip[POS:LEN] VALUE`, `transp[POS:LEN] VALUE`, `tcp[POS:LEN] VALUE` and so on: 1 to 4 bytes of a header,
  within an aligned word
- `[DIR] ether host ADDR`: the link header must be marked
- `true`, `false`

They are joined by `and` (`&&`, or nothing), `or` (`||`), `not` (`!`), `? :` and parentheses. `and` binds
closer than `or`. Before a value may stand `& MASK` and one of `== != < > <= >=`; addresses can only be equal
or not. `src port != 5` is true of packets with a source port that is not 5; `not src port 5` also of those
that have no port. Tests of the transport header are true of first fragments only. What one test says about
direction, protocol and field holds for a bare value that follows: `src port 80 or 81`. The patterns `-`,
`any` and `all` match every packet.",
    example: "\
Idle -> CheckIPHeader -> c :: IPClassifier(10.0.0.0/24 and syn, dst tcp port 8000 or 8080, tcp, -);
c[0] -> Discard; c[1] -> Discard; c[2] -> Discard; c[3] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::rest("PATTERN", "pattern", "what a packet of this output looks like")],
    handlers: &[Handler::read(
        "program",
        "the compiled patterns, one comparison a line",
        &Show(|c: &mut IpClassifier| c.program.listing().to_string()),
    )],
    own_handlers: Some(
        &const {
            Handler::read(
                "patternN",
                "the pattern of output N",
                &Read(|c: &mut IpClassifier, name, _| c.pattern_text(name)),
            )
            .and_write(&Write(|c: &mut IpClassifier, name_and_pattern, _| c.set_pattern(name_and_pattern)))
            .sets_argument("PATTERN")
        },
    ),
    live: true,
    build: |args| Ok(Box::new(IpClassifier::new(args)?)),
    ..Class::PER_WORKER
};

struct IpClassifier {
    patterns: Vec<String>,
    exprs: Vec<Expr>,
    /// For patterns that handlers write.
    names: Names,
    program: Program,
    sorter: Sorter,
}

impl IpClassifier {
    fn new(args: &mut Args<'_>) -> Result<IpClassifier, ArgError> {
        let patterns = args.rest("PATTERN").to_vec();
        let miscount = pattern_count_error(args.name(), patterns.len(), args.outputs());
        let exprs = read_all(&patterns, miscount, |n, pattern| parse_pattern(n, pattern, args.names()))?;
        for n in 0..patterns.len() {
            args.declare_handler(&format!("pattern{n}"), "rw");
        }
        let program = compile_patterns(&exprs);
        program.warn_unused_outputs(args);
        let names = args.names().clone();
        Ok(IpClassifier { program, patterns, exprs, names, sorter: Sorter::default() })
    }

    /// The number in a handler's name.
    fn pattern_number(&self, name: &str) -> Result<usize, HandlerError> {
        let number = name.strip_prefix("pattern").and_then(|n| n.parse().ok());
        number.filter(|n| *n < self.patterns.len()).ok_or_else(|| HandlerError::NoHandler(name.to_string()))
    }
    fn pattern_text(&self, call: &str) -> Result<String, HandlerError> {
        let name = call.split(' ').next().unwrap_or_default();
        Ok(self.patterns[self.pattern_number(name)?].clone())
    }
    fn set_pattern(&mut self, call: &str) -> Result<(), HandlerError> {
        let (name, pattern) = call.split_once(' ').unwrap_or((call, ""));
        let n = self.pattern_number(name)?;
        self.exprs[n] = parse_pattern(n, pattern, &self.names).map_err(HandlerError::refused)?;
        self.patterns[n] = pattern.trim_ascii().to_string();
        self.program = compile_patterns(&self.exprs);
        Ok(())
    }
}

fn parse_pattern(n: usize, pattern: &str, names: &Names) -> Result<Expr, String> {
    let text = <String as ArgValue>::parse(pattern, names)?;
    ip::parse(&ip::split_words(&text), names).map_err(|why| format!("pattern {n}: {why}"))
}

fn compile_patterns(exprs: &[Expr]) -> Program {
    Program::new(exprs.iter().cloned().enumerate().map(|(n, expr)| (expr, Some(n))))
}

impl Element for IpClassifier {
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
    fn packets_leave_by_the_first_pattern_that_matches() {
        let config = "dst tcp port 8000 or 8080, dst tcp port > 1023, tcp";
        let mut bench = Bench::setup(&CLASS, config).outputs(3).build().unwrap();
        for (output, port) in [(0, 8000), (0, 8080), (1, 8001), (1, 1024), (2, 1023)] {
            bench.push(0, ip4().tcp(9, port).bytes());
            bench.expect(output, ip4().tcp(9, port).bytes());
        }
        bench.push(0, ip4().udp(9, 8000).bytes());
        bench.expect_dropped(DropReason::NoMatch, 1);
    }

    #[test]
    fn a_pattern_can_be_read_and_replaced() {
        let mut bench = Bench::setup(&CLASS, "tcp, -").outputs(2).build().unwrap();
        assert_eq!(bench.read("pattern0", "").unwrap(), "tcp");
        bench.write("pattern0", "udp").unwrap();
        assert!(bench.read("config", "").unwrap().starts_with("udp, "));
        bench.push(0, ip4().udp(1, 2).bytes());
        assert!(bench.next_sent(0).is_some());
        let refusal = bench.write("pattern0", "udp or or").unwrap_err();
        assert_eq!(refusal.to_string(), "pattern 0: missing expression at 'or'");
        assert_eq!(bench.read("pattern0", "").unwrap(), "udp");
        assert!(bench.read("pattern2", "").is_err());
    }

    #[test]
    fn a_header_that_an_earlier_element_marked_is_the_one_looked_at() {
        let mut bench = Bench::setup(&CLASS, "udp port 53, -").outputs(2).build().unwrap();
        let mut packet = bench.packet([&[0xff; 14][..], &ip4().udp(53, 9).bytes()].concat());
        packet.set_network_header(14);
        bench.push_packets(0, [packet]);
        assert!(bench.next_sent(0).is_some());
    }

    #[test]
    fn an_output_that_no_packet_can_reach_is_warned_of() {
        let bench = Bench::setup(&CLASS, "udp, udp port 53, -").outputs(3).build().unwrap();
        assert_eq!(bench.warnings(), "output 1 matches no packets\n");
    }

    #[test]
    fn mistakes_are_refused() {
        let refuses = |config| match Bench::setup(&CLASS, config).outputs(1).build() {
            Ok(_) => panic!("{config} was accepted"),
            Err(errors) => errors[0].to_string(),
        };
        let need = "need 1 arguments, one per output port; e has 2 patterns and 1 connected output";
        assert_eq!(refuses("tcp, udp"), format!("{need}: connect [1]"));
        let found = refuses("tcp, host");
        assert_eq!(found, format!("{need}: connect [1]; pattern 1: 'ip host': address missing"));
        let text = "src net 10/8 and dst net 18.26/255.255.0.0";
        assert!(Bench::setup(&CLASS, text).outputs(1).build().is_ok());
        assert_eq!(refuses("net 10/9"), "pattern 0: 'ip net': address missing");
        assert_eq!(refuses("host"), "pattern 0: 'ip host': address missing");
    }
}
