//! The products that are soaked, each with its network, its configuration and its events.

use super::good::{Connection, Stream};
use super::product::{Event, Kind, Net, Rates, SOON, Stand, said_once_more};
use artery_rig::{Process, Result, Rig};
use std::time::Instant;

/// Neighbors that attackers make up before a product of ours, and before a kernel.
const NEIGHBORS: (u32, u32) = (4096, 32);
/// What is said at the end.
const ENDED: &str = " s: SIGTERM was received";

/// Makes a product's network and starts it.
pub(super) type Make = fn(&Rig, Rates, Instant) -> Result<Stand>;

/// The products by name.
pub(super) const ALL: [(&str, Make); 6] = [
    ("router", router),
    ("switch", switch),
    ("filter", filter),
    ("balancer", balancer),
    ("adopt", adopt),
    ("run", run),
];

const PORTS: &str = "port = [\n    \"eth0=10.0.1.1/24,fd00:1::1/64\",\n    \"eth1=10.0.2.1/24,fd00:2::1/64\",\
    \n    \"eth2=10.3.0.1/16,fd00:3::1/64\",\n]\n";

/// `artery router` from a file with ports and these lines besides.
fn routed(rig: &Rig, rates: Rates, began: Instant, more: &str, files: &[(&str, &str)]) -> Result<Stand> {
    let net = Net::make(rig, true)?;
    net.write("r.toml", &format!("{PORTS}{}", within(&net, more)));
    files.iter().for_each(|(name, text)| net.write(name, text));
    let command = net.artery(&["router"])?.arg(net.path("r.toml")).arg("-u").arg(net.path("control"));
    let mut process = command.spawn()?;
    net.until_forwarded(&mut process)?;
    stand(net, process, rates, began, 1)
}

/// A product that runs, without connections, and with the events that all of ours meet.
fn stand(net: Net, process: Process, rates: Rates, began: Instant, seed: u64) -> Result<Stand> {
    Ok(Stand {
        streams: net.streams(rates.good, began)?,
        connections: Vec::new(),
        attackers: vec![net.attacker(NEIGHBORS.0, rates.hostile, seed)?],
        events: vec![
            Event::flap("eth1 goes down and up", "eth1"),
            Event::flap("eth0 goes down and up", "eth0"),
            Event::remake(),
        ],
        net,
        process,
        last_words: ENDED,
    })
}

/// File names in a configuration: `@` is replaced by the net's folder.
fn within(net: &Net, text: &str) -> String {
    text.replace('@', &net.path("").display().to_string())
}

