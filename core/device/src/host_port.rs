//! The host's interface of a router's port: it is kept like the port, by rtnetlink.
use crate::privsep::{self, Request};
use crate::{Interface, host_addresses};
use artery_netlink::rtnetlink::Rtnetlink;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

/// What the host's interface is to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPortState {
    /// Ethernet address of the host's interface.
    pub mac: [u8; 6],
    /// The longest packet, in bytes from the IP header on.
    pub mtu: u32,
    /// Whether the port's link is up.
    pub has_carrier: bool,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// An interface that is kept like a port, by the helper of this process where there is one. Addresses that
/// another program gave it stay.
#[derive(Debug)]
pub struct HostPort {
    index: u32,
    /// None where a helper keeps it.
    keeper: Option<HostPortKeeper>,
}

impl HostPort {
    /// For the interface with this number.
    pub fn open(index: u32) -> io::Result<HostPort> {
        let keeper = match privsep::helper() {
            Some(_) => None,
            None => Some(HostPortKeeper::open(index)?),
        };
        Ok(HostPort { index, keeper })
    }

    /// The kernel's number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Brings the interface, found as `now`, to the `wanted` state.
    pub fn apply(&mut self, wanted: &HostPortState, now: &Interface) -> io::Result<()> {
        match (&mut self.keeper, privsep::helper()) {
            (Some(keeper), _) => keeper.apply(wanted, now),
            (None, Some(helper)) => {
                helper.change(&Request::KeepHostPort { index: self.index, state: wanted.clone() })
            }
            (None, None) => unreachable!("a process keeps its helper"),
        }
    }
}

/// The same, by this process.
#[derive(Debug)]
pub(crate) struct HostPortKeeper {
    netlink: Rtnetlink,
    index: u32,
    /// The carrier that was written last: the kernel reports it only together with whether
    /// the interface is up.
    carrier: Option<bool>,
    /// The addresses that it got here.
    own: HashSet<(IpAddr, u8)>,
}

impl HostPortKeeper {
    pub(crate) fn open(index: u32) -> io::Result<HostPortKeeper> {
        Ok(HostPortKeeper { netlink: Rtnetlink::open()?, index, carrier: None, own: HashSet::new() })
    }

    /// Brings the interface, found as `now`, to the `wanted` state.
    pub(crate) fn apply(&mut self, wanted: &HostPortState, now: &Interface) -> io::Result<()> {
        let mut attributes = Vec::new();
        if now.mac != Some(wanted.mac) {
            attributes.push(LinkAttribute::Address(wanted.mac.to_vec()));
        }
        if now.mtu != wanted.mtu {
            attributes.push(LinkAttribute::Mtu(wanted.mtu));
        }
        if self.carrier != Some(wanted.has_carrier) {
            attributes.push(LinkAttribute::Carrier(wanted.has_carrier.into()));
        }
        if !attributes.is_empty() {
            let mut message = LinkMessage::default();
            message.header.index = self.index;
            message.attributes = attributes;
            self.netlink.change(RouteNetlinkMessage::SetLink(message), 0)?;
            self.carrier = Some(wanted.has_carrier);
        }
        self.set_addresses(&wanted.addresses, now.up)
    }

    /// Gives it these addresses, and takes away those that it got before. The kernel takes IPv6
    /// addresses from an interface that is brought down, so that they are given again once it is up.
    fn set_addresses(&mut self, wanted: &[(IpAddr, u8)], is_up: bool) -> io::Result<()> {
        let has: HashSet<(IpAddr, u8)> = (host_addresses()?.into_iter())
            .filter(|address| address.index == self.index)
            .map(|address| (address.address, address.length))
            .collect();
        let unwanted: Vec<(IpAddr, u8)> =
            self.own.iter().copied().filter(|address| !wanted.contains(address)).collect();
        for (address, len) in unwanted {
            // The host may have deleted it.
            let _ = self.netlink.delete_address(self.index, address, len);
            self.own.remove(&(address, len));
        }
        for &(address, len) in wanted {
            if !has.contains(&(address, len)) && (is_up || address.is_ipv4()) {
                self.netlink.add_address(self.index, address, len)?;
            }
            self.own.insert((address, len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run, try_run};
    use crate::tap::{TapDevice, TapSettings};
    use std::time::{Duration, Instant};

    fn shown(command: &str) -> String {
        String::from_utf8(try_run(command).stdout).unwrap()
    }

    /// Waits for what the kernel does shortly after a request: it announces late that a link
    /// has gone or come.
    fn until(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_interface_is_kept_like_a_port_and_addresses_of_others_stay() {
        in_namespace(|| {
            let settings = TapSettings { is_host_port: true, ..TapSettings::new("hp-eth1") };
            let device = TapDevice::open(&settings).unwrap();
            assert_eq!(shown("ip -6 -o address show dev hp-eth1"), "", "the kernel makes no address");
            run("ip address add 192.0.2.9/32 dev hp-eth1");
            let mut port = HostPort::open(device.interface.index).unwrap();
            let find = || Interface::find("hp-eth1").unwrap();
            let addresses = [("10.0.1.1", 24), ("fe80::1", 64), ("fd00:1::1", 64)];
            let addresses = addresses.map(|(address, len)| (address.parse().unwrap(), len)).to_vec();
            let mut wanted =
                HostPortState { mac: [2, 0, 0, 0, 0, 7], mtu: 1400, has_carrier: true, addresses };
            port.apply(&wanted, &find()).unwrap();
            until(|| find().running);
            assert_eq!((find().mac, find().mtu), (Some(wanted.mac), 1400));
            for address in ["10.0.1.1/24", "192.0.2.9/32", "fe80::1/64", "fd00:1::1/64"] {
                let all = shown("ip -o address show dev hp-eth1");
                assert!(all.contains(&format!(" {address} ")) && !all.contains("tentative"), "{all}");
            }
            (wanted.mtu, wanted.has_carrier) = (1500, false);
            wanted.addresses.remove(0);
            port.apply(&wanted, &find()).unwrap();
            until(|| !find().running);
            assert_eq!((find().mtu, find().up), (1500, true));
            let all = shown("ip -o address show dev hp-eth1");
            assert!(!all.contains("10.0.1.1") && all.contains("192.0.2.9/32"), "{all}");
            // The kernel takes addresses along when it is brought down.
            run("ip link set hp-eth1 down");
            port.apply(&wanted, &find()).unwrap();
            run("ip link set hp-eth1 up");
            wanted.has_carrier = true;
            port.apply(&wanted, &find()).unwrap();
            until(|| find().running);
            assert!(shown("ip -6 -o address show dev hp-eth1").contains("fd00:1::1/64"));
        });
    }
}
