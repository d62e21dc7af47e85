//! What the machine has for a plan: its interfaces, and that no other router has them.
use super::{LEAST_IPV6_MTU, Plan, Port, USUAL_MTU};
use artery_device::{Interface, LinkType, PortClaim};
use std::collections::HashSet;

/// Claims the ports' interfaces and reads their MTU; adds what the machine lacks to `mistakes`.
/// Interfaces that the router has already, by their names `held`, are only read again: one that is gone
/// or down may come back.
pub(super) fn claim_interfaces(
    plan: &mut Plan,
    held: &HashSet<String>,
    mistakes: &mut Vec<String>,
) -> Vec<HeldPort> {
    // An interface may be several ports, by its VLANs.
    let mut taken: Vec<(Interface, HeldPort)> = Vec::new();
    for port in &mut plan.ports {
        if held.contains(port.device()) {
            port.mtu = Interface::find(port.device()).ok().and_then(|found| unusual(found.mtu));
            continue;
        }
        let known = |found: &Interface| taken.iter().any(|(other, _)| other.index == found.index);
        let done = find_interface(port).and_then(|found| {
            port.mtu = unusual(found.mtu);
            let claim = if known(&found) { None } else { Some(claim(&found)?) };
            Ok(claim.map(|_claim| (found, HeldPort { device: port.device().to_string(), _claim })))
        });
        match done {
            Ok(claim) => taken.extend(claim),
            Err(why) => mistakes.push(format!("{}: {why}", port.option)),
        }
    }
    taken.into_iter().map(|(_, claim)| claim).collect()
}

/// An interface of the router's, by the name that its ports have it by.
pub(super) struct HeldPort {
    pub(super) device: String,
    /// Dropping it lets others have the interface.
    _claim: PortClaim,
}

/// Adds to `mistakes` that an interface of the host can't be made, as there is one of its name that is
/// not among those that the router has made.
pub(super) fn check_host(plan: &Plan, made: &HashSet<String>, mistakes: &mut Vec<String>) {
    let is_there = |name: &&str| !made.contains(*name) && Interface::find(name).is_ok();
    let of_ports = plan.ports.iter().filter_map(|port| Some((port, port.host_interface.as_deref()?)));
    for (port, name) in of_ports.filter(|(_, name)| is_there(name)) {
        mistakes.push(format!(
            "{}: there is an interface {name}; does another router run? Write host-if=NAME behind the port's \
             addresses, or --host-ports PREFIX",
            port.option
        ));
    }
    if let Some(host) = plan.host.as_ref().filter(|host| is_there(&host.as_str())) {
        let what = format!("--host {host}: there is an interface of this name; does another router run?");
        mistakes.push(format!("{what} Give the host's interface another name, or take --no-host"));
    }
}

/// An MTU, if it is not the default.
fn unusual(mtu: u32) -> Option<u32> {
    (mtu != USUAL_MTU).then_some(mtu)
}

/// The interface of a port, if it can be one.
fn find_interface(port: &Port) -> Result<Interface, String> {
    let name = port.device();
    let found = Interface::find(name).map_err(|error| error.to_string())?;
    if found.link_type != Some(LinkType::ETHER) || (found.mac == Some([0; 6]) && name == "lo") {
        return Err(format!(
            "{name} is not Ethernet, which alone can be routed here; take another interface"
        ));
    }
    if found.mac == Some([0; 6]) {
        return Err(format!("{name} has no Ethernet address; give it one with 'ip link set {name} address'"));
    }
    if !found.up {
        // The way to an interface is chosen, and AF_XDP bound, at the start; an interface that was up
        // may come and go.
        let follows = "the router follows what becomes of it later";
        return Err(format!("{name} is down; bring it up with 'ip link set {name} up', {follows}"));
    }
    if let Some(mtu) = port.settings.mtu.filter(|mtu| u32::from(*mtu) > found.mtu) {
        let remedy = format!("'ip link set {name} mtu {mtu}', or take mtu={} at most", found.mtu);
        return Err(format!("mtu={mtu}: {name} carries {} bytes; {remedy}", found.mtu));
    }
    if found.mtu < LEAST_IPV6_MTU && port.has_ipv6() {
        let why = format!("{name} carries {} bytes, and IPv6 needs {LEAST_IPV6_MTU}", found.mtu);
        let remedy = format!("'ip link set {name} mtu {LEAST_IPV6_MTU}'");
        return Err(format!("{why}; give it that by {remedy}, or no IPv6 address"));
    }
    Ok(found)
}

/// Claims an interface for this process.
pub(crate) fn claim(interface: &Interface) -> Result<PortClaim, String> {
    PortClaim::new(interface).map(PortClaim::serve).map_err(|error| error.to_string())
}
