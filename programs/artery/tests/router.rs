//! `artery router --print`, and the help of the commands around it.
use crate::support::{artery, artery_reads};

/// The options of the router in the README.
fn readme() -> Vec<&'static str> {
    let text = include_str!("../../../README.md");
    let (_, rest) = text.split_once("ip netns exec r artery router ").expect("the README runs a router");
    rest.lines().next().unwrap().trim_end_matches(" &").split(' ').collect()
}

const EXPECTED: &str = "\
    // artery router --port eth1=10.0.1.1/24,2001:db8:1::1/64 --port eth2=10.0.2.1/24 --route \
    0.0.0.0/0=10.0.2.254

// Ports, routes and neighbors. It does all but plain forwarding: it asks for neighbors and answers
// them, answers pings, tells senders of packets that can't go on, and puts fragments together.
ip :: IPRouter(
    PORT eth1 10.0.1.1/24 2001:db8:1::1/64,
    PORT eth2 10.0.2.1/24,
    HOST 02:61:72:74:72:01,
    ROUTE 0.0.0.0/0 10.0.2.254);

// Plain forwarding, each packet in one step. Port I of the router is input and output I of all three.
v4 :: IPForward(ip);
v6 :: IP6Forward(ip);

// Port 0, eth1. The host does not see what arrives here.
from_eth1 :: FromDevice(eth1, SNIFFER false, PROMISC true) -> in_eth1 :: Classifier(12/0800, 12/86dd, \
    12/8100, -);
in_eth1 [0] -> [0] v4;
in_eth1 [1] -> [0] v6;
in_eth1 [2] -> tags_eth1 :: Classifier(14/0000%0fff, -);
in_eth1 [3] -> [0] ip;
tags_eth1 [0] -> VLANDecap(false) -> in_eth1;
tags_eth1 [1] -> [0] ip;
v4 [0], v6 [0], ip [0] -> to_eth1 :: ToDevice(eth1);

// Port 1, eth2. The host does not see what arrives here.
from_eth2 :: FromDevice(eth2, SNIFFER false) -> in_eth2 :: Classifier(12/0800, 12/86dd, 12/8100, -);
in_eth2 [0] -> [1] v4;
in_eth2 [1] -> [1] v6;
in_eth2 [2] -> tags_eth2 :: Classifier(14/0000%0fff, -);
in_eth2 [3] -> [1] ip;
tags_eth2 [0] -> VLANDecap(false) -> in_eth2;
tags_eth2 [1] -> [1] ip;
v4 [1], v6 [1], ip [1] -> to_eth2 :: ToDevice(eth2);

// What is not plain goes to the input of the port that it came by, whose number is its paint.
v4 [2], v6 [2] -> exceptions :: PaintSwitch;
exceptions [0] -> [0] ip;
exceptions [1] -> [1] ip;

// The host, by an interface of its own that bears the router's addresses.
from_host :: FromHost(artery0,
    ETHER 02:61:72:74:72:01,
    ADDRESS 10.0.1.1/24,
    ADDRESS 2001:db8:1::1/64,
    ADDRESS 10.0.2.1/24) -> [2] ip;
ip [2] -> to_host :: ToHost(artery0);

// The host has the router's routes, by its interface.
host_routes :: HostRoutes(ip, artery0);
";

/// What the options print.
fn printed(options: &[&str]) -> String {
    let outcome = artery(&[&["router", "--print"], options].concat());
    assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{options:?}: {outcome:?}");
    outcome.out
}

#[test]
fn the_router_of_the_readme_is_a_configuration_to_go_on_from() {
    assert_eq!(printed(&readme()), EXPECTED);
}

