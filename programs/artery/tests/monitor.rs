//! Counters of ports and monitor mode, between hosts: what is sent is counted exactly, wherever it ends.
use crate::support::host::Host;
use crate::support::{Folder, Outcome, Router, artery};
use std::time::{Duration, Instant};

/// Frames of each length that the generator sends, and how many of all with their bytes.
const EACH: u64 = 100;
const PACKETS: u64 = 3 * EACH;
const BYTES: u64 = EACH * (60 + 590 + 1514);

/// Sends UDP in frames of 60, 590 and 1514 bytes, and ends when all have left.
const GENERATOR: &str = "
    define($TO 02:00:00:00:00:02, $FROM 02:00:00:00:00:01);
    InfiniteSource(LENGTH 18, LIMIT 100, STOP true) -> udp :: UDPIPEncap(10.0.1.2, 7, 10.0.2.2, 7);
    InfiniteSource(LENGTH 548, LIMIT 100, STOP true) -> udp;
    InfiniteSource(LENGTH 1472, LIMIT 100, STOP true) -> udp;
    udp -> EtherEncap(0x0800, $FROM, $TO) -> Queue(64) -> out :: ToDevice(eth0);
    DriverManager(wait_stop, wait_stop, wait_stop, label more, wait 1ms, goto more $(lt $(out.count) 300), \
    stop);";

/// Forwards with all points at which packets can end, and counts what passes between them.
const ROUTER: &str = "
    from :: FromDevice(left, SNIFFER false, PROMISC true)
        -> kind :: Classifier(12/0800, -)
        -> received :: Counter
        -> Strip(14)
        -> check :: CheckIPHeader
        -> checked :: Counter
        -> routes :: LinearIPLookup(0.0.0.0/0 0)
        -> routed :: Counter
        -> DecIPTTL
        -> EtherEncap(0x0800, 02:00:00:00:00:03, 02:00:00:00:00:04)
        -> Queue(1000)
        -> to :: ToDevice(right);
    kind[1] -> Discard;";

/// A host that sends, one that the router runs on, by `left` and `right`, and one that receives.
struct Row {
    sender: Host,
    middle: Host,
    receiver: Host,
    folder: Folder,
}

impl Row {
    fn new() -> Option<Row> {
        let (sender, middle, receiver) = (Host::new()?, Host::new()?, Host::new()?);
        // Without IPv6 the kernels send nothing on their own.
        for host in [&sender, &middle, &receiver] {
            host.call(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap());
        }
        middle.cable("left", &sender, "eth0", 1500);
        middle.cable("right", &receiver, "eth0", 1500);
        Some(Row { sender, middle, receiver, folder: Folder::new() })
    }

    fn start_router(&self, workers: &'static str) -> Router {
        let socket = self.folder.path("s");
        self.middle.call(move || Router::start(&socket, &["-R", "-j", workers, "-e", ROUTER]))
    }

    /// Sends all frames once.
    fn send(&self) {
        let outcome = self.sender.call(|| artery(&["run", "-e", GENERATOR]));
        assert_eq!(outcome.status, 0, "{outcome:?}");
    }

