//! The routes and link-local addresses that a router keeps on its interface of the host, by rtnetlink.
//!
//! Routes have a protocol number of their own, [`HOST_ROUTE_PROTOCOL`], and a metric that is higher than what
//! others use, [`HOST_ROUTE_METRIC`]. This identifies them, and no other route is ever replaced:
//! where there is a route of the same prefix and metric, ours is refused.
use crate::privsep::{self, Helper, Request};
use artery_netlink::build::{self, DEL_ROUTE, NEW_ROUTE};
use artery_netlink::rtnetlink::Rtnetlink;
use artery_netlink::socket::connect;
use artery_netlink::{
    Family, Messages, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, News, Record, Route,
};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// The number by which routes of the router are known in the host's table (rtm_protocol).
pub const HOST_ROUTE_PROTOCOL: u8 = 77;
/// Their metric. FRR's zebra takes the upper eight bits of the metric of a kernel's route for its
/// administrative distance: with 254 its own routes come first.
pub const HOST_ROUTE_METRIC: u32 = 254 << 24;

/// Messages in one system call. Their answers fit into the smallest receive buffer that kernels give.
const BATCH: usize = 128;
/// What errors of the helper are about.
const HOST: &str = "the host's routes";
const RTM_GETROUTE: u16 = 26;
const RT_TABLE_MAIN: u8 = 254;
const RTN_UNICAST: u8 = 1;
const RTA_PRIORITY: u16 = 6;
/// The gateway is on the link, whatever the prefixes of the interface are.
const RTNH_F_ONLINK: u8 = 4;
/// The length of the prefix of link-local addresses.
const LINK_LOCAL_LEN: u8 = 64;

/// A prefix, and the gateway by which the host reaches it.
pub type RouteByGateway = ((IpAddr, u8), IpAddr);

/// A change of the host's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostRouteChange {
    /// Adds a route by a gateway.
    Add(RouteByGateway),
    /// Deletes a route that was so added.
    Delete(RouteByGateway),
}

/// A socket on which the host's routes by one interface are read and changed.
#[derive(Debug)]
pub struct HostRoutes {
    socket: Socket,
    index: u32,
    sequence: u32,
}

impl HostRoutes {
    /// Of the interface with this number.
    pub fn open(index: u32) -> io::Result<HostRoutes> {
        let socket = connect(NETLINK_ROUTE)?;
        // Kernels without strict checking send more than was requested; the rest is ignored.
        let _ = socket.set_netlink_get_strict_chk(true);
        let _ = socket.set_cap_ack(true);
        Ok(HostRoutes { socket, index, sequence: 0 })
    }

    /// The router's routes that the host has now.
    pub fn read(&mut self) -> io::Result<Vec<RouteByGateway>> {
        let mut found = Vec::new();
        for family in [Family::V4, Family::V6] {
            self.read_family(family, &mut found)?;
        }
        Ok(found)
    }

    fn read_family(&mut self, family: Family, found: &mut Vec<RouteByGateway>) -> io::Result<()> {
        let header = [family.number(), 0, 0, 0, 0, HOST_ROUTE_PROTOCOL, 0, 0, 0, 0, 0, 0];
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut request = build::message(RTM_GETROUTE, flags, &header, &[build::link(self.index)]);
        self.sequence = self.sequence.wrapping_add(1);
        number(&mut request, self.sequence);
        self.socket.send(&request, 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            for message in Messages(&answer).filter(|message| message.sequence == self.sequence) {
                match message.kind {
                    NLMSG_DONE | NLMSG_ERROR => return result(message.error_code()),
                    _ => {}
                }
                if let Some(News { record: Record::Route(route), .. }) = News::parse_message(&message) {
                    found.extend(own(&route, self.index));
                }
            }
        }
    }

