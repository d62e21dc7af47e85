//! BFD control packets, by which two systems agree that the path between them is up (RFC 5880 section 4.1).

use crate::bytes::{u32_at, write_u32};
use std::fmt;

/// State of a session (RFC 5880 section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BfdState {
    /// Held down by the operator, which says nothing about the path (RFC 5882 section 3.2).
    AdminDown,
    /// No packets are received from the other system, or it receives none of ours.
    #[default]
    Down,
    /// Packets are received; the other system has not said yet that it receives ours.
    Init,
    /// Each system receives the other's packets.
    Up,
}

impl BfdState {
    /// Name as FRR and BIRD show it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            BfdState::AdminDown => "admin-down",
            BfdState::Down => "down",
            BfdState::Init => "init",
            BfdState::Up => "up",
        }
    }

    fn from_bits(bits: u8) -> BfdState {
        match bits & 3 {
            0 => BfdState::AdminDown,
            1 => BfdState::Down,
            2 => BfdState::Init,
            _ => BfdState::Up,
        }
    }
}

/// Why a session last left the state Up (RFC 5880 section 4.1); 5 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BfdDiagnostic(pub u8);

impl BfdDiagnostic {
    /// The session has not gone down.
    pub const NONE: BfdDiagnostic = BfdDiagnostic(0);
    /// No control packet came for the detection time.
    pub const DETECTION_TIME_EXPIRED: BfdDiagnostic = BfdDiagnostic(1);
    /// The other system said that its session is down.
    pub const NEIGHBOR_SIGNALED_DOWN: BfdDiagnostic = BfdDiagnostic(3);
    /// The operator holds the session down.
    pub const ADMINISTRATIVELY_DOWN: BfdDiagnostic = BfdDiagnostic(7);
}

impl fmt::Display for BfdDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "no diagnostic",
            1 => "control detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled session down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            other => return write!(f, "diagnostic {other}"),
        })
    }
}

/// Why a control packet is discarded, by the checks of RFC 5880 section 6.8.6 that need no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BfdFault {
    /// There are fewer bytes than the packet has, or than its length field says.
    Truncated,
    /// The version is not 1.
    Version,
    /// The length field is below that of the mandatory section.
    Length,
    /// The detection multiplier is 0.
    DetectMultiplier,
    /// The Multipoint bit is set, which RFC 5880 does not use.
    Multipoint,
    /// The sender's discriminator is 0.
    MyDiscriminator,
    /// No discriminator of the receiver, although the sender's session is not down.
    YourDiscriminator,
    /// The packet is authenticated, which is not supported.
    Authentication,
}

impl fmt::Display for BfdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BfdFault::Truncated => "truncated packet",
            BfdFault::Version => "version is not 1",
            BfdFault::Length => "bad length",
            BfdFault::DetectMultiplier => "detection multiplier is 0",
            BfdFault::Multipoint => "multipoint bit is set",
            BfdFault::MyDiscriminator => "sender's discriminator is 0",
            BfdFault::YourDiscriminator => "receiver's discriminator is 0",
            BfdFault::Authentication => "authentication is not supported",
        })
    }
}

impl std::error::Error for BfdFault {}

/// The mandatory section of a control packet, without authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BfdControl {
    /// Why the sender's session last went down.
    pub diagnostic: BfdDiagnostic,
    /// State of the sender's session.
    pub state: BfdState,
    /// P: the receiver is asked to answer at once with `is_final`.
    pub is_poll: bool,
    /// F: the answer to such a packet.
    pub is_final: bool,
    /// C: the sender's session outlives a restart of its control plane.
    pub is_control_plane_independent: bool,
    /// D: the sender wants no periodic packets while both sessions are up (section 6.6).
    pub is_demand: bool,
    /// The detection time is this many of the sender's intervals; from 1 on.
    pub detect_multiplier: u8,
    /// The sender's number of the session, which is not 0.
    pub my_discriminator: u32,
    /// The receiver's discriminator; 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// The shortest interval at which the sender wants to transmit, in microseconds.
    pub desired_min_tx: u32,
    /// The shortest interval at which it can receive, in microseconds; 0 asks for no periodic packets.
    pub required_min_rx: u32,
    /// The same for echo packets; 0 if it takes none.
    pub required_min_echo_rx: u32,
}

