//! What expressions of nftables load into registers: the number of bytes, and where they come from.
use super::super::packet::{ConnectionField, PortField, RouteField};
use super::super::ruleset::Source;

/// The length and the source of what `meta` loads (`NFT_META_*`).
pub(super) fn meta_source(key: u32) -> (usize, Source) {
    let port = |is_input, field| Source::Port { is_input, field };
    match key {
        1 => (2, Source::Ethertype),
        3 => (4, Source::Mark),
        4 => (4, port(true, PortField::Index)),
        5 => (4, port(false, PortField::Index)),
        6 => (16, port(true, PortField::Name)),
        7 => (16, port(false, PortField::Name)),
        15 => (1, Source::Family),
        16 => (1, Source::Protocol),
        _ => (16, Source::Unknown),
    }
}

/// The same for `ct` (`NFT_CT_*`).
pub(super) fn connection_source(key: u32, direction: Option<u8>) -> (usize, Source) {
    use ConnectionField::{Destination, DestinationPort, Direction, Protocol, SourcePort, State, Status};
    let field = |length, field| (length, Source::Connection(field));
    match (key, direction.filter(|direction| *direction < 2)) {
        (0, _) => field(4, State),
        (1, _) => field(1, Direction),
        (2, _) => field(4, Status),
        (10, _) => field(1, Protocol),
        (11, Some(direction)) => field(2, SourcePort(direction)),
        (12, Some(direction)) => field(2, DestinationPort(direction)),
        (19, Some(direction)) => field(4, ConnectionField::Source(direction)),
        (20, Some(direction)) => field(4, Destination(direction)),
        (21, Some(direction)) => field(16, ConnectionField::Source(direction)),
        (22, Some(direction)) => field(16, Destination(direction)),
        _ => (16, Source::Unknown),
    }
}

/// The same for `fib`, of what it results in (`NFT_FIB_RESULT_*`) and what it asks with (`NFTA_FIB_F_*`).
pub(super) fn route_source(result: u32, flags: u32) -> (usize, Source) {
    const SOURCE: u32 = 1;
    const DESTINATION: u32 = 1 << 1;
    // The mark is that of all forwarded packets.
    const MARK: u32 = 1 << 2;
    const INPUT: u32 = 1 << 3;
    const PRESENT: u32 = 1 << 5;
    let (length, field) = match result {
        _ if flags & PRESENT != 0 => (1, RouteField::IsThere),
        1 => (4, RouteField::Port(PortField::Index)),
        2 => (16, RouteField::Port(PortField::Name)),
        3 => (4, RouteField::Type),
        _ => return (16, Source::Unknown),
    };
    match flags & !(MARK | PRESENT) {
        SOURCE => (length, Source::Route { is_source: true, field }),
        DESTINATION => (length, Source::Route { is_source: false, field }),
        // Routes lead to the source by the input, or it is not known what they do.
        flags if flags == SOURCE | INPUT && field != RouteField::Type => {
            (length, Source::Route { is_source: true, field })
        }
        _ => (16, Source::Unknown),
    }
}
