//! BPDUs, by which bridges agree on a spanning tree (IEEE 802.1D-2004, clause 9), and the frames that carry
//! them.
//!
//! What is read is the sender's word: whether times make sense, and whose vector is better, is not judged
//! here.

use crate::bytes::{at_least, clear_header, ether_at, u16_at, u32_at, write_array, write_u16, write_u32};
use crate::{EtherAddr, Ethernet, Malformed};
use std::fmt;
use std::time::Duration;

/// The id of a bridge: the lower one is the better root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BridgeId {
    /// What the network's keeper made of it, in steps of 4096.
    pub priority: u16,
    /// MAC address of the bridge, unique in the network.
    pub address: EtherAddr,
}

impl fmt::Display for BridgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} priority {}", self.address, self.priority)
    }
}

/// A time in a BPDU, in 256ths of a second (9.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BpduTime(pub u16);

impl BpduTime {
    /// A time of whole seconds.
    pub const fn seconds(seconds: u8) -> BpduTime {
        BpduTime(seconds as u16 * 256)
    }

    /// How long it is.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::from(self.0) * (1_000_000_000 / 256))
    }
}

/// What the sending port is to its bridge (9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BpduRole {
    /// The sender does not say.
    Unknown,
    /// It waits in case another path to the root fails.
    Alternate,
    /// It leads to the root.
    Root,
    /// It leads others to the root.
    Designated,
}

/// The flags of a configuration (9.3.1, 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BpduFlags(pub u8);

impl BpduFlags {
    /// The topology has changed: forget addresses early.
    pub const TOPOLOGY_CHANGE: BpduFlags = BpduFlags(0x01);
    /// The sender wants to forward, once the receiver agrees.
    pub const PROPOSAL: BpduFlags = BpduFlags(0x02);
    /// The sender learns addresses.
    pub const LEARNING: BpduFlags = BpduFlags(0x10);
    /// The sender's port forwards frames.
    pub const FORWARDING: BpduFlags = BpduFlags(0x20);
    /// The receiver may forward at once.
    pub const AGREEMENT: BpduFlags = BpduFlags(0x40);
    /// Acknowledges a topology change notification.
    pub const TOPOLOGY_CHANGE_ACK: BpduFlags = BpduFlags(0x80);

    const ROLE_SHIFT: u8 = 2;

    /// Whether all of these are set.
    pub fn has(self, flags: BpduFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, and those if it is so.
    #[must_use]
    pub fn with(self, flags: BpduFlags, set: bool) -> BpduFlags {
        if set { BpduFlags(self.0 | flags.0) } else { self }
    }

    /// These flags, from a port of that role.
    #[must_use]
    pub fn with_role(self, role: BpduRole) -> BpduFlags {
        BpduFlags(self.0 & !0x0c | (role as u8) << Self::ROLE_SHIFT)
    }

    /// The sending port's role.
    pub fn role(self) -> BpduRole {
        match self.0 >> Self::ROLE_SHIFT & 3 {
            0 => BpduRole::Unknown,
            1 => BpduRole::Alternate,
            2 => BpduRole::Root,
            _ => BpduRole::Designated,
        }
    }
}

impl fmt::Debug for BpduFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.role())?;
        let names = [
            (BpduFlags::TOPOLOGY_CHANGE, " tc"),
            (BpduFlags::PROPOSAL, " proposal"),
            (BpduFlags::LEARNING, " learning"),
            (BpduFlags::FORWARDING, " forwarding"),
            (BpduFlags::AGREEMENT, " agreement"),
            (BpduFlags::TOPOLOGY_CHANGE_ACK, " ack"),
        ];
        names.iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, name)| f.write_str(name))
    }
}

/// What a bridge says about the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Role of the port and state of its talks.
    pub flags: BpduFlags,
    /// The bridge taken for the root.
    pub root: BridgeId,
    /// Cost of the sender's path to the root.
    pub cost: u32,
    /// Bridge that sent the message.
    pub bridge: BridgeId,
    /// The sending port: four bits of priority, twelve of its number.
    pub port: u16,
    /// How old the root's word is.
    pub message_age: BpduTime,
    /// How old it may get.
    pub max_age: BpduTime,
    /// How often it is repeated.
    pub hello_time: BpduTime,
    /// How long ports wait before they learn, and before they forward.
    pub forward_delay: BpduTime,
}

