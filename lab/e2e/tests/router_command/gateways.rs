//! Gateways that die while packets go to them, and come back.

use super::net::{PORTS, Running, start_on};
use crate::support::until;
use artery_rig::program::artery;
use artery_rig::{Host, Result, Switch};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Flows by each family: the odds that all go by one gateway are one in a million million.
pub(crate) const FLOWS: usize = 40;
/// Within which a dead gateway must be noticed.
const NOTICE: Duration = Duration::from_secs(60);
/// How often the configuration is read again meanwhile.
const RELOADS: Duration = Duration::from_secs(10);
const PORT: u16 = 7777;

/// Addresses behind both gateways, and behind the first alone; the gateways; and what ping prints for a host
/// that is silent. By family.
pub(crate) const SHARED: [&str; 2] = ["10.9.0.1", "fd09::1"];
pub(crate) const ALONE: [&str; 2] = ["10.8.0.1", "fd08::1"];
pub(crate) const GATEWAYS: [[&str; 2]; 2] = [["10.0.2.11", "10.0.2.12"], ["fd00:2::11", "fd00:2::12"]];
const SILENT: [&str; 2] = ["Destination Host Unreachable", "Address unreachable"];

/// Host `a` at one side of `r`; at the other two gateways, on a switch.
pub(crate) struct Net {
    pub(crate) a: Host,
    pub(crate) r: Host,
    pub(crate) gateways: [Host; 2],
    pub(crate) switch: Switch,
}

