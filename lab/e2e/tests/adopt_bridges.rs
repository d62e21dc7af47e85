//! `artery adopt br0 eth2`: what arrives at members for a bridge's own address is routed past the kernel, and
//! what leaves by the bridge leaves by the member that its forwarding database names.
//!
//! Hosts are addresses of this test's own behind members, so that they can move, be silent, and stay.
use crate::support::adopting::{by_kernel, forwarded};
use crate::support::{Running, SOON, artery_on, until};
use artery_rig::program::artery;
use artery_rig::{Endpoint, Host, Result, Rig};
use artery_wire::EtherType;
use artery_wire::build::{ether, ip4};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a change takes to be heard at most, on a machine with other work.
const BARRIER: Duration = Duration::from_millis(1200);
const QUIET: Duration = Duration::from_millis(150);
/// Between two frames, so that no queue is full.
const GAP: Duration = Duration::from_millis(2);
const ROUNDS: u64 = 24;

/// A gateway: the bridge br0 with members lan0 and lan1, at which `a` and `c` are, and the port eth2, at
/// which `b` is. It has 10.0.1.1 and 2001:db8:1::1 at br0, 10.0.2.1 and 2001:db8:2::1 at eth2.
struct Home {
    a: Host,
    c: Host,
    r: Host,
    b: Host,
}