    /// Makes changes, in order; gives the number of each that the kernel refused, and why.
    pub fn change(&mut self, changes: &[HostRouteChange]) -> io::Result<Vec<(usize, io::Error)>> {
        if let Some(helper) = privsep::helper() {
            return self.change_by_helper(helper, changes);
        }
        let mut refused = Vec::new();
        for (n, batch) in changes.chunks(BATCH).enumerate() {
            let first = self.sequence.wrapping_add(1);
            let bytes: Vec<u8> = batch.iter().flat_map(|change| self.request(*change)).collect();
            self.socket.send(&bytes, 0)?;
            let mut answers = 0;
            while answers < batch.len() {
                let (answer, _) = self.socket.recv_from_full()?;
                for message in Messages(&answer).filter(|message| message.kind == NLMSG_ERROR) {
                    let at = message.sequence.wrapping_sub(first) as usize;
                    if at >= batch.len() {
                        continue;
                    }
                    answers += 1;
                    if let Err(error) = result(message.error_code()) {
                        refused.push((n * BATCH + at, error));
                    }
                }
            }
        }
        Ok(refused)
    }

    fn change_by_helper(
        &self,
        helper: &Helper,
        changes: &[HostRouteChange],
    ) -> io::Result<Vec<(usize, io::Error)>> {
        let mut refused = Vec::new();
        for (n, batch) in changes.chunks(BATCH).enumerate() {
            let request = Request::ChangeHostRoutes { index: self.index, changes: batch.to_vec() };
            let answer: Vec<(usize, i32)> = helper.request(HOST, &request).map_err(io::Error::other)?;
            let numbered = |(at, errno)| (n * BATCH + at, io::Error::from_raw_os_error(errno));
            refused.extend(answer.into_iter().map(numbered));
        }
        Ok(refused)
    }

    fn request(&mut self, change: HostRouteChange) -> Vec<u8> {
        let (kind, flags, (to, gateway)) = match change {
            HostRouteChange::Add(route) => (NEW_ROUTE, NLM_F_CREATE | NLM_F_EXCL, route),
            HostRouteChange::Delete(route) => (DEL_ROUTE, 0, route),
        };
        let metric = build::attribute(RTA_PRIORITY, &HOST_ROUTE_METRIC.to_ne_bytes());
        let attributes = [build::gateway(gateway), build::link(self.index), metric];
        let mut request = build::route(kind, to, HOST_ROUTE_PROTOCOL, &attributes);
        request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        request[build::ROUTE_FLAGS] = RTNH_F_ONLINK;
        self.sequence = self.sequence.wrapping_add(1);
        number(&mut request, self.sequence);
        debug_assert_eq!((request[20], request[23]), (RT_TABLE_MAIN, RTN_UNICAST));
        request
    }

    /// Makes these the link-local addresses of the interface, all others vanish.
    pub fn set_link_local(&self, wanted: &[Ipv6Addr]) -> io::Result<()> {
        if let Some(helper) = privsep::helper() {
            let request = Request::SetLinkLocal { index: self.index, addresses: wanted.to_vec() };
            return helper.request(HOST, &request).map_err(io::Error::other);
        }
        let has: Vec<IpAddr> = crate::host_addresses()?
            .into_iter()
            .filter(|address| address.index == self.index)
            .map(|address| address.address)
            .filter(|address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()))
            .collect();
        let mut netlink = Rtnetlink::open()?;
        for address in wanted.iter().map(|address| IpAddr::V6(*address)) {
            if !has.contains(&address) {
                netlink.add_address(self.index, address, LINK_LOCAL_LEN)?;
            }
        }
        let is_other = |address: &IpAddr| !wanted.iter().any(|wanted| IpAddr::V6(*wanted) == *address);
        for address in has.into_iter().filter(is_other) {
            // The host may have deleted it.
            let _ = netlink.delete_address(self.index, address, LINK_LOCAL_LEN);
        }
        Ok(())
    }
}

