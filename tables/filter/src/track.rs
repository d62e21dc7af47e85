//! Whether a segment of TCP belongs to a connection, by the windows that both ends have announced (after
//! Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter").
//!
//! Of each end is known how far it has sent, how far it may send, the greatest window that it has offered and
//! how that is scaled. A segment is accepted if it lies within what its sender may send and acknowledges what
//! the other has sent. Where the beginning was not seen, or the end is near, less is asked. Nothing here
//! knows a packet or a table.
use crate::options::Timeout;
use artery_wire::TcpFlags;

/// Largest distance that is not mistrusted: a window without scale and a segment.
const SLACK: u32 = 65_535 + 1500;
/// Largest window without scale.
const MOST_WINDOW: u32 = 65_535;

/// How far an end of a connection has come, in the order of the progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage(pub u8);

impl Stage {
    /// Nothing was seen of it.
    pub const CLOSED: Stage = Stage(0);
    /// It has sent its first segment.
    pub const SYN_SENT: Stage = Stage(2);
    /// What it sent was acknowledged.
    pub const ESTABLISHED: Stage = Stage(4);
    /// It has sent its last byte.
    pub const CLOSING: Stage = Stage(7);
    /// Its last byte was acknowledged.
    pub const FIN_WAIT_2: Stage = Stage(9);
    /// The connection was reset.
    pub const TIME_WAIT: Stage = Stage(10);
    /// The filter shakes hands with the client in the server's place.
    pub const PROXY_SOURCE: Stage = Stage(11);
    /// The filter shakes hands with the server in the client's place.
    pub const PROXY_DESTINATION: Stage = Stage(12);

    const NAMES: [&'static str; 11] = [
        "CLOSED",
        "LISTEN",
        "SYN_SENT",
        "SYN_RCVD",
        "ESTABLISHED",
        "CLOSE_WAIT",
        "FIN_WAIT_1",
        "CLOSING",
        "LAST_ACK",
        "FIN_WAIT_2",
        "TIME_WAIT",
    ];

    /// No packet of a protocol other than TCP came from this end.
    pub const NO_TRAFFIC: Stage = Stage(0);
    /// One end has sent.
    pub const SINGLE: Stage = Stage(1);
    /// Both ends have sent.
    pub const MULTIPLE: Stage = Stage(2);

    /// Its name for TCP; none of those that belong to the filter.
    pub fn tcp_name(self) -> Option<&'static str> {
        Stage::NAMES.get(usize::from(self.0)).copied()
    }

    /// Its name for other protocols.
    pub fn other_name(self) -> Option<&'static str> {
        ["NO_TRAFFIC", "SINGLE", "MULTIPLE"].get(usize::from(self.0)).copied()
    }
}

/// How an end's windows are scaled (RFC 7323): known only if its SYN was seen with the option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale(u8);

impl Scale {
    const KNOWN: u8 = 0x80;
    /// No SYN with the option was seen.
    pub const UNKNOWN: Scale = Scale(0);
    /// Greatest shift that there is.
    pub const MOST: u8 = 14;

    /// What a SYN said.
    pub fn from_option(option: Option<u8>) -> Scale {
        option.map_or(Scale(0), |shift| Scale(shift.min(Scale::MOST) | Scale::KNOWN))
    }

    /// Whether the SYN was seen and had the option.
    #[inline]
    pub fn is_known(self) -> bool {
        self.0 & Scale::KNOWN != 0
    }

    /// The shift count of RFC 7323.
    #[inline]
    pub fn shift(self) -> u32 {
        u32::from(self.0 & 15)
    }

    /// As one byte, and back.
    pub(crate) fn to_byte(self) -> u8 {
        self.0
    }

    pub(crate) fn of_byte(byte: u8) -> Scale {
        Scale((byte & 15).min(Scale::MOST) | byte & Scale::KNOWN)
    }
}

/// What is known of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// One more than the highest number that it has sent; 0 if it has not.
    pub low: u32,
    /// One more than the highest number that it may send.
    pub high: u32,
    /// The greatest window that it has offered, unscaled; at least 1.
    pub max_window: u16,
    /// How far it has come.
    pub stage: Stage,
    /// How its windows are scaled.
    pub scale: Scale,
}

