//! States as bytes, for `pfctl -S` and `-L` and for other machines: all that another filter must know to go on.
//!
//! A dump begins with [`MAGIC`] and holds one record after another, each with its length before it; numbers are in the
//! order of the network. Times are what is left of them, so that clocks need not agree.
use super::Key;
use crate::facts::{Direction, Family};
use crate::options::Timeout;
use crate::track::{Peer, Scale, Stage};
use artery_wire::IpProtocol;
use std::error::Error;
use std::fmt;

/// The first bytes of a dump, with its version.
pub const MAGIC: [u8; 8] = *b"pfstate1";
const RECORD: usize = 8 + 4 + 4 + 2 * (16 * 2 + 4) + 2 * 16 + 4 * 8 + 8 + 8 + 8 + INTERFACE;
const INTERFACE: usize = 16;

/// What a dump says of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// Its id and who made it.
    pub id: u64,
    /// Who made it.
    pub creator: u32,
    /// The way of its first packet.
    pub direction: Direction,
    /// The interface that it is bound to; empty for none.
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
}

/// Why bytes are no dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// They don't begin as a dump does.
    Magic,
    /// The record at this byte is cut short.
    Short(usize),
    /// The record at this byte says what can't be.
    Wrong(usize),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::Magic => f.write_str("not a file of states"),
            DumpError::Short(at) => write!(f, "state at byte {at} is cut short"),
            DumpError::Wrong(at) => write!(f, "state at byte {at} makes no sense"),
        }
    }
}

impl Error for DumpError {}

impl Dumped {
    /// Adds it to a dump.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend((RECORD as u16).to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.creator.to_be_bytes());
        let flags = u8::from(self.is_sloppy) << 2
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
            out.extend([peer.stage.0, peer.scale.byte()]);
        }
        self.packets.iter().chain(&self.bytes).for_each(|count| out.extend(count.to_be_bytes()));
        out.extend(self.age_ms.to_be_bytes());
        out.extend(u64::from(self.idle_ms).to_be_bytes());
        out.extend(self.rule.map_or(0, |rule| u64::from(rule) + 1).to_be_bytes());
        let mut name = [0; INTERFACE];
        let length = self.interface.len().min(INTERFACE);
        name[..length].copy_from_slice(&self.interface.as_bytes()[..length]);
        out.extend(name);
    }

    /// All states of a dump.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Dumped>, DumpError> {
        let mut rest = bytes.strip_prefix(&MAGIC).ok_or(DumpError::Magic)?;
        let mut states = Vec::new();
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (length, behind) = rest.split_first_chunk().ok_or(DumpError::Short(at))?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (record, behind) = behind.split_at_checked(length).ok_or(DumpError::Short(at))?;
            if length < RECORD {
                return Err(DumpError::Wrong(at));
            }
            states.push(read(&mut Fields(record)).ok_or(DumpError::Wrong(at))?);
            rest = behind;
        }
        Ok(states)
    }
}

/// The rest of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn key(&mut self, protocol: IpProtocol, family: Family) -> Option<Key> {
        let addresses = [self.take()?, self.take()?].map(u128::from_be_bytes);
        let is_possible =
            family == Family::Inet6 || addresses.iter().all(|address| u32::try_from(*address).is_ok());
        is_possible.then_some(Key { addresses, ports: [self.u16()?, self.u16()?], protocol, family })
    }

    fn peer(&mut self) -> Option<(Peer, u32)> {
        let [low, high, moved] = [self.u32()?, self.u32()?, self.u32()?];
        let max_window = self.u16()?;
        let [stage, scale] = self.take()?;
        let stage = Stage(stage);
        // Handshakes of a filter that is not this one can't be gone on with.
        stage.tcp_name()?;
        Some((Peer { low, high, max_window, stage, scale: Scale::of_byte(scale) }, moved))
    }
}

fn read(fields: &mut Fields<'_>) -> Option<Dumped> {
    let (id, creator) = (fields.u64()?, fields.u32()?);
    let [flags, protocol, class, _] = fields.take()?;
    let family = if flags & 2 != 0 { Family::Inet6 } else { Family::Inet };
    let (class, _) = *Timeout::NAMES.get(usize::from(class)).filter(|(class, _)| is_of_states(*class))?;
    let protocol = IpProtocol(protocol);
    let keys = [fields.key(protocol, family)?, fields.key(protocol, family)?];
    let [(first, moved), (second, moved_back)] = [fields.peer()?, fields.peer()?];
    let packets = [fields.u64()?, fields.u64()?];
    let bytes = [fields.u64()?, fields.u64()?];
    let (age_ms, idle_ms) = (fields.u64()?, u32::try_from(fields.u64()?).ok()?);
    let rule = fields.u64()?.checked_sub(1).map(u32::try_from).transpose().ok()?;
    let name = fields.take::<INTERFACE>()?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(Dumped {
        id,
        creator,
        direction: if flags & 1 != 0 { Direction::Out } else { Direction::In },
        interface: std::str::from_utf8(name).ok()?.to_string(),
        keys,
        peers: [first, second],
        moved: [moved, moved_back],
        class,
        is_sloppy: flags & 4 != 0,
        packets,
        bytes,
        age_ms,
        idle_ms,
        rule,
    })
}

/// Whether a timeout is one that states have.
fn is_of_states(class: Timeout) -> bool {
    (class as u8) < Timeout::Fragment as u8 && class != Timeout::TcpTsdiff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state(id: u64, six: bool) -> Dumped {
        let family = if six { Family::Inet6 } else { Family::Inet };
        let key = |port| Key { addresses: [7, 9], ports: [port, 80], protocol: IpProtocol::TCP, family };
        let peer =
            Peer { low: 5, high: 6, max_window: 7, stage: Stage::ESTABLISHED, scale: Scale::of(Some(9)) };
        Dumped {
            id,
            creator: 4,
            direction: Direction::Out,
            interface: "em0".into(),
            keys: [key(1), key(2)],
            peers: [peer, Peer::silent()],
            moved: [1, 2],
            class: Timeout::TcpEstablished,
            is_sloppy: true,
            packets: [1, 2],
            bytes: [3, 4],
            age_ms: 5,
            idle_ms: 6,
            rule: Some(0),
        }
    }

    fn dump(states: &[Dumped]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        states.iter().for_each(|state| state.write(&mut bytes));
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let states = [state(1, false), Dumped { rule: None, interface: String::new(), ..state(2, true) }];
        assert_eq!(Dumped::read_all(&dump(&states)), Ok(states.to_vec()));
    }

    #[test]
    fn a_dump_cut_short_is_refused_with_the_place() {
        let bytes = dump(&[state(1, false), state(2, false)]);
        let second = 8 + 2 + RECORD;
        for length in 0..bytes.len() {
            match Dumped::read_all(&bytes[..length]) {
                Ok(states) => {
                    assert!(length == 8 && states.is_empty() || length == second && states.len() == 1)
                }
                Err(error) => assert_eq!(
                    error,
                    match length {
                        0..8 => DumpError::Magic,
                        _ => DumpError::Short(if length < second { 8 } else { second }),
                    }
                ),
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(at: prop::sample::Index, byte: u8) {
            let mut bytes = dump(&[state(1, false)]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Dumped::read_all(&bytes);
        }
    }
}
