use crate::ip::outputs::Unrouted;
use crate::ip::routing::{Hop, Routing, TableLookup, TableWriter};
use crate::ip::slots::SlotOrder;
use artery_engine::names::Names;
use artery_engine::{Arg, ArgError, Args, Class, Context, Handler, HandlerError, Read, Show, Write};
use artery_lpm::{Address, Policy, Prefix};
use std::net::Ipv6Addr;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "LookupIP6Route",
    group: "ip6",
    summary: "routes by IPv6 destination, with a table of any size",
    manual: "
Looks up the IPv6 destination annotation of each packet, which GetIP6Address sets, in a table of routes. The
longest prefix wins. The packet leaves by the output of its route, with the gateway, if the route has one, as
its new destination annotation. A packet without route is dropped; the first five are reported.

Each argument is a route `ADDR/LENGTH [GATEWAY] OUTPUT`; gateway `::` or `::0` stands for none. Of two routes
for one prefix the last counts.

`add ROUTE` adds or replaces a route, `remove ADDR/LENGTH` removes one if it is there, and `ctrl` takes either
as a command with its word before it. `lookup ADDR` answers `OUTPUT [GATEWAY]`, or -1 where no route leads.",
    example: "Idle -> GetIP6Address(24) -> rt :: LookupIP6Route(2001:db8:1::/48 0, ::/0 2001:db8::1 1);
rt[0] -> Discard;
rt[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::rest("ROUTES", "ADDR/LENGTH [GATEWAY] OUTPUT", "the routes")],
    handlers: &[
        Handler::read(
            "table",
            "all routes, one a line",
            &Show(|l: &mut Lookup| format_table(&l.routing.lock_writer())),
        ),
        Handler::read(
            "lookup",
            "output and gateway for an address",
            &Read(|l: &mut Lookup, address, _| lookup_text(l, address)),
        )
        .parameters(),
        Handler::write(
            "add",
            "adds or replaces a route",
            &Write(|l: &mut Lookup, text, cx| add_route(l, text, cx)),
        )
        .once(),
        Handler::write("remove", "removes a route", &Write(|l: &mut Lookup, text, _| remove_route(l, text)))
            .once(),
        Handler::write(
            "ctrl",
            "adds or removes a route",
            &Write(|l: &mut Lookup, text, cx| handle_control(l, text, cx)),
        )
        .once(),
    ],
    build: |args| {
        let routing = shared_routing(args)?;
        let unrouted = Unrouted::new("LookupIP6Route", args.shared_value(Default::default));
        Ok(Box::new(Lookup::new(routing, unrouted)))
    },
    ..Class::PER_WORKER
};

type Lookup = TableLookup<u128>;

/// The table that the copies of an element share; the first copy creates and fills it.
fn shared_routing(args: &mut Args<'_>) -> Result<Arc<Routing<u128>>, ArgError> {
    if let Some(routing) = args.already_shared::<Routing<u128>>() {
        return Ok(routing);
    }
    let wrong = |error: artery_lpm::TableError| ArgError::wrong(error.to_string());
    let routing = Routing::new(args, Policy::default(), Some(SlotOrder::FirstFree)).map_err(wrong)?;
    let outputs = args.outputs();
    let texts = args.rest("ROUTES").to_vec();
    for (number, text) in texts.iter().enumerate() {
        let fault = |what: &str| ArgError::wrong_at(text, format!("argument {} {what}", number + 1));
        let (prefix, hop) =
            parse_route(text, args.names()).ok_or_else(|| fault("should be DADDR/MASK [GW] OUTPUT"))?;
        if usize::from(hop.output) >= outputs {
            let needed = usize::from(hop.output) + 1;
            return Err(ArgError::wrong_at(text, format!("need {needed} or more output ports")));
        }
        routing.lock_writer().insert(prefix, hop).map_err(wrong)?;
    }
    if texts.is_empty() {
        args.warn("no routes", Some("every packet is dropped until a route is added"));
    }
    Ok(args.shared_value(|| routing))
}

/// Reads `ADDR/LENGTH [GATEWAY] OUTPUT`.
fn parse_route(text: &str, names: &Names) -> Option<(Prefix<u128>, Hop<u128>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (prefix, gateway, output) = match words[..] {
        [prefix, output] => (prefix, None, output),
        [prefix, gateway, output] => (prefix, Some(parse_address(gateway, names)?), output),
        _ => return None,
    };
    let gateway = gateway.filter(|gateway| *gateway != 0);
    Some((self::parse_prefix(prefix, names)?, Hop { gateway, output: output.parse().ok()? }))
}

fn parse_address(text: &str, names: &Names) -> Option<u128> {
    text.parse().ok().or_else(|| names.lookup_ipv6(text)).map(Ipv6Addr::to_bits)
}

/// `ADDR/LENGTH`, `ADDR/MASK`, or a bare address.
fn parse_prefix(text: &str, names: &Names) -> Option<Prefix<u128>> {
    let Some((start, len)) = text.rsplit_once('/') else {
        return parse_address(text, names).map(Prefix::host);
    };
    let bits = parse_address(start, names)?;
    let len = match len.parse::<Ipv6Addr>() {
        Ok(mask) => {
            let len = mask.to_bits().leading_ones() as u8;
            (mask.to_bits() == u128::MAX.network(len)).then_some(len)?
        }
        Err(_) => len.parse().ok()?,
    };
    Prefix::new(bits, len).ok()
}

