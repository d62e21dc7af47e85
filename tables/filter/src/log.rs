//! Records of the log: what pflog(4) shows, as a file of pcap that tcpdump reads.
use crate::dissect::FilterDropReason;
use crate::facts::{Direction, Family};
use std::time::Duration;

/// The link type of such files: DLT_PFLOG.
pub const LINK_TYPE: u32 = 117;
/// Most bytes of a packet that are kept: its headers.
pub const SNAP_LENGTH: usize = 160;

/// Length of the header, without the padding behind it.
const HEADER: u8 = 61;
const PADDED: usize = 64;
const NAME: usize = 16;
const NO_RULE: u32 = u32::MAX;

/// What was done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// The packet was passed on.
    Pass,
    /// The packet was dropped.
    Block,
    /// A `match` rule matched.
    Match,
}

/// A packet that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The log: 0 is pflog0.
    pub log: u16,
    /// What was done with it.
    pub action: LogAction,
    /// Why it was logged: `match` unless it was dropped for another reason.
    pub reason: FilterDropReason,
    /// The name of the interface.
    pub interface: String,
    /// The path of the anchor that the rule is in; empty for the main rule set.
    pub anchor: String,
    /// The number of the rule of the main rule set: that which decided, or that which called the anchor.
    pub rule: Option<u32>,
    /// The number of the rule in its anchor.
    pub rule_in_anchor: Option<u32>,
    /// The address family of the packet.
    pub family: Family,
    /// The direction at the interface.
    pub direction: Direction,
    /// How long the packet was.
    pub length: u32,
    /// The first bytes of the packet.
    pub packet: Vec<u8>,
}

/// What a file begins with.
pub fn file_header() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
    bytes.extend([2_u16, 4].map(u16::to_le_bytes).concat());
    bytes.extend([0; 8]);
    bytes.extend((SNAP_LENGTH as u32 + PADDED as u32).to_le_bytes());
    bytes.extend(LINK_TYPE.to_le_bytes());
    bytes
}

impl LogRecord {
    /// Adds it to a file; `time` is since the epoch.
    pub fn write_record(&self, time: Duration, out: &mut Vec<u8>) {
        let kept = self.packet.len().min(SNAP_LENGTH);
        let lengths = [kept + PADDED, self.length as usize + PADDED];
        out.extend((time.as_secs() as u32).to_le_bytes());
        out.extend(time.subsec_micros().to_le_bytes());
        lengths.iter().for_each(|length| out.extend((*length as u32).to_le_bytes()));
        self.write_header(out);
        out.extend(&self.packet[..kept]);
    }

    fn write_header(&self, out: &mut Vec<u8>) {
        const INET: u8 = 2;
        const INET6: u8 = 24;
        let family = if self.family == Family::Inet { INET } else { INET6 };
        let action = match self.action {
            LogAction::Pass => 0,
            LogAction::Block => 1,
            LogAction::Match => 12,
        };
        let direction = match self.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        out.extend([HEADER, family, action, self.reason as u8]);
        out.extend(padded_name(&self.interface));
        out.extend(padded_name(&self.anchor));
        for number in [self.rule, self.rule_in_anchor] {
            out.extend(number.unwrap_or(NO_RULE).to_be_bytes());
        }
        // Users and processes of packets and rules are not known.
        out.extend([0xff; 8]);
        out.extend([0; 8]);
        out.extend([direction, 0, 0, 0]);
    }
}

/// A name with a zero behind it.
fn padded_name(text: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let length = text.len().min(NAME - 1);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_laid_out_as_readers_expect() {
        let record = LogRecord {
            log: 0,
            action: LogAction::Block,
            reason: FilterDropReason::Match,
            interface: "em0".into(),
            anchor: String::new(),
            rule: Some(7),
            rule_in_anchor: None,
            family: Family::Inet6,
            direction: Direction::Out,
            length: 1500,
            packet: vec![0x60; 200],
        };
        let mut bytes = file_header();
        assert_eq!(bytes.len(), 24);
        record.write_record(Duration::from_micros(1_500_000), &mut bytes);
        let record = &bytes[24..];
        assert_eq!(record.len(), 16 + PADDED + SNAP_LENGTH);
        assert_eq!(record[..8], [1, 0, 0, 0, 0x20, 0xa1, 7, 0]);
        let header = &record[16..];
        assert_eq!(header[..8], [61, 24, 1, 0, b'e', b'm', b'0', 0]);
        assert_eq!(header[36..44], [0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(header[60], 2);
        assert_eq!(header[64], 0x60);
    }
}