impl Peer {
    /// The end that sends the first packet that is seen of a connection.
    pub fn first_sender(segment: &Segment) -> Peer {
        let mut peer = Peer {
            low: segment.seq,
            high: segment.end().wrapping_add(1),
            max_window: segment.window.max(1),
            stage: Stage::SYN_SENT,
            scale: Scale::default(),
        };
        if segment.flags.contains(TcpFlags::SYN) {
            peer.scale = Scale::from_option(segment.scale);
            let shift = peer.scale.shift();
            peer.max_window = rounded_up(u32::from(peer.max_window), shift) as u16;
        }
        peer
    }

    /// Zero if nothing else is known of another end.
    #[inline(always)]
    pub(crate) fn difference(&self, other: &Peer) -> u32 {
        let rest = |peer: &Peer| {
            let (stage, scale) = (u32::from(peer.stage.0), u32::from(peer.scale.0));
            u32::from(peer.max_window) | stage << 16 | scale << 24
        };
        (self.low ^ other.low) | (self.high ^ other.high) | (rest(self) ^ rest(other))
    }

    /// The end that has not sent yet.
    pub fn silent() -> Peer {
        Peer { high: 1, max_window: 1, ..Peer::default() }
    }
}

/// A segment, with its acknowledgment in the numbers that its addressee chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its control bits, such as SYN.
    pub flags: TcpFlags,
    /// Sequence number of its first byte.
    pub seq: u32,
    /// The acknowledgment number, if ACK is set.
    pub ack: u32,
    /// The window field, unscaled, in bytes.
    pub window: u16,
    /// Bytes of its payload.
    pub payload: u32,
    /// The option of window scale; looked at in a SYN only.
    pub scale: Option<u8>,
}

impl Segment {
    /// One more than its last number: SYN and FIN have one, too.
    #[inline]
    pub fn end(&self) -> u32 {
        let flags = self.flags.0;
        let extra = u32::from(flags & TcpFlags::SYN.0 != 0) + u32::from(flags & TcpFlags::FIN.0 != 0);
        self.seq.wrapping_add(self.payload).wrapping_add(extra)
    }
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// It belongs to the connection.
    Accepted,
    /// It may belong to the connection, which it must not keep alive.
    Loose,
    /// It doesn't belong to the connection.
    Mismatch,
    /// So, and its sender shall be reset: neither end's beginning is known for sure.
    MismatchInHandshake,
}

/// The two windows' shifts, that of the sender and that of its peer; both or none are used.
#[derive(Clone, Copy)]
struct Shifts {
    from: u32,
    to: u32,
}

impl Shifts {
    #[inline(always)]
    fn between(from: &Peer, to: &Peer) -> Shifts {
        match from.scale.is_known() && to.scale.is_known() {
            true => Shifts { from: from.scale.shift(), to: to.scale.shift() },
            false => Shifts { from: 0, to: 0 },
        }
    }
}

/// Checks a segment against what is known of its sender and of the other end, and updates both.
#[inline]
pub fn track_segment(from: &mut Peer, to: &mut Peer, segment: &Segment) -> Tracked {
    let mut shifts = match segment.flags.contains(TcpFlags::SYN) {
        true => Shifts { from: 0, to: 0 },
        false => Shifts::between(from, to),
    };
    let mut window = u32::from(segment.window);
    if from.low == 0 {
        start_tracking(from, to, segment, &mut window, &mut shifts);
    }
    let (mut seq, mut end) = (segment.seq, segment.end());
    if seq == end {
        (seq, end) = (from.low, from.low);
    }
    let ack = effective_ack(to, segment);
    let skew = to.low.wrapping_sub(ack) as i32;
    if is_within(from, to, segment, [seq, end], skew, shifts) {
        Moved::from_segment(from, to, end, ack, window, shifts).apply_to_peers(from, to);
        advance_stages(from, to, segment.flags);
        return Tracked::Accepted;
    }
    let may_be_loose =
        to.stage < Stage::SYN_SENT || to.stage >= Stage::FIN_WAIT_2 || from.stage >= Stage::FIN_WAIT_2;
    let is_near =
        at_or_after(from.high.wrapping_add(SLACK), end) && at_or_after(seq, from.low.wrapping_sub(SLACK));
    if may_be_loose && is_near {
        Moved::from_segment(from, to, end, ack, window, shifts).apply_to_peers(from, to);
        end_loosely(from, to, segment.flags);
        return Tracked::Loose;
    }
    if from.stage == Stage::SYN_SENT && to.stage == Stage::SYN_SENT {
        (from.low, from.high, from.max_window) = (0, 1, 1);
        return Tracked::MismatchInHandshake;
    }
    Tracked::Mismatch
}

