//! Clients, a router, and servers on one link behind it; and the router's program.

use super::load::Load;
use super::server::{Server, Talk};
use crate::support::{Running, until_seen};
use artery_rig::conf::BALANCER;
use artery_rig::program::artery;
use artery_rig::{Host, Link, Process, Result, Rig, RigError, Signal, Switch};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

/// The address that clients connect to.
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The network of `conf/balancer.click`: a client at 10.0.1.2, and servers 1 to 5 at 10.0.2.11 to 10.0.2.15,
/// which answer by the router.
pub(crate) struct Net {
    pub(crate) client: Host,
    pub(crate) router: Host,
    pub(crate) servers: Vec<Host>,
    switch: Switch,
    next_port: Arc<AtomicU16>,
}

/// How packets get to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// As they are: every server has the service's address.
    Direct,
    /// To the server's own address.
    Nat,
    /// In a tunnel (IP in IP).
    Tunnel,
}

/// Gives the host what comes in IP in IP, without the outer header.
const UNPACK: &str =
    "FromDevice(eth0) -> Classifier(12/0800 23/04) -> Strip(14) -> CheckIPHeader -> StripIPHeader
    -> CheckIPHeader -> EtherEncap(0x0800, 02:00:00:00:ff:01, 02:00:00:00:ff:02) -> ToHost(tunnel);
    FromHost(tunnel, ETHER 02:00:00:00:ff:02) -> Discard;";

/// Runs a test on such a network, the servers of which do this with connections.
pub(crate) fn with_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| body(&net(rig)?));
}

/// The same with another client, 10.0.1.66, behind the first one, which forwards packets up to a length.
pub(crate) fn with_far_client(label: &str, mtu: u32, body: impl FnOnce(&Net, &Host) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        let (net, far) = (net(rig)?, rig.host("far")?);
        let hop = &net.client;
        rig.link(&far, "eth0", hop, "eth1")?;
        hop.address("eth1", "10.0.1.65/26")?.mtu("eth1", mtu)?.forwarding(true)?;
        hop.sysctl("net.ipv4.conf.eth0.proxy_arp", "1")?;
        // It does not know of the hop's limit, and so lets servers send packets that are too long.
        far.address("eth0", "10.0.1.66/26")?.route("default", "10.0.1.65")?;
        body(&net, &far)
    });
}

fn net(rig: &Rig) -> Result<Net> {
    artery()?;
    let (client, router, switch) = (rig.host("c")?, rig.host("r")?, rig.switch("s")?);
    rig.link(&client, "eth0", &router, "eth0")?;
    rig.plug(&router, "eth1", &switch)?;
    client.address("eth0", "10.0.1.2/24")?.route("default", "10.0.1.1")?;
    let mut servers = Vec::new();
    for number in 1..=5 {
        let server = rig.host(&format!("web{number}"))?;
        let _: Link = rig.plug(&server, "eth0", &switch)?;
        server.address("eth0", &format!("10.0.2.1{number}/24"))?.route("default", "10.0.2.1")?;
        servers.push(server);
    }
    Ok(Net { client, router, servers, switch, next_port: Arc::new(AtomicU16::new(20_000)) })
}

impl Net {
    /// Prepares all servers for this way, and lets them listen.
    pub(crate) fn serve(&self, forward: Forward, talk: Talk) -> Result<Vec<Server>> {
        (1..)
            .zip(&self.servers)
            .map(|(number, host)| {
                if forward != Forward::Nat {
                    host.address("lo", &format!("{SERVICE}/32"))?;
                    // Only the router may know that they have it.
                    host.sysctl("net.ipv4.conf.all.arp_ignore", "1")?
                        .sysctl("net.ipv4.conf.all.arp_announce", "2")?;
                }
                Server::start(host, number, talk)
            })
            .collect()
    }

    /// Cuts a server off, or joins it again.
    pub(crate) fn cut(&self, number: u8, is_cut: bool) -> Result<()> {
        // The first port, number 1, is the router's.
        let port = format!("port{}", number + 1);
        let switch = self.switch.host();
        if is_cut {
            switch.down(&port)?
        } else {
            switch.up(&port)?
        };
        Ok(())
    }

    /// Lets all servers unpack what comes in a tunnel from the router. Where the kernel can't, programs do,
    /// which are to be kept.
    pub(crate) fn unpack(&self) -> Result<Vec<Process>> {
        let mut programs = Vec::new();
        for (number, host) in (1..).zip(&self.servers) {
            let own = format!("10.0.2.1{number}");
            let tunnel = ["ip", "link", "add", "tunnel", "type", "ipip", "local", &own, "remote", "10.0.2.1"];
            match host.run(tunnel) {
                Ok(_) => drop(host.up("tunnel")?),
                Err(RigError::Failed(failure)) if failure.output.stderr.contains("Unknown device type") => {
                    programs.push(crate::support::start(host, UNPACK, &[])?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(programs)
    }

    pub(crate) fn load(&self) -> Load {
        Load::new(&self.client, SERVICE, self.next_port.clone())
    }
}

impl Net {
    /// Starts a balancer of four servers with these variables, and waits until it forwards.
    pub(crate) fn balance(&self, variables: &[&str]) -> Result<Running> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("balancer.click");
        std::fs::write(&file, BALANCER).unwrap();
        let file = file.display().to_string();
        let words = [&["run", &file][..], variables, &["-R"]].concat();
        let mut balancer = Running::spawn_in(folder, &self.router, words)?;
        for server in 1..=self.servers.len() {
            balancer.until_answered(&self.client, &format!("10.0.2.1{server}"))?;
        }
        Ok(balancer)
    }
}

/// What is asked of an element `balancer`.
impl Running {
    /// What a handler of it says.
    pub(crate) fn read(&self, handler: &str) -> Result<String> {
        self.handler(&[&format!("balancer.{handler}")])
    }

    pub(crate) fn write(&self, handler: &str, value: &str) -> Result<()> {
        self.handler(&[&format!("balancer.{handler}"), value]).map(drop)
    }

    /// A number of what the balancer counts.
    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        let said = self.read("counts")?;
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{name}: {said}")))
    }

    /// Changes the file and has the program read it again; waits until a member is there that only
    /// the new one has.
    pub(crate) fn reload_to(&mut self, text: &str, member: &str) -> Result<()> {
        std::fs::write(self.folder.path().join("balancer.click"), text).unwrap();
        self.signal(Signal::HUP);
        self.until_read("members", |said| said.contains(member))
    }

    /// Waits until what a handler says is so.
    pub(crate) fn until_read(&self, handler: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
        until_seen(self, handler, || Ok(is_so(&self.read(handler)?)))
    }

    /// Runs `artery flow` on it.
    pub(crate) fn flow(&self, words: &[&str]) -> Result<String> {
        Ok(self.command(&["flow"])?.args(words).run()?.stdout)
    }

    /// The members that the flows of each worker have, by name.
    pub(crate) fn shares(&self) -> Result<BTreeMap<(u64, String), usize>> {
        let mut shares = BTreeMap::new();
        for line in self.flow(&["show", "--json"])?.lines() {
            let flow: serde_json::Value = serde_json::from_str(line).unwrap();
            let share = (flow["worker"].as_u64().unwrap(), flow["member"].as_str().unwrap().to_string());
            *shares.entry(share).or_insert(0) += 1;
        }
        Ok(shares)
    }
}
