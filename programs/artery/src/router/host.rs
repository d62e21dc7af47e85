//! The host's side of a router: its interface's addresses, and conflicts with the host.
use super::{LEAST_IPV6_MTU, Plan, Port};
use artery_wire::EtherAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The Ethernet address of the host's interface. Only the router sees it, so every router can use the same.
pub(super) const LINK: EtherAddr = EtherAddr([0x02, b'a', b'r', b't', b'r', 0x01]);

/// The host's addresses on its interface: all of the router's.
pub(super) fn addresses(plan: &Plan) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
    plan.ports.iter().flat_map(|port| port.addresses.iter().copied())
}

/// The longest packet that all ports take, where it is not the default. With IPv6 it is at least the
/// minimum of IPv6: the router fragments packets that are too long for a port without IPv6, or answers
/// with an ICMP error.
pub(super) fn mtu(plan: &Plan) -> Option<u32> {
    let has_ipv6 = plan.ports.iter().any(Port::has_ipv6);
    let least = if has_ipv6 { LEAST_IPV6_MTU } else { 0 };
    let shortest = plan.ports.iter().map(|port| port.effective_mtu().unwrap_or(1500).max(least)).min();
    shortest.filter(|mtu| *mtu != 1500)
}

/// What the user should know before the router starts.
pub(super) fn warnings(plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    for port in &plan.ports {
        let Some(host) = port.host_interface.as_ref().or(plan.host.as_ref()) else { continue };
        for (address, len) in port.addresses.iter().filter(|(address, _)| is_borne(*address)) {
            warnings.push(format!(
                "the host has {address} already, and its answers will not go by {host}: the router forwards, \
                 but what listens on the host is not reached there; if {0} bears it, 'ip address del \
                 {address}/{len} dev {0}' helps",
                port.device()
            ));
        }
    }
    warnings
}

/// Whether the host has the address: what it sends there, it sends from there.
fn is_borne(address: IpAddr) -> bool {
    // A successful bind would prove less: any address can be bound where there is none yet.
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let asked = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Connecting sends nothing.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    asked().is_ok_and(|own: SocketAddr| own.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_packets_fit_all_ports_as_far_as_ipv6_allows() {
        let port = |mtu, addresses: &[&str]| Port {
            addresses: addresses.iter().map(|address| (address.parse().unwrap(), 24)).collect(),
            mtu,
            ..Port::default()
        };
        let of = |ports| mtu(&Plan { ports, ..Plan::default() });
        assert_eq!(of(vec![port(None, &["10.0.1.1"]), port(Some(900), &[])]), Some(900));
        assert_eq!(of(vec![port(None, &["fd00::1"]), port(Some(900), &[])]), Some(1280));
        assert_eq!(of(vec![port(None, &["fd00::1"]), port(Some(9000), &[])]), None);
    }

    #[test]
    fn an_address_is_the_hosts_if_it_speaks_to_it_from_there() {
        let is_borne = |address: &str| is_borne(address.parse().unwrap());
        assert!(is_borne("127.0.0.1"));
        assert!(!is_borne("192.0.2.1") && !is_borne("2001:db8::1"));
    }
}
