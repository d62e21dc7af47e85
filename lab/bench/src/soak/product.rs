//! What is soaked: a product of ours in the middle of hosts, its traffic, and what happens to it.

use super::good::{Connection, Stream};
use super::hostile::{Attacker, Target};
use artery_rig::program::artery;
use artery_rig::{Command, Host, Process, Result, Rig, RigError, Signal};
use artery_wire::EtherAddr;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long anything that is waited for may take: programs of a debug build share few processors.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// How long a link is down.
const DOWN: Duration = Duration::from_millis(300);
/// Port numbers of good traffic.
const PORTS: [u16; 3] = [7001, 7002, 7003];
/// What a router says of a reload that succeeded.
pub(super) const REPLACED: &str = "the configuration was replaced";

/// How much traffic there is, in frames a second.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// Frames a second of each stream.
    pub(super) good: u64,
    pub(super) hostile: u64,
}

/// What kind of thing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files are read again, or rules are loaded. No packet may be lost.
    Reload,
    /// The configuration is replaced by another one. No packet may be lost.
    Replacement,
    /// A link goes down and up.
    Flap,
    /// An interface is deleted and made again.
    Remake,
}

impl Kind {
    pub(super) fn may_lose(self) -> bool {
        matches!(self, Kind::Flap | Kind::Remake)
    }
}

/// What happens again and again.
pub(super) struct Event {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) act: Box<Act>,
}

type Act = dyn FnMut(&Net, &mut Process, usize) -> Result<()> + Send;

impl Event {
    pub(super) fn new(
        name: &'static str,
        kind: Kind,
        act: impl FnMut(&Net, &mut Process, usize) -> Result<()> + Send + 'static,
    ) -> Event {
        Event { name, kind, act: Box::new(act) }
    }

    /// The link behind an interface goes down and up.
    pub(super) fn flap(name: &'static str, interface: &'static str) -> Event {
        Event::new(name, Kind::Flap, move |net, _, _| {
            net.r.down(interface)?;
            std::thread::sleep(DOWN);
            net.r.up(interface).map(drop)
        })
    }

    /// The interface eth1, and with it the far host's eth0, is deleted and made again.
    pub(super) fn remake() -> Event {
        Event::new("eth1 is deleted and made again", Kind::Remake, |net, _, _| net.remake())
    }

    /// Files are read again by SIGHUP; the router says so.
    pub(super) fn hangup(name: &'static str, mut write: impl FnMut(&Net, usize) + Send + 'static) -> Event {
        Event::new(name, Kind::Reload, move |net, process, turn| {
            write(net, turn);
            said_once_more(process, REPLACED, |process| {
                process.signal(Signal::HUP);
                Ok(())
            })
        })
    }
}

