//! Where a file's cases run: a namespace for Artery, one for the kernel, and one that holds the hosts' ends.

use super::packet::{host_mac, router_mac};
use super::side::Side;
use super::text::{CaseFile, Who};
use artery_rig::{Endpoint, Host, Result, Rig};
use std::fmt::Write as _;
use tempfile::TempDir;

/// The hosts' ends take what any router sends; a router's MTU is its own.
const HOST_MTU: u32 = 9000;

/// Settings of the kernel before the commands of a file: it forwards, and limits no ICMP messages, as their
/// number in a second would depend on the machine. Flow labels of its own messages are left out.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv4.icmp_ratemask", "0"),
    ("net.ipv4.icmp_msgs_per_sec", "100000"),
    ("net.ipv6.icmp.ratelimit", "0"),
    ("net.ipv6.auto_flowlabels", "0"),
];

/// The namespaces, and both sides at work.
pub(super) struct Bed {
    pub(super) sides: Vec<Side>,
    /// Holds the files of `file NAME:`, in which both start.
    _folder: TempDir,
}

impl Bed {
    /// Makes the namespaces, and starts what a file says.
    pub(super) fn make(file: &CaseFile, rig: &Rig) -> Result<Bed> {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        for (name, text) in &file.setup.files {
            std::fs::write(folder.path().join(name), text).expect("a file in a folder of our own");
        }
        let hosts = rig.host("hosts")?;
        // No stack, so that nothing but a case's packets is sent.
        hosts.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        let mut sides = vec![Side::new(Who::Artery, rig.host("artery")?)];
        if !file.setup.kernel.is_empty() {
            let kernel = rig.host("kernel")?;
            for (name, value) in KERNEL_SETTINGS {
                kernel.sysctl(name, value)?;
            }
            // A kernel with this feature looks into IP packets that a bridge forwards, and drops some.
            for family in ["iptables", "ip6tables", "arptables"] {
                let variable = format!("net.bridge.bridge-nf-call-{family}");
                if kernel.sysctl_value(&variable).is_ok() {
                    kernel.sysctl(&variable, "0")?;
                }
            }
            sides.push(Side::new(Who::Kernel, kernel));
        }
        for side in &mut sides {
            side.ends = connect(file, &hosts, side)?;
            side.start(file, folder.path())?;
        }
        Ok(Bed { sides, _folder: folder })
    }
}

/// Makes the links of a side, and opens the hosts' ends.
fn connect(file: &CaseFile, hosts: &Host, side: &Side) -> Result<Vec<Endpoint>> {
    let letter = if side.who == Who::Artery { 'a' } else { 'k' };
    let (mut outside, mut inside) = (String::new(), String::new());
    for port in 1..=file.setup.ports {
        let (near, far) = (router_mac(port), host_mac(port));
        let namespace = side.host.namespace();
        let _ = writeln!(
            outside,
            "link add {letter}{port} address {far} mtu {HOST_MTU} type veth \
             peer name p{port} address {near} netns {namespace}\nlink set {letter}{port} up"
        );
        if side.who == Who::Artery {
            // Otherwise the kernel has the port's link-local address until the router takes the port, and
            // solicits the hosts that the fence comes from for some seconds.
            let _ = writeln!(inside, "link set p{port} addrgenmode none");
        }
        let _ = writeln!(inside, "link set p{port} up");
    }
    for (port, mtu) in &file.setup.mtus {
        let _ = writeln!(inside, "link set p{port} mtu {mtu}");
    }
    hosts.command(["ip", "-batch", "-"]).input(outside).run()?;
    side.host.command(["ip", "-batch", "-"]).input(inside).run()?;
    let open = |port| {
        // What the kernel itself sends must be whole on the link.
        side.host.offloads(&format!("p{port}"), false)?;
        hosts.endpoint(&format!("{letter}{port}"))
    };
    (1..=file.setup.ports).map(open).collect()
}
