//! Clients, a router, balancers and servers in network namespaces.
//!
//! ```text
//! clients ── front ──(ECMP)── balancers 1 to 3 ── servers 1 to 6
//!              └──────────── answers ───────────────┘
//! ```
//!
//! The front router is the kernel, which chooses among the balancers by a hash of addresses and ports. With
//! `artery-fleet` it has its routes from FRR.
//! Servers have the service's address, and answer without a balancer.

use artery_rig::{Host, Result, Rig, Switch};

/// The address that clients connect to.
pub(crate) const SERVICE: &str = "192.0.2.1";
pub(crate) const PORT: u16 = 80;
/// How many addresses clients have.
pub(crate) const CLIENTS: u8 = 20;
pub(crate) const BALANCERS: u8 = 3;
/// The front router's address on the network of the balancers' own traffic, where they speak BGP.
pub(crate) const FRONT: &str = "10.0.3.254";
const SERVERS: u8 = 6;

pub(crate) struct Network {
    pub(crate) client: Host,
    pub(crate) front: Host,
    /// Balancers 1 to 3.
    pub(crate) balancers: Vec<Host>,
    pub(crate) servers: Vec<Host>,
    _switches: [Switch; 3],
}

pub(crate) fn client(number: u8) -> String {
    format!("10.0.0.{}", 100 + number)
}

/// The address of a server, by its number.
pub(crate) fn server(number: u8) -> String {
    format!("10.0.2.{}", 20 + number)
}

/// A balancer's address towards the router, the servers and its peers.
pub(crate) fn balancer(number: u8, side: u8) -> String {
    format!("10.0.{side}.{}", 10 + number)
}

impl Network {
    pub(crate) fn create(rig: &Rig) -> Result<Network> {
        let (client, front) = (rig.host("client")?, rig.host("front")?);
        let (middle, right, peers) = (rig.switch("middle")?, rig.switch("right")?, rig.switch("peers")?);
        rig.link(&client, "eth0", &front, "eth0")?;
        for number in 1..=CLIENTS {
            client.address("eth0", &format!("{}/24", self::client(number)))?;
        }
        client.route("default", "10.0.0.1")?.offloads("eth0", false)?;
        rig.plug(&front, "eth1", &middle)?;
        rig.plug(&front, "eth2", &right)?;
        rig.plug(&front, "eth3", &peers)?;
        front.address("eth0", "10.0.0.1/24")?.address("eth1", "10.0.1.1/24")?;
        front.address("eth3", &format!("{FRONT}/24"))?;
        front.address("eth2", "10.0.2.254/24")?.forwarding(true)?;
        front.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
        // Answers come by another interface than requests left by.
        front.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
        let balancers = (1..=BALANCERS).map(|number| {
            let host = rig.host(&format!("b{number}"))?;
            rig.plug(&host, "eth0", &middle)?;
            rig.plug(&host, "eth1", &right)?;
            rig.plug(&host, "eth2", &peers)?;
            // Checks of members go by the front router, since the host does not see what comes by eth1.
            host.address("eth2", &format!("{}/24", balancer(number, 3)))?.route("10.0.2.0/24", FRONT)?;
            Ok(host)
        });
        let balancers = balancers.collect::<Result<_>>()?;
        let servers = (1..=SERVERS).map(|number| add_server(rig, &right, number));
        let servers = servers.collect::<Result<_>>()?;
        Ok(Network { client, front, balancers, servers, _switches: [middle, right, peers] })
    }

    /// Has the router spread flows over these balancers, without a routing protocol.
    pub(crate) fn spread_over(&self, balancers: &[u8]) -> Result<()> {
        let mut words = vec!["ip".into(), "route".into(), "replace".into(), format!("{SERVICE}/32")];
        for number in balancers {
            words.extend(["nexthop".into(), "via".into(), balancer(*number, 1)]);
        }
        self.front.run(words).map(drop)
    }
}

fn add_server(rig: &Rig, switch: &Switch, number: u8) -> Result<Host> {
    let host = rig.host(&format!("web{number}"))?;
    rig.plug(&host, "eth0", switch)?;
    host.address("eth0", &format!("{}/24", server(number)))?.route("default", "10.0.2.254")?;
    host.offloads("eth0", false)?.address("lo", &format!("{SERVICE}/32"))?;
    // Balancers alone may know that it has the service's address.
    host.sysctl("net.ipv4.conf.all.arp_ignore", "1")?.sysctl("net.ipv4.conf.all.arp_announce", "2")?;
    Ok(host)
}
