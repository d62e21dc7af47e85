//! ARP for IPv4 on Ethernet (RFC 826); other pairs of address kinds are refused.

use std::net::Ipv4Addr;

use crate::bytes::{at_least, clear_header, u16_at, write_array, write_u16};
use crate::fields::fields;
use crate::{EtherAddr, EtherType, Malformed};

/// Operation code of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// A request: which host has the target address?
    pub const REQUEST: ArpOperation = ArpOperation(1);
    /// The sender has it.
    pub const REPLY: ArpOperation = ArpOperation(2);
}

const HARDWARE: usize = 0;
const PROTOCOL: usize = 2;
const LENGTHS: usize = 4;
const SENDER_ETHER: usize = 8;
const SENDER_IP: usize = 14;
const TARGET_ETHER: usize = 18;
const TARGET_IP: usize = 24;

const HARDWARE_ETHERNET: u16 = 1;
/// Six bytes of hardware address, four of protocol address.
const LENGTHS_ETHERNET_IPV4: u16 = 0x0604;

/// An ARP packet, after its Ethernet header.
#[derive(Clone, Copy, Debug)]
pub struct Arp<T: AsRef<[u8]>>(T);

fields! {
    Arp {
        operation / set_operation: ArpOperation = 6, "what is asked or said";
        sender_ether: EtherAddr = SENDER_ETHER, "the sender's Ethernet address";
        sender_ip: Ipv4Addr = SENDER_IP, "the sender's IP address";
        target_ether: EtherAddr = TARGET_ETHER, "the target's Ethernet address; a request does not know it";
        target_ip: Ipv4Addr = TARGET_IP, "the target's IP address";
    }
}

impl<T: AsRef<[u8]>> Arp<T> {
    /// Length of the packet.
    pub const LEN: usize = 28;

    /// Takes bytes for an ARP packet if they are a whole one for IPv4 on Ethernet.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        Self::check_len(bytes.as_ref())?;
        Ok(Arp(bytes))
    }

    fn check_len(bytes: &[u8]) -> Result<(), Malformed> {
        at_least(bytes, Self::LEN)?;
        let kinds = (u16_at(bytes, HARDWARE), u16_at(bytes, PROTOCOL), u16_at(bytes, LENGTHS));
        let ours = (HARDWARE_ETHERNET, EtherType::IPV4.0, LENGTHS_ETHERNET_IPV4);
        if kinds == ours { Ok(()) } else { Err(Malformed::Protocol) }
    }

    /// Says whether this is a request.
    #[inline]
    pub fn is_request(&self) -> bool {
        self.operation() == ArpOperation::REQUEST
    }

    /// Says whether this is a reply.
    #[inline]
    pub fn is_reply(&self) -> bool {
        self.operation() == ArpOperation::REPLY
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Arp<T> {
    /// Makes a packet of the first bytes, without sender, target or operation.
    #[inline]
    pub fn init(mut bytes: T) -> Result<Self, Malformed> {
        let header = clear_header(bytes.as_mut(), Self::LEN)?;
        write_u16(header, HARDWARE, HARDWARE_ETHERNET);
        write_u16(header, PROTOCOL, EtherType::IPV4.0);
        write_u16(header, LENGTHS, LENGTHS_ETHERNET_IPV4);
        Ok(Arp(bytes))
    }

    /// Sets both addresses of the sender.
    #[inline]
    pub fn set_sender(&mut self, ether: EtherAddr, ip: Ipv4Addr) {
        write_array(self.0.as_mut(), SENDER_ETHER, ether.0);
        write_array(self.0.as_mut(), SENDER_IP, ip.octets());
    }

    /// Sets both addresses of the target.
    #[inline]
    pub fn set_target(&mut self, ether: EtherAddr, ip: Ipv4Addr) {
        write_array(self.0.as_mut(), TARGET_ETHER, ether.0);
        write_array(self.0.as_mut(), TARGET_IP, ip.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{arp_reply, arp_request};

    const ME: (&str, &str) = ("02:00:00:00:00:01", "10.0.0.1");
    const YOU: (&str, &str) = ("02:00:00:00:00:02", "10.0.0.2");

    #[test]
    fn a_request_names_the_asker_and_the_address_wanted() {
        let bytes = arp_request(ME.0, ME.1, YOU.1).bytes();
        let arp = Arp::new(&bytes[14..]).unwrap();
        assert!(arp.is_request() && !arp.is_reply());
        assert_eq!((arp.sender_ether(), arp.sender_ip()), (ME.0.parse().unwrap(), ME.1.parse().unwrap()));
        assert_eq!((arp.target_ether(), arp.target_ip()), (EtherAddr::ZERO, YOU.1.parse().unwrap()));
    }

    #[test]
    fn a_reply_names_both() {
        let bytes = arp_reply(ME.0, ME.1, YOU.0, YOU.1).bytes();
        let arp = Arp::new(&bytes[14..]).unwrap();
        assert!(arp.is_reply() && !arp.is_request());
        assert_eq!((arp.target_ether(), arp.target_ip()), (YOU.0.parse().unwrap(), YOU.1.parse().unwrap()));
    }

    #[test]
    fn a_packet_cut_short_is_refused_at_every_length() {
        let bytes = arp_request(ME.0, ME.1, YOU.1).bytes();
        for len in 0..28 {
            assert_eq!(Arp::new(&bytes[14..14 + len]).unwrap_err(), Malformed::Truncated);
        }
        assert_eq!(Arp::init([0; 27]).unwrap_err(), Malformed::Truncated);
    }

    #[test]
    fn other_kinds_of_address_are_refused() {
        let bytes = arp_request(ME.0, ME.1, YOU.1).bytes()[14..].to_vec();
        for at in 0..6 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Arp::new(&other).unwrap_err(), Malformed::Protocol, "byte {at}");
        }
    }
}