/// Waits until a process has said something once more than before.
pub(super) fn said_once_more(
    process: &mut Process,
    what: &str,
    act: impl FnOnce(&mut Process) -> Result<()>,
) -> Result<()> {
    let count = |process: &Process| process.stderr_so_far().matches(what).count();
    let before = count(process);
    act(process)?;
    let deadline = Instant::now() + SOON;
    while count(process) == before {
        if !process.is_running() || Instant::now() > deadline {
            return Err(RigError::NotSeen(process.failure(), format!("{what:?} once more within {SOON:?}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Hosts `a` and `b`, and `c`, which attacks, at eth0 to eth2 of `r`.
pub(super) struct Net {
    pub(super) a: Host,
    pub(super) b: Host,
    pub(super) c: Host,
    pub(super) r: Host,
    pub(super) is_routed: bool,
    far_mac: String,
    folder: tempfile::TempDir,
}

impl Net {
    /// Hosts in networks of their own, 10.0.1.2, 10.0.2.2 and 10.3.0.2; or all in 10.0.0.0/16.
    pub(super) fn make(rig: &Rig, is_routed: bool) -> Result<Net> {
        let [a, b, c, r] = ["a", "b", "c", "r"].map(|name| rig.host(name));
        let folder = tempfile::tempdir().map_err(RigError::system("cannot make a folder"))?;
        let mut net = Net { a: a?, b: b?, c: c?, r: r?, is_routed, far_mac: String::new(), folder };
        for (host, port) in [(&net.a, "eth0"), (&net.b, "eth1"), (&net.c, "eth2")] {
            rig.link(host, "eth0", &net.r, port)?;
            net.address(host)?;
        }
        net.far_mac = net.b.mac("eth0")?;
        net.pin_neighbors()?;
        Ok(net)
    }

    /// Of a host's eth0: its IPv4 and IPv6 address with their lengths, and its gateways.
    fn plan(&self, host: &Host) -> ([String; 2], [&'static str; 2]) {
        let number = match host.name() {
            "a" => 1,
            "b" => 2,
            _ => 3,
        };
        match (self.is_routed, number) {
            (false, _) => ([format!("10.0.0.{number}/16"), format!("fd00::{number}/64")], ["", ""]),
            (true, 1) => (["10.0.1.2/24".into(), "fd00:1::2/64".into()], ["10.0.1.1", "fd00:1::1"]),
            (true, 2) => (["10.0.2.2/24".into(), "fd00:2::2/64".into()], ["10.0.2.1", "fd00:2::1"]),
            (true, _) => (["10.3.0.2/16".into(), "fd00:3::2/64".into()], ["10.3.0.1", "fd00:3::1"]),
        }
    }

    fn address(&self, host: &Host) -> Result<()> {
        let (addresses, gateways) = self.plan(host);
        for address in &addresses {
            host.address("eth0", address)?;
        }
        if self.is_routed && host.name() == "b" {
            // Another member of services.
            host.address("eth0", "10.0.2.3/24")?;
        }
        for gateway in gateways.iter().filter(|gateway| !gateway.is_empty()) {
            host.route("default", gateway)?;
        }
        Ok(())
    }

    fn remake(&self) -> Result<()> {
        self.r.run(["ip", "link", "delete", "eth1"])?;
        std::thread::sleep(DOWN);
        self.make_again()
    }

    /// Makes eth1 again, and the far host's eth0 with its addresses.
    pub(super) fn make_again(&self) -> Result<()> {
        let far = ["type", "veth", "peer", "name", "eth0", "address", &self.far_mac, "netns"];
        let add = [&["ip", "link", "add", "eth1"][..], &far, &[self.b.namespace()]].concat();
        self.r.run(add)?;
        self.b.up("eth0")?;
        self.address(&self.b)?;
        self.pin_neighbors()?;
        self.r.up("eth1").map(drop)
    }

    /// Gives hosts of one network permanent neighbor entries for each other: forged ARP would deceive the
    /// hosts, not the switch.
    fn pin_neighbors(&self) -> Result<()> {
        for (host, other) in [(&self.a, &self.b), (&self.b, &self.a)].into_iter().filter(|_| !self.is_routed)
        {
            let mac = other.mac("eth0")?;
            for address in &self.addresses(other) {
                let words = ["ip", "neighbor", "replace", address, "lladdr", &mac, "dev", "eth0"];
                host.run(words.iter().chain(&["nud", "permanent"]))?;
            }
        }
        Ok(())
    }

    /// Gives the far host what the kernel took from its interface when that went down.
    pub(super) fn readdress_far(&self) -> Result<()> {
        let ([_, address], gateways) = self.plan(&self.b);
        self.b.run(["ip", "address", "replace", &address, "dev", "eth0", "nodad"])?;
        for gateway in gateways {
            self.b.run(["ip", "route", "replace", "default", "via", gateway])?;
        }
        Ok(())
    }

    /// The IPv4 and IPv6 address of a host.
    pub(super) fn addresses(&self, host: &Host) -> [String; 2] {
        self.plan(host).0.map(|address| address.split('/').next().unwrap_or_default().to_string())
    }

    /// A file of this name in the folder of the net.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        // A file that is not there shows as soon as it is to be read.
        let _ = fs::write(self.path(name), text);
    }

    pub(super) fn artery(&self, words: &[&str]) -> Result<Command> {
        Ok(self.r.command([artery()?]).args(words).limit(SOON))
    }

    /// A command about the running product, which must be a success.
    pub(super) fn run_artery(&self, words: &[&str]) -> Result<String> {
        Ok(self.artery(words)?.env("ARTERY_SOCKET", self.path("control")).run()?.stdout)
    }

    /// Waits until `b` answers `a`.
    pub(super) fn until_forwarded(&self, process: &mut Process) -> Result<()> {
        let deadline = Instant::now() + SOON;
        for address in self.addresses(&self.b) {
            while self.a.ping(&address, 1)?.received == 0 {
                if !process.is_running() || Instant::now() > deadline {
                    return Err(RigError::NotSeen(process.failure(), format!("that {address} answers")));
                }
            }
        }
        Ok(())
    }

    /// Streams in both directions and both families.
    pub(super) fn streams(&self, rate: u64, began: Instant) -> Result<Vec<Stream>> {
        let ([far, far6], [near, _]) = (self.addresses(&self.b), self.addresses(&self.a));
        let start =
            |from, to, address: &str, port| Stream::start((from, &[to]), (address, port), rate, began);
        Ok(vec![
            start(&self.a, &self.b, &far, PORTS[0])?,
            start(&self.b, &self.a, &near, PORTS[1])?,
            start(&self.a, &self.b, &far6, PORTS[2])?,
        ])
    }

    /// An attacker at `c`, who makes up so many neighbors.
    pub(super) fn attacker(&self, neighbors: u32, rate: u64, seed: u64) -> Result<Attacker> {
        let wrong =
            || RigError::System("an address of the net".into(), std::io::ErrorKind::InvalidData.into());
        let mac = |text: String| text.parse::<EtherAddr>().map_err(|_| wrong());
        let [far, far6] = self.addresses(&self.b);
        let [near, _] = self.addresses(&self.a);
        let own = if self.is_routed { ["10.3.0.1", "fd00:3::1"] } else { ["10.0.0.9", "fd00::9"] };
        let target = Target {
            mac: mac(if self.is_routed { self.r.mac("eth2")? } else { self.far_mac.clone() })?,
            own: (own[0].parse().map_err(|_| wrong())?, own[1].parse().map_err(|_| wrong())?),
            far: (far.parse().map_err(|_| wrong())?, far6.parse().map_err(|_| wrong())?),
            victim: (mac(self.a.mac("eth0")?)?, near.parse().map_err(|_| wrong())?),
            neighbors,
        };
        Attacker::start(&self.c, "eth0", target, rate, seed)
    }

    /// The link address of `b`, which stays when its interface is made again.
    pub(super) fn far_mac(&self) -> &str {
        &self.far_mac
    }
}

/// A product that runs.
pub(super) struct Stand {
    pub(super) net: Net,
    pub(super) process: Process,
    pub(super) streams: Vec<Stream>,
    pub(super) connections: Vec<Connection>,
    pub(super) attackers: Vec<Attacker>,
    pub(super) events: Vec<Event>,
    /// What it says at its end.
    pub(super) last_words: &'static str,
}