/// The numbers of both ends after a segment that was accepted.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    low: u32,
    max_window: u16,
    /// Of the end that it was for.
    high: u32,
}

impl Moved {
    #[inline(always)]
    fn from_segment(from: &Peer, to: &Peer, end: u32, ack: u32, window: u32, shifts: Shifts) -> Moved {
        let scaled = window << shifts.from;
        let goes_on = at_or_after(ack.wrapping_add(scaled), to.high);
        Moved {
            low: if at_or_after(end, from.low) { end } else { from.low },
            max_window: from.max_window.max(window as u16),
            high: if goes_on { ack.wrapping_add(scaled.max(1)) } else { to.high },
        }
    }

    #[inline(always)]
    pub(crate) fn apply_to_peers(self, from: &mut Peer, to: &mut Peer) {
        (from.low, from.max_window, to.high) = (self.low, self.max_window, self.high);
    }
}

/// Does what [`track_segment`] does for a segment without SYN, FIN and RST between ends that are
/// established: numbers are all that changes. None if that is not so or the segment is not accepted:
/// [`track_segment`] must decide then.
#[inline(always)]
pub(crate) fn track_fast(from: &Peer, to: &Peer, segment: &Segment) -> Option<Moved> {
    let is_established = from.stage == Stage::ESTABLISHED && to.stage == Stage::ESTABLISHED;
    if !is_established || from.low == 0 {
        return None;
    }
    let shifts = Shifts::between(from, to);
    let (seq, end) = match segment.payload {
        0 => (from.low, from.low),
        payload => (segment.seq, segment.seq.wrapping_add(payload)),
    };
    let ack = if segment.flags.contains(TcpFlags::ACK) { segment.ack } else { to.low };
    let is_within = is_within(from, to, segment, [seq, end], to.low.wrapping_sub(ack) as i32, shifts);
    is_within.then(|| Moved::from_segment(from, to, end, ack, segment.window.into(), shifts))
}

/// Takes the first segment that an end sends.
#[cold]
fn start_tracking(from: &mut Peer, to: &mut Peer, segment: &Segment, window: &mut u32, shifts: &mut Shifts) {
    if segment.flags.contains(TcpFlags::SYN) && to.scale.is_known() {
        from.scale = Scale::from_option(segment.scale);
        if from.scale.is_known() {
            // The window of a SYN is not scaled, those that it is compared with are.
            *shifts = Shifts { from: from.scale.shift(), to: to.scale.shift() };
            *window = rounded_up(*window, shifts.from);
        } else {
            let unscaled = (u32::from(to.max_window) << to.scale.shift()).min(MOST_WINDOW);
            (to.max_window, to.scale) = (unscaled as u16, Scale::default());
        }
    }
    from.low = segment.seq;
    from.stage = from.stage.max(Stage::SYN_SENT);
    let allowed = segment.end().wrapping_add((u32::from(to.max_window) << shifts.to).max(1));
    if from.high == 1 || at_or_after(allowed, from.high) {
        from.high = allowed;
    }
    from.max_window = from.max_window.max(*window as u16);
}

/// What a segment acknowledges; all that was sent if it does not say or is known not to mean it.
#[inline]
fn effective_ack(to: &Peer, segment: &Segment) -> u32 {
    let reset_without = TcpFlags::ACK | TcpFlags::RST;
    let says_nothing =
        !segment.flags.contains(TcpFlags::ACK) || segment.ack == 0 && segment.flags.contains(reset_without);
    if says_nothing { to.low } else { segment.ack }
}

