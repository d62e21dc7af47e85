//! Following packets through the graph: who had each of the next few, when, and what it looked like.
//!
//! A trace is armed by the handler `trace`. The next packets that begin are marked; each time one is
//! handed to an element, a record is kept, and one when it ends. The mark stays with the packet in queues
//! and on other workers. What is made from a marked packet (a copy, a fragment, a segment) is followed as
//! a copy of it.
//!
//! While no trace is armed this costs a branch for a batch: whether one is, each worker looks once a turn.
//! While one is, workers take the lock of the trace for batches with a marked packet, and once a turn.
mod hooks;
mod report;
mod scene;
mod session;

use crate::handler_error::HandlerError;
use crate::reason::DropReason;
use artery_packet::Time;
use session::Session;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Most packets that one trace follows.
pub const MOST_PACKETS: usize = 1000;
/// Most records of one packet and its copies, beside one for the end of each. What happens
/// beyond is only counted.
pub const MOST_RECORDS: usize = 128;
/// Most copies of one packet that are followed.
pub const MOST_COPIES: usize = 63;
/// Bytes of a packet that a record holds.
pub const SNAPSHOT: usize = 128;
/// For how long a trace goes on once all its packets have ended: a copy may still be on its way.
const AFTERMATH: Duration = Duration::from_millis(100);

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// An element without inputs sent it by this output.
    Began(u16),
    /// It was handed to an element by this input, after it left the element before by this output,
    /// if that is known.
    Entered(u16, Option<u16>),
    /// It is a copy of that copy of the packet (0 is the packet itself), as far as this element knows, which
    /// sent it by this output.
    Copied(u8, Option<u16>),
    /// It was discarded, with the reason.
    Dropped(DropReason),
    /// The port of this name took it to be sent, and refused so many of the packets it was given with it.
    Sent(String, u64),
    /// It was cut into segments, which go on as copies.
    Cut,
}

impl TraceEvent {
    /// Whether the packet is no more.
    fn is_end(&self) -> bool {
        matches!(self, TraceEvent::Dropped(_) | TraceEvent::Sent(..) | TraceEvent::Cut)
    }
}

/// What a packet looked like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshot {
    length: usize,
    in_port: u16,
    /// Where its network header starts, if anybody said.
    network: Option<isize>,
    paint: u8,
    /// The annotation with its destination or next hop, of either version of IP.
    dst: [u8; 16],
    /// Its first bytes, up to the limit of the trace.
    data: Vec<u8>,
}

/// One event of a packet's way.
#[derive(Clone, Debug)]
struct TraceRecord {
    /// Which copy of the packet; 0 is the packet itself.
    copy: u8,
    time: Time,
    worker: usize,
    event: TraceEvent,
    element: String,
    class: &'static str,
    /// Absent where the packet is out of reach.
    snapshot: Option<Snapshot>,
}

/// The trace of a router.
#[derive(Default)]
pub struct Tracer {
    /// Whether marked packets are to be looked for.
    active: AtomicBool,
    /// How many more packets are to be marked.
    wanted: AtomicUsize,
    session: Mutex<Session>,
}

impl Tracer {
    /// Starts a new trace, or ends one: `N [ELEMENT]`, or `off`. Without an element, packets begin
    /// where elements without inputs send them; else where that one sends them or, if it has
    /// inputs, is handed them.
    /// `find` says what the element of a name is called in full.
    pub(crate) fn arm_trace(
        &self,
        text: &str,
        find: impl Fn(&str) -> Option<String>,
    ) -> Result<(), HandlerError> {
        let (count, from) = parse_order(text, find).map_err(HandlerError::refused)?;
        let mut session = self.lock_session();
        match count {
            0 => session.end_session(),
            _ => session.begin_session(count, from),
        }
        self.wanted.store(count, Relaxed);
        self.active.store(count > 0, Relaxed);
        Ok(())
    }

    /// The state of the trace and its records so far, as text.
    pub(crate) fn read_report(&self) -> String {
        // So that workers wait for no more than the copying.
        let (state, packets) = {
            let session = self.lock_session();
            (session.state(), session.packets.clone())
        };
        report::write_report(&state, &packets)
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed)
    }

    /// Ends the trace when nothing more is to come.
    #[cold]
    pub(crate) fn disarm_if_over(&self) {
        let session = self.lock_session();
        if session.is_over(AFTERMATH) {
            self.active.store(false, Relaxed);
        }
    }

    fn wants_more(&self) -> bool {
        self.wanted.load(Relaxed) > 0
    }

    fn set_missing(&self, missing: usize) {
        self.wanted.store(missing, Relaxed);
    }

    fn lock_session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// How many packets to follow, 0 for none, and from which element.
fn parse_order(text: &str, find: impl Fn(&str) -> Option<String>) -> Result<(usize, Option<String>), String> {
    let usage = || format!("trace: write 'N', 'N ELEMENT' or 'off'; N is 1 to {MOST_PACKETS}");
    let mut words = text.split_whitespace();
    let (count, element) = (words.next().ok_or_else(usage)?, words.next());
    if words.next().is_some() || count == "off" && element.is_some() {
        return Err(usage());
    }
    if count == "off" {
        return Ok((0, None));
    }
    let count = count.parse().ok().filter(|n| (1..=MOST_PACKETS).contains(n)).ok_or_else(usage)?;
    let from = element.map(|name| find(name).ok_or_else(|| format!("trace: no element named '{name}'")));
    Ok((count, from.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counts_within_bounds_and_elements_that_exist() {
        let order = |text| parse_order(text, |_| None);
        assert_eq!(order("5"), Ok((5, None)));
        assert_eq!(order(" 1000 \n"), Ok((1000, None)));
        assert_eq!(order("off"), Ok((0, None)));
        for wrong in ["", "0", "1001", "-1", "five", "off x", "1 a b"] {
            assert!(order(wrong).unwrap_err().contains("N is 1 to 1000"), "{wrong}");
        }
        assert_eq!(order("1 nosuch"), Err("trace: no element named 'nosuch'".to_string()));
    }
}