impl Home {
    fn make(rig: &Rig, prefix: &str) -> Result<Home> {
        artery()?;
        let host = |name: &str| rig.host(&format!("{prefix}{name}"));
        let home = Home { a: host("a")?, c: host("c")?, r: host("r")?, b: host("b")? };
        home.r.forwarding(true)?;
        home.r.run(["ip", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
        home.r.run(["ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "0"])?;
        home.r.run(["ip", "link", "set", "br0", "address", "02:00:00:00:01:01"])?;
        for (host, port) in [(&home.a, "lan0"), (&home.c, "lan1"), (&home.b, "eth2")] {
            // What XDP sends on must be whole, and a virtual link sends it only to an end that joins frames.
            rig.link(host, "eth0", &home.r, port)?.offloads(false)?;
            host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        }
        for port in ["lan0", "lan1"] {
            home.r.run(["ip", "link", "set", port, "master", "br0"])?;
        }
        home.r.up("br0")?;
        home.r.address("br0", "10.0.1.1/24")?.address("br0", "2001:db8:1::1/64")?;
        home.r.address("eth2", "10.0.2.1/24")?.address("eth2", "2001:db8:2::1/64")?;
        for (host, number, network) in [(&home.a, 2, 1), (&home.c, 3, 1), (&home.b, 2, 2)] {
            host.address("eth0", &format!("10.0.{network}.{number}/24"))?
                .address("eth0", &format!("2001:db8:{network}::{number}/64"))?
                .route("default", &format!("10.0.{network}.1"))?
                .route("default", &format!("2001:db8:{network}::1"))?;
        }
        Ok(home)
    }

    fn adopt(&self, path: &str, ports: &[&str]) -> Result<Running> {
        Running::adopt_ports(&self.r, &[&["--path", path][..], ports].concat())
    }

    /// Has all neighbors and members known.
    fn warm_up(&self) -> Result<()> {
        for (host, far) in [(&self.a, "10.0.2.2"), (&self.c, "10.0.2.2"), (&self.a, "2001:db8:2::2")] {
            until(SOON, || Ok(host.ping(far, 1)?.received == 1))?;
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }
}

fn both_directions_go_past_the_kernel(rig: &Rig, path: &str) -> Result<()> {
    let home = Home::make(rig, "")?;
    let mut adopted = home.adopt(path, &["br0", "eth2"])?;
    home.warm_up()?;
    let before = by_kernel(&home.r)?;
    for (host, far) in [(&home.a, "10.0.2.2"), (&home.c, "10.0.2.2"), (&home.b, "10.0.1.3")] {
        assert_eq!(host.ping_with(far, 200, &["-i", "0.005"])?.received, 200, "{path} {far}");
    }
    let kernel = by_kernel(&home.r)? - before;
    assert!(kernel <= 1200 / 20, "{path}: {kernel} of 1,200 were the kernel's");
    assert_eq!(home.a.ping_with("2001:db8:2::2", 200, &["-i", "0.005"])?.received, 200);
    // What is bridged, or for the machine, is the kernel's as ever.
    assert_eq!(home.a.ping("10.0.1.3", 3)?.received, 3);
    assert_eq!(home.a.ping("10.0.1.1", 3)?.received, 3);
    let said = adopted.stderr_so_far();
    assert!(said.contains("br0: a bridge, by its members"), "{said}");
    assert!(said.contains("with br0, whose member"), "{said}");
    let report = adopted.stop(SOON)?.stdout;
    for port in ["br0", "eth2"] {
        assert!(forwarded(&report, port) >= 760, "{path}: {report}");
    }
    assert_eq!(home.a.ping("10.0.2.2", 1)?.received, 1, "the kernel forwards alone again");
    Ok(())
}

#[test]
fn both_directions_of_a_bridge_go_past_the_kernel_by_tc() {
    artery_rig::test("adopt-bridge-tc", |rig| both_directions_go_past_the_kernel(rig, "tc"));
}

#[test]
fn both_directions_of_a_bridge_go_past_the_kernel_by_xdp() {
    artery_rig::test("adopt-bridge-xdp", |rig| both_directions_go_past_the_kernel(rig, "xdp"));
}

#[test]
fn members_come_and_go_and_what_keeps_a_bridge_is_told() {
    artery_rig::test("adopt-bridge-members", |rig| {
        let home = Home::make(rig, "")?;
        let mut adopted = home.adopt("tc", &["br0", "eth2"])?;
        home.warm_up()?;
        let fast = |host: &Host| -> Result<u64> {
            std::thread::sleep(BARRIER);
            let before = by_kernel(&home.r)?;
            assert_eq!(host.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
            Ok(40 - (by_kernel(&home.r)? - before).min(40))
        };
        assert!(fast(&home.c)? >= 36);
        home.r.run(["ip", "link", "set", "lan1", "nomaster"])?;
        std::thread::sleep(BARRIER);
        home.r.run(["ip", "link", "set", "lan1", "master", "br0"])?;
        until(SOON, || Ok(home.c.ping("10.0.2.2", 1)?.received == 1))?;
        assert!(fast(&home.c)? >= 36, "{}", adopted.stderr_so_far());

        home.r.run([
            "nft",
            "add table bridge f; add chain bridge f c { type filter hook input priority 0; }",
        ])?;
        assert!(fast(&home.c)? >= 36, "an empty chain keeps nothing");
        home.r.run(["nft", "add rule bridge f c ip saddr 192.0.2.1 drop"])?;
        adopted.wait_for("nftables: table bridge f, chain c (hook input", SOON)?;
        assert_eq!(fast(&home.c)?, 0);
        home.r.run(["nft", "delete table bridge f"])?;
        assert!(fast(&home.c)? >= 36);

        home.r.run(["ip", "link", "set", "br0", "type", "bridge", "ageing_time", "0"])?;
        adopted.wait_for("bridge br0 learns no addresses", SOON)?;
        assert_eq!(fast(&home.c)?, 0);
        home.r.run(["ip", "link", "set", "br0", "type", "bridge", "ageing_time", "30000"])?;
        until(SOON, || Ok(home.c.ping("10.0.2.2", 1)?.received == 1))?;
        assert!(fast(&home.c)? >= 36);
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn a_dry_run_names_the_members_and_what_keeps_them() {
    artery_rig::test("adopt-bridge-dry", |rig| {
        let home = Home::make(rig, "")?;
        // A member that has just come up is set to forwarding once more, and so are others but disabled ones.
        home.warm_up()?;
        home.r.run(["bridge", "link", "set", "dev", "lan1", "state", "0"])?;
        let words = ["adopt", "--dry-run", "--for", "0", "br0", "eth2"];
        let text = artery_on(&home.r, words)?.run()?.stdout;
        for line in [
            "a bridge, by its members: lan0, lan1",
            "adopted with br0, whose member it is",
            "lan1 is in state disabled of its bridge: IPv4 and IPv6 stay with the kernel",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let of = |port: &str| text.lines().find(|line| line.starts_with(port)).expect("a line").to_owned();
        assert!(
            of("br0").contains(" fast ") && of("lan0").contains(" fast ") && of("lan1").contains(" kernel ")
        );
        Ok(())
    });
}

/// A host behind a member: 10.0.1.(10 + number).
fn host(number: u8) -> (String, String) {
    (format!("02:00:00:00:aa:{number:02x}"), format!("10.0.1.{}", 10 + number))
}

/// A gateway, and the member that each of its hosts is at. The hosts are this test.
struct Side {
    home: Home,
    ends: [Endpoint; 3],
    uplink: String,
    adopted: Option<Running>,
    /// By host, the member that it is at.
    places: Vec<usize>,
    /// What has arrived: the end, the number of the datagram, and the whole frame.
    arrived: BTreeSet<(usize, Vec<u8>)>,
}

const HOSTS: u8 = 6;

impl Side {
    fn make(rig: &Rig, prefix: &str, path: Option<&str>) -> Result<Side> {
        let home = Home::make(rig, prefix)?;
        home.r.run(["ip", "link", "set", "eth2", "address", "02:00:00:00:02:01"])?;
        set_neighbors(&home.r)?;
        home.r.run("ip neigh replace 10.0.2.9 lladdr 02:00:00:00:bb:09 dev eth2 nud permanent".split(' '))?;
        let ends = [home.a.endpoint("eth0")?, home.c.endpoint("eth0")?, home.b.endpoint("eth0")?];
        let adopted = path.map(|path| home.adopt(path, &["br0", "eth2"])).transpose()?;
        let uplink = home.r.mac("eth2")?;
        let places = (0..HOSTS).map(|number| usize::from(number % 2)).collect();
        Ok(Side { home, ends, uplink, adopted, places, arrived: BTreeSet::new() })
    }

    /// Datagrams from each host to the uplink and back. They have the number of the round in them.
    fn exchange(&mut self, round: u8) -> Result<()> {
        let bridge = self.home.r.mac("br0")?;
        for copy in 0..4 {
            for number in 0..HOSTS {
                let (mac, address) = host(number);
                let packet = ip4().src(address.as_str()).dst("10.0.2.9").udp(1000, 2000);
                let frame = ether(bridge.as_str(), mac.as_str()).ip4(packet.payload([round, copy, number]));
                self.ends[self.places[usize::from(number)]].send(&[frame.bytes()])?;
                std::thread::sleep(GAP);
            }
            if copy == 0 {
                // The bridge has learned who has moved silently; the event of that is to be heard.
                std::thread::sleep(BARRIER / 4);
            }
            for number in 0..HOSTS {
                let (_, address) = host(number);
                let packet = ip4().src("10.0.2.9").dst(address.as_str()).udp(2000, 1000);
                let frame = ether(self.uplink.as_str(), "02:00:00:00:bb:09")
                    .ip4(packet.payload([round, copy, number]));
                self.ends[2].send(&[frame.bytes()])?;
                std::thread::sleep(GAP);
            }
        }
        Ok(())
    }

    /// Takes what has arrived; whether there was anything.
    fn take(&mut self) -> Result<bool> {
        let before = self.arrived.len();
        for (at, end) in self.ends.iter_mut().enumerate() {
            let is_udp = |frame: &Vec<u8>| frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17;
            let frames = end.received()?.into_iter().filter(is_udp);
            // The checksum may be left to a card where the kernel has sent it.
            self.arrived.extend(frames.map(|frame| (at, frame)));
        }
        Ok(self.arrived.len() > before)
    }
}

/// Has a gateway know its hosts' addresses, which it forgets when the bridge's own changes.
fn set_neighbors(r: &Host) -> Result<()> {
    for number in 0..HOSTS {
        let (mac, address) = host(number);
        r.run(["ip", "neigh", "replace", &address, "lladdr", &mac, "dev", "br0", "nud", "permanent"])?;
    }
    Ok(())
}

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What happens to both gateways between two exchanges.
fn change(random: &mut Random) -> (String, Option<(u8, usize, bool)>) {
    let (mac, _) = host(random.below(u64::from(HOSTS)) as u8);
    let member = format!("lan{}", random.below(2));
    let on = if random.below(2) == 0 { "on" } else { "off" };
    let command = match random.below(16) {
        // A host moves, and says so or not.
        0..=4 => {
            let moved =
                (random.below(u64::from(HOSTS)) as u8, random.below(2) as usize, random.below(2) == 0);
            return (String::new(), Some(moved));
        }
        5 => format!("bridge fdb del {mac} dev {member} master"),
        6 => format!("bridge fdb replace {mac} dev {member} master static"),
        7 => format!("bridge fdb replace {mac} dev {member} master dynamic"),
        8 => format!("bridge link set dev {member} state {}", random.below(5)),
        9 => format!("ip link set {member} down; sleep 0.1; ip link set {member} up"),
        10 => format!("bridge link set dev {member} isolated {on}"),
        11 => format!("bridge link set dev {member} locked {on}"),
        12 => format!("bridge link set dev {member} learning {on}"),
        13 => format!("bridge link set dev {member} hairpin {on}; bridge link set dev {member} flood {on}"),
        14 => format!("ip link set br0 address 02:00:00:00:01:0{}", 1 + random.below(3)),
        _ => format!("ip link set br0 type bridge vlan_filtering {}", random.below(2)),
    };
    (command, None)
}

/// What undoes a state in which nothing at all is forwarded, so that rounds stay worth their time.
const CALM: &str =
    "for p in lan0 lan1; do bridge link set dev $p state 3 learning on locked off flood on; done
    ip link set br0 type bridge vlan_filtering 0";

fn what_comes_out_is_the_same(rig: &Rig, path: &str) -> Result<()> {
    let mut sides = [Side::make(rig, "x", Some(path))?, Side::make(rig, "k", None)?];
    let mut random = Random(7);
    let before = [by_kernel(&sides[0].home.r)?, by_kernel(&sides[1].home.r)?];
    for round in 0..ROUNDS {
        let mut changes = Vec::new();
        for _ in 0..if round == 0 { 0 } else { 1 + random.below(2) } {
            changes.push(change(&mut random));
        }
        for side in &mut sides {
            if round % 4 == 3 {
                side.home.r.command(["sh", "-c", CALM]).output()?;
            }
            for (command, moved) in &changes {
                // Both kernels lack the same.
                side.home.r.command(["sh", "-c", command]).output()?;
                if let Some((number, place, says_so)) = *moved {
                    side.places[usize::from(number)] = place;
                    let (mac, _) = host(number);
                    let hello = ether("ff:ff:ff:ff:ff:ff", mac.as_str()).raw(EtherType(0x88b5), [0; 46]);
                    if says_so {
                        side.ends[place].send(&[hello.bytes()])?;
                    }
                }
            }
        }
        sides.iter().try_for_each(|side| set_neighbors(&side.home.r))?;
        std::thread::sleep(BARRIER);
        for side in &mut sides {
            side.exchange(round as u8)?;
        }
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let [one, other] = &mut sides;
            if one.take()? | other.take()? {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let fdb = |side: &Side| side.home.r.run(["bridge", "fdb", "show", "br", "br0"]).map(|out| out.stdout);
        assert_eq!(
            brief(&sides[0].arrived),
            brief(&sides[1].arrived),
            "round {round} by {path}, after {changes:?}\n{}\n{}\n{}",
            fdb(&sides[0])?,
            fdb(&sides[1])?,
            sides[0].adopted.as_ref().map(|adopted| adopted.stderr_so_far()).unwrap_or_default()
        );
        sides.iter_mut().for_each(|side| side.arrived.clear());
    }
    let [fast, alone] = [by_kernel(&sides[0].home.r)? - before[0], by_kernel(&sides[1].home.r)? - before[1]];
    assert!(alone > 200 && fast * 2 < alone, "{path}: the kernel forwarded {fast} of {alone} beside adopt");
    let mut adopted = sides[0].adopted.take().expect("the first side is adopted");
    adopted.stop(SOON).map(drop)
}

/// Frames without the checksum of UDP, in few words.
fn brief(arrived: &BTreeSet<(usize, Vec<u8>)>) -> Vec<String> {
    let word = |(at, frame): &(usize, Vec<u8>)| {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{at} {} {} ttl {} {:?}", hex(&frame[..12]), hex(&frame[26..34]), frame[22], &frame[42..45])
    };
    let mut words: Vec<String> = arrived.iter().map(word).collect();
    words.sort();
    words
}

#[test]
fn beside_the_kernel_alone_bridges_do_the_same_by_tc() {
    artery_rig::test("adopt-bridge-diff-tc", |rig| what_comes_out_is_the_same(rig, "tc"));
}

#[test]
fn beside_the_kernel_alone_bridges_do_the_same_by_xdp() {
    artery_rig::test("adopt-bridge-diff-xdp", |rig| what_comes_out_is_the_same(rig, "xdp"));
}

#[test]
fn an_idle_station_ages_and_an_active_one_does_not() {
    artery_rig::test("adopt-bridge-ageing", |rig| {
        let mut side = Side::make(rig, "", Some("tc"))?;
        // Eight seconds; the kernel looks for old entries as they become due.
        side.home.r.run(["ip", "link", "set", "br0", "type", "bridge", "ageing_time", "800"])?;
        std::thread::sleep(BARRIER);
        let known = |side: &Side, number: u8| -> Result<bool> {
            let text = side.home.r.run(["bridge", "fdb", "show", "br", "br0"])?.stdout;
            Ok(text.contains(&host(number).0))
        };
        side.exchange(0)?;
        assert!(known(&side, 0)? && known(&side, 1)?);
        let (began, before) = (Instant::now(), by_kernel(&side.home.r)?);
        let bridge = side.home.r.mac("br0")?;
        let mut sent = 0;
        while began.elapsed() < Duration::from_secs(20) {
            let (mac, address) = host(0);
            let packet = ip4().src(address.as_str()).dst("10.0.2.9").udp(1000, 2000).payload([1, 2, 3]);
            side.ends[0].send(&[ether(bridge.as_str(), mac.as_str()).ip4(packet).bytes()])?;
            sent += 1;
            assert!(known(&side, 0)?, "after {:?}", began.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!known(&side, 1)?, "an idle host is forgotten");
        let kernel = by_kernel(&side.home.r)? - before;
        // One each two seconds.
        assert!((5..=20).contains(&kernel) && sent > 100, "{kernel} of {sent}");
        let mut adopted = side.adopted.take().expect("it is adopted");
        adopted.stop(SOON).map(drop)
    });
}
