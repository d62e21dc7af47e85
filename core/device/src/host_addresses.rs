//! The addresses that the host's interfaces have now.
use crate::refusal::refusal;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;

/// An address of an interface of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The kernel's number of the interface.
    pub index: u32,
    /// The address itself, IPv4 or IPv6.
    pub address: IpAddr,
    /// The length of its prefix.
    pub length: u8,
    /// The other end, where there is but one.
    pub peer: Option<IpAddr>,
}

/// All addresses of this network namespace, in the kernel's order.
pub fn host_addresses() -> io::Result<Vec<HostAddress>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        if read(&answer, &mut found)? {
            return Ok(found);
        }
    }
}

/// Takes bytes for an answer.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(bytes: &[u8]) {
    let _ = read(bytes, &mut Vec::new());
}

/// Collects the addresses of an answer, which has several messages; returns whether it was the last.
fn read(mut answer: &[u8], found: &mut Vec<HostAddress>) -> io::Result<bool> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    while !answer.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer).map_err(|_| invalid())?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(refusal(&error)),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(one)) => found.extend(address(&one)),
            _ => (),
        }
        // Messages begin at multiples of four bytes.
        let length = (message.header.length as usize).next_multiple_of(4).max(16);
        answer = answer.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// What a message says. Between two ends `Local` is ours, and `Address` the other.
fn address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut own, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => (),
        }
    }
    let address = own.or(other)?;
    let peer = other.filter(|other| *other != address);
    Some(HostAddress { index: message.header.index, address, length: message.header.prefix_len, peer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn addresses_of_both_families_and_of_other_ends_are_found() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            run("ip address add 10.0.0.1/24 dev left");
            run("ip address add 10.9.0.1 peer 10.9.0.2/32 dev left");
            run("ip address add 2001:db8::1/64 dev left nodad");
            let index = Interface::find("left").unwrap().index;
            let found = host_addresses().unwrap();
            let own = |address: &str, length, peer: Option<&str>| HostAddress {
                index,
                address: address.parse().unwrap(),
                length,
                peer: peer.map(|peer| peer.parse().unwrap()),
            };
            assert!(found.contains(&own("10.0.0.1", 24, None)), "{found:?}");
            assert!(found.contains(&own("10.9.0.1", 32, Some("10.9.0.2"))), "{found:?}");
            assert!(found.contains(&own("2001:db8::1", 64, None)), "{found:?}");
        });
    }

    #[test]
    fn nonsense_for_an_answer_is_an_error_or_nothing() {
        let mut found = Vec::new();
        for length in 0..64 {
            let _ = read(&vec![0xff; length], &mut found);
            let _ = read(&vec![0; length], &mut found);
        }
        assert!(found.is_empty());
    }
}
