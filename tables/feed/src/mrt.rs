//! Tables from MRT dumps (RFC 6396): TABLE_DUMP_V2 with its unicast records, and TABLE_DUMP.
//!
//! Frames are cut here, so that a damaged length costs no memory and damage has a place; what is in them is
//! read by the library. A dump holds the tables of many peers: a route is taken from the first of them that
//! has it.
use crate::Cause;
use artery_lpm::load::{AnyPrefix, Gathering, Routes};
use bgpkit_parser::models::{
    AttributeValue, Attributes, MrtMessage, NetworkPrefix, RibAfiEntries, RibEntry, TableDumpV2Message,
    TableDumpV2Type,
};
use bgpkit_parser::parser::mrt::mrt_record::parse_mrt_body;
use std::collections::HashSet;
use std::io::{self, BufRead, Read as _};
use std::net::IpAddr;

/// What can be wrong with a record of an MRT dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MrtError {
    /// The file ends within it.
    #[error("the file ends within it; fetch the file again")]
    CutOff,
    /// It claims to be longer than any record is.
    #[error("it claims {0} bytes, more than any record has; fetch the file again")]
    TooLong(u32),
    /// It holds neither a table nor a part of one; its type.
    #[error("it is of type {0}; take a dump of a table (rib), not one of updates")]
    NotATable(u16),
    /// Its content does not follow its format; the library's words.
    #[error("{0}; fetch the file again")]
    Damaged(String),
    /// It holds routes of peers, but no list of peers came before it.
    #[error("no list of peers (PEER_INDEX_TABLE) comes before it; fetch the file again, from its beginning")]
    NoPeers,
    /// An entry of it is of a peer that the list of peers before it does not have.
    #[error("an entry is of peer {index}, counted from 0, of {peers}; fetch the file again")]
    NotAPeer {
        /// The peer's place in the list, from 0 on.
        index: u16,
        /// How many peers the list has.
        peers: usize,
    },
    /// A route of it has no next hop.
    #[error("the route of {0} has no next hop")]
    NoNextHop(String),
}

/// TABLE_DUMP and TABLE_DUMP_V2 (RFC 6396, section 4).
const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;

/// Bytes of a record's header: time, type, subtype, length (RFC 6396, section 2).
const HEADER: usize = 12;
/// Most bytes of a record: a prefix with an entry of 64 kB from each of a hundred peers is far off.
const MAX_RECORD: u32 = 16 << 20;

/// Types that a record may have (RFC 6396, section 4, RFC 8050).
const TYPES: std::ops::RangeInclusive<u16> = 11..=49;

/// Whether a file that starts like this is an MRT dump: text has no zero byte where the type begins.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    matches!(start, [_, _, _, _, 0, kind, 0, _, ..] if TYPES.contains(&u16::from(*kind)))
}

/// Reads every MRT record up to the end of the input.
pub(crate) fn read(mut from: impl BufRead) -> Result<Routes, Cause> {
    let mut dump = Dump::default();
    let mut byte = 0;
    let mut body = Vec::new();
    while !from.fill_buf().map_err(Cause::Io)?.is_empty() {
        let blame = |problem| Cause::Record { byte, problem };
        read_up_to(HEADER as u32, &mut from, &mut body).map_err(Cause::Io)?;
        let Some(header) = body.first_chunk::<HEADER>() else {
            return Err(blame(MrtError::CutOff));
        };
        let [_, _, _, _, kind @ .., a, b, c, d] = *header;
        let length = u32::from_be_bytes([a, b, c, d]);
        if length > MAX_RECORD {
            return Err(blame(MrtError::TooLong(length)));
        }
        read_up_to(length, &mut from, &mut body).map_err(Cause::Io)?;
        if body.len() < length as usize {
            return Err(blame(MrtError::CutOff));
        }
        let (kind, subtype) =
            (u16::from_be_bytes([kind[0], kind[1]]), u16::from_be_bytes([kind[2], kind[3]]));
        dump.add_record(kind, subtype, &body).map_err(blame)?;
        byte += (HEADER + body.len()) as u64;
    }
    Ok(dump.gathering.into_routes())
}

