//! Settings of the kernel: whether it forwards at all. What it demands of sources the fast path demands, too.
use super::{Blocker, BlockerKind, Direction, Family, Port};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

const ROOT: &str = "/proc/sys/net";
/// Bytes of a number, with its sign and what ends the line.
const MOST_DIGITS: usize = 32;

/// What keeps traffic of these ports.
pub(super) fn guards(ports: &[Port]) -> Vec<Blocker> {
    let found = |guards: io::Result<Vec<Blocker>>, family: Family, what: &str| {
        guards.unwrap_or_else(|error| vec![Blocker::unreadable(what, &error).for_family(family)])
    };
    let mut all = found(check_forwarding_ipv4(ports), Family::V4, "whether IPv4 is forwarded");
    all.extend(found(check_forwarding_ipv6(ports), Family::V6, "whether IPv6 is forwarded"));
    all.extend(found(check_exceptions_ipv4(ports), Family::V4, "whether ICMP changes ways of IPv4"));
    all.extend(found(
        check_proxy_ndp().map(Vec::from_iter),
        Family::V6,
        "whether this machine answers for others",
    ));
    all
}

/// A setting's number; none where there is no such setting, or no such interface any more.
pub(crate) fn number(name: &str) -> io::Result<Option<i64>> {
    // The kernel writes a setting at once, and many are read each second.
    let mut bytes = [0; MOST_DIGITS];
    let read = File::open(Path::new(ROOT).join(name)).and_then(|mut file| file.read(&mut bytes));
    let length = match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        length => length?,
    };
    let text = str::from_utf8(&bytes[..length]).ok();
    let number = text.and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not a number"))
}

/// Whether the kernel chooses among the next hops of a route by ports, and not by addresses only.
pub(crate) fn balances_by_ports(family: Family) -> bool {
    let family = if family == Family::V4 { "ipv4" } else { "ipv6" };
    matches!(number(&format!("{family}/fib_multipath_hash_policy")), Ok(Some(1)))
}

/// Whether the kernel sends ICMP redirects for IPv4 that leaves by the interface where it arrived. What can't
/// be read counts as yes.
pub(crate) fn sends_redirects(interface: &str) -> bool {
    let is_off = |name: &str| matches!(number(&format!("ipv4/conf/{name}/send_redirects")), Ok(Some(0)));
    !(is_off("all") && is_off(interface))
}

/// A setting as sysctl(8) writes it.
fn sysctl_name(name: &str) -> String {
    // Names of interfaces may hold dots; sysctl takes slashes then.
    if name.contains('.') { format!("net/{name}") } else { format!("net.{}", name.replace('/', ".")) }
}

/// The blocker for a setting.
pub(super) fn guard(kind: BlockerKind, what: &str, name: &str, value: i64, remedy: &str) -> Blocker {
    let name = sysctl_name(name);
    Blocker::new(kind, format!("{what}: {name} = {value}"), format!("changed by: sysctl {name}={remedy}"))
}

/// The kernel asks the interface that a packet came in by, and nothing else.
fn check_forwarding_ipv4(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let mut off = Vec::new();
    for port in ports {
        let name = format!("ipv4/conf/{}/forwarding", port.name);
        if number(&name)? == Some(0) {
            let guard = guard(BlockerKind::Forwarding, "forwarding of IPv4 is off", &name, 0, "1");
            off.push(guard.for_family(Family::V4).at_port(port.index, Direction::In));
        }
    }
    let everywhere = !off.is_empty() && off.len() == ports.len() && number("ipv4/ip_forward")? == Some(0);
    let for_all = || {
        guard(BlockerKind::Forwarding, "forwarding of IPv4 is off", "ipv4/ip_forward", 0, "1")
            .for_family(Family::V4)
    };
    Ok(if everywhere { vec![for_all()] } else { off })
}

