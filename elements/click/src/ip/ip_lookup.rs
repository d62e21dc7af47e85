use super::linear_ip_lookup::configure;
use super::outputs::Unrouted;
use super::routing::{Hop, RouteEntry, TableLookup, TableWriter};
use super::table_lookup::{ADD, CTRL, FLUSH, LOOKUP, REMOVE, SET, TABLE, shared_routing};
use artery_engine::{Arg, ArgError, Args, Class, Element, Handler, HandlerError, Show, Write};
use artery_lpm::load::Routes;
use artery_lpm::{NO_GROUP, Policy};
use std::net::IpAddr;

pub static CLASS: Class = Class {
    name: "IPLookup",
    group: "ip",
    summary: "routes by destination, with a table of any size and a FIB of your choice",
    manual: "
Looks up the destination annotation of each packet, which CheckIPHeader or GetIPAddress sets, in a table of
routes. The longest prefix wins. The packet leaves by the output of its route, with the gateway, if the route
has one, as its new destination annotation. A packet without route is dropped; the first five are reported.

Each argument is a route `ADDR/MASK [GATEWAY] OUTPUT`; `-` stands for no gateway. Of two routes for one prefix
the first counts. `TABLE` names a file with more: a line for each, `PREFIX`, `PREFIX NEXT-HOP` or
`PREFIX NUMBER`, or a BGP table in MRT format (RFC 6396), also packed by gzip. Routes with a next hop leave by
the output of the argument that covers it; a number counts outputs from 1; a bare prefix means the first
output. Arguments come before the file where both have a prefix. IPv6 routes in the file are passed over. A
damaged file is refused with the place of the damage.

`FIB` says how packets are looked up: `fast`, most packets a second, 17 MB and more; `small`, 4 MB and more;
`auto`, `fast` from 65,536 routes on and `small` for fewer; `art`, without a compiled table, with strides of
your choice: numbers of bits from 1 to 24 that sum up to 32 (`art:16/8/8`). `auto` takes a budget for the
compiled table (`auto:20M`): where `fast` would pass it, `small`, and where `small` would, `art`. Handler
`fib` says which it is and changes it while packets flow, as others change routes.

`ctrl` takes a command to a line, `add ROUTE`, `set ROUTE` or `remove ADDR/MASK [GATEWAY OUTPUT]`, and does
all or none. `lookup ADDR` answers `OUTPUT [GATEWAY]`, or -1 where no route leads.

`load FILE` reads a table again, or another. A file that is missing or damaged is refused like one in `TABLE`,
and the old routes stay. The first worker does this and forwards nothing meanwhile, up to a second for a
million lines of text and longer for a big MRT dump; the others forward by the old routes until the new ones
are there. Beyond 1 s the caller hears that the worker did not answer, but the file is read to its end all the
same: `count` then tells.",
    example: "\
Idle -> GetIPAddress(16) -> rt :: IPLookup(18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1, FIB auto);
rt[0] -> Discard;
rt[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[
        Arg::rest("ROUTES", "ADDR/MASK [GATEWAY] OUTPUT", "the routes"),
        Arg::keyword("TABLE", "file name", "", "a file with more routes"),
        Arg::keyword("FIB", "policy", "auto", "how packets are looked up"),
    ],
    handlers: &[
        TABLE,
        LOOKUP,
        ADD,
        SET,
        REMOVE,
        CTRL,
        FLUSH,
        Handler::write(
            "load",
            "reads a file as TABLE does; its routes and the arguments replace all routes, at once",
            &Write(|l: &mut TableLookup<u32>, text, cx| {
                load_routes(&mut l.routing.lock_writer(), text.trim(), cx.outputs())
            }),
        )
        .once(),
        Handler::read(
            "count",
            "number of routes",
            &Show(|l: &mut TableLookup<u32>| l.routing.lock_writer().table.len()),
        ),
        Handler::read(
            "fib",
            "FIB, and what it comes to now",
            &Show(|l: &mut TableLookup<u32>| fib_text(&l.routing.lock_writer())),
        )
        .and_write(&Write(|l: &mut TableLookup<u32>, text, _| set_fib(&mut l.routing.lock_writer(), text)))
        .once(),
        Handler::read(
            "memory",
            "bytes by what they are for",
            &Show(|l: &mut TableLookup<u32>| memory_text(&l.routing.lock_writer())),
        ),
    ],
    build: build_element,
    ..Class::PER_WORKER
};

fn build_element(args: &mut Args<'_>) -> Result<Box<dyn Element>, ArgError> {
    let text: String = args.read("FIB")?;
    let policy: Policy<u32> =
        text.parse().map_err(|error| ArgError::wrong_at(&text, format!("bad FIB '{text}': {error}")))?;
    let routing = shared_routing(args, policy, None, fill_table)?;
    let unrouted = Unrouted::new("IPLookup", args.shared_value(Default::default));
    Ok(Box::new(TableLookup::new(routing, unrouted)))
}

fn fill_table(writer: &mut TableWriter<u32>, args: &mut Args<'_>) -> Result<(), ArgError> {
    configure(writer, args)?;
    writer.given = writer.routes().collect();
    // `TABLE ""`, which a configuration's own argument may leave, names no file.
    let Some(file) = args.read::<Option<String>>("TABLE")?.filter(|file| !file.is_empty()) else {
        return Ok(());
    };
    let wrong = |why: String| ArgError::wrong_at(&file, why);
    let all = with_file(&writer.given, &file, args.outputs()).map_err(wrong)?;
    writer.replace_all(&all).map_err(|error| wrong(error.to_string()))
}

/// Replaces all routes except those of the arguments by the routes of a file.
fn load_routes(writer: &mut TableWriter<u32>, file: &str, outputs: usize) -> Result<(), HandlerError> {
    if file.is_empty() {
        return Err(HandlerError::refused("expected a file name"));
    }
    let all = with_file(&writer.given, file, outputs).map_err(HandlerError::refused)?;
    writer.replace_all(&all).map_err(|error| HandlerError::refused(format!("{file}: {error}")))
}

/// The routes of a file and, after them so that they count, those of the arguments.
fn with_file(given: &[RouteEntry<u32>], file: &str, outputs: usize) -> Result<Vec<RouteEntry<u32>>, String> {
    let routes = artery_feed::read_opened(file.as_ref(), artery_device::files::open(file))
        .map_err(|error| error.to_string())?;
    let mut all = resolve_routes(given, routes, outputs).map_err(|why| format!("{file}: {why}"))?;
    all.extend_from_slice(given);
    Ok(all)
}

/// The routes of a file, with their next hops.
fn resolve_routes(
    given: &[RouteEntry<u32>],
    file: Routes,
    outputs: usize,
) -> Result<Vec<RouteEntry<u32>>, String> {
    // Errors are ignored for next hops that only the file's other family uses.
    let hops: Vec<Result<Hop<u32>, String>> =
        file.next_hops.iter().map(|gateway| resolve_next_hop(given, *gateway)).collect();
    let hop = |group: u32| match (group, hops.is_empty()) {
        (NO_GROUP, _) => Ok(Hop { gateway: None, output: 0 }),
        (number, true) if number as usize <= outputs => {
            Ok(Hop { gateway: None, output: (number - 1) as u16 })
        }
        (number, true) => Err(format!("it goes to output {number} of {outputs}, counted from 1")),
        (number, false) => hops[number as usize - 1].clone(),
    };
    let routes = file.v4.into_iter().map(|(prefix, group)| {
        let hop = hop(group).map_err(|why| format!("route {prefix}: {why}"))?;
        Ok((prefix, hop))
    });
    routes.collect()
}

/// Resolves a next hop: the output of the argument that covers it.
fn resolve_next_hop(given: &[RouteEntry<u32>], gateway: IpAddr) -> Result<Hop<u32>, String> {
    let IpAddr::V4(address) = gateway else {
        return Err(format!("its next hop {gateway} is an IPv6 address, and packets can't be sent there"));
    };
    let covering = given.iter().filter(|(prefix, _)| prefix.contains(address.to_bits()));
    let (_, nearest) = covering.max_by_key(|(prefix, _)| prefix.len()).ok_or_else(|| {
        format!("no argument covers the next hop {gateway}: add a route for it, such as '{gateway}/32 0'")
    })?;
    Ok(Hop { gateway: Some(address.to_bits()), output: nearest.output })
}

fn fib_text(writer: &TableWriter<u32>) -> String {
    format!("{} {}", writer.table.policy(), writer.table.engine_name())
}

fn set_fib(writer: &mut TableWriter<u32>, text: &str) -> Result<(), HandlerError> {
    let policy = text.trim().parse().map_err(|error| HandlerError::refused(format!("{error}")))?;
    writer.table.set_policy(policy).map_err(|error| HandlerError::refused(error.to_string()))
}

/// A line for each kind of memory: name, bytes.
fn memory_text(writer: &TableWriter<u32>) -> String {
    let (art, fib) = writer.table.memory();
    let mut lines = format!("art {}\n", art.total());
    for array in fib.iter().flat_map(|fib| &fib.arrays) {
        lines += &format!("{} {}\n", array.name.replace(' ', "_"), array.used);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason, Packet};
    use std::io::Write as _;
    use std::net::Ipv4Addr;

    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(3).build().unwrap()
    }

    fn send(bench: &mut Bench, to: &[&str]) {
        let packet = |to: &&str| -> Packet {
            let mut packet = bench.packet(*to);
            packet.set_dst_ip(to.parse().unwrap());
            packet
        };
        let packets: Vec<Packet> = to.iter().map(packet).collect();
        bench.push_packets(0, packets);
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    const POLICIES: [&str; 5] = ["auto", "fast", "small", "art", "art:8/8/8/8"];

    #[test]
    fn every_fib_routes_alike() {
        for policy in POLICIES {
            let mut bench = bench(&format!("18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 2, FIB {policy}"));
            send(&mut bench, &["18.26.4.24", "18.26.4.25", "1.2.3.4"]);
            bench.expect(0, "18.26.4.24");
            bench.expect(1, "18.26.4.25");
            assert_eq!(bench.expect(2, "1.2.3.4").dst_ip(), Ipv4Addr::new(18, 26, 4, 1));
            bench.write("ctrl", "remove 0/0\nadd 1.2.3.4 1").unwrap();
            send(&mut bench, &["1.2.3.4", "1.2.3.5"]);
            bench.expect(1, "1.2.3.4");
            bench.expect_dropped(DropReason::NoRoute, 1);
        }
    }

    #[test]
    fn the_fib_changes_while_packets_flow() {
        let mut bench = bench("10/8 0, 10.1/16 1");
        for policy in POLICIES {
            bench.write("fib", policy).unwrap();
            let fib = bench.read("fib", "").unwrap();
            assert_eq!(fib.split(' ').next(), Some(policy));
            send(&mut bench, &["10.0.0.1", "10.1.0.1"]);
            bench.expect(0, "10.0.0.1");
            bench.expect(1, "10.1.0.1");
        }
        assert!(bench.write("fib", "quick").is_err());
        assert!(bench.read("memory", "").unwrap().starts_with("art "));
    }

    #[test]
    fn a_file_has_next_hops_that_arguments_lead_to() {
        let file =
            file("20.0.0.0/8 10.0.0.9\n30.0.0.0/8 11.0.0.9\n10.0.0.0/8 11.0.0.9\n2001:db8::/32 11.0.0.9\n");
        let mut bench = bench(&format!("10/8 0, 11/8 1, TABLE {}", file.path().display()));
        for (address, answer) in
            [("20.1.1.1", "0 10.0.0.9"), ("30.1.1.1", "1 11.0.0.9"), ("10.1.1.1", "0"), ("40.1.1.1", "-1")]
        {
            assert_eq!(bench.read("lookup", address).unwrap(), answer, "{address}");
        }
        assert_eq!(bench.read("count", "").unwrap(), "4");
    }

    #[test]
    fn next_hops_of_the_files_ipv6_routes_need_no_argument() {
        let file = file("20.0.0.0/8 10.0.0.9\n2001:db8::/32 9.9.9.9\n2001:db8:1::/48 fe80::1\n");
        let mut bench = bench(&format!("10/8 1, TABLE {}", file.path().display()));
        assert_eq!(bench.read("lookup", "20.1.1.1").unwrap(), "1 10.0.0.9");
    }

    #[test]
    fn an_empty_name_is_no_file() {
        let mut bench = bench("10/8 1, TABLE \"\"");
        assert_eq!(bench.read("lookup", "10.1.1.1").unwrap(), "1");
    }

    #[test]
    fn a_file_may_count_outputs_or_say_nothing() {
        let numbers = file("20.0.0.0/8 3\n30.0.0.0/8\n");
        let mut bench = bench(&format!("TABLE {}", numbers.path().display()));
        assert_eq!(bench.read("lookup", "20.1.1.1").unwrap(), "2");
        assert_eq!(bench.read("lookup", "30.1.1.1").unwrap(), "0");
    }

    #[test]
    fn a_loaded_file_replaces_all_routes_but_those_of_the_arguments() {
        for policy in POLICIES {
            let first = file("20.0.0.0/8 10.0.0.9\n21.0.0.0/8 10.0.0.9\n");
            let second = file("20.0.0.0/8 11.0.0.9\n22.0.0.0/8 10.0.0.8\n10.0.0.0/8 11.0.0.9\n");
            let table = first.path().display();
            let mut bench = bench(&format!("10/8 0, 11/8 1, TABLE {table}, FIB {policy}"));
            // The routes of the arguments count as given, whatever later changes did to them.
            bench.write("ctrl", "set 10/8 2\nremove 11/8\nadd 12/8 2\nadd 10.0.0.9 2").unwrap();
            bench.write("load", &format!(" {}\n", second.path().display())).unwrap();
            let table = "10.0.0.0/8 - 0\n11.0.0.0/8 - 1\n20.0.0.0/8 11.0.0.9 1\n22.0.0.0/8 10.0.0.8 0\n";
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&bench.read("table", "").unwrap()), words(table));
            send(&mut bench, &["20.0.0.1", "22.0.0.1", "21.0.0.1"]);
            assert_eq!(bench.expect(1, "20.0.0.1").dst_ip(), Ipv4Addr::new(11, 0, 0, 9));
            assert_eq!(bench.expect(0, "22.0.0.1").dst_ip(), Ipv4Addr::new(10, 0, 0, 8));
            bench.expect_dropped(DropReason::NoRoute, 1);
        }
    }

    #[test]
    fn a_file_that_is_refused_leaves_the_routes_there_are() {
        let mut bench = bench("10/8 0");
        bench.write("add", "12/8 2").unwrap();
        let before = bench.read("table", "").unwrap();
        let (nowhere, too_far, damaged) =
            (file("12.1.0.0/16 12.0.0.1"), file("1.0.0.0/8 4"), file("1.0.0.0/8\nx"));
        let name = |file: &tempfile::NamedTempFile| file.path().display().to_string();
        for (file, why) in [
            ("/nonexistent/routes".to_string(), "No such file"),
            // Only the routes of arguments resolve next hops: the others are about to be replaced.
            (name(&nowhere), "no argument covers the next hop 12.0.0.1"),
            (name(&too_far), "output 4 of 3"),
            (name(&damaged), ":2: \"x\" is not a prefix"),
            (String::new(), "expected a file name"),
        ] {
            let text = bench.write("load", &file).unwrap_err().to_string();
            assert!(text.contains(why) && text.contains(&file), "{text}");
            assert_eq!(bench.read("table", "").unwrap(), before);
            send(&mut bench, &["10.0.0.1", "12.0.0.1"]);
            bench.expect(0, "10.0.0.1");
            bench.expect(2, "12.0.0.1");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_name() {
        let absent = "/nonexistent/routes";
        let (nowhere, too_far, damaged) =
            (file("1.0.0.0/8 9.9.9.9"), file("1.0.0.0/8 4"), file("1.0.0.0/8\nx"));
        let foreign = file("1.0.0.0/8 2001:db8::1");
        let name = |file: &tempfile::NamedTempFile| file.path().display().to_string();
        for (file, why) in [
            (absent.to_string(), "No such file"),
            (name(&nowhere), "no argument covers the next hop 9.9.9.9"),
            (name(&too_far), "output 4 of 3"),
            (name(&foreign), "route 1.0.0.0/8: its next hop 2001:db8::1 is an IPv6 address"),
            (name(&damaged), ":2: \"x\" is not a prefix"),
        ] {
            let error = Bench::setup(&CLASS, &format!("TABLE {file}")).outputs(3).build().err().unwrap();
            let text = error[0].to_string();
            assert!(text.contains(why) && text.contains(&file), "{text}");
        }
        let error = Bench::setup(&CLASS, "FIB quick").outputs(3).build().err().unwrap();
        assert!(error[0].to_string().starts_with("bad FIB 'quick': a policy is"));
    }
}
