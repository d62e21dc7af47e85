//! States as bytes, for `pfctl -S` and `-L` and for other machines: all that another filter must
//! know to go on.
//!
//! Each record has its length before it, which is not 0; numbers are in the order of the network. Times are
//! what is left of them, so that clocks need not agree.
use super::Key;
use crate::facts::{Direction, Family};
use crate::options::Timeout;
use crate::rule::Scrub;
use crate::track::{Peer, Scale, Stage};
use artery_wire::IpProtocol;
use std::net::IpAddr;

/// What a dump says of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Its id and who made it.
    pub id: u64,
    /// The host id of the filter that made it.
    pub creator: u32,
    /// The direction of its first packet.
    pub direction: Direction,
    /// The interface that it is bound to; empty for none. No more than 255 bytes of it are kept.
    pub interface: String,
    /// The keys of wire and stack.
    pub keys: [Key; 2],
    /// What is known of both ends.
    pub peers: [Peer; 2],
    /// What their sequence numbers are moved by.
    pub moved: [u32; 2],
    /// The kind of timeout that holds.
    pub class: Timeout,
    /// Whether windows are not tracked.
    pub is_sloppy: bool,
    /// Whether it is exported, as by pflow(4).
    pub is_exported: bool,
    /// Packets of both directions.
    pub packets: [u64; 2],
    /// Bytes of both directions.
    pub bytes: [u64; 2],
    /// For how long it has been there.
    pub age_ms: u64,
    /// How long ago the packet was that kept it alive last.
    pub idle_ms: u32,
    /// The number of its rule among those of the main rule set; None if it has none there.
    pub rule: Option<u32>,
    /// What few states want of packets.
    pub wants: Option<Box<StateActions>>,
}

/// What a state wants of its packets that few states want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateActions {
    /// The tag that they get; empty for none.
    pub tag: String,
    /// What is scrubbed of them.
    pub scrub: Scrub,
    /// Their type of service.
    pub tos: Option<u8>,
    /// Their priority, and that of those with low delay.
    pub priority: Option<(u8, u8)>,
    /// The log of each of them.
    pub log_all: Option<u16>,
    /// Next hops for packets of the first direction, and of the other.
    pub routes: [Option<IpAddr>; 2],
    /// Whether the filter shook hands for both ends.
    pub is_proxied: bool,
}

/// Why bytes are no dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// They don't begin as a dump does.
    #[error("not a file of states, as pfctl -S writes one")]
    Magic,
    /// They begin as one of another version does.
    #[error(
        "a file of states of version '{}', which is not known here; write it with this version of Artery",
        .0.escape_ascii()
    )]
    Version(u8),
    /// The record at this byte is cut short.
    #[error("cut short at byte {0}; the file is not whole")]
    Short(usize),
    /// The record at this byte says what can't be.
    #[error("the state at byte {0} makes no sense")]
    Wrong(usize),
    /// There is something behind the end, at this byte.
    #[error("the states end at byte {0}, and there is more behind them")]
    Behind(usize),
    /// The contents are not what was written.
    #[error("its checksum is wrong; the file is damaged")]
    Changed,
}

impl StateRecord {
    /// Adds it to a dump.
    pub fn write_record(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 2]);
        self.write_fields(out);
        let length = (out.len() - start - 2) as u16;
        out[start..start + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn write_fields(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_be_bytes());
        out.extend(self.creator.to_be_bytes());
        let flags = u8::from(self.is_exported) << 4
            | u8::from(self.wants.is_some()) << 3
            | u8::from(self.is_sloppy) << 2
            | u8::from(self.keys[0].family == Family::Inet6) << 1
            | u8::from(self.direction == Direction::Out);
        out.extend([flags, self.keys[0].protocol.0, self.class as u8, 0]);
        for key in &self.keys {
            key.addresses.iter().for_each(|address| out.extend(address.to_be_bytes()));
            key.ports.iter().for_each(|port| out.extend(port.to_be_bytes()));
        }
        for (peer, moved) in self.peers.iter().zip(self.moved) {
            [peer.low, peer.high, moved].iter().for_each(|number| out.extend(number.to_be_bytes()));
            out.extend(peer.max_window.to_be_bytes());
            out.extend([peer.stage.0, peer.scale.to_byte()]);
        }
        self.packets.iter().chain(&self.bytes).for_each(|count| out.extend(count.to_be_bytes()));
        out.extend(self.age_ms.to_be_bytes());
        out.extend(u64::from(self.idle_ms).to_be_bytes());
        out.extend(self.rule.map_or(0, |rule| u64::from(rule) + 1).to_be_bytes());
        write_text(&self.interface, out);
        if let Some(wants) = &self.wants {
            wants.write_actions(out);
        }
    }

    /// All states of some records.
    pub fn read_all(records: &[u8]) -> Result<Vec<StateRecord>, DumpError> {
        let (mut rest, mut states) = (records, Vec::new());
        while !rest.is_empty() {
            let at = records.len() - rest.len();
            let (record, behind) = split_record(rest).ok_or(DumpError::Short(at))?;
            states.push(StateRecord::parse_record(record).ok_or(DumpError::Wrong(at))?);
            rest = behind;
        }
        Ok(states)
    }

    /// Parses the state of a record; None if it makes no sense. Bytes after the known fields
    /// belong to later versions.
    pub(super) fn parse_record(record: &[u8]) -> Option<StateRecord> {
        read_state(&mut Fields(record))
    }
}