/// A route of a kernel's message, if it is one of ours by this interface.
fn own(route: &Route, index: u32) -> Option<RouteByGateway> {
    let [hop] = &route.path.hops[..] else { return None };
    let is_own = route.protocol == HOST_ROUTE_PROTOCOL
        && route.priority == HOST_ROUTE_METRIC
        && route.table == u32::from(RT_TABLE_MAIN)
        && hop.link == index;
    Some(((route.destination, route.len), hop.gateway?)).filter(|_| is_own)
}

fn number(request: &mut [u8], sequence: u32) {
    request[8..12].copy_from_slice(&sequence.to_ne_bytes());
}

/// What the code of an answer means: 0, or the negative of an errno.
fn result(code: i32) -> io::Result<()> {
    match code {
        0.. => Ok(()),
        _ => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run, try_run};
    use std::time::{Duration, Instant};

    fn route(to: &str, len: u8, gateway: &str) -> RouteByGateway {
        ((to.parse().unwrap(), len), gateway.parse().unwrap())
    }

    #[test]
    fn routes_are_added_read_and_deleted_and_those_of_others_stay() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            run("ip link set left up");
            run("ip link set right up");
            run("ip address add 10.0.1.1/24 dev left");
            run("ip route add 10.7.0.0/16 via 10.0.1.9 metric 4261412864");
            run("ip route add 10.6.0.0/16 via 10.0.1.9");
            let mut routes = HostRoutes::open(Interface::find("left").unwrap().index).unwrap();
            let many = (0..1000u32)
                .map(|n| ((IpAddr::V4((0x0b00_0000 + (n << 8)).into()), 24), [10, 0, 1, 2].into()));
            let mut all: Vec<RouteByGateway> = many.collect();
            all.push(route("10.7.0.0", 16, "10.0.1.2"));
            all.push(route("10.6.0.0", 16, "10.0.1.2"));
            all.push(route("::", 0, "fe80::1"));
            all.push(route("2001:db8::", 32, "2001:db8:9::9"));
            let add: Vec<_> = all.iter().map(|route| HostRouteChange::Add(*route)).collect();
            let refused = routes.change(&add).unwrap();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert_eq!((refused[0].0, refused[0].1.kind()), (1000, io::ErrorKind::AlreadyExists));
            let mut there = routes.read().unwrap();
            let mut expected: Vec<_> = all.iter().copied().filter(|route| *route != all[1000]).collect();
            there.sort();
            expected.sort();
            assert_eq!(there, expected);
            let delete: Vec<_> = expected.iter().map(|route| HostRouteChange::Delete(*route)).collect();
            assert!(routes.change(&delete).unwrap().is_empty());
            assert!(routes.read().unwrap().is_empty());
            let shown = String::from_utf8(try_run("ip route").stdout).unwrap();
            assert!(shown.contains("10.7.0.0/16 via 10.0.1.9"), "{shown}");
            assert!(shown.contains("10.6.0.0/16 via 10.0.1.9"), "{shown}");
        });
    }

    #[test]
    fn an_interface_gets_link_local_addresses_in_the_place_of_its_own() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            run("ip link set left up");
            run("ip link set right up");
            // The kernel adds its own address some time after the link is up.
            let addresses = || String::from_utf8(try_run("ip -6 -o address show dev left").stdout).unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !addresses().contains("fe80::") {
                assert!(Instant::now() < deadline, "the kernel gives the interface no address");
                std::thread::sleep(Duration::from_millis(5));
            }
            let routes = HostRoutes::open(Interface::find("left").unwrap().index).unwrap();
            let wanted: Vec<Ipv6Addr> = ["fe80::1:1", "fe80::1:2"].map(|text| text.parse().unwrap()).into();
            for wanted in [&wanted[..], &wanted[1..]] {
                routes.set_link_local(wanted).unwrap();
                let shown = addresses();
                assert_eq!(shown.lines().count(), wanted.len(), "{shown}");
                assert!(wanted.iter().all(|address| shown.contains(&format!(" {address}/64 "))), "{shown}");
            }
        });
    }
}
