//! The common part of IPv4 classes with a big routing table: arguments, handlers, and construction; and the
//! classes that differ from IPLookup by name and by the order of their lists alone.
use super::linear_ip_lookup::{ARGS, configure};
use super::outputs::Unrouted;
use super::route::{Route, RouteNextHop};
use super::routes::{self, NotAdded, RouteCommand, Routes};
use super::routing::{Hop, Routing, TableLookup, TableWriter};
use super::slots::SlotOrder;
use artery_engine::{ArgError, Args, Class, Context, Element, Handler, HandlerError, Read, Show, Write};
use artery_lpm::{Policy, Prefix};
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A class of Click's whose arguments are only routes: its name, the order of its lists, and `build`.
macro_rules! table_class {
    ($name:literal, $order:literal, $build:expr) => {
        Class {
            name: $name,
            group: "ip",
            summary: "routes by destination, with a table of any size",
            manual: concat!(
                "
Looks up the destination annotation of each packet, which CheckIPHeader or GetIPAddress sets, in a table of
routes. The longest prefix wins. The packet leaves by the output of its route, with the gateway, if the route
has one, as its new destination annotation. A packet without route is dropped; the first five are reported.

Each argument is a route `ADDR/MASK [GATEWAY] OUTPUT`; `-` stands for no gateway. Of two routes for one prefix
the first counts. ",
                $order,
                "

RadixIPLookup, DirectIPLookup and RangeIPLookup are three data structures in Click. Here they are one and the
same table, IPLookup's with `FIB auto`. New configurations use IPLookup, which also reads tables from files.

`ctrl` takes a command to a line, `add ROUTE`, `set ROUTE` or `remove ADDR/MASK [GATEWAY OUTPUT]`, and does
all or none. `lookup ADDR` answers `OUTPUT [GATEWAY]`, or -1 where no route leads."
            ),
            example: concat!(
                "Idle -> GetIPAddress(16) -> rt :: ",
                $name,
                "(18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1);\nrt[0] -> Discard;\nrt[1] -> Discard;"
            ),
            ports: "1/-",
            processing: "h/h",
            args: ARGS,
            handlers: HANDLERS,
            build: $build,
            ..Class::PER_WORKER
        }
    };
}

pub static RADIX: Class = table_class!(
    "RadixIPLookup",
    "Routes are listed in the order in which they were added, as Click lists them.",
    |args| build_element(args, "RadixIPLookup", Some(SlotOrder::LastFreed))
);
pub static DIRECT: Class = table_class!("DirectIPLookup", "Routes are listed by prefix.", |args| {
    build_element(args, "DirectIPLookup", None)
});
pub static RANGE: Class = table_class!("RangeIPLookup", "Routes are listed by prefix.", |args| {
    build_element(args, "RangeIPLookup", None)
});

type Lookup = TableLookup<u32>;

fn build_element(
    args: &mut Args<'_>,
    class: &'static str,
    order: Option<SlotOrder>,
) -> Result<Box<dyn Element>, ArgError> {
    let routing = shared_routing(args, Policy::default(), order, configure)?;
    let unrouted = Unrouted::new(class, args.shared_value(Default::default));
    Ok(Box::new(Lookup::new(routing, unrouted)))
}

