//! Changes of what the kernel keeps beside rules: entries of connection tracking, and neighbors.
use super::flow::Flow;
use super::rules::Random;
use super::{HOSTS, address};
use artery_rig::{Host, Result};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, netlink, send, socket_with};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Types of ctnetlink's messages.
const SET: u16 = 1 << 8;
const DELETE: u16 = 1 << 8 | 2;
const NESTED: u16 = 1 << 15;
const MARK: u16 = 8;

/// A change at a barrier.
#[derive(Clone, Debug)]
pub(super) enum TableChange {
    None,
    /// Deletes the entries of each third flow.
    Delete(usize),
    /// Gives them a mark.
    Mark(usize),
    /// Forgets neighbors, which the kernel then asks for once more.
    Forget,
    /// Gives a neighbor a link address that nobody has.
    Misplace(u8, u8, bool),
}

impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "change of tables: {self:?}")
    }
}

impl TableChange {
    pub(super) fn new(random: &mut Random) -> TableChange {
        let third = random.below(3) as usize;
        match random.below(6) {
            0 | 1 => TableChange::Delete(third),
            2 => TableChange::Mark(third),
            3 => TableChange::Forget,
            4 => TableChange::Misplace(random.of(&[1, 2]), random.of(&HOSTS), random.one_in(2)),
            _ => TableChange::None,
        }
    }

    pub(super) fn apply(&self, router: &Host, flows: &[Flow]) -> Result<()> {
        match self {
            TableChange::None => Ok(()),
            TableChange::Delete(third) => change_entries(router, flows, *third, DELETE, &[]),
            TableChange::Mark(third) => {
                change_entries(router, flows, *third, SET, &attribute(MARK, &7_u32.to_be_bytes()))
            }
            TableChange::Forget => forget_neighbors(router),
            TableChange::Misplace(network, host, is_v6) => {
                let (address, port) = (address(*network, *host, *is_v6).to_string(), port(*network));
                let words = ["ip", "neigh", "replace", &address, "lladdr", "02:00:00:00:00:99", "dev", port];
                router.run(words.into_iter().chain(["nud", "permanent"])).map(drop)
            }
        }
    }
}

fn port(network: u8) -> &'static str {
    if network == 1 { "eth0" } else { "eth1" }
}

/// Has the kernel forget the neighbors, also those with wrong addresses.
pub(super) fn forget_neighbors(router: &Host) -> Result<()> {
    for network in [1, 2] {
        let each =
            HOSTS.into_iter().flat_map(|host| [false, true].map(|is_v6| address(network, host, is_v6)));
        let each = each.map(|address| format!("ip neigh del {address} dev {}; ", port(network)));
        router.run(["sh", "-c", &(each.collect::<String>() + "true")])?;
    }
    Ok(())
}

/// Changes the entries of each third flow, by what packets of its original direction arrive with.
fn change_entries(router: &Host, flows: &[Flow], third: usize, kind: u16, change: &[u8]) -> Result<()> {
    let socket = router.enter(|| {
        let flags = SocketFlags::CLOEXEC;
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER))
    })?;
    let socket = socket.expect("a netlink socket");
    for flow in flows.iter().skip(third).step_by(3) {
        let family = if flow.to.is_ipv4() { 2 } else { 10 };
        let body = [&[family, 0, 0, 0], &nested(1, &tuple(flow))[..], change].concat();
        let length = (16 + body.len()) as u32;
        const REQUEST: u16 = 1;
        let header =
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &REQUEST.to_ne_bytes(), &[0; 8]].concat();
        // There may be no such entry.
        let _ = send(&socket, &[header, body].concat(), SendFlags::empty());
    }
    Ok(())
}

fn tuple(flow: &Flow) -> Vec<u8> {
    let ends = [flow.source, flow.to];
    let first = if flow.to.is_ipv4() { 1 } else { 3 };
    let addresses = [0, 1].map(|at| attribute(first + at as u16, &octets(ends[at])));
    let protocol = flow.protocol();
    let [from, to] = ends.map(|end| end.port().to_be_bytes());
    let parts = match protocol {
        1 => [attribute(4, &from), attribute(5, &[8]), attribute(6, &[0])].concat(),
        58 => [attribute(7, &from), attribute(8, &[128]), attribute(9, &[0])].concat(),
        _ => [attribute(2, &from), attribute(3, &to)].concat(),
    };
    [nested(1, &addresses.concat()), nested(2, &[attribute(1, &[protocol]), parts].concat())].concat()
}

fn octets(end: SocketAddr) -> Vec<u8> {
    match end.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 4) as u16;
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, value)
}