/// Reads this many bytes, fewer only where the file ends; that gzip's part of it ends too
/// early stays an error.
fn read_up_to(count: u32, from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<()> {
    to.clear();
    from.take(count.into()).read_to_end(to).map(|_| ())
}

/// A dump while it is read.
#[derive(Default)]
struct Dump {
    gathering: Gathering,
    /// How many peers the last list of peers has; none before the first one.
    peers: Option<usize>,
    /// Prefixes that have a route already.
    known: HashSet<AnyPrefix>,
}

impl Dump {
    fn add_record(&mut self, kind: u16, subtype: u16, body: &[u8]) -> Result<(), MrtError> {
        if !matches!(kind, TABLE_DUMP | TABLE_DUMP_V2) {
            return Err(MrtError::NotATable(kind));
        }
        let message = parse_mrt_body(kind, subtype, body.to_vec().into())
            .map_err(|error| MrtError::Damaged(error.to_string()))?;
        match message {
            MrtMessage::TableDumpMessage(entry) => self.add_entry(&entry.prefix, Some(&entry.attributes)),
            MrtMessage::TableDumpMessageBatch(entries) => {
                entries.iter().try_for_each(|entry| self.add_entry(&entry.prefix, Some(&entry.attributes)))
            }
            MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(table)) => {
                self.peers = Some(table.id_peer_map.len());
                Ok(())
            }
            MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(record)) => {
                self.check_peers(&record.rib_entries)?;
                if is_unicast(record.rib_type) { self.add_unicast(&record, body) } else { Ok(()) }
            }
            // Where peers are, and other families.
            _ => Ok(()),
        }
    }

    /// Refuses entries of peers that are not listed before them (RFC 6396, section 4.3).
    fn check_peers(&self, entries: &[RibEntry]) -> Result<(), MrtError> {
        let peers = self.peers.ok_or(MrtError::NoPeers)?;
        match entries.iter().find(|entry| usize::from(entry.peer_index) >= peers) {
            Some(entry) => Err(MrtError::NotAPeer { index: entry.peer_index, peers }),
            None => Ok(()),
        }
    }

    fn add_unicast(&mut self, record: &RibAfiEntries, body: &[u8]) -> Result<(), MrtError> {
        // The library leaves out entries that it can't read, and what follows them.
        if declared_entries(body) != Some(record.rib_entries.len()) {
            return Err(MrtError::Damaged("an entry does not follow its format".into()));
        }
        self.add_entry(&record.prefix, record.rib_entries.first().map(|entry| &entry.attributes))
    }

    fn add_entry(&mut self, prefix: &NetworkPrefix, attributes: Option<&Attributes>) -> Result<(), MrtError> {
        // A record without entries: no peer has a route for the prefix.
        let Some(attributes) = attributes else { return Ok(()) };
        let damaged = |why: artery_lpm::NotAPrefix| MrtError::Damaged(why.to_string());
        let key = AnyPrefix::new(prefix.prefix.addr(), prefix.prefix.prefix_len()).map_err(damaged)?;
        if self.known.insert(key) {
            let next_hop =
                next_hop(attributes).ok_or_else(|| MrtError::NoNextHop(prefix.prefix.to_string()))?;
            self.gathering.add_via(key, next_hop);
        }
        Ok(())
    }
}

/// The number of entries that a record of one prefix says it has (RFC 6396, section 4.3.2).
fn declared_entries(body: &[u8]) -> Option<usize> {
    let (_sequence, rest) = body.split_at_checked(4)?;
    let (len, rest) = rest.split_first()?;
    let count = rest.get(usize::from(len.div_ceil(8))..)?.first_chunk()?;
    Some(u16::from_be_bytes(*count).into())
}

fn is_unicast(kind: TableDumpV2Type) -> bool {
    use TableDumpV2Type::*;
    matches!(kind, RibIpv4Unicast | RibIpv6Unicast | RibIpv4UnicastAddPath | RibIpv6UnicastAddPath)
}

