//! A router between hosts: networks to run it in, `artery router` as a process, what it says of itself, and a
//! look at every frame that it sends.

use super::wire;
use crate::support::{Running, SOON, artery_on, until_seen};
use artery_rig::program::artery;
use artery_rig::{Capture, Host, Result, Rig};
use serde_json::Value;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// The interface by which hosts are linked to the router.
pub(crate) const HOST_LINK: &str = "eth0";

/// Hosts, and the router that each is linked to: host N by interface ethN of `r`, in
/// 10.0.N.0/24 and fd00:N::/64, where the router is 1 and the host 2. Nothing on the links is
/// left to be finished by hardware.
pub(crate) struct Net {
    pub(crate) rig: Rig,
    pub(crate) r: Host,
    pub(crate) hosts: Vec<Host>,
}

/// Runs a test with so many hosts.
pub(crate) fn with_net(label: &str, hosts: usize, body: impl FnOnce(&Net) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        let (r, names) = (rig.host("r")?, ["a", "b", "c", "d"]);
        let hosts: Vec<Host> = names[..hosts].iter().map(|name| rig.host(name)).collect::<Result<_>>()?;
        let net = Net { rig: rig.clone(), r, hosts };
        for (n, host) in (1..).zip(&net.hosts) {
            net.rig.link(host, HOST_LINK, &net.r, &format!("eth{n}"))?.offloads(false)?;
            host.address(HOST_LINK, &format!("10.0.{n}.2/24"))?.route("default", &format!("10.0.{n}.1"))?;
            host.address(HOST_LINK, &format!("fd00:{n}::2/64"))?.route("default", &format!("fd00:{n}::1"))?;
        }
        body(&net)
    });
}

impl Net {
    pub(crate) fn a(&self) -> &Host {
        &self.hosts[0]
    }
    pub(crate) fn b(&self) -> &Host {
        &self.hosts[1]
    }

    /// The router's ports as options.
    fn ports(&self) -> Vec<String> {
        (1..=self.hosts.len())
            .flat_map(|n| ["--port".into(), format!("eth{n}=10.0.{n}.1/24,fd00:{n}::1/64")])
            .collect()
    }

    /// Starts a router with further options, waits until all its addresses are its own, and looks
    /// at all it sends.
    pub(crate) fn start(&self, options: &[&str]) -> Result<Router> {
        let router = self.start_tentative(options)?;
        router.until_claimed(3 * self.hosts.len())?;
        Ok(router)
    }

    /// The same without waiting for its addresses.
    pub(crate) fn start_tentative(&self, options: &[&str]) -> Result<Router> {
        let ports = self.ports();
        let ports = ports.iter().map(String::as_str);
        self.run(&ports.chain(options.iter().copied()).collect::<Vec<_>>())
    }

    /// Starts a router with no options but these.
    pub(crate) fn run(&self, options: &[&str]) -> Result<Router> {
        Router::start(self, &[&["router"], options].concat())
    }

    /// Starts a router whose configuration is changed first, for what `artery router` has no options for.
    pub(crate) fn start_changed(
        &self,
        options: &[&str],
        change: impl FnOnce(&str) -> String,
    ) -> Result<Router> {
        let printed = artery_on(&self.r, ["router", "--print", "--no-host"])?
            .args(self.ports())
            .args(options)
            .run()?
            .stdout;
        let config = change(&printed);
        assert_ne!(config, printed);
        Router::start(self, &["run", "-e", &config])
    }
}

pub(crate) struct Router {
    running: Running,
    /// By host; none where its link was down at the start.
    captures: Vec<Option<Capture>>,
}

impl Deref for Router {
    type Target = Running;
    fn deref(&self) -> &Running {
        &self.running
    }
}

impl Router {
    fn start(net: &Net, words: &[&str]) -> Result<Router> {
        let captures = net.hosts.iter().map(received).collect::<Result<_>>()?;
        let router = Router { running: Running::spawn(&net.r, words)?, captures };
        router.until(|router| Ok(router.socket.exists() && router.handler(&["version"]).is_ok()))?;
        Ok(router)
    }

    fn list(&self, handler: &str, key: &str) -> Result<Vec<Value>> {
        Ok(self.json_of(handler)?[key].as_array().unwrap_or_else(|| panic!("{handler} has no {key}")).clone())
    }