/// A message between bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bpdu {
    /// Of a bridge that speaks the protocol of 1998.
    Configuration(Configuration),
    /// Of one that speaks the rapid protocol.
    Rapid(Configuration),
    /// Notifies the bridges up to the root that the topology has changed.
    Notification,
}

/// The LLC header: SAP 0x42 on both sides, unnumbered information (7.12.3).
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
const HEADER: usize = Ethernet::<&[u8]>::LEN + LLC.len();
const PROTOCOL: usize = 0;
const VERSION: usize = 2;
const TYPE: usize = 3;
const FLAGS: usize = 4;
const ROOT: usize = 5;
const COST: usize = 13;
const BRIDGE: usize = 17;
const PORT: usize = 25;
const MESSAGE_AGE: usize = 27;
const MAX_AGE: usize = 29;
const HELLO_TIME: usize = 31;
const FORWARD_DELAY: usize = 33;

const TYPE_CONFIGURATION: u8 = 0;
const TYPE_RAPID: u8 = 2;
const TYPE_NOTIFICATION: u8 = 0x80;
const VERSION_RAPID: u8 = 2;

impl Bpdu {
    /// Where all BPDUs go.
    pub const GROUP: EtherAddr = EtherAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
    /// Length of a frame with one, padded as Ethernet has it.
    pub const FRAME_LEN: usize = 60;

    const CONFIGURATION_LEN: usize = 35;
    const RAPID_LEN: usize = 36;
    const NOTIFICATION_LEN: usize = 4;

    /// Reads the BPDU in an untagged frame; its destination is not looked at.
    pub fn in_frame(frame: &[u8]) -> Result<Bpdu, Malformed> {
        at_least(frame, HEADER)?;
        let length = usize::from(u16_at(frame, 12));
        if length > 1500 || frame[14..HEADER] != LLC {
            return Err(Malformed::Protocol);
        }
        let body = frame.get(14..14 + length).ok_or(Malformed::Length)?;
        Bpdu::parse_bytes(body.get(LLC.len()..).ok_or(Malformed::Length)?)
    }

    /// Reads one that is alone in these bytes; what follows it is left alone (9.3.4).
    pub fn parse_bytes(bytes: &[u8]) -> Result<Bpdu, Malformed> {
        at_least(bytes, Self::NOTIFICATION_LEN)?;
        if u16_at(bytes, PROTOCOL) != 0 {
            return Err(Malformed::Protocol);
        }
        match (bytes[TYPE], bytes[VERSION]) {
            (TYPE_NOTIFICATION, _) => Ok(Bpdu::Notification),
            (TYPE_CONFIGURATION, _) => {
                parse_configuration(bytes, Self::CONFIGURATION_LEN).map(Bpdu::Configuration)
            }
            (TYPE_RAPID, VERSION_RAPID..) => {
                parse_configuration(bytes, Self::RAPID_LEN).map(rapid_if_role_is_said)
            }
            (TYPE_RAPID, _) => Err(Malformed::Version),
            _ => Err(Malformed::Protocol),
        }
    }

    /// The frame with this BPDU, from a port with that address.
    pub fn build_frame(&self, from: EtherAddr) -> [u8; Self::FRAME_LEN] {
        let mut frame = [0; Self::FRAME_LEN];
        let (header, body) = frame.split_at_mut(HEADER);
        // The body has 43 bytes, and the longest BPDU 36.
        let len = self.write_to(body).expect("a frame has room for a BPDU");
        write_array(header, 0, Self::GROUP.0);
        write_array(header, 6, from.0);
        write_u16(header, 12, (LLC.len() + len) as u16);
        write_array(header, 14, LLC);
        frame
    }

    /// Writes it, and returns its length.
    pub fn write_to(&self, bytes: &mut [u8]) -> Result<usize, Malformed> {
        let (len, kind, version) = match self {
            Bpdu::Configuration(_) => (Self::CONFIGURATION_LEN, TYPE_CONFIGURATION, 0),
            Bpdu::Rapid(_) => (Self::RAPID_LEN, TYPE_RAPID, VERSION_RAPID),
            Bpdu::Notification => (Self::NOTIFICATION_LEN, TYPE_NOTIFICATION, 0),
        };
        let bytes = clear_header(bytes, len)?;
        (bytes[TYPE], bytes[VERSION]) = (kind, version);
        match self {
            Bpdu::Configuration(configuration) | Bpdu::Rapid(configuration) => {
                write_configuration(bytes, configuration)
            }
            Bpdu::Notification => {}
        }
        Ok(len)
    }
}

