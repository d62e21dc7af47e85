//! Parses netlink messages of FPM.
use super::broken::FpmProtocolError;
use super::reason::{IgnoredMessage, RejectReason};
use artery_l3::router::Protocol;
use artery_lpm::load::AnyPrefix;
use artery_netlink::{Attributes, Message, NextHopObject, ObjectKind, Path, Record, Route};
use artery_netlink::{News, RouteKind};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
/// Bytes of struct rtmsg and of struct nhmsg.
const ROUTE_HEADER: usize = 12;
const NEXT_HOP_HEADER: usize = 8;
const RTA_DST: u16 = 1;
const NHA_ID: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const AF_MPLS: u8 = 28;
/// The main routing table, RT_TABLE_MAIN.
const MAIN_TABLE: u32 = 254;

/// The change that a message requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// Sets the route of a prefix.
    NewRoute { prefix: AnyPrefix, protocol: Protocol, path: Result<Path, RejectReason> },
    /// The route of a prefix was removed.
    DelRoute(AnyPrefix),
    /// A next-hop object is this from now on.
    NewNextHop(u32, ObjectKind),
    /// A next-hop object was removed.
    DelNextHop(u32),
    /// The message changes nothing here.
    Ignored(IgnoredMessage),
}

impl Update {
    /// Parses a message. A truncated or invalid route or next hop is an error: applying a part of it would
    /// install a route that was not requested.
    pub(super) fn parse_message(message: &Message<'_>) -> Result<Update, FpmProtocolError> {
        match message.kind {
            RTM_NEWROUTE | RTM_DELROUTE => read_route(message),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => read_next_hop(message),
            RTM_NEWNEIGH..=RTM_GETNEIGH => Ok(Update::Ignored(IgnoredMessage::Neighbors)),
            _ => Ok(Update::Ignored(IgnoredMessage::Other)),
        }
    }
}

fn read_route(message: &Message<'_>) -> Result<Update, FpmProtocolError> {
    const CUT: FpmProtocolError = FpmProtocolError::Malformed("route");
    let attributes = Attributes::after_header(message.payload, ROUTE_HEADER);
    let header = message.payload.first_chunk::<ROUTE_HEADER>().ok_or(CUT)?;
    let address_len = match header[0] {
        AF_INET => 4,
        AF_INET6 => 16,
        AF_MPLS => return Ok(Update::Ignored(IgnoredMessage::Mpls)),
        _ => return Ok(Update::Ignored(IgnoredMessage::Other)),
    };
    if !attributes.clone().is_whole() {
        return Err(CUT);
    }
    match attributes.find_value(RTA_DST) {
        Some(address) if address.len() == address_len => {}
        None if header[1] == 0 => {}
        _ => return Err(FpmProtocolError::Malformed("destination of a route")),
    }
    let news = News::parse_message(message);
    let Some(News { is_gone, record: Record::Route(route), .. }) = news else { return Err(CUT) };
    let prefix = AnyPrefix::new(route.destination, route.len).map_err(|_| CUT)?;
    let protocol = Protocol(route.protocol);
    Ok(match () {
        () if route.table != MAIN_TABLE => Update::Ignored(IgnoredMessage::Tables),
        // The sender read it in its kernel, where it forwards by interfaces that are none of the router's.
        () if protocol == Protocol::KERNEL => Update::Ignored(IgnoredMessage::Kernel),
        () if is_gone => Update::DelRoute(prefix),
        () => Update::NewRoute { prefix, protocol, path: read_path(route) },
    })
}

/// The path of a route, or why the router can't have such a route.
fn read_path(route: Route) -> Result<Path, RejectReason> {
    let forwards = [RouteKind::Unicast, RouteKind::Blackhole, RouteKind::Unreachable, RouteKind::Prohibit];
    match () {
        () if route.source.is_some() || route.tos != 0 => Err(RejectReason::Selective),
        () if !forwards.contains(&route.path.kind) => Err(RejectReason::Type),
        () if route.path.hops.iter().any(|hop| hop.has_encapsulation) => Err(RejectReason::Encapsulation),
        () => Ok(route.path),
    }
}

