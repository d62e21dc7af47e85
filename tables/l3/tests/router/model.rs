//! A router as slow and obvious as can be: lists, looked through from one end to the other.
use artery_l3::path::Outcome;
use artery_lpm::load::AnyPrefix;
use artery_wire::EtherAddr;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// What may become of a packet: its outcome, the port, and the link address it goes to.
pub(crate) type Fate = (Outcome, u16, Option<EtherAddr>);

pub(crate) struct Model {
    pub(crate) up: Vec<bool>,
    /// Port, address and length.
    pub(crate) addresses: Vec<(u16, IpAddr, u8)>,
    /// Static routes: ports and gateways.
    pub(crate) routes: HashMap<AnyPrefix, Vec<(u16, IpAddr)>>,
    pub(crate) neighbors: HashMap<(u16, IpAddr), EtherAddr>,
}

enum Way<'a> {
    End(Outcome, u16),
    OnLink(u16),
    Gateways(&'a [(u16, IpAddr)]),
}

pub(crate) fn prefix_of(address: IpAddr, len: u8) -> AnyPrefix {
    AnyPrefix::new(address, len).unwrap()
}

pub(crate) fn is_in(address: IpAddr, prefix: AnyPrefix) -> bool {
    let same_family = address.is_ipv4() == matches!(prefix, AnyPrefix::V4(_));
    same_family && prefix_of(address, len(prefix)) == prefix
}

fn len(prefix: AnyPrefix) -> u8 {
    match prefix {
        AnyPrefix::V4(prefix) => prefix.len(),
        AnyPrefix::V6(prefix) => prefix.len(),
    }
}

fn ends(prefix: AnyPrefix) -> [IpAddr; 2] {
    use artery_lpm::Address;
    match prefix {
        AnyPrefix::V4(prefix) => [prefix.first().to_ip(), prefix.last().to_ip()],
        AnyPrefix::V6(prefix) => [prefix.first().to_ip(), prefix.last().to_ip()],
    }
}

/// Whether an address means a network or all of its hosts.
pub(crate) fn is_broadcast(address: IpAddr, len: u8) -> bool {
    address.is_ipv4() && len < 31 && ends(prefix_of(address, len)).contains(&address)
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Model {
    /// Routes that follow from addresses: prefix, rank, way.
    fn owned(&self) -> Vec<(AnyPrefix, u8, Way<'_>)> {
        let mut routes = Vec::new();
        for (port, address, len) in self.addresses.iter().copied() {
            let (all, network) = (bits(address), prefix_of(address, len));
            routes.push((prefix_of(address, all), 0, Way::End(Outcome::Local, port)));
            if len < all {
                routes.push((network, 2, Way::OnLink(port)));
            }
            let [first, last] = ends(network);
            if len < all - 1 && address.is_ipv4() {
                routes.push((prefix_of(first, all), 1, Way::End(Outcome::Broadcast, port)));
                routes.push((prefix_of(last, all), 1, Way::End(Outcome::Broadcast, port)));
            } else if len < all - 1 {
                routes.push((prefix_of(first, all), 0, Way::End(Outcome::Local, port)));
            }
        }
        routes
    }

    /// Whether a prefix is that of one of the router's addresses.
    pub(crate) fn is_owned(&self, prefix: AnyPrefix) -> bool {
        self.owned().iter().any(|(owned, ..)| *owned == prefix)
    }

    pub(crate) fn is_own_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(_, own, _)| *own == address)
    }

    /// Whether a router can be at this address on a port's link.
    pub(crate) fn is_gateway(&self, port: u16, address: IpAddr) -> bool {
        let near = self.networks(port).filter(|network| is_in(address, *network));
        let mut lens = near.map(len).peekable();
        !self.is_own_address(address) && lens.peek().is_some() && lens.all(|len| !is_broadcast(address, len))
    }

    fn networks(&self, port: u16) -> impl Iterator<Item = AnyPrefix> + '_ {
        let of_port = self.addresses.iter().filter(move |(at, ..)| *at == port);
        of_port.map(|(_, address, len)| prefix_of(*address, *len))
    }

    fn is_near(&self, port: u16, address: IpAddr) -> bool {
        self.networks(port).any(|network| is_in(address, network))
    }

    /// Takes an address away, and says which routes lost gateways, and whether they are gone.
    pub(crate) fn remove_address(&mut self, at: usize) -> HashSet<(AnyPrefix, bool)> {
        let (port, address, len) = self.addresses.remove(at);
        let mut lost = HashSet::new();
        let routes = std::mem::take(&mut self.routes);
        for (prefix, mut gateways) in routes {
            let before = gateways.len();
            gateways.retain(|(at, gateway)| *at != port || self.is_near(port, *gateway));
            if gateways.len() < before {
                lost.insert((prefix, gateways.is_empty()));
            }
            if !gateways.is_empty() {
                self.routes.insert(prefix, gateways);
            }
        }
        let mut neighbors = std::mem::take(&mut self.neighbors);
        let network = prefix_of(address, len);
        neighbors.retain(|(at, neighbor), _| {
            *at != port || !is_in(*neighbor, network) || self.is_near(port, *neighbor)
        });
        self.neighbors = neighbors;
        lost
    }

    /// All that may become of a packet; which of several depends on its flow.
    pub(crate) fn fates(&self, to: IpAddr) -> HashSet<Fate> {
        let statics = self.routes.iter().map(|(prefix, gateways)| (*prefix, 3, Way::Gateways(gateways)));
        let routes = self.owned().into_iter().chain(statics).filter(|(prefix, ..)| is_in(to, *prefix));
        let best = routes.min_by_key(|(prefix, rank, way)| {
            let (port, is_down) = match way {
                Way::End(_, port) => (*port, false),
                Way::OnLink(port) => (*port, !self.up[usize::from(*port)]),
                Way::Gateways(_) => (0, false),
            };
            (std::cmp::Reverse(len(*prefix)), *rank, is_down, port)
        });
        match best.map(|(_, _, way)| way) {
            None => [(Outcome::NoRoute, 0, None)].into(),
            Some(Way::End(outcome, port)) => [(outcome, port, None)].into(),
            Some(Way::OnLink(port)) => [self.sent(port, to)].into(),
            Some(Way::Gateways(gateways)) => self.by_gateways(gateways),
        }
    }

    fn by_gateways(&self, gateways: &[(u16, IpAddr)]) -> HashSet<Fate> {
        let alive: Vec<_> = gateways.iter().filter(|(port, _)| self.up[usize::from(*port)]).collect();
        if alive.is_empty() {
            // Any of them says that its port is down: the first in the order of ports.
            let port = gateways.iter().map(|(port, _)| *port).min().unwrap_or(0);
            return [(Outcome::PortDown, port, None)].into();
        }
        alive.into_iter().map(|(port, gateway)| self.sent(*port, *gateway)).collect()
    }

    fn sent(&self, port: u16, neighbor: IpAddr) -> Fate {
        match self.neighbors.get(&(port, neighbor)) {
            _ if !self.up[usize::from(port)] => (Outcome::PortDown, port, None),
            Some(link) => (Outcome::Forward, port, Some(*link)),
            None => (Outcome::Unresolved, port, None),
        }
    }
}
