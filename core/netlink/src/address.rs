//! Addresses of interfaces (struct ifaddrmsg and IFA attributes, linux/if_addr.h).
use super::Family;
use super::attributes::{self, Attributes, read_u32};
use std::net::IpAddr;

const HEADER: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// An address of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The interface that has it.
    pub link: u32,
    /// The interface's own address.
    pub address: IpAddr,
    /// How many of its first bits the others on the link share.
    pub len: u8,
}

impl Address {
    /// Parses the payload of RTM_NEWADDR or RTM_DELADDR.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Address> {
        let header = payload.first_chunk::<HEADER>()?;
        let family = Family::from_number(header[0])?;
        let attributes = Attributes::after_header(payload, HEADER);
        // On a line with two ends IFA_ADDRESS is the other one's.
        let value =
            attributes.clone().find_value(IFA_LOCAL).or_else(|| attributes.find_value(IFA_ADDRESS))?;
        let address = attributes::parse_address(family, value)?;
        Some(Address { link: read_u32(&header[4..8]), address, len: header[1].min(family.bits()) })
    }

    /// Address family of the address.
    pub fn family(&self) -> Family {
        if self.address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}
