//! The sending half of [`super::Traffic`]: numbered, timed datagrams at an even pace.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use super::traffic::{HEADER, now_ns};

/// The number of the datagram sent ahead, which is never counted.
pub(super) const PRIMER: u64 = u64::MAX;
/// How long the datagram sent ahead may take.
const PRIMER_LIMIT: Duration = Duration::from_secs(1);
/// Waits longer than this are slept through up to the margin a sleep may overshoot; the rest is spun.
const SLEEPABLE_NS: u64 = 200_000;
const SLEEP_MARGIN_NS: u64 = 80_000;

/// Number, length and rate of the datagrams to send.
pub(super) struct Plan {
    /// Marks the datagrams of this run.
    pub(super) run: u16,
    /// Bytes of each datagram, our header included.
    pub(super) payload: usize,
    /// How many at most.
    pub(super) frames: u64,
    /// The time between two; `None` for none at all.
    pub(super) interval_ns: Option<f64>,
    /// How long at most.
    pub(super) duration: Option<Duration>,
}

pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) refused: u64,
    pub(super) nanoseconds: u64,
}

/// What each datagram says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) run: u16,
    pub(super) flow: u16,
    /// Counts within the flow.
    pub(super) number: u64,
    pub(super) sent_ns: u64,
}

impl Header {
    pub(super) fn write(&self, into: &mut [u8]) {
        into[0..2].copy_from_slice(&self.run.to_be_bytes());
        into[2..4].copy_from_slice(&self.flow.to_be_bytes());
        into[4..12].copy_from_slice(&self.number.to_be_bytes());
        into[12..HEADER].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    pub(super) fn read(from: &[u8]) -> Option<Header> {
        let bytes = from.first_chunk::<HEADER>()?;
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| (at..at + 8).fold(0, |value, at| value << 8 | u64::from(bytes[at]));
        Some(Header { run: short(0), flow: short(2), number: long(4), sent_ns: long(12) })
    }
}

/// Sends one datagram ahead, so that neighbors are resolved before the count begins, and waits
/// for it a while.
pub(super) fn prime(plan: &Plan, socket: &UdpSocket, receiver: &UdpSocket) {
    let mut datagram = vec![0; plan.payload];
    Header { run: plan.run, flow: 0, number: PRIMER, sent_ns: now_ns() }.write(&mut datagram);
    // If it does not arrive, the run itself will show why.
    let _ = socket.send(&datagram);
    let _ = receiver.set_read_timeout(Some(PRIMER_LIMIT));
    let _ = receiver.recv(&mut datagram);
}

/// Sends all datagrams of a plan, the flows in turn.
pub(super) fn send(plan: &Plan, sockets: &[UdpSocket]) -> Sent {
    let mut datagram = vec![0; plan.payload];
    let mut sent = Sent { frames: 0, refused: 0, nanoseconds: 0 };
    let start = now_ns();
    let end = plan.duration.map_or(u64::MAX, |duration| start.saturating_add(duration.as_nanos() as u64));
    let flows = sockets.len() as u64;
    for index in 0..plan.frames {
        let now = plan.wait_for_turn(start, index);
        if now >= end {
            break;
        }
        let flow = index % flows;
        Header { run: plan.run, flow: flow as u16, number: index / flows, sent_ns: now }.write(&mut datagram);
        match sockets[flow as usize].send(&datagram) {
            Ok(_) => sent.frames += 1,
            Err(_) => sent.refused += 1,
        }
    }
    sent.nanoseconds = now_ns() - start;
    sent
}

impl Plan {
    /// Waits until the datagram of this index is due; returns the time.
    fn wait_for_turn(&self, start: u64, index: u64) -> u64 {
        let due = start + self.interval_ns.map_or(0, |interval| (interval * index as f64) as u64);
        loop {
            let now = now_ns();
            match due.saturating_sub(now) {
                0 => return now,
                wait @ SLEEPABLE_NS.. => thread::sleep(Duration::from_nanos(wait - SLEEP_MARGIN_NS)),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_written_and_never_from_less() {
        let header = Header { run: 0x1234, flow: 7, number: 0x0102_0304_0506_0708, sent_ns: u64::MAX - 1 };
        let mut bytes = [0; HEADER + 3];
        header.write(&mut bytes);
        assert_eq!(Header::read(&bytes), Some(header));
        for length in 0..HEADER {
            assert_eq!(Header::read(&bytes[..length]), None);
        }
    }
}
