//! The addresses that the host's interfaces have now.
use artery_netlink::rtnetlink::Rtnetlink;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use std::io;
use std::net::IpAddr;

/// An address of an interface of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The kernel's number of the interface.
    pub index: u32,
    /// The address itself, IPv4 or IPv6.
    pub address: IpAddr,
    /// The length of its prefix.
    pub length: u8,
    /// The other end, where there is but one.
    pub peer: Option<IpAddr>,
}

/// All addresses of this network namespace, in the kernel's order.
pub fn host_addresses() -> io::Result<Vec<HostAddress>> {
    let all = Rtnetlink::open()?.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let own = |message| match message {
        RouteNetlinkMessage::NewAddress(one) => address(&one),
        _ => None,
    };
    Ok(all.into_iter().filter_map(own).collect())
}

/// What a message says. Between two ends `Local` is ours, and `Address` the other.
fn address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut own, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => (),
        }
    }
    let address = own.or(other)?;
    let peer = other.filter(|other| *other != address);
    Some(HostAddress { index: message.header.index, address, length: message.header.prefix_len, peer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn addresses_of_both_families_and_of_other_ends_are_found() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            run("ip address add 10.0.0.1/24 dev left");
            run("ip address add 10.9.0.1 peer 10.9.0.2/32 dev left");
            run("ip address add 2001:db8::1/64 dev left nodad");
            let index = Interface::find("left").unwrap().index;
            let found = host_addresses().unwrap();
            let own = |address: &str, length, peer: Option<&str>| HostAddress {
                index,
                address: address.parse().unwrap(),
                length,
                peer: peer.map(|peer| peer.parse().unwrap()),
            };
            assert!(found.contains(&own("10.0.0.1", 24, None)), "{found:?}");
            assert!(found.contains(&own("10.9.0.1", 32, Some("10.9.0.2"))), "{found:?}");
            assert!(found.contains(&own("2001:db8::1", 64, None)), "{found:?}");
        });
    }
}
