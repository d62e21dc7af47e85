//! Read and write handlers of IPRouter.
use super::changes::{ChangeError, TableChange};
use super::router_worker::{IpRouter, now};
use super::{explain, port_text, show_events, show_ports, show_routes};
use artery_engine::{Context, Handler, HandlerError, Read, Show, Write};

pub(super) static HANDLERS: &[Handler] = &[
    Handler::read(
        "routes_json",
        "routes as JSON, in order: `[4|6] [PREFIX] [after PREFIX] [limit NUMBER]`; those within the first \
         prefix, behind the second",
        &Read(|r: &mut IpRouter, text, _| {
            show_routes::routes_json(&r.router, text).map_err(to_handler_error)
        }),
    )
    .parameters()
    .with_aside(show_routes::read_without_worker),
    Handler::read(
        "nexthops_json",
        "groups of next hops as JSON, with how many routes lead there and which members can be used",
        &Show(|r: &mut IpRouter| show_routes::next_hops(&r.router)),
    ),
    Handler::read(
        "route_json",
        "`ADDRESS`: the route that packets to it take, and its next hops, as JSON",
        &Read(|r: &mut IpRouter, text, cx| show_routes::route_json(r, text, cx).map_err(to_handler_error)),
    )
    .parameters(),
    Handler::read(
        "neighbors_json",
        "neighbors as JSON, by port and address: `[PORT]`",
        &Read(|r: &mut IpRouter, text, cx| {
            show_ports::neighbors_json(&r.router, text, now(cx)).map_err(to_handler_error)
        }),
    )
    .parameters(),
    Handler::read(
        "ports_json",
        "ports as JSON, with their addresses and what was counted of their neighbors",
        &Show(|r: &mut IpRouter| show_ports::ports_json(r)),
    ),
    Handler::read(
        "drops_json",
        "why packets ended, in the whole graph, as JSON: reason, sentence, count, element",
        &Read(|_: &mut IpRouter, _, cx| show_ports::drops_json(cx)),
    ),
    Handler::read(
        "events_json",
        "what happened lately as JSON: `[SINCE]` is the `next` of an earlier answer, so that nothing comes \
         twice; `now` gives that number alone",
        &Read(|r: &mut IpRouter, text, _| {
            show_events::events_json(&r.router, text).map_err(to_handler_error)
        }),
    )
    .parameters(),
    Handler::read(
        "explain_json",
        "`PORT|host FLOW`: what becomes of a packet that comes by a port, or from the host, step by step, as \
         JSON. FLOW is `ADDRESS[:PORT] > ADDRESS[:PORT] [udp|tcp|icmp|proto N] [ttl N] [len N] [df] [to \
         ETHER]`, or `frame HEX`. Nothing is sent, counted or changed",
        &Read(|r: &mut IpRouter, text, cx| explain::explain_packet(r, text, cx).map_err(to_handler_error)),
    )
    .parameters(),
    Handler::write(
        "add_route",
        "`PREFIX WAY… [by METHOD]`: adds a route for a prefix without one, as ROUTE says it",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.add_route(text))),
    )
    .once(),
    Handler::write(
        "set_route",
        "`PREFIX WAY… [by METHOD]`: adds a route, or replaces that of its prefix",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.set_route(text))),
    )
    .once(),
    Handler::write(
        "remove_route",
        "`PREFIX`: removes the route of exactly this prefix",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.remove_route(text))),
    )
    .once(),
    Handler::write(
        "add_neighbor",
        "`PORT ADDRESS ETHER [published|temporary]`: sets a neighbor's link address for good; published, \
         other hosts get it as an answer, too; temporary, as if the neighbor had just said it",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.add_neighbor(text))),
    )
    .once(),
    Handler::write(
        "remove_neighbor",
        "`PORT ADDRESS`: forgets a neighbor, however it is known",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.remove_neighbor(text))),
    )
    .once(),
    Handler::write(
        "flush_neighbors",
        "`[PORT [ADDRESS]]`: forgets neighbors that were not set by hand: all, those of a port, or one",
        &Write(|r: &mut IpRouter, text, cx| change_tables(r, cx, |change| change.flush_neighbors(text))),
    )
    .once(),
    Handler::read(
        "routes_by_hand",
        "the routes that `add_route` and `set_route` set, a line each, as they take them",
        &Show(|r: &mut IpRouter| routes_by_hand(r)),
    ),
    Handler::read(
        "neighbors_by_hand",
        "the static neighbors that `add_neighbor` set, a line each, as it takes them",
        &Show(|r: &mut IpRouter| neighbors_by_hand(r)),
    ),
    Handler::read(
        "counts",
        "what the router has said and kept: `[NAME]`, or all, a line each",
        &Read(|r: &mut IpRouter, text, _| r.counters_text(text)),
    )
    .parameters(),
    Handler::write(
        "port",
        "`PORT up|down|mtu BYTES|ether ADDRESS`: lets the router know what has become of a port",
        &Write(port_text::handle_port_command),
    )
    .once(),
];

