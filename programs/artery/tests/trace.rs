//! `artery trace`: the ways of packets through a router that runs.
use crate::support::{Folder, Outcome, Router, artery};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};

/// Packets that take two ways in turn; one of them forks.
const ROUTER: &str = "
    source :: RatedSource(LENGTH 200, RATE 1000)
        -> udp :: UDPIPEncap(10.0.1.2, 7, 10.0.2.2, 9)
        -> turn :: RoundRobinSwitch;
    turn[0] -> check :: CheckIPHeader -> dec :: DecIPTTL
        -> link :: EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)
        -> tee :: Tee;
    tee[0] -> queue :: Queue -> Unqueue -> end :: Discard;
    tee[1] -> other :: Discard;
    turn[1] -> old :: SetIPAddress(10.0.0.9) -> nowhere :: Idle;
    idle :: Idle -> never :: Discard;";

fn start(folder: &Folder, workers: &str) -> Router {
    Router::start(&folder.path("s"), &["-j", workers, "-e", ROUTER])
}

fn trace(router: &Router, args: &[&str]) -> Outcome {
    artery(&[&["trace", "-u", router.socket().to_str().unwrap()], args].concat())
}

/// The parts of a JSON value that a path of names and numbers leads to.
fn at<'a>(value: &'a serde_json::Value, path: &str) -> &'a serde_json::Value {
    let path = format!("/{}", path.replace(' ', "/"));
    value.pointer(&path).unwrap_or_else(|| panic!("no {path} in {value:#}"))
}

#[test]
fn a_packets_way_is_told_hop_by_hop_with_what_changed() {
    for workers in ["1", "2"] {
        let folder = Folder::new();
        let router = start(&folder, workers);
        let shown = trace(&router, &["--from", "check"]);
        assert_eq!((shown.status, shown.err.as_str()), (0, ""), "{shown:?}");
        let lines: Vec<&str> = shown.out.lines().collect();
        let is = |line: usize, start: &str, end: &str| {
            assert!(lines[line].starts_with(start) && lines[line].ends_with(end), "{line}: {}", shown.out);
        };
        let packet = "IP 10.0.1.2.7 > 10.0.2.2.9: UDP, length 200";
        let frame = format!("02:00:00:00:00:01 > 02:00:00:00:00:02, {packet}");
        is(0, "packet 1: 228 bytes, at ", "");
        is(1, "  [0] check (CheckIPHeader) ", packet);
        is(2, "  [0] -> [0] dec (DecIPTTL) ", packet);
        is(3, "        ttl 250 -> 249", "");
        is(4, "  [0] -> [0] link (EtherEncap) ", packet);
        is(5, "        length 228 -> 242 (+14 at the front)", "");
        is(6, "  [0] -> [0] tee (Tee) ", &frame);
        for (element, copies) in [("end (Discard)", 1), ("other (Discard)", 1)] {
            let met = lines.iter().filter(|line| line.contains(element));
            assert_eq!(met.count(), copies, "{}", shown.out);
        }
        assert!(shown.out.contains("\n  copy 1, made of the packet by tee (Tee):\n"), "{}", shown.out);
        assert_eq!(lines.iter().filter(|line| **line == "  dropped: discarded").count(), 2, "{}", shown.out);
    }
}

