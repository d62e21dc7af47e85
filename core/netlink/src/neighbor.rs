//! Neighbors: link addresses of others (struct ndmsg and NDA attributes, linux/neighbour.h).
use super::Family;
use super::attributes::{self, Attributes, read_u16, read_u32};
use artery_wire::EtherAddr;
use std::net::IpAddr;

const HEADER: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_FLAGS_EXT: u16 = 15;
/// NTF_EXT_LEARNED: another program than the kernel has learned it, and keeps it.
const NTF_EXT_LEARNED: u8 = 0x10;
/// NTF_EXT_MANAGED: the kernel solicits it by itself.
const NTF_EXT_MANAGED: u32 = 1;
/// NUD_NOARP and PERMANENT: no solicitation is sent for it.
const FIXED: u16 = 0x40 | 0x80;
/// NTF_PROXY: not a neighbor, but one for whom the machine answers.
const NTF_PROXY: u8 = 0x08;
/// NUD_REACHABLE, STALE, DELAY, PROBE, NOARP and PERMANENT: what a packet is sent by.
const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// An entry of the kernel's neighbor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The interface it is at.
    pub link: u32,
    /// IP address of the neighbor (NDA_DST).
    pub address: IpAddr,
    /// Its link address, where one is known and is of Ethernet.
    pub mac: Option<EtherAddr>,
    /// The state, as the kernel's bits (NUD_…).
    pub state: u16,
    /// The flags, as the kernel's bits (NTF_…), and the further ones (NTF_EXT_…).
    pub flags: u8,
    /// Further flags (NDA_FLAGS_EXT), see `flags`.
    pub more_flags: u32,
}

impl Neighbor {
    /// Parses the payload of RTM_NEWNEIGH or RTM_DELNEIGH.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Neighbor> {
        let header = payload.first_chunk::<HEADER>()?;
        let family = Family::from_number(header[0])?;
        let (mut address, mut mac, mut more_flags) = (None, None, 0);
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                NDA_DST => address = attributes::parse_address(family, value),
                NDA_LLADDR => mac = <[u8; 6]>::try_from(value).ok().map(EtherAddr),
                NDA_FLAGS_EXT => more_flags = read_u32(value),
                _ => {}
            }
        }
        let flags = header[10];
        let neighbor = Neighbor {
            link: read_u32(&header[4..8]),
            address: address?,
            mac,
            state: read_u16(&header[8..10]),
            flags,
            more_flags,
        };
        (flags & NTF_PROXY == 0).then_some(neighbor)
    }

    /// Whether the kernel finds it by itself when it is used, and forgets it when it is not. To say of others
    /// that they are used would clear flags that another program set (neigh_add in net/core/neighbour.c).
    pub fn is_found_by_use(&self) -> bool {
        let is_kept = self.flags & NTF_EXT_LEARNED != 0 || self.more_flags & NTF_EXT_MANAGED != 0;
        self.state & FIXED == 0 && !is_kept
    }

    /// The link address that packets can be sent to now.
    pub fn usable_mac(&self) -> Option<EtherAddr> {
        self.mac.filter(|_| self.state & USABLE != 0)
    }
}