/// Another configuration is applied by `artery apply`: the first and the second of these in turn.
fn apply(texts: [&'static str; 2]) -> Event {
    Event::new("artery apply", Kind::Replacement, move |net, _, turn| {
        net.write("r.toml", &format!("{PORTS}{}", within(net, texts[turn % 2])));
        net.run_artery(&["apply", &net.path("r.toml").display().to_string()]).map(drop)
    })
}

fn router(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    const TABLE: &str = "table = [\"@routes.txt=10.0.2.2\"]\n";
    let mut stand = routed(rig, rates, began, TABLE, &[("routes.txt", "192.0.2.0/24\n")])?;
    let routes = Event::hangup("SIGHUP with another table", |net, turn| {
        let more: String = (0..200 * (turn as u32 % 2)).map(|n| format!("198.18.{n}.0/24\n")).collect();
        net.write("routes.txt", &format!("192.0.2.0/24\n{more}"));
    });
    let by_hand = Event::new("routes are added and deleted", Kind::Reload, |net, _, _| {
        net.run_artery(&["route", "add", "203.0.113.0/24", "via", "10.0.2.2"])?;
        net.run_artery(&["route", "del", "203.0.113.0/24"]).map(drop)
    });
    let texts = [TABLE, "table = [\"@routes.txt=10.0.2.2\"]\nroute = [\"10.9.0.0/16=10.0.2.2\"]\n"];
    stand.events.splice(0..0, [routes, by_hand, apply(texts)]);
    stand.connections = connections(&stand.net)?;
    Ok(stand)
}

/// A connection from `a` to `b`.
fn connections(net: &Net) -> Result<Vec<Connection>> {
    Ok(vec![Connection::start((&net.a, &[&net.b]), (&net.addresses(&net.b)[0], 7007))?])
}

fn filter(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    // Attackers fill what is theirs.
    const RULES: &str = "set limit states 20000\ntable <spam> persist\nblock quick from <spam>\npass\n\
        pass in on eth2 keep state (max 4000)\n\
        block in quick on eth2 proto tcp to any port 7001\n";
    const PF: &str = "pf = \"@pf.conf\"\n";
    let mut stand = routed(rig, rates, began, PF, &[("pf.conf", RULES)])?;
    let rules =
        |turn: usize| format!("{RULES}{}", if turn.is_multiple_of(2) { "" } else { "match log on eth2\n" });
    let load = Event::new("pfctl -f", Kind::Reload, move |net, _, turn| {
        net.write("pf.conf", &rules(turn));
        net.run_artery(&["pfctl", "-f", &net.path("pf.conf").display().to_string()]).map(drop)
    });
    let table = Event::new("addresses are added and deleted", Kind::Reload, |net, _, turn| {
        let which = format!("198.51.100.{}", turn % 200);
        net.run_artery(&["pfctl", "-t", "spam", "-T", "add", &which])?;
        net.run_artery(&["pfctl", "-t", "spam", "-T", "delete", &which]).map(drop)
    });
    let again =
        Event::hangup("SIGHUP with other rules", move |net, turn| net.write("pf.conf", &rules(turn + 1)));
    let texts = [PF, "pf = \"@pf.conf\"\nroute = [\"10.9.0.0/16=10.0.2.2\"]\n"];
    stand.events.splice(0..0, [load, table, again, apply(texts)]);
    stand.connections = connections(&stand.net)?;
    Ok(stand)
}

fn balancer(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    const SERVICES: &str = "nat = true\nservice = [\"192.0.2.1:7005/udp=one=10.0.2.2,two=10.0.2.3\", \
                            \"192.0.2.1:7007/tcp=one=10.0.2.2\"]\n";
    const AND_ROUTE: &str = "nat = true\nservice = [\"192.0.2.1:7005/udp=one=10.0.2.2,two=10.0.2.3\", \
                             \"192.0.2.1:7007/tcp=one=10.0.2.2\"]\nroute = [\"10.9.0.0/16=10.0.2.2\"]\n";
    let mut stand = routed(rig, rates, began, SERVICES, &[])?;
    let again = Event::hangup("SIGHUP", |_, _| {});
    stand.events.splice(0..0, [again, apply([AND_ROUTE, SERVICES])]);
    let net = &stand.net;
    let to = ("192.0.2.1", 7005);
    stand.streams.push(Stream::start((&net.a, &[&net.b]), to, rates.good, began)?);
    stand.connections = vec![Connection::start((&net.a, &[&net.b]), ("192.0.2.1", 7007))?];
    Ok(stand)
}

fn switch(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    const RULES: &str = "set limit states 20000\npass\npass in on eth2 keep state (max 4000)\n";
    let net = Net::make(rig, false)?;
    let veb0 = format!(
        "add eth0\nadd eth1\nadd eth2\nmaxaddr 2000\nstatic eth0 {}\nstatic eth1 {}\nlink1\nup\n",
        net.a.mac("eth0")?,
        net.far_mac()
    );
    let etc = net.path("etc");
    std::fs::create_dir(&etc).map_err(artery_rig::RigError::system("cannot make a folder"))?;
    net.write("etc/hostname.veb0", &veb0);
    net.write("etc/hostname.eth*", "up\n");
    net.write("etc/pf.conf", RULES);
    let mut process = net.artery(&["up", "--etc"])?.arg(&etc).arg("-u").arg(net.path("control")).spawn()?;
    net.until_forwarded(&mut process)?;
    let again = Event::hangup("SIGHUP with another maxaddr", move |net, turn| {
        net.write("etc/hostname.veb0", &veb0.replace("2000", ["2000", "1500"][turn % 2]));
    });
    let load = Event::new("pfctl -f", Kind::Reload, |net, _, turn| {
        net.write("etc/pf.conf", &format!("{RULES}{}", ["", "match log on eth2\n"][turn % 2]));
        net.run_artery(&["pfctl", "-f", &net.path("etc/pf.conf").display().to_string()]).map(drop)
    });
    let flush = Event::new("the MAC table is flushed", Kind::Reload, |net, _, _| {
        net.run_artery(&["ifconfig", "veb0", "flush"]).map(drop)
    });
    let mut stand = stand(net, process, rates, began, 2)?;
    stand.events.splice(0..0, [again, load, flush]);
    stand.connections = connections(&stand.net)?;
    Ok(stand)
}

fn adopt(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    let net = Net::make(rig, true)?;
    net.r.forwarding(true)?;
    let own = |net: &Net, interfaces: &[&str]| -> Result<()> {
        for (interface, addresses) in [
            ("eth0", ["10.0.1.1/24", "fd00:1::1/64"]),
            ("eth1", ["10.0.2.1/24", "fd00:2::1/64"]),
            ("eth2", ["10.3.0.1/16", "fd00:3::1/64"]),
        ] {
            for address in addresses.iter().filter(|_| interfaces.contains(&interface)) {
                net.r.address(interface, address)?;
            }
        }
        Ok(())
    };
    own(&net, &["eth0", "eth1", "eth2"])?;
    let words = ["adopt", "--path", "tc", "eth0", "eth1", "eth2", "-u"];
    let mut process = net.artery(&words)?.arg(net.path("control")).spawn()?;
    process.wait_for("forwarding", SOON)?;
    net.until_forwarded(&mut process)?;
    let again = Event::new("SIGHUP", Kind::Reload, |_, process, _| {
        said_once_more(process, "reading all tables and settings again", |process| {
            process.signal(artery_rig::Signal::HUP);
            Ok(())
        })
    });
    let routes = Event::new("routes are added and deleted", Kind::Reload, |net, _, _| {
        let batch: String = (0..200u32)
            .flat_map(|n| ["add", "del"].map(|verb| format!("route {verb} 198.18.{n}.0/24 via 10.0.2.2\n")))
            .collect();
        net.r.command(["ip", "-batch", "-"]).input(batch).run().map(drop)
    });
    let remake = Event::new("eth1 is deleted and made again", Kind::Remake, move |net, process, _| {
        said_once_more(process, "eth1: the interface is gone", |_| {
            net.r.run(["ip", "link", "delete", "eth1"]).map(drop)
        })?;
        said_once_more(process, "eth1: the interface has come back", |_| {
            net.make_again()?;
            own(net, &["eth1"])
        })
    });
    // The kernel forgets addresses and routes of IPv6 with a link that is set down.
    let flap = Event::new("eth1 loses its carrier", Kind::Flap, |net, _, _| {
        net.b.down("eth0")?;
        net.b.up("eth0")?;
        net.readdress_far()
    });
    Ok(Stand {
        streams: net.streams(rates.good, began)?,
        connections: connections(&net)?,
        attackers: vec![net.attacker(NEIGHBORS.1, rates.hostile, 3)?],
        events: vec![again, routes, flap, remake],
        net,
        process,
        last_words: "the kernel forwards alone again",
    })
}

/// `artery run` with a wire between eth0 and eth1, whose text is replaced while packets pass;
/// strangers come by eth2.
fn run(rig: &Rig, rates: Rates, began: Instant) -> Result<Stand> {
    const SHORT: &str =
        "left :: FromDevice(eth0, PROMISC true, SNIFFER false) -> p :: Queue -> ToDevice(eth1);
        right :: FromDevice(eth1, PROMISC true, SNIFFER false) -> q :: Queue -> ToDevice(eth0);
        strangers :: FromDevice(eth2, PROMISC true) -> c :: Classifier(12/0800, 12/0806, 12/86dd, -);
        c[0] -> CheckIPHeader(14) -> IPReassembler -> seen :: Counter -> Discard;
        c[1], c[2] -> seen6 :: Counter -> Discard; c[3] -> Discard;";
    let long = SHORT.replace("-> q :: Queue", "-> Counter -> Paint(1) -> q :: Queue -> Null");
    let net = Net::make(rig, false)?;
    net.write("wire.click", SHORT);
    let command = net.artery(&["run", "-R", "-u"])?.arg(net.path("control")).arg(net.path("wire.click"));
    let mut process = command.spawn()?;
    net.until_forwarded(&mut process)?;
    let (texts, more) = ([long.clone(), SHORT.to_string()], [SHORT.to_string(), long]);
    let replace = Event::new("hotconfig", Kind::Replacement, move |net, _, turn| {
        net.run_artery(&["handler", "hotconfig", &texts[turn % 2]]).map(drop)
    });
    let again = Event::hangup("SIGHUP with another text", move |net, turn| {
        net.write("wire.click", &more[turn % 2]);
    });
    let read = Event::new("handlers are read", Kind::Reload, |net, _, _| {
        net.run_artery(&["handler", "seen.count"])?;
        net.run_artery(&["handler", "p.length"]).map(drop)
    });
    let mut stand = stand(net, process, rates, began, 4)?;
    stand.events.splice(0..0, [replace, again, read]);
    stand.connections = connections(&stand.net)?;
    Ok(stand)
}
