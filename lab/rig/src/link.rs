//! Links between hosts (veth pairs) and switches (Linux bridges).

use super::error::{Result, RigError, Skip};
use super::host::Host;
use super::namespace::check_interface_name;

/// The name of a switch's bridge in its namespace.
const BRIDGE: &str = "bridge";

/// Two joined interfaces. Dropping this value leaves them as they are.
pub struct Link {
    ends: [(Host, String); 2],
}

/// A Linux bridge in a namespace of its own.
#[derive(Clone)]
pub struct Switch {
    host: Host,
}

impl Link {
    pub(super) fn create(left: (&Host, &str), right: (&Host, &str)) -> Result<Link> {
        check_interface_name(left.1)?;
        check_interface_name(right.1)?;
        let made = left
            .0
            .outside(["ip", "-n", left.0.namespace(), "link", "add", left.1, "address", &left.0.next_mac()])
            .args(["type", "veth", "peer", "name", right.1, "address", &right.0.next_mac()])
            .args(["netns", right.0.namespace()]);
        or_skip(made.run(), "veth")?;
        left.0.up(left.1)?;
        right.0.up(right.1)?;
        Ok(Link { ends: [left, right].map(|(host, interface)| (host.clone(), interface.to_owned())) })
    }

    /// Sets the largest packet at both ends.
    pub fn mtu(&self, mtu: u32) -> Result<&Link> {
        self.at_both_ends(|host, interface| host.mtu(interface, mtu))
    }

    /// Turns checksum and segmentation offloads on or off at both ends; see [`Host::offloads`].
    pub fn offloads(&self, on: bool) -> Result<&Link> {
        self.at_both_ends(|host, interface| host.offloads(interface, on))
    }

    /// Sets the link address of the first end.
    pub fn mac(&self, mac: &str) -> Result<&Link> {
        let (host, interface) = &self.ends[0];
        host.set_mac(interface, mac)?;
        Ok(self)
    }

    /// Takes both ends down.
    pub fn down(&self) -> Result<&Link> {
        self.at_both_ends(Host::down)
    }

    /// Brings both ends up.
    pub fn up(&self) -> Result<&Link> {
        self.at_both_ends(Host::up)
    }

    fn at_both_ends<'a>(&'a self, act: impl Fn(&'a Host, &'a str) -> Result<&'a Host>) -> Result<&'a Link> {
        self.ends.iter().try_for_each(|(host, interface)| act(host, interface).map(|_| ()))?;
        Ok(self)
    }
}

impl Switch {
    pub(super) fn create(host: Host) -> Result<Switch> {
        or_skip(
            host.ip(["link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0"]),
            "bridge",
        )?;
        // Snooping would keep multicast from ports that have not asked for it in time.
        host.ip(["link", "set", BRIDGE, "type", "bridge", "mcast_snooping", "0"])?;
        // A kernel with this feature would look into IP packets on their way through, and drop some.
        for family in ["iptables", "ip6tables", "arptables"] {
            let variable = format!("net.bridge.bridge-nf-call-{family}");
            if host.sysctl_value(&variable).is_ok() {
                host.sysctl(&variable, "0")?;
            }
        }
        host.up(BRIDGE)?;
        Ok(Switch { host })
    }

    pub(super) fn plug(&self, host: &Host, interface: &str) -> Result<Link> {
        let port = format!("port{}", self.host.interfaces()?.len() - 1);
        let link = Link::create((host, interface), (&self.host, &port))?;
        self.host.ip(["link", "set", &port, "master", BRIDGE])?;
        Ok(link)
    }

    /// The host that holds the bridge, for captures, counters and commands such as `bridge fdb`.
    pub fn host(&self) -> &Host {
        &self.host
    }
}

/// Takes a kernel that does not know a type of link for a reason to skip.
fn or_skip<T>(made: Result<T>, kind: &str) -> Result<T> {
    match made {
        Err(RigError::Failed(failure)) if failure.output.stderr.contains("Unknown device type") => {
            Err(Skip::KernelLacks(format!("{kind} links")).into())
        }
        other => other,
    }
}