/// A rapid BPDU that names no role is to be taken for one of the old protocol (9.2.9).
fn rapid_if_role_is_said(configuration: Configuration) -> Bpdu {
    if configuration.flags.role() == BpduRole::Unknown {
        Bpdu::Configuration(configuration)
    } else {
        Bpdu::Rapid(configuration)
    }
}

fn parse_configuration(bytes: &[u8], len: usize) -> Result<Configuration, Malformed> {
    at_least(bytes, len)?;
    let time = |at| BpduTime(u16_at(bytes, at));
    Ok(Configuration {
        flags: BpduFlags(bytes[FLAGS]),
        root: bridge_at(bytes, ROOT),
        cost: u32_at(bytes, COST),
        bridge: bridge_at(bytes, BRIDGE),
        port: u16_at(bytes, PORT),
        message_age: time(MESSAGE_AGE),
        max_age: time(MAX_AGE),
        hello_time: time(HELLO_TIME),
        forward_delay: time(FORWARD_DELAY),
    })
}

fn write_configuration(bytes: &mut [u8], configuration: &Configuration) {
    bytes[FLAGS] = configuration.flags.0;
    write_bridge(bytes, ROOT, configuration.root);
    write_u32(bytes, COST, configuration.cost);
    write_bridge(bytes, BRIDGE, configuration.bridge);
    write_u16(bytes, PORT, configuration.port);
    write_u16(bytes, MESSAGE_AGE, configuration.message_age.0);
    write_u16(bytes, MAX_AGE, configuration.max_age.0);
    write_u16(bytes, HELLO_TIME, configuration.hello_time.0);
    write_u16(bytes, FORWARD_DELAY, configuration.forward_delay.0);
}

fn bridge_at(bytes: &[u8], at: usize) -> BridgeId {
    BridgeId { priority: u16_at(bytes, at), address: ether_at(bytes, at + 2) }
}