/// The conditions of an ordinary segment.
#[inline(always)]
fn is_within(
    from: &Peer,
    to: &Peer,
    segment: &Segment,
    [seq, end]: [u32; 2],
    skew: i32,
    shifts: Shifts,
) -> bool {
    at_or_after(from.high, end)
        && at_or_after(seq, from.low.wrapping_sub(u32::from(to.max_window) << shifts.to))
        && skew >= -(SLACK as i32)
        && skew <= (SLACK << shifts.from) as i32
        && (!segment.flags.contains(TcpFlags::RST) || is_exact(from, segment, skew))
}

/// Whether a reset has the number that only those know who see the connection.
fn is_exact(from: &Peer, segment: &Segment, skew: i32) -> bool {
    let distance = segment.seq.wrapping_sub(from.low) as i32;
    (-1..=1).contains(&distance) || segment.flags.contains(TcpFlags::ACK) && skew == 0
}

/// Moves both ends' stages.
#[inline]
fn advance_stages(from: &mut Peer, to: &mut Peer, flags: TcpFlags) {
    if flags.contains(TcpFlags::SYN) {
        from.stage = from.stage.max(Stage::SYN_SENT);
    }
    if flags.contains(TcpFlags::FIN) {
        from.stage = from.stage.max(Stage::CLOSING);
    }
    if flags.contains(TcpFlags::ACK) {
        advance_acknowledged(to);
    }
    if flags.contains(TcpFlags::RST) {
        (from.stage, to.stage) = (Stage::TIME_WAIT, Stage::TIME_WAIT);
    }
}

#[inline]
fn advance_acknowledged(to: &mut Peer) {
    if to.stage == Stage::SYN_SENT {
        to.stage = Stage::ESTABLISHED;
    } else if to.stage == Stage::CLOSING {
        to.stage = Stage::FIN_WAIT_2;
    }
}

fn end_loosely(from: &mut Peer, to: &mut Peer, flags: TcpFlags) {
    if flags.contains(TcpFlags::FIN) {
        from.stage = from.stage.max(Stage::CLOSING);
    }
    if flags.contains(TcpFlags::RST) {
        (from.stage, to.stage) = (Stage::TIME_WAIT, Stage::TIME_WAIT);
    }
}

/// As [`track_segment`], by control bits alone: for filters that see one direction, and for `sloppy` states.
pub fn track_sloppily(from: &mut Peer, to: &mut Peer, flags: TcpFlags) -> Tracked {
    let is_half_seen = from.stage == Stage::SYN_SENT && to.stage == Stage::CLOSED;
    if flags.contains(TcpFlags::SYN) {
        from.stage = from.stage.max(Stage::SYN_SENT);
    }
    if flags.contains(TcpFlags::FIN) {
        from.stage = from.stage.max(Stage::CLOSING);
    }
    if flags.contains(TcpFlags::ACK) {
        match is_half_seen {
            // The other direction goes elsewhere.
            true => (from.stage, to.stage) = (from.stage.max(Stage::ESTABLISHED), Stage::ESTABLISHED),
            false => advance_acknowledged(to),
        }
    }
    if flags.contains(TcpFlags::RST) {
        (from.stage, to.stage) = (Stage::TIME_WAIT, Stage::TIME_WAIT);
    }
    Tracked::Accepted
}

/// Which timeout holds for a connection of TCP.
#[inline]
pub fn tcp_class(one: Stage, other: Stage) -> Timeout {
    let (least, most) = (one.min(other), one.max(other));
    if least >= Stage::FIN_WAIT_2 {
        Timeout::TcpClosed
    } else if least >= Stage::CLOSING {
        Timeout::TcpFinwait
    } else if least < Stage::ESTABLISHED {
        Timeout::TcpOpening
    } else if most >= Stage::CLOSING {
        Timeout::TcpClosing
    } else {
        Timeout::TcpEstablished
    }
}

/// Whether a number is at another or after it, in a circle.
#[inline(always)]
pub(crate) fn at_or_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 >= 0
}

/// A window in units of a shift.
fn rounded_up(window: u32, shift: u32) -> u32 {
    (window + (1 << shift) - 1) >> shift
}

#[cfg(test)]
mod tests;