#[test]
fn what_is_printed_is_sound_laid_out_and_runs_on_all_workers() {
    let options = [
        readme(),
        vec!["--port", "eth1=10.0.1.1/24", "--port", "eth2=10.0.2.1/24", "--no-host"],
        vec![
            "--port",
            "eth1=10.0.1.1/31,fd00::1/127",
            "--port",
            "eth2=10.0.2.1/24",
            "--route",
            "default=10.0.1.0@3,fe80::9%eth1",
            "--route",
            "10/8=blackhole",
            "--route",
            "::/0=fd00::",
            "--neighbor",
            "eth1=10.0.1.0=02:00:00:00:00:09",
            "--host",
            "me0",
        ],
        vec![
            "--port",
            "eth1=10.0.1.1/24",
            "--port",
            "eth2=10.0.2.1/24,fd00::1/64",
            "--service",
            "192.0.2.1:80/tcp=web1=10.0.2.11:8080,web2=10.0.2.12@3",
            "--service",
            "[fd00:9::1]:53=dns=fd00::5",
            "--method",
            "resilient",
            "--check",
            "tcp every 5s",
            "--nat",
        ],
        vec![
            "--port",
            "eth1.7=10.0.1.1/24,fd00::1/64",
            "--port",
            "eth2=10.0.2.1/24",
            "--port",
            "eth2.8=10.0.3.1/24",
            "--port",
            "eth1.9=10.0.4.1/24",
            "--service",
            "192.0.2.1:80/tcp=web1=10.0.2.11:8080",
        ],
    ];
    for options in options {
        let text = printed(&options);
        let formatted = artery_reads(&["fmt", "-"], &text);
        assert_eq!(formatted.out, text, "{options:?}");
        // Any interface will do that has an address.
        let devices = ["--device", "eth1=lo", "--device", "eth2=lo"];
        let checked = artery_reads(&[&["check", "-j", "2"], &devices[..], &["-"]].concat(), &text);
        assert_eq!(checked.status, 0, "{options:?}: {}", checked.err);
        // The thread that writes the host's routes exists once.
        let others = checked.out.replace("worker 0: host_routes\n", "");
        let out = &checked.out;
        assert!(out.contains("every worker: ip, ") && !others.contains("worker 0:"), "{out}");
    }
}

#[test]
fn forwarders_of_a_router_that_could_not_be_made_say_so() {
    let text = printed(&["--port", "eth1=10.0.1.1/24", "--no-host"]);
    let text = text.replace("10.0.1.1/24);", "10.0.1.1/24, ROUTE 10/8 10.9.9.9);");
    let checked = artery_reads(&["check", "--device", "eth1=lo", "-"], &text);
    assert_eq!(checked.status, 1, "{checked:?}");
    for expected in
        ["gateway 10.9.9.9: no port", "names an element that is not an IPRouter, or could not be made"]
    {
        assert!(checked.err.contains(expected), "{expected}: {}", checked.err);
    }
    assert!(!checked.err.contains("does not name an element"), "{}", checked.err);
}