    /// Packets and bytes that the receiver's kernel has counted.
    fn arrived(&self) -> [u64; 2] {
        let table = self.receiver.call(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
        let counts: Vec<u64> = line.split_whitespace().take(2).map(|count| count.parse().unwrap()).collect();
        [counts[1], counts[0]]
    }
}

/// Reads until the value is as expected; fails with what it was after ten seconds.
#[track_caller]
fn expect(expected: &str, read: impl Fn() -> String) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let value = read();
        if value == expected {
            return;
        }
        assert!(Instant::now() < end, "{value}\nis not\n{expected}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the handler `port` gives once so many rounds of frames came in and went out.
fn counts(came: u64, went: u64) -> String {
    let way = |way, rounds| {
        format!("{way}_packets {}\n{way}_bytes {}\n{way}_errors 0", rounds * PACKETS, rounds * BYTES)
    };
    format!("{}\n{}", way("in", came), way("out", went))
}

fn number(router: &Router, handler: &str) -> u64 {
    router.read(handler).parse().unwrap()
}

#[test]
fn packets_and_bytes_are_exact_in_every_mode_and_nothing_leaves_in_monitor_mode() {
    for workers in ["1", "2"] {
        let Some(row) = Row::new() else { return };
        let router = row.start_router(workers);
        let (mut came, mut went) = (0, 0);
        // Where frames of a round are counted: received, checked, routed; and which element ends them.
        for (mode, passed, end) in [
            ("off", [1, 1, 1], None),
            ("l0", [0, 0, 0], Some("from")),
            ("l1", [0, 0, 0], Some("from")),
            ("l2", [1, 0, 0], None),
            ("l3", [1, 1, 0], Some("routes")),
            ("l4", [1, 1, 1], Some("to")),
            ("off", [1, 1, 1], None),
        ] {
            let counted = ["received.count", "checked.count", "routed.count"];
            let before = counted.map(|counter| number(&router, counter));
            let dropped = end.map(|end| number(&router, &format!("{end}.drops")));
            assert_eq!(router.call(&["from.monitor", mode]).status, 0);
            assert_eq!(router.read("from.monitor"), mode);
            row.send();
            came += 1;
            went += u64::from(mode == "off");
            expect(&counts(came, 0), || router.read("from.port"));
            expect(&counts(0, went), || router.read("to.port"));
            let now = || counted.map(|counter| number(&router, counter));
            let passed = [0, 1, 2].map(|at| before[at] + passed[at] * PACKETS);
            expect(&format!("{passed:?}"), || format!("{:?}", now()));
            if let (Some(end), Some(dropped)) = (end, dropped) {
                expect(&(dropped + PACKETS).to_string(), || router.read(&format!("{end}.drops")));
            }
            assert_eq!(row.arrived(), [went * PACKETS, went * BYTES], "{mode}");
        }
    }
}

#[test]
fn counters_of_ports_outlive_the_graph_whose_argument_sets_the_mode() {
    let Some(row) = Row::new() else { return };
    let router = row.start_router("1");
    row.send();
    expect(&counts(1, 0), || router.read("from.port"));
    expect(&counts(0, 1), || router.read("to.port"));
    let monitored = ROUTER.replace("PROMISC true", "PROMISC true, MONITOR l2").replace("from ::", "new ::");
    let replaced = router.call(&["hotconfig", "--write", &monitored]);
    assert_eq!(replaced.status, 0, "{replaced:?}");
    expect("l2", || router.read("new.monitor"));
    row.send();
    expect(&counts(2, 0), || router.read("new.port"));
    assert_eq!(router.read("to.port"), counts(0, 1));
    let replaced = router.call(&["hotconfig", "--write", ROUTER]);
    assert_eq!(replaced.status, 0, "{replaced:?}");
    expect("off", || router.read("from.monitor"));
    row.send();
    expect(&counts(0, 2), || router.read("to.port"));
}

#[test]
fn netstat_shows_ports_of_a_running_router_in_the_layout_of_bsd() {
    let Some(row) = Row::new() else { return };
    let router = row.start_router("1");
    row.send();
    expect(&counts(1, 0), || router.read("from.port"));
    expect(&counts(0, 1), || router.read("to.port"));
    let netstat = |args: &[&str]| -> Outcome {
        artery(&[&["netstat", "-u", router.socket().to_str().unwrap()], args].concat())
    };
    let packets = concat!(
        " left in       left out              total in      total out            \n",
        " packets  errs  packets  errs colls   packets  errs  packets  errs colls\n",
        "     300     0        0     0     0       300     0      300     0     0\n",
    );
    let still = "       0     0        0     0     0         0     0        0     0     0\n";
    let shown = netstat(&["-I", "left", "0.01", "-c", "2"]);
    assert_eq!((shown.status, shown.out), (0, format!("{packets}{still}")), "{}", shown.err);
    let shown = netstat(&["-I", "left", "-w", "1", "-c", "1", "-b"]);
    let found = shown.out.lines().last();
    assert_eq!(found, Some("    216400                   0            216400              216400      "));
    let shown = netstat(&["-i"]).out;
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["Name", "Mtu", "Network", "Address", "Ipkts", "Ifail", "Opkts", "Ofail", "Colls"]);
    let without_address = |line: &[&str]| [&line[..3], &line[4..]].concat().join(" ");
    assert_eq!(without_address(&lines[1]), "left 1500 <Link> 300 0 0 0 0");
    assert_eq!(without_address(&lines[2]), "right 1500 <Link> 0 0 300 0 0");
    let wrong = netstat(&["-I", "eth9", "1"]);
    assert_eq!(wrong.status, 1);
    assert!(wrong.err.contains("eth9: no such port; there are left, right"), "{wrong:?}");
    let mut plain = std::process::Command::new(env!("CARGO_BIN_EXE_artery"));
    let plain = plain.env("ARTERY_SOCKET", router.socket()).arg("netstat").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&plain.stdout), shown);
    row.middle.run("ip link del right");
    expect("left up, right absent", || {
        let ports = router.read("ports");
        let rows = ports.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
        let states: Vec<String> = rows.map(|row| format!("{} {}", row[0], row[12])).collect();
        states.join(", ")
    });
}
