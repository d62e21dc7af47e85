use super::linear_ip_lookup::ARGS;
use super::slots::SlotOrder;
use super::table_lookup;
use artery_engine::Class;

pub static CLASS: Class = Class {
    name: "RadixIPLookup",
    group: "ip",
    summary: "routes by destination, with a table of any size",
    manual: "
Looks up the destination annotation of each packet, which CheckIPHeader or GetIPAddress sets, in a table of
routes. The longest prefix wins. The packet leaves by the output of its route, with the gateway, if the route
has one, as its new destination annotation. A packet without route is dropped; the first five are reported.

Each argument is a route `ADDR/MASK [GATEWAY] OUTPUT`; `-` stands for no gateway. Of two routes for one prefix
the first counts. Routes are listed in the order in which they were added, as Click lists them.

RadixIPLookup, DirectIPLookup and RangeIPLookup are three data structures in Click. Here they are one and the
same table, IPLookup's with `FIB auto`. New configurations use IPLookup, which also reads tables from files.

`ctrl` takes a command to a line, `add ROUTE`, `set ROUTE` or `remove ADDR/MASK [GATEWAY OUTPUT]`, and does
all or none. `lookup ADDR` answers `OUTPUT [GATEWAY]`, or -1 where no route leads.",
    example:
        "Idle -> GetIPAddress(16) -> rt :: RadixIPLookup(18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1);
rt[0] -> Discard;
rt[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: ARGS,
    handlers: table_lookup::HANDLERS,
    per_worker: true,
    build: |args| table_lookup::build_element(args, "RadixIPLookup", Some(SlotOrder::LastFreed)),
    ..Class::DEFAULT
};