#[test]
fn frames_of_all_ports_go_through_every_service() {
    let ports = ["--port", "eth1=10.0.1.1/24", "--port", "eth2=10.0.2.1/24"];
    let services = ["--service", "192.0.2.1:80/tcp=a=10.0.2.11", "--service", "192.0.2.2=b=10.0.2.12@2"];
    let text = printed(&[&ports[..], &services].concat());
    for expected in [
        "service1 :: FlowBalancer(FRAMES true, ROUTER ip, SERVICE 192.0.2.1:80 tcp,\
         \n    MEMBER a 10.0.2.11);",
        "service2 :: FlowBalancer(FRAMES true, ROUTER ip, SERVICE 192.0.2.2,\
         \n    MEMBER b 10.0.2.12 weight 2);",
        "-> [1] service1 [1] -> [1] service2 [1] -> in_eth2",
        "v4 [1], v6 [1], ip [1], service1 [3], service2 [3] -> to_eth2",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = printed(&[&ports[..], &services[..2], &["--nat"]].concat());
    for expected in [
        "FlowBalancer(FRAMES true, SERVICE",
        // The router's own ICMP errors are translated, too; all else that it sends is not.
        "ip [1] -> sent_eth2 :: Classifier(12/0800 23/01, 12/86dd 20/3a, -);",
        "sent_eth2 [0], sent_eth2 [1] -> [3] service1;",
        "sent_eth2 [2], service1 [3] -> to_eth2",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn frames_of_vlans_are_told_apart_and_tagged() {
    let ports =
        ["--port", "eth1=10.0.1.1/24", "--port", "eth1.10=10.0.2.1/24", "--port", "eth2.300=10.0.3.1/24"];
    let service = ["--service", "192.0.2.1:80/tcp=a=10.0.2.11"];
    let text = printed(&[&ports[..], &service, &["--no-host"]].concat());
    for expected in [
        "PORT eth1.10 10.0.2.1/24 ETHER eth1:eth,",
        "from_eth1 :: FromDevice(eth1, SNIFFER false, PROMISC true) -> [0] service1 [0] -> in_eth1 ::",
        "tags_eth1 :: Classifier(14/0000%0fff, 14/000a%0fff, -);",
        "tags_eth1 [0] -> VLANDecap(false) -> [0] service1;",
        "tags_eth1 [1] -> VLANDecap(false) -> [1] service1 [1] -> in_eth1_10 ::",
        "v4 [1], v6 [1], ip [1], service1 [4] -> VLANEncap(VLAN_ID 10, NATIVE_VLAN -1) -> to_eth1;",
        "tags_eth2 :: Classifier(12/8100 14/012c%0fff, -);",
        "tags_eth2 [1] -> Discard;",
        "-> VLANEncap(VLAN_ID 300, NATIVE_VLAN -1) -> to_eth2;",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_service_has_a_check_of_its_own_or_that_of_all() {
    let port = ["--port", "eth1=10.0.1.1/24"];
    let services = ["--service", "192.0.2.1:80/tcp=a=10.0.1.2", "--service", "192.0.2.2:53/udp=b=10.0.1.3"];
    let all = [&port[..], &services].concat();
    let text =
        printed(&[&all[..], &["--check", "192.0.2.2:53/udp=ping", "--check", "http /a=b 200"]].concat());
    for expected in ["MEMBER a 10.0.1.2,\n    CHECK http /a=b 200);", "MEMBER b 10.0.1.3,\n    CHECK ping);"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = printed(&[&all[..], &["--check", "192.0.2.1:80/tcp=tcp"]].concat());
    assert_eq!(text.matches("CHECK").count(), 1, "{text}");
    for (checks, expected) in [
        (&["--check", "192.0.2.9:80=tcp"][..], "there is no --service 192.0.2.9:80; write it as there"),
        (&["--check", "tcp", "--check", "ping"], "another --check is for all services; write SERVICE=CHECK"),
        (&["--check", "tcp", "--no-host"], "--no-host gives it no path to the servers"),
    ] {
        let outcome = artery(&[&["router", "--print"], &all[..], checks].concat());
        assert!(outcome.status == 2 && outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
}

#[test]
fn how_services_are_shared_out_is_said_only_of_services() {
    let port = ["router", "--print", "--port", "eth1=10.0.1.1/24"];
    for (options, expected) in [
        (&["--nat"][..], "--method, --seed, --check and --nat are about services; name one by --service"),
        (&["--service", "192.0.2.1=a=10.0.1.2", "--method", "random"], "--method 'random': "),
        (&["--service", "192.0.2.1=a=10.0.1.2", "--check", "knock"], "--check 'knock': "),
    ] {
        let outcome = artery(&[&port[..], options].concat());
        assert_eq!((outcome.status, outcome.out.as_str()), (2, ""), "{outcome:?}");
        assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
}

#[test]
fn what_contradicts_itself_is_refused_before_anything_is_printed() {
    let wrong =
        ["--port", "a=10.0.1.1/24", "--port", "b=10.0.1.2/24", "--neighbor", "c=10.0.1.9=2:0:0:0:0:9"];
    let outcome = artery(&[&["router", "--print"], &wrong[..]].concat());
    assert_eq!((outcome.status, outcome.out.as_str()), (2, ""), "{outcome:?}");
    for expected in
        ["2 mistakes", "10.0.1.0/24 is the network of port a, too", "'c' is neither", "Usage: artery router"]
    {
        assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
}