    /// A neighbor as `ip.neighbors_json` has it, by its address.
    pub(crate) fn neighbor(&self, address: &str) -> Result<Option<Value>> {
        Ok(self
            .list("ip.neighbors_json", "neighbors")?
            .into_iter()
            .find(|neighbor| neighbor["dst"] == address))
    }

    /// How many neighbors have addresses that begin so.
    pub(crate) fn neighbors_in(&self, start: &str) -> Result<u64> {
        let neighbors = self.list("ip.neighbors_json", "neighbors")?;
        let is_in =
            |neighbor: &&Value| neighbor["dst"].as_str().is_some_and(|address| address.starts_with(start));
        Ok(neighbors.iter().filter(is_in).count() as u64)
    }

    /// A port by its name.
    pub(crate) fn port(&self, name: &str) -> Result<Value> {
        let found = self.list("ip.ports_json", "ports")?.into_iter().find(|port| port["name"] == name);
        Ok(found.unwrap_or_else(|| panic!("no port {name}")))
    }

    /// What of the events so far is of a kind: what happened, and to whom.
    pub(crate) fn events(&self, kind: &str, what: &str) -> Result<Vec<Value>> {
        let events = self.list("ip.events_json", "events")?.into_iter();
        Ok(events.filter(|event| event["kind"] == kind && event["what"] == what).collect())
    }

    /// What the slow path has counted under a name.
    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        let said = self.handler(&["ip.counts"])?;
        let counted = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        Ok(counted.unwrap_or_else(|| panic!("{name}: {said}")))
    }

    /// How many packets ended for a reason.
    pub(crate) fn drops(&self, reason: &str) -> Result<u64> {
        let drops = self.list("ip.drops_json", "drops")?.into_iter().filter(|drop| drop["reason"] == reason);
        Ok(drops.filter_map(|drop| drop["count"].as_u64()).sum())
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, mut is_so: impl FnMut(&Router) -> Result<bool>) -> Result<()> {
        until_seen(self, "what it should", || is_so(self))
    }

    /// Waits until so many addresses are the router's own.
    pub(crate) fn until_claimed(&self, addresses: usize) -> Result<()> {
        self.until(|router| Ok(router.events("address", "claimed")?.len() >= addresses))
    }

    /// Waits until a port is up, or down, as the router sees it.
    pub(crate) fn until_port(&self, name: &str, is_up: bool) -> Result<()> {
        self.until(|router| Ok(router.port(name)?["up"] == is_up))
    }

    /// Frames that the router has sent to a host, by their numbers from 0.
    pub(crate) fn sent_to(&self, host: usize) -> Vec<artery_rig::Frame> {
        self.captures[host].as_ref().map(Capture::frames).unwrap_or_default()
    }

    /// Ends the router, which it does cleanly, and looks at every frame that it has sent.
    pub(crate) fn end(mut self) -> Result<()> {
        self.running.end()?;
        for capture in self.captures.iter_mut().flatten() {
            capture.stop()?;
            let frames = capture.frames();
            assert!(!frames.is_empty(), "a router says something on every link");
            frames.iter().for_each(|frame| wire::check(&frame.bytes));
        }
        Ok(())
    }
}

/// What a host receives from now on, if it can receive anything.
fn received(host: &Host) -> Result<Option<Capture>> {
    let is_up = host.run(["ip", "link", "show", "dev", HOST_LINK, "up"])?.stdout.contains(HOST_LINK);
    is_up.then(|| host.capture_with(HOST_LINK, &["-Q", "in", "-B", "65536"])).transpose()
}

/// Pings, and wants every request answered.
#[track_caller]
pub(crate) fn answered(from: &Host, address: &str, count: u32) -> Result<()> {
    let report = from.ping(address, count)?;
    assert_eq!((report.received, report.duplicates), (u64::from(count), 0), "{}", report.text);
    Ok(())
}

/// Waits until a ping is answered; returns how long that took.
pub(crate) fn until_answered(from: &Host, address: &str) -> Result<Duration> {
    let start = Instant::now();
    while from.ping_with(address, 1, &["-W", "0.2"])?.received == 0 {
        assert!(start.elapsed() < SOON, "{address} never answers {}", from.name());
    }
    Ok(start.elapsed())
}
