//! The addresses that the host's interfaces have now.
pub use artery_netlink::rtnetlink::HostAddress;
use artery_netlink::rtnetlink::Rtnetlink;
use std::io;

/// All addresses of this network namespace, in the kernel's order.
pub fn host_addresses() -> io::Result<Vec<HostAddress>> {
    Rtnetlink::open()?.addresses()
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