/// ICMP messages (redirects, path MTU) change the kernel's route to single destinations, and the kernel sends
/// no notification of it. With these settings they also change the route of packets that it forwards.
fn check_exceptions_ipv4(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let mut found = Vec::new();
    let use_pmtu = "ipv4/ip_forward_use_pmtu";
    if number(use_pmtu)?.is_some_and(|value| value != 0) {
        found.push(
            guard(BlockerKind::Forwarding, "longest packets are learned", use_pmtu, 1, "0")
                .for_family(Family::V4),
        );
    }
    let is_on = |name: &str| Ok::<_, io::Error>(number(name)?.is_some_and(|value| value != 0));
    let of_port = |port: &Port, setting: &str| is_on(&format!("ipv4/conf/{}/{setting}", port.name));
    let forward = ports.iter().map(|port| of_port(port, "forwarding")).collect::<io::Result<Vec<_>>>()?;
    let all = "ipv4/conf/all/accept_redirects";
    let is_on_for_all = is_on(all)?;
    for (port, forwards) in ports.iter().zip(&forward).filter(|_| forward.contains(&true)) {
        // A port that forwards accepts them if both settings say so, another if one does.
        let own = of_port(port, "accept_redirects")?;
        let accepts = if *forwards { is_on_for_all && own } else { is_on_for_all || own };
        if accepts {
            let of_port = format!("ipv4/conf/{}/accept_redirects", port.name);
            let name = if is_on_for_all { all } else { &of_port };
            let guard = guard(BlockerKind::Forwarding, "redirects are accepted", name, 1, "0");
            found.push(guard.for_family(Family::V4).at_port(port.index, Direction::Out));
        }
    }
    Ok(merged(found, ports))
}

/// For whom the machine answers, it also takes what asks for them.
fn check_proxy_ndp() -> io::Result<Option<Blocker>> {
    let name = "ipv6/conf/all/proxy_ndp";
    let is_on = number(name)?.is_some_and(|value| value != 0);
    Ok(is_on.then(|| {
        guard(BlockerKind::Forwarding, "IPv6 neighbors are answered for", name, 1, "0").for_family(Family::V6)
    }))
}

/// The kernel asks for all interfaces; since Linux 6.17 an interface may force it.
fn check_forwarding_ipv6(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let mut off = Vec::new();
    let all = "ipv6/conf/all/forwarding";
    let setting = number(all)?;
    let is_off = setting == Some(0);
    for port in ports {
        let of_port = |setting: &str| format!("ipv6/conf/{}/{setting}", port.name);
        let disabled = of_port("disable_ipv6");
        match number(&disabled)? {
            Some(0) => (),
            Some(value) => {
                let guard = guard(BlockerKind::Forwarding, "IPv6 is disabled", &disabled, value, "0");
                off.push(guard.for_family(Family::V6).at_port(port.index, Direction::Both));
            }
            None if setting.is_none() => (),
            None => {
                let what = format!("{} has no IPv6, as where its MTU is below 1280", port.name);
                let guard = Blocker::new(
                    BlockerKind::Forwarding,
                    what,
                    format!("changed by: ip link set {} mtu 1500", port.name),
                );
                off.push(guard.for_family(Family::V6).at_port(port.index, Direction::Both));
            }
        }
        if is_off && number(&of_port("force_forwarding"))?.unwrap_or(0) == 0 {
            let guard = guard(BlockerKind::Forwarding, "forwarding of IPv6 is off", all, 0, "1");
            off.push(guard.for_family(Family::V6).at_port(port.index, Direction::In));
        }
    }
    Ok(merged(off, ports))
}

/// What a setting for all interfaces keeps of all ports is said once.
fn merged(guards: Vec<Blocker>, ports: &[Port]) -> Vec<Blocker> {
    let mut merged: Vec<Blocker> = Vec::new();
    for guard in &guards {
        let same = guards.iter().filter(|other| other.what == guard.what).count();
        let once = match same == ports.len() && guard.what.contains(".all.") {
            true => Blocker { port: None, direction: Direction::Both, ..guard.clone() },
            false => guard.clone(),
        };
        if !merged.contains(&once) {
            merged.push(once);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_sysctl_takes_them() {
        assert_eq!(sysctl_name("ipv4/ip_forward"), "net.ipv4.ip_forward");
        assert_eq!(sysctl_name("ipv4/conf/eth0.7/rp_filter"), "net/ipv4/conf/eth0.7/rp_filter");
    }

    #[test]
    fn what_one_setting_keeps_of_all_ports_is_said_once() {
        let ports = [1, 2].map(|index| Port { index, name: format!("eth{index}"), ..Port::default() });
        let one = |index, name| {
            guard(BlockerKind::Forwarding, "off", name, 0, "1")
                .for_family(Family::V6)
                .at_port(index, Direction::In)
        };
        let said = merged(vec![one(1, "ipv4/conf/all/a"), one(2, "ipv4/conf/all/a")], &ports);
        assert_eq!((said.len(), said[0].port), (1, None));
        let said = merged(vec![one(1, "ipv4/conf/eth1/a"), one(2, "ipv4/conf/all/a")], &ports);
        assert_eq!(said.iter().map(|guard| guard.port).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }
}