/// The table that the copies of an element share; the first copy creates and fills it.
pub(crate) fn shared_routing(
    args: &mut Args<'_>,
    policy: Policy<u32>,
    order: Option<SlotOrder>,
    fill: impl FnOnce(&mut TableWriter<u32>, &mut Args<'_>) -> Result<(), ArgError>,
) -> Result<Arc<Routing<u32>>, ArgError> {
    if let Some(routing) = args.already_shared::<Routing<u32>>() {
        return Ok(routing);
    }
    let routing = Routing::new(args, policy, order).map_err(|error| ArgError::wrong(error.to_string()))?;
    fill(&mut routing.lock_writer(), args)?;
    Ok(args.shared_value(|| routing))
}

impl From<RouteNextHop> for Hop<u32> {
    fn from(next: RouteNextHop) -> Hop<u32> {
        Hop { gateway: next.gateway.map(Ipv4Addr::to_bits), output: next.output as u16 }
    }
}

impl From<Hop<u32>> for RouteNextHop {
    fn from(hop: Hop<u32>) -> RouteNextHop {
        RouteNextHop { gateway: hop.gateway.map(Ipv4Addr::from_bits), output: hop.output.into() }
    }
}

impl Routes for TableWriter<u32> {
    fn add_route(&mut self, route: Route, replace: bool) -> Result<Option<Route>, NotAdded> {
        let prefix = Prefix::from(route.prefix);
        let old = self.get(prefix).map(|hop| Route { prefix: route.prefix, next: hop.into() });
        if let Some(old) = old.filter(|_| !replace) {
            return Err(NotAdded::Exists(old));
        }
        self.insert(prefix, route.next.into()).map_err(|error| NotAdded::NoRoom(error.to_string()))?;
        Ok(old)
    }

    fn remove_route(&mut self, prefix: Ipv4Prefix, next: Option<RouteNextHop>) -> Option<Route> {
        let old = RouteNextHop::from(self.get(prefix.into())?);
        if next.is_some_and(|next| next != old) {
            return None;
        }
        self.delete(prefix.into()).map(|_| Route { prefix, next: old })
    }

    fn lookup_route(&self, address: Ipv4Addr) -> Option<RouteNextHop> {
        self.lookup_hop(address.to_bits()).map(RouteNextHop::from)
    }

    fn table_text(&self) -> String {
        self.routes()
            .map(|(prefix, hop)| Route { prefix: to_wire(prefix), next: hop.into() }.table_line())
            .collect()
    }
}

fn to_wire(prefix: Prefix<u32>) -> Ipv4Prefix {
    Ipv4Prefix::new(Ipv4Addr::from_bits(prefix.first()), prefix.len())
        .unwrap_or_else(|_| unreachable!("an IPv4 prefix has at most 32 bits"))
}

fn run_table_command(
    l: &mut Lookup,
    command: RouteCommand,
    text: &str,
    cx: &Context<'_>,
) -> Result<(), HandlerError> {
    routes::run_command(&mut *l.routing.lock_writer(), command, text, cx.outputs()).map(drop)
}

pub(crate) const TABLE: Handler = Handler::read(
    "table",
    "all routes, one a line",
    &Show(|l: &mut Lookup| l.routing.lock_writer().table_text()),
);
pub(crate) const LOOKUP: Handler = Handler::read(
    "lookup",
    "output and gateway for an address",
    &Read(|l: &mut Lookup, address, _| routes::lookup_answer(&*l.routing.lock_writer(), address)),
)
.parameters();
pub(crate) const ADD: Handler = Handler::write(
    "add",
    "adds a route, unless its prefix has one",
    &Write(|l: &mut Lookup, text, cx| run_table_command(l, RouteCommand::Add, text, cx)),
)
.once();
pub(crate) const SET: Handler = Handler::write(
    "set",
    "adds or replaces a route",
    &Write(|l: &mut Lookup, text, cx| run_table_command(l, RouteCommand::Set, text, cx)),
)
.once();
pub(crate) const REMOVE: Handler = Handler::write(
    "remove",
    "removes a route",
    &Write(|l: &mut Lookup, text, cx| run_table_command(l, RouteCommand::Remove, text, cx)),
)
.once();
pub(crate) const CTRL: Handler = Handler::write(
    "ctrl",
    "does several commands, all or none",
    &Write(|l: &mut Lookup, text, cx| routes::run_all(&mut *l.routing.lock_writer(), text, cx.outputs())),
)
.once();
pub(crate) const FLUSH: Handler =
    Handler::write("flush", "removes all routes", &Write(|l: &mut Lookup, _, _| flush_table(l)))
        .once()
        .button();

fn flush_table(l: &mut Lookup) -> Result<(), HandlerError> {
    l.routing.lock_writer().replace_all(&[]).map_err(|error| HandlerError::refused(error.to_string()))
}

/// The handlers of Click's routing tables.
const HANDLERS: &[Handler] = &[TABLE, LOOKUP, ADD, SET, REMOVE, CTRL, FLUSH];

#[cfg(test)]
mod tests {
    use super::super::linear_ip_lookup;
    use super::{DIRECT, RADIX, RANGE};
    use crate::testing::{Random, survives_anything};
    use artery_engine::{Bench, Class, DropReason, Packet};

    const CLASSES: [&Class; 3] = [&RADIX, &DIRECT, &RANGE];

    fn bench(class: &'static Class, config: &str) -> Bench {
        Bench::setup(class, config).outputs(3).build().unwrap()
    }

    fn send(bench: &mut Bench, to: &str) {
        let mut packet: Packet = bench.packet(to);
        packet.set_dst_ip(to.parse().unwrap());
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn packets_are_routed_and_those_without_route_reported() {
        for class in CLASSES {
            let mut bench = bench(class, "18.26.4.24/32 0, 18.26.4/24 18.26.4.1 1");
            for to in ["18.26.4.24", "18.26.4.25", "1.2.3.4"] {
                send(&mut bench, to);
            }
            bench.expect(0, "18.26.4.24");
            assert_eq!(bench.expect(1, "18.26.4.25").dst_ip().to_string(), "18.26.4.1");
            bench.expect_dropped(DropReason::NoRoute, 1);
            assert_eq!(bench.stderr_text(), format!("{}: no route for 1.2.3.4\n", class.name));
            survives_anything(class, "0/1 0", 1);
        }
    }

    #[test]
    fn configurations_are_refused_and_warned_of_in_the_same_words() {
        for class in CLASSES {
            for wrong in ["10/8", "10/8 -1", "x 1", "10/8 3"] {
                let said = |class| {
                    let error = Bench::setup(class, wrong).outputs(3).build().err().unwrap();
                    error[0].to_string()
                };
                assert_eq!(said(class), said(&linear_ip_lookup::CLASS));
            }
            let warned = bench(class, "10/8 0, 10/8 1");
            assert_eq!(warned.warnings(), "1 route replaced by later versions\n");
            assert_eq!(bench(class, "10/8 0, 10/8 1").read("lookup", "10.1.1.1").unwrap(), "0");
        }
    }

    /// A handler call, sometimes an invalid one.
    fn call(random: &mut Random) -> (&'static str, String) {
        let prefix = ["10/8", "10.1/16", "10.1.2/24", "10.1.2.3", "0/0", "128/1", "x"][random.index(7)];
        let next = ["0", "1", "10.0.0.1 2", "- 1", "", "7"][random.index(6)];
        let route = format!("{prefix} {next}");
        match random.index(8) {
            0 => ("flush", String::new()),
            1 | 2 => ("remove", route),
            3 => ("ctrl", format!("add {route}\nremove {prefix}\n\nset {prefix} 1")),
            4 => ("ctrl", format!("set {prefix} 2\nremove 77/8")),
            5 => ("set", route),
            _ => ("add", route),
        }
    }

    #[test]
    fn changes_do_and_say_what_they_do_and_say_to_a_linear_table() {
        let seed = 0x0dd0_5eed_0dd0_5eed;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for class in CLASSES {
            let (mut ours, mut model) = (bench(class, "10/8 0"), bench(&linear_ip_lookup::CLASS, "10/8 0"));
            for _ in 0..1000 {
                let (handler, value) = call(&mut random);
                let (done, wanted) = (ours.write(handler, &value), model.write(handler, &value));
                assert_eq!(done, wanted, "{handler} {value}");
                for address in ["10.0.0.1", "10.1.0.1", "10.1.2.1", "10.1.2.3", "200.0.0.1", "x"] {
                    assert_eq!(ours.read("lookup", address), model.read("lookup", address), "{address}");
                }
                let sorted = |text: String| {
                    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
                    lines.sort();
                    lines
                };
                let (table, wanted) = (ours.read("table", "").unwrap(), model.read("table", "").unwrap());
                assert_eq!(sorted(table), sorted(wanted));
            }
        }
    }

    #[test]
    fn radix_lists_routes_by_slot_and_the_others_by_prefix() {
        let order = |class| {
            let mut bench = bench(class, "12/8 0, 11/8 0, 10/8 0");
            bench.write("remove", "11/8").unwrap();
            bench.write("add", "9/8 0").unwrap();
            let table = bench.read("table", "").unwrap();
            let first = |line: &str| line.split('.').next().unwrap_or_default().to_string();
            table.lines().map(first).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(CLASSES.map(order), ["12 9 10", "9 10 12", "9 10 12"]);
    }
}
