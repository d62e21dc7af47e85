//! The receiving half of [`super::Traffic`]: which datagrams came, in which order, after what time.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::histogram::Histogram;
use super::sender::{Header, PRIMER};
use super::traffic::now_ns;

/// How often the receiver looks whether the sender is done while nothing arrives.
const LOOK: Duration = Duration::from_millis(10);
/// How far ahead of all others a number may be before it is taken for a stray: bounds the memory of a flow.
const LEAP: u64 = 1 << 24;

#[derive(Default)]
pub(super) struct Tally {
    pub(super) received: u64,
    pub(super) reordered: u64,
    pub(super) duplicated: u64,
    pub(super) strays: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) latency: Histogram,
    flows: Vec<Flow>,
}

/// What has come of one flow.
#[derive(Default, Clone)]
struct Flow {
    /// One above the highest number seen.
    next: u64,
    /// A bit for each number below `next`.
    seen: Vec<u64>,
}

/// Receives until the sender is done and nothing has come for `quiet`.
pub(super) fn receive(
    run: u16,
    flows: usize,
    socket: &UdpSocket,
    sending: &AtomicBool,
    quiet: Duration,
) -> Tally {
    let mut tally = Tally { flows: vec![Flow::default(); flows], ..Tally::default() };
    let mut datagram = vec![0; 1 << 16];
    let _ = socket.set_read_timeout(Some(LOOK));
    let mut awake = now_ns();
    loop {
        // Read before the socket: what was sent before the flag fell is then in the socket or on its way.
        let more = sending.load(Ordering::Acquire);
        match socket.recv(&mut datagram) {
            Ok(length) => {
                awake = now_ns();
                tally.count(run, Header::read(&datagram[..length]), awake);
            }
            Err(_) if more => awake = now_ns(),
            Err(_) if now_ns().saturating_sub(awake) >= quiet.as_nanos() as u64 => return tally,
            Err(_) => {}
        }
    }
}

impl Tally {
    fn count(&mut self, run: u16, header: Option<Header>, now: u64) {
        let Some(header) = header.filter(|header| header.run == run) else {
            self.strays += 1;
            return;
        };
        if header.number == PRIMER {
            return;
        }
        match self.flows.get_mut(usize::from(header.flow)).map(|flow| flow.record(header.number)) {
            Some(Arrival::InOrder) => self.arrived(header, now),
            Some(Arrival::Late) => {
                self.reordered += 1;
                self.arrived(header, now);
            }
            Some(Arrival::Again) => self.duplicated += 1,
            Some(Arrival::Stray) | None => self.strays += 1,
        }
    }

    fn arrived(&mut self, header: Header, now: u64) {
        if self.received == 0 {
            self.first_ns = now;
        }
        self.received += 1;
        self.last_ns = now;
        self.latency.record(now.saturating_sub(header.sent_ns));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    InOrder,
    /// After a later one, as RFC 4737 section 3.3 counts reordering.
    Late,
    Again,
    Stray,
}

impl Flow {
    fn record(&mut self, number: u64) -> Arrival {
        if number >= self.next + LEAP {
            return Arrival::Stray;
        }
        let (word, bit) = ((number / 64) as usize, 1u64 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return Arrival::Again;
        }
        self.seen[word] |= bit;
        if number < self.next {
            return Arrival::Late;
        }
        self.next = number + 1;
        Arrival::InOrder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{Again, InOrder, Late, Stray};

    #[test]
    fn arrivals_are_told_apart() {
        let mut flow = Flow::default();
        let told = [0, 1, 3, 2, 2, 3, 200, 199, LEAP + 201, 201].map(|number| flow.record(number));
        assert_eq!(told, [InOrder, InOrder, InOrder, Late, Again, Again, InOrder, Late, Stray, InOrder]);
        assert_eq!(flow.record(u64::MAX - 1), Stray);
    }

    #[test]
    fn strays_and_primers_do_not_count_as_received() {
        let mut tally = Tally { flows: vec![Flow::default(); 2], ..Tally::default() };
        let header = Header { run: 1, flow: 1, number: 0, sent_ns: 10 };
        tally.count(1, Some(header), 15);
        tally.count(1, Some(Header { number: PRIMER, ..header }), 16);
        tally.count(1, Some(Header { run: 2, ..header }), 17);
        tally.count(1, Some(Header { flow: 2, ..header }), 18);
        tally.count(1, None, 19);
        assert_eq!((tally.received, tally.strays, tally.last_ns), (1, 3, 15));
        assert_eq!(tally.latency.latency().max_ns, 5);
    }
}
