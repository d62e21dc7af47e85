//! A router that does nothing but balance, in a network of its own: for services of all kinds, and for what
//! needs more than one router or one interface more.

use super::net::SERVICE;
use super::server::{Server, Talk};
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig, Switch};

/// One side of a router; input and output as in `conf/balancer.click`.
const SIDE: &str = "elementclass Side { $device, $ip |
    FromDevice($device, SNIFFER false) -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    leaving :: Queue(1024) -> ToDevice($device);
    kind[0] -> ARPResponder($ip $device:eth) -> leaving;
    kind[1] -> [1] neighbors :: ARPQuerier($ip, $device:eth) -> leaving;
    kind[2] -> Strip(14) -> CheckIPHeader -> output;
    kind[3] -> Discard;
    input -> neighbors;
}
left :: Side(eth0, 10.0.1.1);
right :: Side(eth1, 10.0.2.1);
left -> balancer;
balancer[0] -> right;
balancer[1] -> right;
right -> left;";

/// The configuration of a router with these arguments of FlowBalancer.
pub(crate) fn graph(arguments: &str) -> String {
    format!("balancer :: FlowBalancer({arguments});\n{SIDE}")
}

/// Clients and servers, each on a switch; routers are plugged into both.
pub(crate) struct Plain {
    pub(crate) client: Host,
    pub(crate) servers: Vec<Host>,
    pub(crate) left: Switch,
    pub(crate) right: Switch,
}

impl Plain {
    /// A client at 10.0.1.2, and servers at 10.0.2.11 and so on.
    pub(crate) fn new(rig: &Rig, servers: usize) -> Result<Plain> {
        artery()?;
        let (client, left, right) = (rig.host("c")?, rig.switch("l")?, rig.switch("s")?);
        rig.plug(&client, "eth0", &left)?;
        client.address("eth0", "10.0.1.2/24")?.route("default", "10.0.1.1")?.offloads("eth0", false)?;
        let mut all = Vec::new();
        for number in 1..=servers {
            let server = rig.host(&format!("web{number}"))?;
            rig.plug(&server, "eth0", &right)?;
            server.address("eth0", &format!("10.0.2.1{number}/24"))?.route("default", "10.0.2.1")?;
            server.offloads("eth0", false)?;
            all.push(server);
        }
        Ok(Plain { client, servers: all, left, right })
    }

    /// Gives servers the service's address too, which only routers may know.
    pub(crate) fn have_service(&self) -> Result<()> {
        self.servers.iter().try_for_each(|host| {
            host.address("lo", &format!("{SERVICE}/32"))?.sysctl("net.ipv4.conf.all.arp_ignore", "1")?;
            host.sysctl("net.ipv4.conf.all.arp_announce", "2").map(drop)
        })
    }

    /// Lets all servers listen, and do this with connections.
    pub(crate) fn serve(&self, talk: Talk) -> Result<Vec<Server>> {
        self.have_service()?;
        (1..).zip(&self.servers).map(|(number, host)| Server::start(host, number, talk)).collect()
    }

    /// A host for a router. All have the same link addresses, so that one can take the place of another.
    pub(crate) fn router(&self, rig: &Rig, name: &str) -> Result<Router> {
        let host = rig.host(name)?;
        rig.plug(&host, "eth0", &self.left)?.mac("02:00:00:00:fe:01")?;
        rig.plug(&host, "eth1", &self.right)?.mac("02:00:00:00:fe:02")?;
        // A switch has its loopback, its bridge, and ports that are counted from 1.
        let last = |switch: &Switch| -> Result<_> {
            Ok((switch.host().clone(), switch.host().interfaces()?.len() - 2))
        };
        Ok(Router { host, ports: [last(&self.left)?, last(&self.right)?] })
    }
}

/// A host for a router, and where it is plugged in.
pub(crate) struct Router {
    pub(crate) host: Host,
    ports: [(Host, usize); 2],
}

impl Router {
    /// Cuts it off, which its own interfaces don't notice, or joins it again.
    pub(crate) fn cut(&self, is_cut: bool) -> Result<()> {
        self.ports.iter().try_for_each(|(switch, number)| {
            let port = format!("port{number}");
            if is_cut { switch.down(&port) } else { switch.up(&port) }.map(drop)
        })
    }
}
