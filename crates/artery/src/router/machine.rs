//! What the machine has for a plan: its interfaces, and that no other router has them.
use super::{LEAST_IPV6_MTU, Plan, Port, USUAL_MTU};
use artery_device::{Interface, LinkType};
use rustix::net::sockopt::socket_peercred;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// From one try to the next where something can't be had.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the ports, and learns what is to be known of them; adds what the machine lacks to `mistakes`.
pub(super) fn take(plan: &mut Plan, mistakes: &mut Vec<String>) -> Vec<Claim> {
    // An interface may be several ports, by its VLANs.
    let mut taken: Vec<(Interface, Claim)> = Vec::new();
    for port in &mut plan.ports {
        let known = |found: &Interface| taken.iter().any(|(other, _)| other.index == found.index);
        let done = look(port).and_then(|found| {
            port.mtu = unusual(found.mtu);
            let claim = if known(&found) { None } else { Some(claim(&found)?) };
            Ok(claim.map(|claim| (found, claim)))
        });
        match done {
            Ok(claim) => taken.extend(claim),
            Err(why) => mistakes.push(format!("{}: {why}", port.option)),
        }
    }
    let claims = taken.into_iter().map(|(_, claim)| claim).collect();
    if let Some(host) = &plan.host
        && Interface::find(host).is_ok()
    {
        let what = format!("--host {host}: there is an interface of this name; does another router run?");
        mistakes.push(format!("{what} Give the host's interface another name, or take --no-host"));
    }
    claims
}

/// Learns of ports that were taken before what may have changed. What is gone, or down, may come back.
pub(super) fn look_again(plan: &mut Plan) {
    for port in &mut plan.ports {
        port.mtu = Interface::find(port.device()).ok().and_then(|found| unusual(found.mtu));
    }
}

/// An MTU, if it is not the one that is meant where nothing is said.
fn unusual(mtu: u32) -> Option<u32> {
    (mtu != USUAL_MTU).then_some(mtu)
}

/// The interface of a port, if it can be one.
fn look(port: &Port) -> Result<Interface, String> {
    let name = port.device();
    let found = Interface::find(name).map_err(|error| error.to_string())?;
    if found.link_type != Some(LinkType::ETHER) || (found.mac == Some([0; 6]) && name == "lo") {
        return Err(format!("{name} is no Ethernet, which alone can be routed here; take another interface"));
    }
    if found.mac == Some([0; 6]) {
        return Err(format!("{name} has no Ethernet address; give it one with 'ip link set {name} address'"));
    }
    if !found.up {
        // The way to an interface is chosen, and AF_XDP bound, at the start; an interface that was up may come and go.
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

/// An interface that this router has taken; dropping it lets another router have the interface.
pub(crate) struct Claim {
    /// The interface's number.
    pub(crate) index: u32,
    /// Where its owner listens, and whether that is over.
    listening: Option<(SocketAddr, Arc<AtomicBool>)>,
}

/// Takes an interface, unless another router has it. Packet sockets could be had by both, who would both answer and forward; so
/// whoever has it listens at a name that the kernel keeps for the network namespace.
pub(crate) fn claim(interface: &Interface) -> Result<Claim, String> {
    let unclaimed = Claim { index: interface.index, listening: None };
    // By its number, which stays when it is renamed.
    let Ok(name) = SocketAddr::from_abstract_name(format!("artery/port/{}", interface.index)) else {
        return Ok(unclaimed);
    };
    match UnixListener::bind_addr(&name) {
        Ok(listener) => {
            let is_over = Arc::new(AtomicBool::new(false));
            let claim = Claim { listening: Some((name, is_over.clone())), ..unclaimed };
            // Where there is no thread to be had, the next router can't tell, and this one has other worries.
            drop(
                std::thread::Builder::new()
                    .name("claim".to_string())
                    .spawn(move || hold(&listener, &is_over)),
            );
            Ok(claim)
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_trusted(&name) => {
            let name = &interface.name;
            Err(format!("another router has {name} as its port; end that one, or take another interface"))
        }
        Err(_) => Ok(unclaimed),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((name, is_over)) = &self.listening {
            is_over.store(true, Relaxed);
            // Wakes who listens, if anybody does.
            drop(UnixStream::connect_addr(name));
        }
    }
}

/// Lets those in who ask whether somebody is there.
fn hold(listener: &UnixListener, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        if listener.accept().is_err() {
            // Out of descriptors, most likely.
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether root, or this user, listens there. Others must not be able to keep a router from starting.
fn is_trusted(name: &SocketAddr) -> bool {
    let owner = UnixStream::connect_addr(name).and_then(|stream| Ok(socket_peercred(&stream)?));
    owner.is_ok_and(|owner| owner.uid.is_root() || owner.uid == rustix::process::geteuid())
}