fn read_next_hop(message: &Message<'_>) -> Result<Update, FpmProtocolError> {
    const CUT: FpmProtocolError = FpmProtocolError::Malformed("next hop");
    let attributes = Attributes::after_header(message.payload, NEXT_HOP_HEADER);
    if message.payload.len() < NEXT_HOP_HEADER || !attributes.clone().is_whole() {
        return Err(CUT);
    }
    let is_gone = message.kind == RTM_DELNEXTHOP;
    let id = attributes.find_value(NHA_ID).and_then(|id| id.first_chunk()).map(|id| u32::from_ne_bytes(*id));
    match (id.filter(|id| *id != 0), News::parse_message(message).map(|news| news.record)) {
        (Some(id), _) if is_gone => Ok(Update::DelNextHop(id)),
        (Some(_), Some(Record::NextHop(NextHopObject { id, kind }))) => Ok(Update::NewNextHop(id, kind)),
        _ => Err(CUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::Messages;
    use artery_netlink::build::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A route of a protocol.
    fn put(to: (&str, u8), protocol: u8, rest: &[Vec<u8>]) -> Vec<u8> {
        route(NEW_ROUTE, (ip(to.0), to.1), protocol, rest)
    }

    fn read(bytes: &[u8]) -> Result<Update, FpmProtocolError> {
        Update::parse_message(&Messages(bytes).next().expect("it is a message"))
    }

    #[test]
    fn a_route_is_put_with_its_protocol_and_removed_by_its_prefix() {
        let message = put(("192.0.2.0", 24), 186, &[gateway(ip("10.0.1.9"))]);
        let Ok(Update::NewRoute { prefix, protocol, path: Ok(path) }) = read(&message) else { panic!() };
        assert_eq!((prefix.to_string().as_str(), protocol.0), ("192.0.2.0/24", 186));
        assert_eq!((path.hops.len(), path.hops[0].gateway, path.hops[0].link), (1, Some(ip("10.0.1.9")), 0));
        let message = route(DEL_ROUTE, (ip("2001:db8::"), 32), 186, &[]);
        assert!(
            matches!(read(&message), Ok(Update::DelRoute(prefix)) if prefix.to_string() == "2001:db8::/32")
        );
    }

    #[test]
    fn what_is_not_for_the_router_is_ignored_or_refused() {
        let ignored = |bytes: &[u8]| match read(bytes) {
            Ok(Update::Ignored(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(ignored(&put(("10.0.0.0", 8), 2, &[link(3)])), IgnoredMessage::Kernel);
        let table = attribute(15, &10u32.to_ne_bytes());
        assert_eq!(ignored(&put(("10.0.0.0", 8), 11, &[table])), IgnoredMessage::Tables);
        let found = ignored(&message(28, 0, &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]));
        assert_eq!(found, IgnoredMessage::Neighbors);
        let found = ignored(&message(24, 0, &[28, 20, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0], &[]));
        assert_eq!(found, IgnoredMessage::Mpls);
        assert_eq!(ignored(&message(16, 0, &[0; 16], &[])), IgnoredMessage::Other);
        let refused = |bytes: &[u8]| match read(bytes) {
            Ok(Update::NewRoute { path: Err(reason), .. }) => reason,
            other => panic!("{other:?}"),
        };
        let encapsulated = [gateway(ip("10.0.1.9")), attribute(21, &[1, 0]), attribute(22, &[0; 8])];
        assert_eq!(refused(&put(("10.0.0.0", 8), 186, &encapsulated)), RejectReason::Encapsulation);
        let mut local = put(("10.0.0.1", 32), 11, &[]);
        local[16 + 7] = 2;
        assert_eq!(refused(&local), RejectReason::Type);
    }

    #[test]
    fn a_route_that_is_cut_is_an_error_and_never_another_route() {
        let whole = put(("10.9.0.0", 16), 186, &[gateway(ip("10.0.1.9")), link(7)]);
        let expected = read(&whole).unwrap();
        for len in 16..whole.len() {
            let mut cut = whole[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            match read(&cut) {
                Err(_) => {}
                // Attributes may end where one does: the sender has left out the rest.
                Ok(Update::NewRoute { prefix, .. }) => {
                    assert!(matches!(&expected, Update::NewRoute { prefix: whole, .. } if *whole == prefix));
                }
                other => panic!("{other:?} of {len} bytes"),
            }
        }
        let whole = next_hop(104, 7, &[next_hop_gateway(ip("10.0.1.9"))]);
        for len in 16..whole.len() {
            let mut cut = whole[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            assert!(matches!(read(&cut), Err(_) | Ok(Update::NewNextHop(7, _))), "{len}");
        }
        let mut long = whole_route_with_length(33);
        assert!(read(&long).is_err());
        long[17] = 32;
        assert!(read(&long).is_ok());
    }

    fn whole_route_with_length(len: u8) -> Vec<u8> {
        let mut bytes = put(("10.9.0.0", 16), 186, &[gateway(ip("10.0.1.9"))]);
        bytes[17] = len;
        bytes
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_panic(
            kind in prop_oneof![24u16..32, 104u16..107, any::<u16>()],
            payload in prop::collection::vec(any::<u8>(), 0..96),
        ) {
            let _ = Update::parse_message(&Message { kind, flags: 0, sequence: 0, payload: &payload });
        }
    }
}