fn routes_by_hand(r: &mut IpRouter) -> String {
    // Lock order.
    let _tables = r.router.lock_tables();
    r.router.routes_by_hand().values().map(|route| format!("{route}\n")).collect()
}

fn neighbors_by_hand(r: &mut IpRouter) -> String {
    // Lock order.
    let _tables = r.router.lock_tables();
    r.router.neighbors_by_hand().values().map(|neighbor| format!("{neighbor}\n")).collect()
}

/// Changes the tables, and runs the slow path to apply the change.
fn change_tables(
    r: &mut IpRouter,
    cx: &mut Context<'_>,
    how: impl FnOnce(&mut TableChange<'_>) -> Result<(), ChangeError>,
) -> Result<(), HandlerError> {
    let now = now(cx);
    let changed = how(&mut TableChange {
        router: &r.router,
        tables: &mut r.router.lock_tables(),
        names: &r.names,
        now,
    });
    r.tables_changed(cx);
    changed.map_err(to_handler_error)
}

fn to_handler_error(why: ChangeError) -> HandlerError {
    HandlerError::refused(why)
}

#[cfg(test)]
mod tests {
    use super::super::ip_router::CLASS;
    use artery_engine::{Bench, Resources};
    use artery_forward::shared::RouterTables;
    use artery_wire::build::{arp_reply, ether, ip4};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    const CONFIG: &str = "
        PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1,
        PORT b 10.0.2.1/24 2001:db8:2::1/64 ETHER 2:0:0:0:0:2 MTU 9000,
        NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe,
        ROUTE 0.0.0.0/0 10.0.2.254,
        ROUTE 20.0.0.0/8 10.0.2.254 weight 3 10.0.2.253 by resilient,
        ROUTE 2001:db8:20::/48 2001:db8:2::fe,
        ROUTE 21.0.0.0/8 blackhole";

    fn router() -> (Bench, Arc<Resources>) {
        let resources = Arc::new(Resources::default());
        let setup = Bench::setup(&CLASS, CONFIG).inputs(2).outputs(3).resources(resources.clone());
        let mut bench = setup.build().unwrap_or_else(|errors| panic!("{errors:?}"));
        bench.run();
        (bench, resources)
    }
    #[track_caller]
    fn read(bench: &mut Bench, name: &str, parameters: &str) -> Value {
        let text =
            bench.read(name, parameters).unwrap_or_else(|error| panic!("{name} {parameters}: {error}"));
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(value["schema_version"], 1);
        value
    }
    fn refusal(bench: &mut Bench, name: &str, value: &str) -> String {
        bench.write(name, value).unwrap_err().to_string()
    }
    fn destinations(routes: &Value) -> Vec<&str> {
        routes["routes"].as_array().unwrap().iter().map(|route| route["dst"].as_str().unwrap()).collect()
    }

    #[test]
    fn routes_are_listed_in_order_with_their_next_hops() {
        let (mut bench, _) = router();
        let routes = read(&mut bench, "routes_json", "4");
        let route = |dst: &str| {
            let routes = routes["routes"].as_array().unwrap();
            routes.iter().find(|route| route["dst"] == dst).unwrap_or_else(|| panic!("{dst}")).clone()
        };
        let default = route("0.0.0.0/0");
        assert_eq!((&default["source"], &default["type"]), (&json!("static"), &json!("unicast")));
        let hop = json!([{ "gateway": "10.0.2.254", "port": "b", "weight": 1, "state": "up" }]);
        assert_eq!((&default["next_hops"], &default["method"]), (&hop, &Value::Null));
        let several = route("20.0.0.0/8");
        assert_eq!(several["method"], "resilient");
        assert_eq!(several["next_hops"][1]["weight"], 3);
        assert_eq!(route("10.0.1.0/24")["source"], "connected");
        assert_eq!(route("10.0.1.1/32")["type"], "local");
        assert_eq!(route("21.0.0.0/8")["type"], "blackhole");
        let all = read(&mut bench, "routes_json", "");
        assert_eq!(destinations(&all)[..3], ["0.0.0.0/0", "0.0.0.0/8", "10.0.1.0/24"]);
        assert!(destinations(&all).contains(&"2001:db8:20::/48"));
    }

    #[test]
    fn a_listing_can_be_cut_and_goes_on_where_it_was_left() {
        let (mut bench, _) = router();
        for family in ["", "4", "6"] {
            let all = read(&mut bench, "routes_json", family);
            let (mut parts, mut next) = (Vec::new(), String::new());
            for _ in 0..100 {
                let part = read(&mut bench, "routes_json", &format!("{family} {next} limit 2"));
                parts.extend(part["routes"].as_array().unwrap().clone());
                match part["next"].as_str() {
                    Some(last) => next = format!("after {last}"),
                    None => break,
                }
            }
            assert_eq!(all["routes"], json!(parts), "{family}");
        }
        let within = read(&mut bench, "routes_json", "10.0.2.0/24");
        assert_eq!(destinations(&within), ["10.0.2.0/24", "10.0.2.0/32", "10.0.2.1/32", "10.0.2.255/32"]);
        for (wrong, why) in [
            ("7", "'7' is not a valid prefix"),
            ("limit 0", "limit 0: not a number from 1 on"),
            ("after", "'after' is the last word; its value is missing"),
        ] {
            let error = bench.read("routes_json", wrong).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn next_hops_say_how_many_routes_and_what_share_they_have() {
        let (mut bench, _) = router();
        let groups = read(&mut bench, "nexthops_json", "");
        let groups = groups["groups"].as_array().unwrap();
        let several = groups.iter().find(|group| group["method"] == "resilient").unwrap();
        assert_eq!((&several["routes"], &several["next_hops"][1]["share"]), (&json!(1), &json!(0.75)));
        assert_eq!(several["next_hops"][0]["state"], "up");
    }

    #[test]
    fn the_route_of_an_address_names_its_next_hop() {
        let (mut bench, _) = router();
        let route = read(&mut bench, "route_json", "8.8.8.8");
        assert_eq!((&route["prefix"], &route["outcome"]), (&json!("0.0.0.0/0"), &json!("forward")));
        let chosen = json!({ "next_hop": "10.0.2.254", "port": "b", "lladdr": "02:00:00:00:02:54",
            "state": "PERMANENT", "mtu": 9000 });
        assert_eq!(route["chosen"]["next_hop"], chosen["next_hop"]);
        assert_eq!(route["chosen"]["port"], "b");
        assert_eq!(read(&mut bench, "route_json", "10.0.1.1")["outcome"], "local");
        assert_eq!(read(&mut bench, "route_json", "2001:db8:99::1")["outcome"], "no-route");
        let on_link = read(&mut bench, "route_json", "10.0.1.77");
        assert_eq!(on_link["chosen"]["state"], "NONE");
        assert_eq!(on_link["outcome"], "neighbor-unresolved");
        assert!(
            bench
                .read("route_json", "here")
                .unwrap_err()
                .to_string()
                .starts_with("'here' is not a valid IP address")
        );
    }

    #[test]
    fn ports_and_neighbors_are_shown_with_what_is_known_of_them() {
        let (mut bench, _) = router();
        let ports = read(&mut bench, "ports_json", "");
        let port = &ports["ports"][1];
        assert_eq!((&port["name"], &port["number"], &port["mtu"]), (&json!("b"), &json!(1), &json!(9000)));
        assert_eq!(port["addresses"], json!(["10.0.2.1/24", "2001:db8:2::1/64"]));
        assert_eq!((&port["link_local"], &port["up"]), (&json!("fe80::ff:fe00:2"), &json!(true)));
        assert_eq!((&port["arp"]["neighbors-failed"], &port["duplicates"]), (&json!(0), &json!([])));
        let neighbors = read(&mut bench, "neighbors_json", "b");
        let gateway = &neighbors["neighbors"][1];
        assert_eq!(gateway["dst"], "10.0.2.254");
        assert_eq!(gateway["dev"], "b");
        assert_eq!(gateway["static"], true);
        assert_eq!(gateway["next_hops"], 1);
        assert_eq!(read(&mut bench, "neighbors_json", "a")["neighbors"], json!([]));
        let error = bench.read("neighbors_json", "c").unwrap_err().to_string();
        assert_eq!(error, "no port is called 'c'; there are: a, b");
    }

    #[test]
    fn routes_are_added_replaced_and_removed_and_whoever_watches_hears_of_it() {
        let (mut bench, _) = router();
        let now = read(&mut bench, "events_json", "now")["next"].clone();
        bench.write("add_route", "30.0.0.0/8 10.0.2.254").unwrap();
        assert!(refusal(&mut bench, "add_route", "30.0.0.0/8 b").contains("File exists"));
        bench.write("set_route", "30.0.0.0/8 unreachable").unwrap();
        bench.write("set_route", "31.0.0.0/8 b").unwrap();
        bench.write("remove_route", "30.0.0.0/8").unwrap();
        assert!(refusal(&mut bench, "remove_route", "30.0.0.0/8").contains("not in table"));
        assert!(refusal(&mut bench, "remove_route", "10.0.1.0/24").contains("remove the address"));
        let events = read(&mut bench, "events_json", &now.to_string());
        let what =
            |event: &Value| format!("{} {}", event["dst"].as_str().unwrap(), event["what"].as_str().unwrap());
        let told: Vec<String> = events["events"].as_array().unwrap().iter().map(what).collect();
        assert_eq!(
            told,
            ["30.0.0.0/8 added", "30.0.0.0/8 replaced", "31.0.0.0/8 added", "30.0.0.0/8 removed"]
        );
        assert_eq!(events["events"][0]["text"], "route 30.0.0.0/8: added");
        assert_eq!((&events["lost"], events["next"].as_u64()), (&json!(0), now.as_u64().map(|now| now + 4)));
        let expected = "not a number of an event";
        assert!(bench.read("events_json", "soon").unwrap_err().to_string().contains(expected));
    }

    #[test]
    fn whoever_watches_hears_of_neighbors_ports_and_next_hops() {
        let (mut bench, _) = router();
        let first = read(&mut bench, "events_json", "now")["next"].to_string();
        let mut since = first.clone();
        let mut told = |bench: &mut Bench| -> Vec<String> {
            let events = read(bench, "events_json", &since);
            since = events["next"].to_string();
            events["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| event["text"].as_str().unwrap().into())
                .collect()
        };
        // A quarter of these packets take the gateway that doesn't answer.
        for port in 0..64 {
            let packet = ip4().src("10.0.1.9").dst("20.0.0.1").udp(port, 7);
            bench.push(0, ether("2:0:0:0:0:1", "2:0:0:0:1:9").ip4(packet).bytes());
        }
        bench.advance_time(Duration::from_secs(10));
        let events = told(&mut bench);
        let failed = ["neighbor 10.0.2.253 b: failed", "nexthop 10.0.2.253 b: down"];
        assert!(failed.iter().all(|event| events.contains(&event.to_string())), "{events:?}");
        bench.write("port", "b down").unwrap();
        assert_eq!(told(&mut bench)[..2], ["port b: down", "nexthop 10.0.2.254 b: down"]);
        bench.write("port", "b mtu 1400").unwrap();
        assert_eq!(told(&mut bench), ["port b: mtu 1400"]);
        bench.write("port", "b up").unwrap();
        let up: Vec<String> = told(&mut bench).into_iter().take(3).collect();
        assert!(up.contains(&"port b: up".to_string()), "{up:?}");
        assert!(up.contains(&"nexthop 10.0.2.254 b: up".to_string()), "{up:?}");
        bench.push(1, arp_reply("2:0:0:0:2:fc", "10.0.2.7", "2:0:0:0:0:2", "10.0.2.1").bytes());
        bench.write("add_neighbor", "b 10.0.2.8 2:0:0:0:2:8 temporary").unwrap();
        bench.push(1, arp_reply("2:0:0:0:2:9", "10.0.2.8", "2:0:0:0:0:2", "10.0.2.1").bytes());
        // Its neighbor is solicited first, and does not answer.
        bench.advance_time(Duration::from_secs(1));
        let events = read(&mut bench, "events_json", &first);
        let moved = events["events"].as_array().unwrap().iter().find(|event| event["what"] == "moved");
        let moved = moved.unwrap_or_else(|| panic!("{events:#}"));
        assert_eq!(moved["lladdr"], "02:00:00:00:02:09");
        assert_eq!(moved["old_lladdr"], "02:00:00:00:02:08");
        assert_eq!(moved["dst"], "10.0.2.8");
        assert_eq!(moved["port"], "b");
        assert_eq!(moved["kind"], "neighbor");
    }

    #[test]
    fn neighbors_are_set_removed_and_flushed_but_for_those_set_by_hand() {
        let (mut bench, _) = router();
        bench.write("add_neighbor", "a 10.0.1.5 2:0:0:0:1:5").unwrap();
        bench.write("add_neighbor", "a 10.0.1.6 2:0:0:0:1:6 temporary").unwrap();
        bench.write("add_neighbor", "a 2001:db8:1::7 2:0:0:0:1:7 published").unwrap();
        let listed = |bench: &mut Bench| -> Vec<String> {
            let neighbors = read(bench, "neighbors_json", "a");
            let neighbors = neighbors["neighbors"].as_array().unwrap();
            neighbors.iter().map(|neighbor| neighbor["dst"].as_str().unwrap().to_string()).collect()
        };
        assert_eq!(listed(&mut bench), ["10.0.1.5", "10.0.1.6", "2001:db8:1::7"]);
        assert!(refusal(&mut bench, "flush_neighbors", "a 10.0.1.5").contains("remove_neighbor"));
        assert!(refusal(&mut bench, "flush_neighbors", "a 10.0.1.99").contains("not in table"));
        bench.write("flush_neighbors", "").unwrap();
        assert_eq!(listed(&mut bench), ["10.0.1.5", "2001:db8:1::7"]);
        bench.write("remove_neighbor", "a 10.0.1.5").unwrap();
        assert!(refusal(&mut bench, "remove_neighbor", "a 10.0.1.5").contains("not in table"));
        assert!(refusal(&mut bench, "add_neighbor", "a 10.0.1.5").contains("PORT ADDRESS ETHER"));
        assert!(
            refusal(&mut bench, "add_neighbor", "a 10.0.1.5 2:0:0:0:1:5 often")
                .contains("published or temporary")
        );
    }

    #[test]
    fn drops_are_named_as_they_are_counted() {
        let (mut bench, _) = router();
        bench.push(0, [0; 5]);
        let drops = read(&mut bench, "drops_json", "");
        assert_eq!((&drops["total"], &drops["drops"][0]["element"]), (&json!(1), &json!("e")));
        let sentence = drops["drops"][0]["sentence"].as_str().unwrap();
        assert!(sentence.ends_with('.') && !sentence.starts_with(' '), "{sentence}");
    }

    #[test]
    fn routes_are_read_without_the_element_too() {
        let (mut bench, resources) = router();
        let aside = CLASS.handler("routes_json").and_then(|handler| handler.aside).unwrap();
        assert_eq!(aside(&resources, "e", "6").unwrap(), bench.read("routes_json", "6").unwrap());
        assert!(RouterTables::of(&resources, "e").is_some());
        assert!(aside(&resources, "other", "").is_err());
    }
}