fn refused(error: impl ToString) -> HandlerError {
    HandlerError::refused(error.to_string())
}

fn add_route(l: &mut Lookup, text: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
    let (prefix, hop) = parse_route(text, &Names::default())
        .ok_or_else(|| refused("expected 'ADDR/LENGTH [GATEWAY] OUTPUT'"))?;
    if usize::from(hop.output) >= cx.outputs() {
        return Err(refused("output port out of range"));
    }
    l.routing.lock_writer().insert(prefix, hop).map_err(refused)
}

fn remove_route(l: &mut Lookup, text: &str) -> Result<(), HandlerError> {
    let prefix =
        parse_prefix(text.trim(), &Names::default()).ok_or_else(|| refused("expected 'ADDR/LENGTH'"))?;
    // Click does not mind when there is none.
    l.routing.lock_writer().delete(prefix);
    Ok(())
}

fn handle_control(l: &mut Lookup, text: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
    match text.trim().split_once(char::is_whitespace) {
        Some(("add", rest)) => add_route(l, rest, cx),
        Some(("remove", rest)) => remove_route(l, rest),
        _ => Err(refused("bad command, should be 'add' or 'remove'")),
    }
}

fn lookup_text(l: &mut Lookup, text: &str) -> Result<String, HandlerError> {
    let address =
        parse_address(text.trim(), &Names::default()).ok_or_else(|| refused("expected IPv6 address"))?;
    Ok(match l.routing.lock_writer().lookup_hop(address) {
        Some(Hop { gateway: Some(gateway), output }) => format!("{output} {}", Ipv6Addr::from_bits(gateway)),
        Some(Hop { gateway: None, output }) => output.to_string(),
        None => "-1".to_string(),
    })
}

fn format_table(writer: &TableWriter<u128>) -> String {
    let line = |(prefix, hop): (Prefix<u128>, Hop<u128>)| {
        format!("{prefix}\t{}\t{}\n", Ipv6Addr::from_bits(hop.gateway.unwrap_or(0)), hop.output)
    };
    let lines: String = writer.routes().map(line).collect();
    if lines.is_empty() { lines } else { format!("# Active routes\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason, Packet, anno};

    const ROUTES: &str = "2001:db8::/32 0, 2001:db8:1::/48 2001:db8::1 1, ::/0 ::0 2";

    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(3).build().unwrap()
    }

    fn send(bench: &mut Bench, to: &str) {
        let mut packet: Packet = bench.packet(to);
        packet.set_annotation(anno::DST_IP6, to.parse::<Ipv6Addr>().unwrap().octets());
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn the_longest_prefix_wins_and_the_gateway_becomes_the_destination() {
        let mut bench = bench(ROUTES);
        for to in ["2001:db8:2::9", "2001:db8:1::9", "fe80::1"] {
            send(&mut bench, to);
        }
        bench.expect(0, "2001:db8:2::9");
        let routed = bench.expect(1, "2001:db8:1::9");
        assert_eq!(Ipv6Addr::from(routed.annotation::<16>(anno::DST_IP6)).to_string(), "2001:db8::1");
        bench.expect(2, "fe80::1");
    }

    #[test]
    fn routes_change_live_and_the_next_packet_sees_it() {
        let mut bench = bench("2001:db8::/32 0");
        send(&mut bench, "fe80::1");
        bench.expect_dropped(DropReason::NoRoute, 1);
        assert_eq!(bench.stderr_text(), "LookupIP6Route: no route for fe80::1\n");
        bench.write("ctrl", "add fe80::/10 2").unwrap();
        send(&mut bench, "fe80::1");
        bench.expect(2, "fe80::1");
        bench.write("add", "fe80::/ffc0:: 1").unwrap();
        send(&mut bench, "fe80::1");
        bench.expect(1, "fe80::1");
        bench.write("remove", "fe80::/10").unwrap();
        bench.write("remove", "fe80::/10").unwrap();
        send(&mut bench, "fe80::1");
        bench.expect_dropped(DropReason::NoRoute, 2);
    }

    #[test]
    fn the_table_is_listed_and_looked_up() {
        let mut bench = bench(ROUTES);
        let table = "# Active routes\n2001:db8::/32\t::\t0\n2001:db8:1::/48\t2001:db8::1\t1\n::/0\t::\t2\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        assert_eq!(bench.read("lookup", "2001:db8:1::5").unwrap(), "1 2001:db8::1");
        assert_eq!(bench.read("lookup", "::1").unwrap(), "2");
        assert!(bench.read("lookup", "1.2.3.4").is_err());
    }

    #[test]
    fn routes_that_make_no_sense_are_refused() {
        for (config, why) in [
            ("::/0 0, ::/129 0", "argument 2 should be DADDR/MASK [GW] OUTPUT"),
            ("10/8 0", "argument 1 should be DADDR/MASK [GW] OUTPUT"),
            ("::/0 3", "need 4 or more output ports"),
        ] {
            let error = Bench::setup(&CLASS, config).outputs(3).build().err().unwrap();
            assert_eq!(error[0].to_string(), why, "{config}");
        }
        let mut bench = bench(ROUTES);
        for (handler, value) in
            [("add", "::/0"), ("add", "::/0 3"), ("remove", "x"), ("ctrl", "drop ::/0"), ("ctrl", "")]
        {
            assert!(bench.write(handler, value).is_err(), "{handler} {value}");
        }
    }
}