#[test]
fn json_has_a_schema_that_programs_can_rely_on() {
    let folder = Folder::new();
    let router = start(&folder, "1");
    let shown = trace(&router, &["4", "--json"]);
    assert_eq!((shown.status, shown.err.as_str()), (0, ""), "{shown:?}");
    let json: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(*at(&json, "schema_version"), 1);
    assert_eq!(*at(&json, "wanted"), 4);
    assert_eq!(*at(&json, "seen"), 4);
    let packets = at(&json, "packets").as_array().unwrap();
    assert_eq!(packets.len(), 4);
    for packet in packets {
        assert_eq!(at(packet, "events_not_recorded"), 0);
        assert_eq!(at(packet, "ways 0 made_of"), &serde_json::Value::Null);
        assert_eq!(*at(packet, "ways 0 hops 0 element"), "source");
        assert_eq!(*at(packet, "ways 0 hops 0 class"), "RatedSource");
        assert_eq!(at(packet, "ways 0 hops 1 look length"), 200);
        assert_eq!(at(packet, "ways 0 hops 2 changes 0"), "length 200 -> 228 (+28 at the front)");
        assert_eq!(at(packet, "ways 0 hops 2 look data").as_str().unwrap().len(), 2 * 128);
        assert_eq!(at(packet, "ways 0 end kind"), "dropped");
        if at(packet, "ways 0 hops 3 element") == "check" {
            assert_eq!(at(packet, "ways 0 hops 3 from_output"), 0);
            let found = at(packet, "ways 1 made_of");
            assert_eq!(found, &serde_json::json!({ "copy": 0, "element": "tee", "class": "Tee" }));
        } else {
            assert_eq!(at(packet, "ways 0 hops 3 from_output"), 1);
            assert_eq!(at(packet, "ways 0 hops 4 changes 0"), "dst annotation 10.0.2.2 -> 10.0.0.9");
            assert_eq!(at(packet, "ways 0 end element"), "nowhere");
        }
    }
}

#[test]
fn what_can_not_be_traced_is_refused_with_the_reason() {
    let folder = Folder::new();
    let router = start(&folder, "1");
    for (args, status, message) in [
        (&["0"] as &[&str], 2, "write a number from 1 to 1000"),
        (&["1001"], 2, "write a number from 1 to 1000"),
        (&["1", "--from", "nosuch"], 1, "trace: no element named 'nosuch'"),
        (&["1", "--from", "a b"], 1, "'a b' is not a name of an element"),
        (&["2", "--from", "never", "--timeout", "10ms"], 1, "0 of 2 packets came in time"),
    ] {
        let shown = trace(&router, args);
        assert!(shown.status == status && shown.err.contains(message), "{args:?}: {shown:?}");
        assert_eq!(shown.out, "");
    }
    let shown = artery(&["trace", "-u", &folder.path("none")]);
    assert_eq!(shown.status, 1);
    assert!(shown.err.contains("is a router running with -u or -p?"), "{shown:?}");
}

#[test]
fn signals_show_what_there_is_and_leave_the_router_as_it_was() {
    let folder = Folder::new();
    let router = start(&folder, "1");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
        command.args(["trace", "5", "--json", "--from", "never", "-u"]).arg(router.socket());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Armed: from now on it waits for packets that never come.
        while !router.read("trace").contains(" wanted=5 ") {
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{signal:?}: {output:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(at(&json, "packets"), &serde_json::json!([]));
        assert!(String::from_utf8(output.stderr).unwrap().contains("interrupted after 0 of 5 packets"));
        assert!(router.read("trace").contains(" wanted=0 seen=0 under_way=0"), "{signal:?}");
    }
}

#[test]
fn a_packet_that_waits_is_shown_where_it_is() {
    let folder = Folder::new();
    // Room for as long as a busy machine may take until the trace begins.
    let text = "RatedSource(DATA abc, RATE 100) -> q :: Queue(60000) -> Idle";
    let router = Router::start(&folder.path("s"), &["-e", text]);
    let shown = trace(&router, &[]);
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(shown.out.contains("3 bytes: 616263"), "{shown:?}");
    assert!(shown.out.ends_with("  still in q (Queue)\n\n"), "{shown:?}");
}

#[test]
fn a_packet_that_a_port_takes_is_shown_to_leave_by_it() {
    let (Some(here), Some(there)) = (crate::support::host::Host::new(), crate::support::host::Host::new())
    else {
        return;
    };
    here.cable("right", &there, "eth0", 1500);
    let folder = Folder::new();
    let text = "RatedSource(LENGTH 60, RATE 100) -> EtherEncap(0x88b5, 2:0:0:0:0:1, 2:0:0:0:0:2) -> Queue
        -> out :: ToDevice(right);";
    let socket = folder.path("s");
    let router = here.call(move || Router::start(&socket, &["-e", text]));
    let shown = trace(&router, &[]);
    assert_eq!(shown.status, 0, "{shown:?}");
    let last: Vec<&str> = shown.out.lines().rev().take(3).collect();
    assert_eq!(last[..2], ["", "  -> right"], "{shown:?}");
    assert!(last[2].starts_with("  [0] -> [0] out (ToDevice) "), "{shown:?}");
}
