use super::linear::{LinearTable, NO_ROUTE};
use super::outputs::{self, NONE, Unrouted};
use super::routes::{self, RouteCommand, Routes};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Handler, Read, Show, Write};

pub static CLASS: Class = Class {
    name: "LinearIPLookup",
    group: "ip",
    summary: "routes by destination, with a small table",
    manual: "
Looks up the destination annotation of each packet, which CheckIPHeader or GetIPAddress sets, in a table of
routes. The longest prefix wins. The packet leaves by the output of its route, with the gateway, if the route
has one, as its new destination annotation. A packet without route is dropped; the first five are reported.

Each argument is a route `ADDR/MASK [GATEWAY] OUTPUT`; `-` stands for no gateway. Of two routes for one prefix
the first counts. A lookup may look at every route, eight at a time: right for tens of routes. IPLookup is for
more.

`ctrl` takes a command to a line, `add ROUTE`, `set ROUTE` or `remove ADDR/MASK [GATEWAY OUTPUT]`, and does
all or none. `lookup ADDR` answers `OUTPUT [GATEWAY]`, or -1 where no route leads.",
    example: "\
Idle -> GetIPAddress(16) -> rt :: LinearIPLookup(18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1);
rt[0] -> Discard;
rt[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: ARGS,
    handlers: &[
        TABLE,
        LOOKUP,
        Handler::write(
            "add",
            "adds a route, unless its prefix has one",
            &Write(|l: &mut LinearIpLookup, text, cx| {
                routes::run_command(&mut l.table, RouteCommand::Add, text, cx.outputs()).map(drop)
            }),
        ),
        Handler::write(
            "set",
            "adds or replaces a route",
            &Write(|l: &mut LinearIpLookup, text, cx| {
                routes::run_command(&mut l.table, RouteCommand::Set, text, cx.outputs()).map(drop)
            }),
        ),
        Handler::write(
            "remove",
            "removes a route",
            &Write(|l: &mut LinearIpLookup, text, cx| {
                routes::run_command(&mut l.table, RouteCommand::Remove, text, cx.outputs()).map(drop)
            }),
        ),
        Handler::write(
            "ctrl",
            "does several commands, all or none",
            &Write(|l: &mut LinearIpLookup, text, cx| routes::run_all(&mut l.table, text, cx.outputs())),
        ),
        Handler::write(
            "flush",
            "removes all routes",
            &Write(|l: &mut LinearIpLookup, _, _| {
                l.table.clear();
                Ok(())
            }),
        )
        .button(),
    ],
    build: |args| Ok(Box::new(LinearIpLookup::new(args)?)),
    ..Class::PER_WORKER
};

pub(crate) const ARGS: &[Arg] = &[Arg::rest("ROUTES", "ADDR/MASK [GATEWAY] OUTPUT", "the routes")];

pub(crate) const TABLE: Handler =
    Handler::read("table", "all routes, one a line", &Show(|l: &mut LinearIpLookup| l.table.table_text()));
pub(crate) const LOOKUP: Handler = Handler::read(
    "lookup",
    "output and gateway for an address",
    &Read(|l: &mut LinearIpLookup, address, _| routes::lookup_answer(&l.table, address)),
)
.parameters();

pub(crate) struct LinearIpLookup {
    table: LinearTable,
    /// For the packets of a batch: destinations, route numbers, outputs. Kept to reuse their memory.
    addresses: Vec<u32>,
    numbers: Vec<u32>,
    outputs: Vec<u16>,
    unrouted: Unrouted,
}

impl LinearIpLookup {
    pub(crate) fn new(args: &mut Args<'_>) -> Result<LinearIpLookup, ArgError> {
        let mut table = LinearTable::default();
        configure(&mut table, args)?;
        let unrouted = Unrouted::new("LinearIPLookup", args.shared_value(Default::default));
        Ok(LinearIpLookup {
            table,
            addresses: Vec::new(),
            numbers: Vec::new(),
            outputs: Vec::new(),
            unrouted,
        })
    }

    /// Computes the outputs of all packets in a batch, and sets their destination
    /// annotations to the gateways.
    fn route_batch(&mut self, batch: &mut Batch) {
        self.addresses.clear();
        self.addresses.extend(batch.iter().map(|packet| packet.dst_ip().to_bits()));
        self.table.lookup_all(&self.addresses, &mut self.numbers);
        self.outputs.clear();
        for (packet, &number) in batch.iter_mut().zip(&self.numbers) {
            if number == NO_ROUTE {
                self.outputs.push(NONE);
                continue;
            }
            let next = self.table.next_hop(number as usize);
            if let Some(gateway) = next.gateway {
                packet.set_dst_ip(gateway);
            }
            self.outputs.push(next.output as u16);
        }
    }
}

/// Adds the routes of a configuration; warns of those that are replaced.
pub(crate) fn configure(table: &mut impl Routes, args: &mut Args<'_>) -> Result<(), ArgError> {
    let outputs = args.outputs();
    let texts = args.rest("ROUTES").to_vec();
    let note = |text: &str, why| args.record_error(ArgError::wrong_at(text, why));
    let duplicates = routes::configure(table, &texts, outputs, args.names(), note);
    if duplicates > 0 {
        let routes = if duplicates > 1 { "routes" } else { "route" };
        // Click's message, although Click keeps the first as well.
        let text = format!("{duplicates} {routes} replaced by later versions");
        args.warn(text, Some("of several routes for a prefix the first counts; remove the others"));
    }
    Ok(())
}

impl Element for LinearIpLookup {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.route_batch(batch);
        outputs::send_by_outputs(batch, &self.outputs, &self.unrouted, |packet| packet.dst_ip().into(), cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::{Bench, DropReason, Packet};
    use std::net::Ipv4Addr;

    const ROUTES: &str = "18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 2";

    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(3).build().unwrap()
    }

    fn send(bench: &mut Bench, to: &[&str]) {
        let packets: Vec<Packet> = to
            .iter()
            .map(|to| {
                let mut packet = bench.packet(to);
                packet.set_dst_ip(to.parse().unwrap());
                packet
            })
            .collect();
        bench.push_packets(0, packets);
    }

    #[test]
    fn the_longest_prefix_wins_and_the_gateway_becomes_the_destination() {
        for order in [ROUTES, "0/0 18.26.4.1 2, 18.26.4/24 1, 18.26.4.24 0"] {
            let mut bench = bench(order);
            send(&mut bench, &["18.26.4.24", "18.26.4.25", "1.2.3.4", "18.26.4.24"]);
            bench.expect(0, "18.26.4.24");
            bench.expect(0, "18.26.4.24");
            assert_eq!(bench.expect(1, "18.26.4.25").dst_ip(), Ipv4Addr::new(18, 26, 4, 25));
            assert_eq!(bench.expect(2, "1.2.3.4").dst_ip(), Ipv4Addr::new(18, 26, 4, 1));
            send(&mut bench, &["1.2.3.4", "1.2.3.5"]);
            assert_eq!(bench.drain_sent(2).len(), 2);
            bench.expect_nothing_more();
        }
    }

    #[test]
    fn packets_without_route_are_dropped_and_five_are_reported() {
        let mut bench = bench("10/8 0");
        send(&mut bench, &["1.1.1.1"; 7]);
        bench.expect_dropped(DropReason::NoRoute, 7);
        assert_eq!(bench.stderr_text(), "LinearIPLookup: no route for 1.1.1.1\n".repeat(5));
        send(&mut bench, &["10.0.0.1", "1.1.1.1"]);
        bench.expect(0, "10.0.0.1");
        bench.expect_dropped(DropReason::NoRoute, 8);
        survives_anything(&CLASS, "0/1 0", 1);
    }

    #[test]
    fn routed_packets_of_a_monitored_port_end_here() {
        let mut bench = bench("10/8 0, 11/8 1");
        bench.set_monitor(7, "l3");
        for to in [&["10.0.0.1", "10.0.0.2"][..], &["10.0.0.1", "11.0.0.1"], &["10.0.0.1", "1.1.1.1"]] {
            let packets: Vec<Packet> = (7..)
                .zip(to)
                .map(|(port, to)| {
                    let mut packet = bench.packet(to);
                    packet.set_dst_ip(to.parse().unwrap());
                    packet.set_in_port(port);
                    packet
                })
                .collect();
            bench.push_packets(0, packets);
        }
        bench.expect_dropped(DropReason::Monitored, 3);
        bench.expect_dropped(DropReason::NoRoute, 1);
        bench.expect(0, "10.0.0.2");
        bench.expect(1, "11.0.0.1");
        bench.expect_nothing_more();
    }

    #[test]
    fn routes_that_make_no_sense_are_refused() {
        let wanted = "argument 2 should be 'ADDR/MASK [GATEWAY] OUTPUT'";
        for wrong in ["10/8", "10/8 -1", "x 1", "10/8 1.2.3 1"] {
            let config = format!("1/8 0, {wrong}");
            let error = Bench::setup(&CLASS, &config).outputs(2).build().err().unwrap();
            assert_eq!(error[0].to_string(), wanted, "{wrong}");
        }
        let error = Bench::setup(&CLASS, "1/8 0, 1.2.3.4/40 0").outputs(2).build().err().unwrap();
        assert_eq!(error[0].to_string(), format!("{wanted}: prefix length '/40' is not 0 to 32"));
        let error = Bench::setup(&CLASS, "1/8 2").outputs(2).build().err().unwrap();
        assert_eq!(error[0].to_string(), "argument 1 bad OUTPUT: 2, and there are 0 to 1");
        let all = Bench::setup(&CLASS, "1/8 2, 2/8 1, 3/8").outputs(2).build().err().unwrap();
        assert_eq!(
            all.iter().map(|error| error.to_string().replace(wanted, "")).collect::<Vec<_>>(),
            [
                "argument 1 bad OUTPUT: 2, and there are 0 to 1",
                "argument 3 should be 'ADDR/MASK [GATEWAY] OUTPUT'",
            ]
        );
    }

    #[test]
    fn a_second_route_for_a_prefix_does_not_count_and_is_warned_of() {
        let mut bench = bench("10/8 0, 10/8 1, 0/0 1, 10.0.0.0/8 2");
        assert_eq!(bench.warnings(), "2 routes replaced by later versions\n");
        assert_eq!(bench.read("lookup", "10.0.0.1").unwrap(), "0");
    }

    #[test]
    fn the_table_is_listed_and_looked_up() {
        let mut bench = bench(ROUTES);
        let table = "18.26.4.24/32\t\t-\t\t0\n18.26.4.0/24\t\t-\t\t1\n0.0.0.0/0\t\t18.26.4.1\t2\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        assert_eq!(bench.read("lookup", "18.26.4.9").unwrap(), "1");
        assert_eq!(bench.read("lookup", "9.9.9.9").unwrap(), "2 18.26.4.1");
        assert_eq!(bench.read("lookup", "x").unwrap_err().to_string(), "expected IP address");
        bench.write("flush", "").unwrap();
        assert_eq!(bench.read("lookup", "18.26.4.9").unwrap(), "-1");
    }

    #[test]
    fn routes_change_live_and_the_next_packet_sees_it() {
        let mut bench = bench(ROUTES);
        send(&mut bench, &["18.26.4.25"]);
        bench.write("add", "18.26.4.25 2").unwrap();
        send(&mut bench, &["18.26.4.25"]);
        bench.write("set", "18.26.4.25 0").unwrap();
        send(&mut bench, &["18.26.4.25"]);
        bench.write("remove", "18.26.4.25").unwrap();
        send(&mut bench, &["18.26.4.25"]);
        assert_eq!([0, 1, 2].map(|output| bench.drain_sent(output).len()), [1, 2, 1]);
    }

    #[test]
    fn changes_that_fail_say_why() {
        let mut bench = bench(ROUTES);
        for (handler, value, why) in [
            ("add", "18.26.4/24 2", "conflict with existing route '18.26.4.0/24 - 1'"),
            ("add", "10/8", "expected 'ADDR/MASK [GATEWAY] OUTPUT'"),
            ("set", "10/8 3", "bad OUTPUT: 3, and there are 0 to 2"),
            ("remove", "10/8", "route '10.0.0.0/8 - -1' not found"),
            ("remove", "18.26.4/24 2", "route '18.26.4.0/24 - 2' not found"),
            ("remove", "x", "expected 'ADDR/MASK [GATEWAY OUTPUT]'"),
            ("ctrl", "drop 10/8", "bad command 'drop'"),
        ] {
            assert_eq!(bench.write(handler, value).unwrap_err().to_string(), why, "{handler} {value}");
        }
    }

    #[test]
    fn ctrl_does_all_or_nothing() {
        let mut bench = bench(ROUTES);
        let before = bench.read("table", "").unwrap();
        assert!(bench.write("ctrl", "add 10/8 1\nremove 18.26.4/24\nadd 10/8 2").is_err());
        assert_eq!(bench.read("table", "").unwrap(), before);
        bench.write("ctrl", "add 10/8 1\n\n  set 10/8 1.1.1.1 2\nremove 18.26.4/24\n").unwrap();
        assert_eq!(bench.read("lookup", "10.0.0.1").unwrap(), "2 1.1.1.1");
        assert_eq!(bench.read("lookup", "18.26.4.9").unwrap(), "2 18.26.4.1");
    }
}