pub(crate) fn with_gateways(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    artery_rig::test(label, |rig| {
        artery()?;
        let (a, r, switch) = (rig.host("a")?, rig.host("r")?, rig.switch("s")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.plug(&r, "eth1", &switch)?;
        a.address("eth0", "10.0.1.2/24")?.address("eth0", "fd00:1::2/64")?;
        a.route("default", "10.0.1.1")?.route("default", "fd00:1::1")?;
        let gateways = [rig.host("g1")?, rig.host("g2")?];
        for (host, number) in gateways.iter().zip(1..) {
            rig.plug(host, "eth0", &switch)?;
            host.address("eth0", &format!("10.0.2.1{number}/24"))?.route("default", "10.0.2.1")?;
            host.address("eth0", &format!("fd00:2::1{number}/64"))?.route("default", "fd00:2::1")?;
            for address in SHARED.into_iter().chain(ALONE) {
                let len = if address.contains(':') { 128 } else { 32 };
                host.address("lo", &format!("{address}/{len}"))?;
            }
        }
        body(&Net { a, r, gateways, switch })
    });
}

/// Flows from `a` to the addresses behind both gateways, with several datagrams of each a second.
pub(crate) struct Flows {
    senders: Vec<UdpSocket>,
    receivers: Vec<UdpSocket>,
    pub(crate) round: u32,
    /// By source port: the rounds that arrived at each gateway.
    pub(crate) arrived: BTreeMap<u16, [BTreeSet<u32>; 2]>,
}

impl Flows {
    pub(crate) fn new(net: &Net, family: usize) -> Result<Flows> {
        let any: IpAddr = if family == 0 { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
        let bind = move |port| {
            let socket = UdpSocket::bind((any, port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let senders = net.a.enter(|| (0..FLOWS).map(|_| bind(0)).collect::<Vec<_>>())?;
        let to = SocketAddr::new(SHARED[family].parse().unwrap(), PORT);
        senders.iter().for_each(|sender| sender.connect(to).unwrap());
        let receivers = net.gateways.iter().map(|host| host.enter(|| bind(PORT))).collect::<Result<_>>()?;
        Ok(Flows { senders, receivers, round: 0, arrived: BTreeMap::new() })
    }

    /// Sends a datagram of each flow, and takes what has arrived since.
    pub(crate) fn send(&mut self) {
        self.round += 1;
        for sender in &self.senders {
            // An error of an earlier one shows here.
            while sender.send(&self.round.to_be_bytes()).is_err() {}
        }
        std::thread::sleep(Duration::from_millis(100));
        for (gateway, receiver) in self.receivers.iter().enumerate() {
            let mut round = [0; 4];
            while let Ok((_, from)) = receiver.recv_from(&mut round) {
                self.arrived.entry(from.port()).or_default()[gateway].insert(u32::from_be_bytes(round));
            }
        }
    }

    /// How many flows of the last round arrived at each gateway.
    pub(crate) fn shares(&self) -> [usize; 2] {
        [0, 1].map(|at| self.arrived.values().filter(|rounds| rounds[at].contains(&self.round)).count())
    }

    /// Those that went by a gateway in this round.
    pub(crate) fn by(&self, gateway: usize, round: u32) -> Vec<u16> {
        let by = self.arrived.iter().filter(|(_, rounds)| rounds[gateway].contains(&round));
        by.map(|(flow, _)| *flow).collect()
    }
}

fn state_of(router: &Running, address: &str) -> Result<String> {
    let neighbors = router.json(&["show", "neighbors"])?;
    let all = neighbors["neighbors"].as_array().unwrap();
    let one = all.iter().find(|one| one["dst"] == address).unwrap_or_else(|| panic!("{neighbors:#}"));
    Ok(one["state"].as_str().unwrap().to_string())
}

/// A gateway dies under load and comes back, which is noticed although the file is read again and again.
fn dies_and_comes_back(net: &Net, family: usize, comeback: Duration) -> Result<()> {
    let routes = [
        format!("{}/16={}", if family == 0 { "10.9.0.0" } else { "fd09::" }, GATEWAYS[family].join(",")),
        format!("{}/16={}", if family == 0 { "10.8.0.0" } else { "fd08::" }, GATEWAYS[family][0]),
    ];
    let mut router =
        start_on(&net.r, &[&PORTS[..], &["--route", &routes[0], "--route", &routes[1]]].concat())?;
    until(Duration::from_secs(10), || Ok(net.a.ping(ALONE[family], 1)?.received == 1))?;
    let mut flows = Flows::new(net, family)?;
    while flows.shares().iter().sum::<usize>() < FLOWS {
        assert!(flows.round < 100, "{:?}", flows.shares());
        flows.send();
    }
    let (before, kept) = (flows.round, flows.by(1, flows.round));
    assert!(kept.len() > 2 && kept.len() < FLOWS - 2, "{kept:?}");

    // The first port of the switch, number 1, is the router's.
    net.switch.host().down("port2")?;
    let died = Instant::now();
    let silent = || net.a.ping_with(ALONE[family], 1, &["-W", "0.3"]);
    while silent()?.received > 0 {
        flows.send();
    }
    let (mut left, mut reloads) = (None, 1);
    let refused = loop {
        flows.send();
        if died.elapsed() > reloads * RELOADS {
            router.reload("was replaced")?;
            reloads += 1;
        }
        if flows.shares()[1] == FLOWS {
            left.get_or_insert(died.elapsed());
        }
        let report = silent()?;
        if report.errors > 0 {
            assert!(report.text.contains(SILENT[family]), "{}", report.text);
            break died.elapsed();
        }
        assert!(died.elapsed() < NOTICE, "{:?}: {}", left, state_of(&router, GATEWAYS[family][0])?);
    };
    let left = left.unwrap_or_else(|| panic!("the gateway keeps its flows: {:?}", flows.shares()));
    println!("family {family}: flows have left after {left:?}, senders get errors after {refused:?}");
    assert_eq!(state_of(&router, GATEWAYS[family][0])?, "FAILED");
    assert_ne!(state_of(&router, GATEWAYS[family][1])?, "FAILED");
    let noticed = flows.round;
    router.reload("was replaced")?;
    (0..10).for_each(|_| flows.send());
    for (flow, arrived) in &flows.arrived {
        let lost = (noticed..flows.round).filter(|round| !arrived[1].contains(round)).count();
        assert_eq!(lost, 0, "flow {flow} avoids the gateway that is known to be dead");
    }
    assert_eq!(state_of(&router, GATEWAYS[family][0])?, "FAILED");
    for flow in &kept {
        let lost = (before..flows.round).filter(|round| !flows.arrived[flow][1].contains(round)).count();
        assert_eq!(lost, 0, "flow {flow} goes by the gateway that lives");
    }

    net.switch.host().up("port2")?;
    let back = Instant::now();
    loop {
        flows.send();
        let shares = flows.shares();
        if shares[0] > 2 && shares[0] + shares[1] == FLOWS {
            break;
        }
        assert!(back.elapsed() < comeback, "{shares:?}");
    }
    println!("family {family}: flows are back after {:?}", back.elapsed());
    until(Duration::from_secs(5), || Ok(net.a.ping(ALONE[family], 1)?.received == 1))?;
    assert_ne!(state_of(&router, GATEWAYS[family][0])?, "FAILED");
    Ok(())
}

/// Both families at once: nearly all of the time each waits.
#[test]
fn a_dead_gateway_is_noticed_within_a_minute_and_comes_back() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            with_gateways("command-gateway-4", |net| dies_and_comes_back(net, 0, Duration::from_secs(15)));
        });
        with_gateways("command-gateway-6", |net| dies_and_comes_back(net, 1, Duration::from_secs(75)));
    });
}