fn write_bridge(bytes: &mut [u8], at: usize, bridge: BridgeId) {
    write_u16(bytes, at, bridge.priority);
    write_array(bytes, at + 2, bridge.address.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FROM: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 9]);

    fn configuration() -> Configuration {
        Configuration {
            flags: BpduFlags::default()
                .with(BpduFlags::PROPOSAL, true)
                .with(BpduFlags::AGREEMENT, false)
                .with_role(BpduRole::Designated),
            root: BridgeId { priority: 0x1000, address: EtherAddr([2, 0, 0, 0, 0, 1]) },
            cost: 20_000,
            bridge: BridgeId { priority: 0x8000, address: EtherAddr([2, 0, 0, 0, 0, 2]) },
            port: 0x8003,
            message_age: BpduTime::seconds(1),
            max_age: BpduTime::seconds(20),
            hello_time: BpduTime::seconds(2),
            forward_delay: BpduTime::seconds(15),
        }
    }

    #[test]
    fn a_frame_is_laid_out_as_the_standard_has_it() {
        let frame = Bpdu::Rapid(configuration()).build_frame(FROM);
        assert_eq!(frame[..6], [0x01, 0x80, 0xc2, 0, 0, 0]);
        assert_eq!(frame[6..12], FROM.0);
        assert_eq!(frame[12..17], [0, 39, 0x42, 0x42, 0x03]);
        assert_eq!(frame[17..22], [0, 0, 2, 2, 0x0e], "protocol, version, type, designated and proposal");
        assert_eq!(frame[22..30], [0x10, 0, 2, 0, 0, 0, 0, 1]);
        assert_eq!(frame[30..34], [0, 0, 0x4e, 0x20]);
        assert_eq!(frame[34..42], [0x80, 0, 2, 0, 0, 0, 0, 2]);
        assert_eq!(frame[42..52], [0x80, 3, 1, 0, 20, 0, 2, 0, 15, 0]);
        assert_eq!(frame[52..], [0; 8], "no information of version 1, and padding");
    }

    #[test]
    fn the_old_kinds_are_shorter() {
        let frame = Bpdu::Configuration(configuration()).build_frame(FROM);
        assert_eq!(frame[12..21], [0, 38, 0x42, 0x42, 0x03, 0, 0, 0, 0]);
        let frame = Bpdu::Notification.build_frame(FROM);
        assert_eq!(frame[12..21], [0, 7, 0x42, 0x42, 0x03, 0, 0, 0, 0x80]);
        assert_eq!(frame[21..], [0; 39]);
    }

    #[test]
    fn a_frame_cut_short_is_refused_at_every_length() {
        for (bpdu, len) in [
            (Bpdu::Rapid(configuration()), 53),
            (Bpdu::Configuration(configuration()), 52),
            (Bpdu::Notification, 21),
        ] {
            let frame = bpdu.build_frame(FROM);
            for cut in 0..len {
                Bpdu::in_frame(&frame[..cut]).expect_err("the BPDU is not whole");
                if cut >= 17 {
                    let mut said_so = frame;
                    said_so[13] = cut as u8 - 14;
                    Bpdu::in_frame(&said_so[..cut])
                        .expect_err("the BPDU is not whole, and its length says so");
                }
            }
            assert_eq!(Bpdu::in_frame(&frame[..len]), Ok(bpdu));
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        let frame = Bpdu::Rapid(configuration()).build_frame(FROM);
        for (at, value, why) in [
            (12, 0x08, Malformed::Protocol),
            (14, 0xaa, Malformed::Protocol),
            (15, 0xaa, Malformed::Protocol),
            (16, 0x13, Malformed::Protocol),
            (17, 1, Malformed::Protocol),
            (19, 1, Malformed::Version),
            (20, 1, Malformed::Protocol),
        ] {
            let mut other = frame;
            other[at] = value;
            assert_eq!(Bpdu::in_frame(&other), Err(why), "byte {at}");
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let mut frame = Bpdu::Rapid(configuration()).build_frame(FROM);
        frame[19] = 3;
        assert_eq!(Bpdu::in_frame(&frame), Ok(Bpdu::Rapid(configuration())));
    }

    #[test]
    fn a_rapid_message_without_a_role_counts_as_an_old_one() {
        let quiet =
            Configuration { flags: configuration().flags.with_role(BpduRole::Unknown), ..configuration() };
        let frame = Bpdu::Rapid(quiet).build_frame(FROM);
        assert_eq!(Bpdu::in_frame(&frame), Ok(Bpdu::Configuration(quiet)));
    }

    #[test]
    fn bridges_are_compared_by_priority_and_then_by_address() {
        let id = |priority, last| BridgeId { priority, address: EtherAddr([2, 0, 0, 0, 0, last]) };
        assert!(id(0x1000, 9) < id(0x8000, 1) && id(0x8000, 1) < id(0x8000, 2));
        assert_eq!(id(0x8000, 1).to_string(), "02:00:00:00:00:01 priority 32768");
    }

    fn any_configuration() -> impl Strategy<Value = Configuration> {
        let id = || {
            (any::<u16>(), any::<[u8; 6]>())
                .prop_map(|(priority, address)| BridgeId { priority, address: EtherAddr(address) })
        };
        (any::<u8>(), id(), any::<u32>(), id(), any::<u16>(), any::<[u16; 4]>()).prop_map(
            |(flags, root, cost, bridge, port, [age, max, hello, delay])| Configuration {
                flags: BpduFlags(flags),
                root,
                cost,
                bridge,
                port,
                message_age: BpduTime(age),
                max_age: BpduTime(max),
                hello_time: BpduTime(hello),
                forward_delay: BpduTime(delay),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(configuration in any_configuration(), rapid: bool) {
            let is_said = configuration.flags.role() != BpduRole::Unknown;
            let is_rapid = rapid && is_said;
            let bpdu = if is_rapid { Bpdu::Rapid(configuration) } else { Bpdu::Configuration(configuration) };
            prop_assert_eq!(Bpdu::in_frame(&bpdu.build_frame(FROM)), Ok(bpdu));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Bpdu::in_frame(&bytes);
            let mut frame = vec![0; 14];
            frame.extend(LLC);
            frame.extend(&bytes);
            frame[13] = (bytes.len() + 3) as u8;
            prop_assert_eq!(Bpdu::in_frame(&frame), Bpdu::parse_bytes(&bytes));
        }
    }
}