/// Splits off the first record, without its length; returns it and the rest.
pub(super) fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = bytes.split_first_chunk()?;
    behind.split_at_checked(u16::from_be_bytes(*length).into())
}

impl StateActions {
    fn write_actions(&self, out: &mut Vec<u8>) {
        let Scrub { is_given, clears_df, randomises_id, reassembles_tcp, .. } = self.scrub;
        let flags = [is_given, clears_df, randomises_id, reassembles_tcp, self.is_proxied];
        out.push(flags.iter().enumerate().fold(0, |bits, (n, is)| bits | u8::from(*is) << n));
        write_option(self.scrub.min_ttl.map(|ttl| [ttl]), out);
        write_option(self.scrub.tos.map(|tos| [tos]), out);
        write_option(self.scrub.max_mss.map(u16::to_be_bytes), out);
        write_option(self.tos.map(|tos| [tos]), out);
        write_option(self.priority.map(|(most, low_delay)| [most, low_delay]), out);
        write_option(self.log_all.map(u16::to_be_bytes), out);
        for route in self.routes {
            match route {
                None => out.push(0),
                Some(IpAddr::V4(address)) => out.extend([&[4], &address.octets()[..]].concat()),
                Some(IpAddr::V6(address)) => out.extend([&[6], &address.octets()[..]].concat()),
            }
        }
        write_text(&self.tag, out);
    }

    fn read_actions(fields: &mut Fields<'_>) -> Option<StateActions> {
        let [flags] = fields.read_array()?;
        let has = |bit: u8| flags & 1 << bit != 0;
        let scrub = Scrub {
            is_given: has(0),
            clears_df: has(1),
            randomises_id: has(2),
            reassembles_tcp: has(3),
            min_ttl: fields.read_option()?.map(|[ttl]| ttl),
            tos: fields.read_option()?.map(|[tos]| tos),
            max_mss: fields.read_option()?.map(u16::from_be_bytes),
        };
        Some(StateActions {
            scrub,
            is_proxied: has(4),
            tos: fields.read_option()?.map(|[tos]| tos),
            priority: fields.read_option()?.map(|[most, low_delay]| (most, low_delay)),
            log_all: fields.read_option()?.map(u16::from_be_bytes),
            routes: [fields.read_route()?, fields.read_route()?],
            tag: fields.read_text()?,
        })
    }
}

fn write_option<const N: usize>(value: Option<[u8; N]>, out: &mut Vec<u8>) {
    out.push(value.is_some().into());
    out.extend(value.into_iter().flatten());
}

/// A text of 255 bytes at most, behind its length.
fn write_text(text: &str, out: &mut Vec<u8>) {
    let most = usize::from(u8::MAX).min(text.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    out.push(end as u8);
    out.extend(&text.as_bytes()[..end]);
}

/// The rest of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn read_u16(&mut self) -> Option<u16> {
        self.read_array().map(u16::from_be_bytes)
    }

    fn read_u32(&mut self) -> Option<u32> {
        self.read_array().map(u32::from_be_bytes)
    }

    fn read_u64(&mut self) -> Option<u64> {
        self.read_array().map(u64::from_be_bytes)
    }

    fn read_option<const N: usize>(&mut self) -> Option<Option<[u8; N]>> {
        match self.read_array()? {
            [0] => Some(None),
            [1] => Some(Some(self.read_array()?)),
            _ => None,
        }
    }

    fn read_route(&mut self) -> Option<Option<IpAddr>> {
        match self.read_array()? {
            [0] => Some(None),
            [4] => Some(Some(IpAddr::from(self.read_array::<4>()?))),
            [6] => Some(Some(IpAddr::from(self.read_array::<16>()?))),
            _ => None,
        }
    }

    fn read_text(&mut self) -> Option<String> {
        let [length] = self.read_array()?;
        let (text, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(str::to_string)
    }

    fn read_key(&mut self, protocol: IpProtocol, family: Family) -> Option<Key> {
        let addresses = [self.read_array()?, self.read_array()?].map(u128::from_be_bytes);
        let is_possible =
            family == Family::Inet6 || addresses.iter().all(|address| u32::try_from(*address).is_ok());
        is_possible.then_some(Key {
            addresses,
            ports: [self.read_u16()?, self.read_u16()?],
            protocol,
            family,
        })
    }

    fn read_peer(&mut self) -> Option<(Peer, u32)> {
        let [low, high, moved] = [self.read_u32()?, self.read_u32()?, self.read_u32()?];
        let max_window = self.read_u16()?;
        let [stage, scale] = self.read_array()?;
        let stage = Stage(stage);
        // Handshakes of a filter that is not this one can't be gone on with.
        stage.tcp_name()?;
        Some((Peer { low, high, max_window, stage, scale: Scale::of_byte(scale) }, moved))
    }
}

