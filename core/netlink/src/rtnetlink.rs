//! Changes of the host by rtnetlink: addresses and routes (several addresses of a family on one interface,
//! which the older requests can't give it), and filters of tc.
use crate::refusal::refusal;
use crate::socket::connect;
use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// A route by a gateway on the link of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayRoute {
    /// Where to, with the length of the prefix.
    pub to: (IpAddr, u8),
    /// Address of the gateway, which is on the link whatever the prefixes of the interface are.
    pub gateway: IpAddr,
    /// Of routes for one prefix the host takes that of the lowest metric.
    pub metric: u32,
}

/// A socket for requests that change something, each with an acknowledgement.
#[derive(Debug)]
pub struct Rtnetlink(Socket);

impl Rtnetlink {
    /// Opens a socket to the kernel of this network namespace.
    pub fn open() -> io::Result<Rtnetlink> {
        connect(NETLINK_ROUTE).map(Rtnetlink)
    }

    /// Gives an interface an address that can be used at once, without duplicate address detection: the
    /// caller knows that no other host on the link has it.
    pub fn add_address(&mut self, index: u32, address: IpAddr, len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = len;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
            AddressAttribute::Flags(AddressFlags::Nodad),
        ];
        if let IpAddr::V4(address) = address {
            message.attributes.extend(broadcast(address, len).map(AddressAttribute::Broadcast));
        }
        // A device that was there before may have it.
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes an address away.
    pub fn delete_address(&mut self, index: u32, address: IpAddr, len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = len;
        message.header.index = index;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.change(RouteNetlinkMessage::DelAddress(message), 0)
    }

    /// The addresses of all interfaces, in the kernel's order.
    pub fn addresses(&mut self) -> io::Result<Vec<HostAddress>> {
        let all = self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let own = |message| match message {
            RouteNetlinkMessage::NewAddress(one) => host_address(&one),
            _ => None,
        };
        Ok(all.into_iter().filter_map(own).collect())
    }

    /// Adds a route by a gateway, which may be outside of the interface's own prefixes.
    pub fn add_route(&mut self, index: u32, route: &GatewayRoute) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(Rtnetlink::route(index, route));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Deletes a route that was so added.
    pub fn delete_route(&mut self, index: u32, route: &GatewayRoute) -> io::Result<()> {
        self.change(RouteNetlinkMessage::DelRoute(Rtnetlink::route(index, route)), 0)
    }

    fn route(index: u32, route: &GatewayRoute) -> RouteMessage {
        let (to, len) = route.to;
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(to),
            destination_prefix_length: len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            flags: RouteFlags::Onlink,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Gateway(route.gateway.into()),
            RouteAttribute::Oif(index),
            RouteAttribute::Priority(route.metric),
        ];
        message
    }

    /// Requests a change, and waits until it is made. `flags` are `NLM_F_CREATE` and its like.
    pub fn change(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(request, NLM_F_ACK | flags)?;
        let (answer, _) = self.0.recv_from_full()?;
        read(&answer)
    }

    /// All objects that the kernel has of a kind. Those that the library does not understand are left out.
    pub fn dump(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(request, NLM_F_DUMP)?;
        let mut found = Vec::new();
        loop {
            let (answer, _) = self.0.recv_from_full()?;
            if read_dump(&answer, &mut found)? {
                return Ok(found);
            }
        }
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map(drop)
    }
}

/// Reads a datagram of a dump; says whether it is the last.
fn read_dump(mut bytes: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let header = NetlinkBuffer::new_checked(bytes).map_err(|_| invalid())?;
        let (kind, length) = (header.message_type(), header.length() as usize);
        let one = bytes.get(..length).ok_or_else(invalid)?;
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return read(one).map(|()| true),
            _ => {
                if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(one)
                    && let NetlinkPayload::InnerMessage(message) = message.payload
                {
                    found.push(message);
                }
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

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

/// What a message says. Between two ends `Local` is ours, and `Address` the other.
fn host_address(message: &AddressMessage) -> Option<HostAddress> {
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

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// The address of all hosts of a prefix, where it has one (RFC 3021).
fn broadcast(address: Ipv4Addr, len: u8) -> Option<Ipv4Addr> {
    let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
    (len < 31).then(|| (address.to_bits() | hosts).into())
}

/// An answer that is not an acknowledgement: no request asked for one.
struct OtherAnswer;

impl NetlinkDeserializable for OtherAnswer {
    type Error = DecodeError;
    fn deserialize(_: &NetlinkHeader, _: &[u8]) -> Result<OtherAnswer, DecodeError> {
        Ok(OtherAnswer)
    }
}

/// Whether the kernel did it, whatever the bytes of its answer are.
pub fn read(answer: &[u8]) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    match NetlinkMessage::<OtherAnswer>::deserialize(answer).map_err(invalid)?.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(refusal(&error)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Takes bytes for an answer, as fuzz targets do.
#[doc(hidden)]
pub fn survive(bytes: &[u8]) {
    let _ = read(bytes);
    let _ = read_dump(bytes, &mut Vec::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_with_room_for_it_have_a_broadcast_address() {
        let of = |address: &str, len| broadcast(address.parse().unwrap(), len).map(|all| all.to_string());
        assert_eq!(of("10.0.1.1", 24).as_deref(), Some("10.0.1.255"));
        assert_eq!(of("10.0.1.1", 0).as_deref(), Some("255.255.255.255"));
        assert_eq!((of("10.0.1.1", 31), of("10.0.1.1", 32)), (None, None));
    }

    #[test]
    fn an_answer_is_an_acknowledgement_an_error_or_nonsense() {
        let answer = |kind: u16, code: i32| {
            let header = [&36_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
            [&header[..], &code.to_ne_bytes(), &[0; 16]].concat()
        };
        assert!(read(&answer(2, 0)).is_ok());
        assert_eq!(read(&answer(2, -libc::EEXIST)).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        for nonsense in [answer(20, 0), answer(2, 0)[..17].to_vec(), Vec::new()] {
            assert_eq!(read(&nonsense).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        (0..=36).for_each(|len| survive(&answer(2, -1)[..len]));
    }
}
