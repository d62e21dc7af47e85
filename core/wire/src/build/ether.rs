//! Frames: an Ethernet header with its tags, and what it carries.

use std::net::Ipv4Addr;

use super::{Ip4, Ip6, Literal};
use crate::{Arp, ArpOperation, EtherAddr, EtherType, Ethernet, VlanTag};

/// Begins a frame with these addresses.
pub fn ether(dst: impl Literal<EtherAddr>, src: impl Literal<EtherAddr>) -> Ether {
    Ether { dst: dst.address(), src: src.address(), tags: Vec::new() }
}

/// An Ethernet header in the making.
#[derive(Clone, Debug)]
pub struct Ether {
    dst: EtherAddr,
    src: EtherAddr,
    tags: Vec<u16>,
}

/// A frame that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(pub(super) Vec<u8>);

impl Ether {
    /// Adds a VLAN tag inside those there are.
    pub fn vlan(mut self, id: u16) -> Ether {
        self.tags.push(id);
        self
    }

    /// Completes the frame with an IPv4 packet.
    pub fn ip4(self, packet: Ip4) -> Frame {
        self.raw(EtherType::IPV4, packet.bytes())
    }

    /// Completes the frame with an IPv6 packet.
    pub fn ip6(self, packet: Ip6) -> Frame {
        self.raw(EtherType::IPV6, packet.bytes())
    }

    /// Completes the frame with an ARP packet.
    pub fn arp(
        self,
        operation: ArpOperation,
        sender: (EtherAddr, Ipv4Addr),
        target: (EtherAddr, Ipv4Addr),
    ) -> Frame {
        let mut arp = [0; Arp::<&[u8]>::LEN];
        let mut view = Arp::init(&mut arp).expect("the array is as long as the packet");
        view.set_operation(operation);
        view.set_sender(sender.0, sender.1);
        view.set_target(target.0, target.1);
        self.raw(EtherType::ARP, arp)
    }

    /// Completes the frame with any payload; the outer of two tags is announced as IEEE 802.1ad has it.
    pub fn raw(self, ether_type: EtherType, payload: impl AsRef<[u8]>) -> Frame {
        let mut bytes = vec![0; Ethernet::<&[u8]>::LEN - 2];
        let mut inside = self.tags.len();
        for tag in &self.tags {
            let announced = if inside > 1 { EtherType::QINQ } else { EtherType::VLAN };
            bytes.extend(announced.0.to_be_bytes());
            bytes.extend(VlanTag::new(*tag, 0, false).0.to_be_bytes());
            inside -= 1;
        }
        bytes.extend(ether_type.0.to_be_bytes());
        bytes.extend(payload.as_ref());
        let mut header = Ethernet::new(&mut bytes).expect("the bytes begin with a whole header");
        header.set_dst(self.dst);
        header.set_src(self.src);
        Frame(bytes)
    }
}

impl Frame {
    /// Returns the frame from its destination address on.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.clone()
    }
}

impl From<Frame> for Vec<u8> {
    fn from(frame: Frame) -> Vec<u8> {
        frame.0
    }
}