/// The next hop that RFC 4271 or RFC 4760 gives a route.
fn next_hop(attributes: &Attributes) -> Option<IpAddr> {
    let of_value = |value: &AttributeValue| match value {
        AttributeValue::NextHop(address) => Some(*address),
        AttributeValue::MpReachNlri(reach) => reach.next_hop.map(|next_hop| next_hop.global_addr()),
        _ => None,
    };
    attributes.iter().find_map(of_value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// A record of a dump.
    pub(crate) fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x65, 0, 0, 0];
        bytes.extend(kind.to_be_bytes());
        bytes.extend(subtype.to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[0x40, kind, value.len() as u8], value].concat()
    }

    /// ORIGIN, AS_PATH of one 4-byte AS, and the next hop where RFC 4271 or, abridged by RFC 6396,
    /// RFC 4760 has it.
    fn attributes(next_hop: IpAddr, as_bytes: usize) -> Vec<u8> {
        let path = [&[2, 1][..], &vec![1; as_bytes]].concat();
        let way = match next_hop {
            IpAddr::V4(next_hop) => attribute(3, &next_hop.octets()),
            IpAddr::V6(next_hop) => attribute(14, &[&[16][..], &next_hop.octets()].concat()),
        };
        [attribute(1, &[0]), attribute(2, &path), way].concat()
    }

    /// A dump's first record: a table of this many peers, with 4-byte AS numbers.
    pub(crate) fn peers(count: u8) -> Vec<u8> {
        let peer = |last| [0b10, 10, 0, 0, last, 10, 0, 0, last, 0, 0, 0xfd, 0xe8];
        let list: Vec<u8> = (1..=count).flat_map(peer).collect();
        record(TABLE_DUMP_V2, 1, &[&[10, 0, 0, 1, 0, 0, 0, count][..], &list].concat())
    }

    /// A route of the first peers by these next hops.
    pub(crate) fn rib(subtype: u16, network: &[u8], len: u8, next_hops: &[IpAddr]) -> Vec<u8> {
        let mut body = vec![0, 0, 0, 0, len];
        body.extend(&network[..usize::from(len.div_ceil(8))]);
        body.extend((next_hops.len() as u16).to_be_bytes());
        for (peer, next_hop) in (0u16..).zip(next_hops) {
            let attributes = attributes(*next_hop, 4);
            body.extend(peer.to_be_bytes());
            body.extend([0x65, 0, 0, 0]);
            body.extend((attributes.len() as u16).to_be_bytes());
            body.extend(attributes);
        }
        record(TABLE_DUMP_V2, subtype, &body)
    }

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn v6(last: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
    }

    /// A dump of both families; the third route repeats the first one's prefix.
    pub(crate) fn dump() -> Vec<u8> {
        [
            peers(2),
            rib(2, &[10, 0, 0, 0], 8, &[v4(1), v4(2)]),
            rib(2, &[10, 1, 0, 0], 16, &[v4(3)]),
            rib(2, &[0; 4], 0, &[v4(1)]),
            rib(4, &[0x20, 1, 0x0d, 0xb8], 32, &[v6(1)]),
        ]
        .concat()
    }

    #[test]
    fn routes_of_both_families_are_read_with_the_next_hop_of_the_first_peer() {
        let routes = read(&dump()[..]).unwrap();
        let v4_routes = [("0.0.0.0/0", 1), ("10.0.0.0/8", 1), ("10.1.0.0/16", 2)];
        assert_eq!(routes.v4, v4_routes.map(|(prefix, group)| (prefix.parse().unwrap(), group)));
        assert_eq!(routes.v6, [("2001:db8::/32".parse().unwrap(), 3)]);
        assert_eq!(routes.next_hops, [v4(1), v4(3), v6(1)]);
    }

    #[test]
    fn the_first_record_of_a_prefix_counts() {
        let route = |last| rib(2, &[10, 0, 0, 0], 8, &[v4(last)]);
        let dump = [peers(1), route(1), route(2)].concat();
        let routes = read(&dump[..]).unwrap();
        assert_eq!((routes.v4.len(), routes.next_hops), (1, vec![v4(1)]));
    }

    #[test]
    fn the_old_table_dump_is_read_too() {
        let attributes = attributes(v4(7), 2);
        let mut body = vec![0, 0, 0, 0, 10, 2, 0, 0, 16, 1, 0x65, 0, 0, 0, 10, 0, 0, 9, 0xfd, 0xe8];
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        let routes = read(&record(TABLE_DUMP, 1, &body)[..]).unwrap();
        assert_eq!(routes.v4, [("10.2.0.0/16".parse().unwrap(), 1)]);
        assert_eq!(routes.next_hops, [v4(7)]);
    }

    #[test]
    fn a_dump_cut_off_anywhere_but_between_records_is_refused_with_the_place() {
        let dump = dump();
        let mut starts = vec![0];
        while *starts.last().unwrap() < dump.len() {
            let start = *starts.last().unwrap();
            let length = u32::from_be_bytes(dump[start + 8..start + 12].try_into().unwrap());
            starts.push(start + 12 + length as usize);
        }
        for end in 1..dump.len() {
            let outcome = read(&dump[..end]);
            if starts.contains(&end) {
                outcome.unwrap();
                continue;
            }
            let start = starts.iter().rfind(|start| **start < end).unwrap();
            match outcome.unwrap_err() {
                Cause::Record { byte, problem } => {
                    assert_eq!((byte, problem), (*start as u64, MrtError::CutOff))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_record_that_is_shorter_than_its_content_is_refused_and_nothing_panics() {
        let route = rib(2, &[10, 1, 0, 0], 16, &[v4(3), v4(4)]);
        for length in 0..route.len() - HEADER {
            let cut = record(TABLE_DUMP_V2, 2, &route[HEADER..HEADER + length]);
            let outcome = read(&[peers(2), cut].concat()[..]);
            assert!(matches!(outcome, Err(Cause::Record { .. })), "{length}: {outcome:?}");
        }
    }

    #[test]
    fn a_flipped_byte_anywhere_is_survived() {
        let dump = dump();
        for at in 0..dump.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = dump.clone();
                damaged[at] ^= flip;
                let _ = read(&damaged[..]);
            }
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let problem = |bytes: &[u8]| match read(bytes) {
            Err(Cause::Record { byte: 0, problem }) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(&record(16, 4, &[0; 40])), MrtError::NotATable(16));
        let mut huge = record(TABLE_DUMP_V2, 2, &[]);
        huge[8] = 0xff;
        assert_eq!(problem(&huge), MrtError::TooLong(0xff00_0000));
        let without = record(TABLE_DUMP_V2, 2, &[0, 0, 0, 0, 8, 10, 0, 1, 0, 0, 0x65, 0, 0, 0, 0, 0]);
        let (byte, problem) = place(&[peers(1), without].concat());
        assert_eq!((byte, problem), (peers(1).len(), MrtError::NoNextHop("10.0.0.0/8".into())));
    }

    /// Where a dump is damaged, and how.
    fn place(dump: &[u8]) -> (usize, MrtError) {
        match read(dump) {
            Err(Cause::Record { byte, problem }) => (byte as usize, problem),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_of_a_peer_that_is_not_listed_is_refused_with_the_place() {
        let (list, first) = (peers(2), rib(2, &[10, 0, 0, 0], 8, &[v4(1), v4(2)]));
        let at = list.len() + first.len();
        // Unicast and multicast of both families; the third entry is of peer 2.
        for (subtype, way) in [(2, v4(3)), (3, v4(3)), (4, v6(3)), (5, v6(3))] {
            let good = rib(subtype, &[0x20, 1], 16, &[way; 2]);
            read(&[&list[..], &first, &good].concat()[..]).unwrap();
            let bad = rib(subtype, &[0x20, 1], 16, &[way; 3]);
            let outcome = place(&[&list[..], &first, &bad].concat());
            assert_eq!(outcome, (at, MrtError::NotAPeer { index: 2, peers: 2 }), "subtype {subtype}");
        }
        let nobody = place(&[peers(0), rib(2, &[10, 0, 0, 0], 8, &[v4(1)])].concat());
        assert_eq!(nobody, (peers(0).len(), MrtError::NotAPeer { index: 0, peers: 0 }));
    }

    #[test]
    fn a_route_before_the_list_of_peers_is_refused_with_the_place() {
        let route = rib(2, &[10, 0, 0, 0], 8, &[v4(1)]);
        assert_eq!(place(&route), (0, MrtError::NoPeers));
        assert_eq!(place(&[route, peers(1)].concat()), (0, MrtError::NoPeers));
    }

    #[test]
    fn of_dumps_one_after_the_other_each_has_its_own_peers() {
        let (short, long) = (rib(2, &[10, 0, 0, 0], 8, &[v4(1)]), rib(2, &[11, 0, 0, 0], 8, &[v4(1), v4(2)]));
        let growing = [peers(1), short.clone(), peers(2), long.clone()].concat();
        assert_eq!(read(&growing[..]).unwrap().len(), 2);
        let shrinking = [peers(2), short, peers(1), long.clone()].concat();
        let at = shrinking.len() - long.len();
        assert_eq!(place(&shrinking), (at, MrtError::NotAPeer { index: 1, peers: 1 }));
    }
}