const VERSION: u8 = 1;
const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;
/// With the head of the authentication section (section 4.1).
const LEAST_WITH_AUTHENTICATION: usize = 26;

impl BfdControl {
    /// Bytes of the mandatory section.
    pub const LEN: usize = 24;
    /// UDP destination port of control packets over a single hop (RFC 5881 section 4).
    pub const UDP_PORT: u16 = 3784;

    /// Reads the payload of a UDP datagram, and makes the checks of RFC 5880 section
    /// 6.8.6 that need no session.
    pub fn parse_packet(bytes: &[u8]) -> Result<BfdControl, BfdFault> {
        if bytes.len() < BfdControl::LEN {
            return Err(BfdFault::Truncated);
        }
        let (flags, length) = (bytes[1] & 0x3f, usize::from(bytes[3]));
        let is_authenticated = flags & AUTHENTICATION != 0;
        let least = if is_authenticated { LEAST_WITH_AUTHENTICATION } else { BfdControl::LEN };
        let packet = BfdControl {
            diagnostic: BfdDiagnostic(bytes[0] & 0x1f),
            state: BfdState::from_bits(bytes[1] >> 6),
            is_poll: flags & POLL != 0,
            is_final: flags & FINAL != 0,
            is_control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
            is_demand: flags & DEMAND != 0,
            detect_multiplier: bytes[2],
            my_discriminator: u32_at(bytes, 4),
            your_discriminator: u32_at(bytes, 8),
            desired_min_tx: u32_at(bytes, 12),
            required_min_rx: u32_at(bytes, 16),
            required_min_echo_rx: u32_at(bytes, 20),
        };
        let is_down = matches!(packet.state, BfdState::Down | BfdState::AdminDown);
        let faults = [
            (bytes[0] >> 5 != VERSION, BfdFault::Version),
            (length < least, BfdFault::Length),
            (length > bytes.len(), BfdFault::Truncated),
            (packet.detect_multiplier == 0, BfdFault::DetectMultiplier),
            (flags & MULTIPOINT != 0, BfdFault::Multipoint),
            (packet.my_discriminator == 0, BfdFault::MyDiscriminator),
            (packet.your_discriminator == 0 && !is_down, BfdFault::YourDiscriminator),
            (is_authenticated, BfdFault::Authentication),
        ];
        faults.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(packet), |(_, fault)| Err(fault))
    }

    /// The packet as it is sent.
    pub fn encode_packet(&self) -> [u8; BfdControl::LEN] {
        let mut bytes = [0; BfdControl::LEN];
        let flags = [
            (self.is_poll, POLL),
            (self.is_final, FINAL),
            (self.is_control_plane_independent, CONTROL_PLANE_INDEPENDENT),
            (self.is_demand, DEMAND),
        ];
        let flags: u8 = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        bytes[0] = VERSION << 5 | self.diagnostic.0 & 0x1f;
        bytes[1] = (self.state as u8) << 6 | flags;
        bytes[2] = self.detect_multiplier;
        bytes[3] = BfdControl::LEN as u8;
        write_u32(&mut bytes, 4, self.my_discriminator);
        write_u32(&mut bytes, 8, self.your_discriminator);
        write_u32(&mut bytes, 12, self.desired_min_tx);
        write_u32(&mut bytes, 16, self.required_min_rx);
        write_u32(&mut bytes, 20, self.required_min_echo_rx);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [BfdState; 4] = [BfdState::AdminDown, BfdState::Down, BfdState::Init, BfdState::Up];

    fn packet() -> BfdControl {
        BfdControl {
            diagnostic: BfdDiagnostic::NEIGHBOR_SIGNALED_DOWN,
            state: BfdState::Up,
            detect_multiplier: 3,
            my_discriminator: 0x0102_0304,
            your_discriminator: 0x0506_0708,
            desired_min_tx: 50_000,
            required_min_rx: 300_000,
            ..BfdControl::default()
        }
    }

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        for state in STATES {
            for flags in 0..16 {
                let is = |bit: u8| flags >> bit & 1 == 1;
                let written = BfdControl {
                    state,
                    is_poll: is(0),
                    is_final: is(1),
                    is_control_plane_independent: is(2),
                    is_demand: is(3),
                    required_min_echo_rx: 7,
                    ..packet()
                };
                assert_eq!(BfdControl::parse_packet(&written.encode_packet()), Ok(written));
            }
        }
    }

    #[test]
    fn fields_are_where_the_standard_has_them() {
        let bytes = BfdControl { is_poll: true, ..packet() }.encode_packet();
        assert_eq!(bytes[..4], [0x23, 0xe0, 3, 24]);
        assert_eq!(bytes[4..12], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[12..], [0, 0, 0xc3, 0x50, 0, 4, 0x93, 0xe0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_packet_cut_short_is_refused_at_every_length() {
        let bytes = packet().encode_packet();
        for len in 0..bytes.len() {
            assert_eq!(BfdControl::parse_packet(&bytes[..len]), Err(BfdFault::Truncated), "{len}");
        }
        let mut longer = bytes.to_vec();
        longer.resize(64, 0xaa);
        assert_eq!(BfdControl::parse_packet(&longer), Ok(packet()), "what follows is not of the packet");
    }

    #[test]
    fn each_check_of_reception_refuses_what_it_should() {
        let wrong = |at: usize, value: u8| {
            let mut bytes = [packet().encode_packet().as_slice(), &[0; 4]].concat();
            bytes[at] = value;
            BfdControl::parse_packet(&bytes).unwrap_err()
        };
        assert_eq!([wrong(0, 0), wrong(0, 0x40)], [BfdFault::Version; 2]);
        assert_eq!([wrong(3, 0), wrong(3, 23)], [BfdFault::Length; 2]);
        assert_eq!(wrong(3, 29), BfdFault::Truncated);
        assert_eq!(wrong(2, 0), BfdFault::DetectMultiplier);
        assert_eq!(wrong(1, 0xc1), BfdFault::Multipoint);
        // Authenticated: too short for it, and long enough.
        assert_eq!(wrong(1, 0xc4), BfdFault::Length);
        let mut bytes = [packet().encode_packet().as_slice(), &[1, 4, 0, 0]].concat();
        (bytes[1], bytes[3]) = (0xc4, 28);
        assert_eq!(BfdControl::parse_packet(&bytes), Err(BfdFault::Authentication));
        let without = |packet: BfdControl| BfdControl::parse_packet(&packet.encode_packet());
        assert_eq!(without(BfdControl { my_discriminator: 0, ..packet() }), Err(BfdFault::MyDiscriminator));
        for state in STATES {
            let read = without(BfdControl { state, your_discriminator: 0, ..packet() });
            assert_eq!(read.is_ok(), matches!(state, BfdState::Down | BfdState::AdminDown), "{state:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random: u32 = 1;
        for len in (0..40).cycle().take(20_000) {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 24) as u8
                })
                .collect();
            if let Ok(packet) = BfdControl::parse_packet(&bytes) {
                assert_eq!(BfdControl::parse_packet(&packet.encode_packet()), Ok(packet));
            }
        }
    }

    #[test]
    fn a_diagnostic_that_is_not_assigned_is_shown_by_its_number() {
        assert_eq!(BfdDiagnostic(1).to_string(), "control detection time expired");
        assert_eq!(BfdDiagnostic(31).to_string(), "diagnostic 31");
    }
}