fn read_state(fields: &mut Fields<'_>) -> Option<StateRecord> {
    let (id, creator) = (fields.read_u64()?, fields.read_u32()?);
    let [flags, protocol, class, _] = fields.read_array()?;
    let family = if flags & 2 != 0 { Family::Inet6 } else { Family::Inet };
    let (class, _) = *Timeout::NAMES.get(usize::from(class)).filter(|(class, _)| is_of_states(*class))?;
    let protocol = IpProtocol(protocol);
    let keys = [fields.read_key(protocol, family)?, fields.read_key(protocol, family)?];
    let [(first, moved), (second, moved_back)] = [fields.read_peer()?, fields.read_peer()?];
    let packets = [fields.read_u64()?, fields.read_u64()?];
    let bytes = [fields.read_u64()?, fields.read_u64()?];
    let (age_ms, idle_ms) = (fields.read_u64()?, u32::try_from(fields.read_u64()?).ok()?);
    let rule = fields.read_u64()?.checked_sub(1).map(u32::try_from).transpose().ok()?;
    Some(StateRecord {
        id,
        creator,
        direction: if flags & 1 != 0 { Direction::Out } else { Direction::In },
        interface: fields.read_text()?,
        keys,
        peers: [first, second],
        moved: [moved, moved_back],
        class,
        is_sloppy: flags & 4 != 0,
        is_exported: flags & 16 != 0,
        packets,
        bytes,
        age_ms,
        idle_ms,
        rule,
        wants: if flags & 8 != 0 { Some(Box::new(StateActions::read_actions(fields)?)) } else { None },
    })
}

/// Whether a timeout is one that states have.
fn is_of_states(class: Timeout) -> bool {
    (class as u8) < Timeout::Fragment as u8 && class != Timeout::TcpTsdiff
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn state(id: u64, six: bool) -> StateRecord {
        let family = if six { Family::Inet6 } else { Family::Inet };
        let key = |port| Key { addresses: [7, 9], ports: [port, 80], protocol: IpProtocol::TCP, family };
        let peer = Peer {
            low: 5,
            high: 6,
            max_window: 7,
            stage: Stage::ESTABLISHED,
            scale: Scale::from_option(Some(9)),
        };
        StateRecord {
            id,
            creator: 4,
            direction: Direction::Out,
            interface: "em0".into(),
            keys: [key(1), key(2)],
            peers: [peer, Peer::silent()],
            moved: [1, 2],
            class: Timeout::TcpEstablished,
            is_sloppy: true,
            is_exported: id == 1,
            packets: [1, 2],
            bytes: [3, 4],
            age_ms: 5,
            idle_ms: 6,
            rule: Some(0),
            wants: None,
        }
    }

    pub(crate) fn wants() -> StateActions {
        StateActions {
            tag: "inside".into(),
            scrub: Scrub {
                is_given: true,
                clears_df: true,
                min_ttl: Some(7),
                max_mss: Some(1400),
                ..Scrub::default()
            },
            tos: Some(16),
            priority: Some((1, 6)),
            log_all: Some(0),
            routes: [Some([10, 0, 0, 1].into()), Some([0xfe80, 0, 0, 0, 0, 0, 0, 1].into())],
            is_proxied: true,
        }
    }

    fn records(states: &[StateRecord]) -> Vec<u8> {
        let mut bytes = Vec::new();
        states.iter().for_each(|state| state.write_record(&mut bytes));
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let long = "a name that is longer than those of interfaces".to_string();
        let states = [
            state(1, false),
            StateRecord { rule: None, interface: String::new(), ..state(2, true) },
            StateRecord { wants: Some(Box::new(wants())), interface: long, ..state(3, false) },
        ];
        assert_eq!(StateRecord::read_all(&records(&states)), Ok(states.to_vec()));
    }

    #[test]
    fn records_cut_short_are_refused_with_the_place() {
        let first = records(&[state(1, false)]).len();
        let bytes = records(&[state(1, false), state(2, false)]);
        for length in 0..bytes.len() {
            match StateRecord::read_all(&bytes[..length]) {
                Ok(states) => {
                    assert!(length == 0 && states.is_empty() || length == first && states.len() == 1)
                }
                Err(error) => {
                    assert_eq!(error, DumpError::Short(if length < first { 0 } else { first }));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(at: prop::sample::Index, byte: u8) {
            let mut bytes = records(&[StateRecord { wants: Some(Box::new(wants())), ..state(1, false) }]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = StateRecord::read_all(&bytes);
        }
    }
}
