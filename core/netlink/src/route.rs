//! Routes (struct rtmsg and RTA attributes, linux/rtnetlink.h).
use super::Family;
use super::attributes::{self, Attributes, read_u8, read_u16, read_u32};
use std::net::IpAddr;

const HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
/// RTAX_MTU among the metrics.
const RTAX_MTU: u16 = 2;
/// RTM_F_CLONED: not a route, but what came of one for a single destination.
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
/// Bytes in front of a next hop's attributes (struct rtnexthop).
const HOP_HEADER: usize = 8;
/// Where rta_expires is in struct rta_cacheinfo.
const EXPIRES: usize = 8;

/// A route of the kernel's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The family of its destinations.
    pub family: Family,
    /// The table it is in.
    pub table: u32,
    /// The first address of its prefix.
    pub destination: IpAddr,
    /// How many bits of a destination count.
    pub len: u8,
    /// The prefix of the sources that it is for, which only routes of IPv6 have; `None` for all.
    pub source: Option<(IpAddr, u8)>,
    /// The type of service it is for; 0 for all.
    pub tos: u8,
    /// Its metric: of several for a prefix, the one with the lowest is gone by.
    pub priority: u32,
    /// The routing protocol that made it, as the kernel's number (RTPROT_…).
    pub protocol: u8,
    /// A router's word on itself among routes of one metric (RFC 4191), as the kernel's number.
    pub preference: u8,
    /// Whether it ends by itself.
    pub expires: bool,
    /// Whether it has a realm.
    pub has_realm: bool,
    /// What its packets do.
    pub path: Path,
}

/// What packets of a route do. Many routes have one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// What the route is.
    pub kind: RouteKind,
    /// The next-hop object it leads to, or 0; if not, `hops` is empty.
    pub object: u32,
    /// Next hops; more than one for multipath.
    pub hops: Vec<RouteHop>,
    /// The longest packet, where the route has an opinion of its own.
    pub mtu: Option<u32>,
}

/// A next hop as a route names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteHop {
    /// The interface; 0 where none is named, which only others than the kernel write.
    pub link: u32,
    /// The gateway; none where destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Its share of the packets, from 1.
    pub weight: u16,
    /// Whether the kernel passes it over.
    pub is_dead: bool,
    /// Whether its interface has no carrier.
    pub is_without_carrier: bool,
    /// Whether packets are encapsulated.
    pub has_encapsulation: bool,
}

/// What a route is (RTN_…).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// A gateway or a connected prefix.
    Unicast,
    /// An address of the machine.
    Local,
    /// To all hosts of a link.
    Broadcast,
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are answered: unreachable.
    Unreachable,
    /// Packets are answered: prohibited.
    Prohibit,
    /// The search goes on in the next table.
    Throw,
    /// A route type that is not forwarded by.
    Other,
}

impl RouteKind {
    fn from_number(number: u8) -> RouteKind {
        match number {
            1 => RouteKind::Unicast,
            2 => RouteKind::Local,
            3 => RouteKind::Broadcast,
            6 => RouteKind::Blackhole,
            7 => RouteKind::Unreachable,
            8 => RouteKind::Prohibit,
            9 => RouteKind::Throw,
            _ => RouteKind::Other,
        }
    }
}

impl Route {
    /// Reads a message; none for what isn't a route of IPv4 or IPv6.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Route> {
        let header = payload.first_chunk::<HEADER>()?;
        let family = Family::from_number(header[0])?;
        let path = Path { kind: RouteKind::from_number(header[7]), object: 0, hops: Vec::new(), mtu: None };
        let route = Route {
            family,
            table: header[4].into(),
            destination: family.unspecified(),
            len: header[1],
            source: (header[2] > 0).then(|| (family.unspecified(), header[2])),
            tos: header[3],
            priority: 0,
            protocol: header[5],
            preference: 0,
            expires: false,
            has_realm: false,
            path,
        };
        let flags = read_u32(&header[8..12]);
        if header[1] > family.bits() || header[2] > family.bits() || flags & RTM_F_CLONED != 0 {
            return None;
        }
        Some(route.with_attributes(payload, flags as u8))
    }

    fn with_attributes(mut self, payload: &[u8], flags: u8) -> Route {
        let mut hop = RouteHop::with_flags(flags);
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                RTA_DST => {
                    self.destination =
                        attributes::parse_address(self.family, value).unwrap_or(self.destination);
                }
                RTA_SRC => {
                    let source = attributes::parse_address(self.family, value);
                    self.source = self.source.map(|(first, len)| (source.unwrap_or(first), len));
                }
                RTA_PRIORITY => self.priority = read_u32(value),
                RTA_TABLE => self.table = read_u32(value),
                RTA_PREF => self.preference = read_u8(value),
                RTA_CACHEINFO => self.expires = value.get(EXPIRES..).is_some_and(|rest| read_u32(rest) != 0),
                RTA_FLOW => self.has_realm = read_u32(value) != 0,
                RTA_NH_ID => self.path.object = read_u32(value),
                RTA_METRICS => self.path.mtu = Attributes::new(value).find_value(RTAX_MTU).map(read_u32),
                RTA_MULTIPATH => self.path.hops = parse_hops(self.family, value),
                _ => hop.apply_attribute(self.family, kind, value),
            }
        }
        if self.path.object != 0 {
            // The object's next hops at the time of the message come with it.
            self.path.hops.clear();
            self.path.kind = RouteKind::Unicast;
        } else if self.path.hops.is_empty() && (hop.link != 0 || hop.gateway.is_some()) {
            self.path.hops.push(hop);
        }
        self
    }
}

impl RouteHop {
    fn with_flags(flags: u8) -> RouteHop {
        RouteHop {
            link: 0,
            gateway: None,
            weight: 1,
            is_dead: flags & RTNH_F_DEAD != 0,
            is_without_carrier: flags & RTNH_F_LINKDOWN != 0,
            has_encapsulation: false,
        }
    }

    #[inline]
    fn apply_attribute(&mut self, family: Family, kind: u16, value: &[u8]) {
        match kind {
            RTA_OIF => self.link = read_u32(value),
            RTA_GATEWAY => self.gateway = attributes::parse_address(family, value),
            RTA_VIA => self.gateway = attributes::address_with_family(value),
            RTA_ENCAP | RTA_ENCAP_TYPE => self.has_encapsulation = true,
            _ => {}
        }
    }
}

/// The next hops of RTA_MULTIPATH.
fn parse_hops(family: Family, mut bytes: &[u8]) -> Vec<RouteHop> {
    let mut hops = Vec::new();
    while let Some(header) = bytes.first_chunk::<HOP_HEADER>() {
        let len = usize::from(read_u16(header));
        let Some(own) = bytes.get(HOP_HEADER..len) else { break };
        let mut hop = RouteHop::with_flags(header[2]);
        hop.weight = u16::from(header[3]) + 1;
        hop.link = read_u32(&header[4..8]);
        for (kind, value) in Attributes::new(own) {
            hop.apply_attribute(family, kind, value);
        }
        hops.push(hop);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}
