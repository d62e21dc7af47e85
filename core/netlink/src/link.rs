//! Links: interfaces of the machine, and what they are (struct
//! ifinfomsg and IFLA attributes, linux/if_link.h).
use super::attributes::{Attributes, parse_text, read_u16, read_u32};
use super::tunnel::IpTunnel;
use artery_wire::EtherAddr;

const HEADER: usize = 16;
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_PPP: u16 = 512;
const ARPHRD_LOOPBACK: u16 = 772;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x1_0000;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_PROTOCOL: u16 = 5;

/// The type of tags with which a VLAN begins where none is said (IEEE 802.1Q).
const ETH_P_8021Q: u16 = 0x8100;

/// A network interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number of the interface.
    pub index: u32,
    /// Name of the interface (IFLA_IFNAME).
    pub name: String,
    /// Its link address, where that is of Ethernet.
    pub mac: Option<EtherAddr>,
    /// The longest packet without link header.
    pub mtu: u32,
    /// Whether it is administratively up (IFF_UP).
    pub is_admin_up: bool,
    /// Whether the link has carrier.
    pub has_carrier: bool,
    /// Kind of the interface (IFLA_INFO_KIND).
    pub kind: LinkKind,
    /// The bridge, bond or VRF that it is part of.
    pub master: Option<u32>,
}

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// An Ethernet card, or a device that looks like one and says nothing else of itself.
    Ether,
    /// One end of a cable between namespaces.
    Veth,
    /// The frames of one VLAN on another interface.
    Vlan {
        /// The number of the VLAN.
        id: u16,
        /// The interface that carries it.
        parent: u32,
        /// The type of its tags: 0x8100 or 0x88a8.
        tag_type: u16,
        /// Whether the priority in its tags is chosen by that of packets (`egress-qos-map`).
        sets_priority: bool,
    },
    /// The interface of the host to itself.
    Loopback,
    /// A domain of routing of its own, to which other interfaces belong.
    Vrf {
        /// The number of its routing table (IFLA_VRF_TABLE).
        table: u32,
    },
    /// A tunnel of GRE or IPIP over IPv4.
    Tunnel(IpTunnel),
    /// The packets of a PPP session, whatever carries it: the kernel does not say.
    Ppp,
    /// Anything else, by the kernel's word for it.
    Other(String),
}

impl Link {
    /// Whether packets can go out by it.
    pub fn is_up(&self) -> bool {
        self.is_admin_up && self.has_carrier
    }

    /// Reads a message. None for what isn't one, and for one that doesn't describe the whole link.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Link> {
        let header = payload.first_chunk::<HEADER>()?;
        // Bridges speak of their ports in the same messages (AF_BRIDGE): a port that leaves is not a removed
        // link.
        if header[0] != 0 {
            return None;
        }
        let hardware = read_u16(&header[2..4]);
        let flags = read_u32(&header[8..12]);
        let mut link = Link {
            index: read_u32(&header[4..8]),
            name: String::new(),
            mac: None,
            mtu: 0,
            is_admin_up: flags & IFF_UP != 0,
            has_carrier: flags & (IFF_RUNNING | IFF_LOWER_UP) != 0,
            kind: LinkKind::Other(format!("of hardware type {hardware}")),
            master: None,
        };
        link.apply_attributes(payload, hardware);
        (!link.name.is_empty()).then_some(link)
    }

    fn apply_attributes(&mut self, payload: &[u8], hardware: u16) {
        let (mut info, mut parent) = (&[][..], 0);
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                IFLA_IFNAME => self.name = parse_text(value),
                IFLA_ADDRESS if hardware == ARPHRD_ETHER => {
                    self.mac = <[u8; 6]>::try_from(value).ok().map(EtherAddr);
                }
                IFLA_MTU => self.mtu = read_u32(value),
                IFLA_MASTER => self.master = Some(read_u32(value)).filter(|&master| master != 0),
                IFLA_LINK => parent = read_u32(value),
                IFLA_LINKINFO => info = value,
                _ => {}
            }
        }
        match hardware {
            ARPHRD_ETHER => self.kind = ether_kind(info, parent),
            ARPHRD_LOOPBACK => self.kind = LinkKind::Loopback,
            ARPHRD_PPP => self.kind = LinkKind::Ppp,
            _ => {
                if let Some(tunnel) = IpTunnel::parse_message(payload) {
                    self.kind = LinkKind::Tunnel(tunnel);
                }
            }
        }
    }
}

/// What an Ethernet interface is, by IFLA_LINKINFO.
fn ether_kind(info: &[u8], parent: u32) -> LinkKind {
    let Some(kind) = Attributes::new(info).find_value(IFLA_INFO_KIND).map(parse_text) else {
        return LinkKind::Ether;
    };
    let data = Attributes::new(Attributes::new(info).find_value(IFLA_INFO_DATA).unwrap_or_default());
    match kind.as_str() {
        "veth" => LinkKind::Veth,
        "vrf" => LinkKind::Vrf { table: data.find_value(IFLA_VRF_TABLE).map_or(0, read_u32) },
        "vlan" => LinkKind::Vlan {
            id: read_u16(data.clone().find_value(IFLA_VLAN_ID).unwrap_or_default()),
            parent,
            sets_priority: data.clone().find_value(IFLA_VLAN_EGRESS_QOS).is_some_and(|map| !map.is_empty()),
            tag_type: data
                .find_value(IFLA_VLAN_PROTOCOL)
                .map_or(ETH_P_8021Q, |value| read_u16(value).to_be()),
        },
        _ => LinkKind::Other(kind),
    }
}
