//! Reads all entries of connection tracking, some at a time.
use super::message::{DumpPart, Event, encode_dump_request, read_dump};
use artery_netlink::socket::connect;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;
use std::time::{Duration, Instant};

/// How often a dump begins, and how long one may take.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// How long none begins after one that failed, or took longer.
const PAUSE: Duration = Duration::from_secs(10);
/// Datagrams that are read at once, and bytes of one. The kernel puts no more into one of a dump.
const AT_ONCE: usize = 32;
const DATAGRAM: usize = 32 << 10;

/// A dump each second, while one is wanted.
#[derive(Debug)]
pub(super) struct EntryDump {
    /// Of the dump that is under way.
    socket: Option<Socket>,
    began: Instant,
    due: Instant,
}

/// Entries of conntrack that one read gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DumpRead {
    /// Some entries. More are to be read.
    Some(Vec<Event>),
    /// The last entries of this dump.
    Last(Vec<Event>),
    /// It took too long, or the kernel refused.
    Failed(String),
}

impl EntryDump {
    pub(super) fn new(now: Instant) -> EntryDump {
        EntryDump { socket: None, began: now, due: now }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.socket.is_some()
    }

    /// How long until the next may begin.
    pub(super) fn time_to_next(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Begins a dump if one is due; says whether it did.
    pub(super) fn begin_if_due(&mut self, now: Instant) -> io::Result<bool> {
        if self.is_under_way() || now < self.due {
            return Ok(false);
        }
        (self.began, self.due) = (now, now + PAUSE);
        // What is left of a dump that was given up never comes by another socket.
        let socket = connect(NETLINK_NETFILTER)?;
        socket.set_non_blocking(true)?;
        socket.send(&encode_dump_request(), 0)?;
        (self.socket, self.due) = (Some(socket), now + INTERVAL);
        Ok(true)
    }

    /// Reads what the socket holds, without waiting.
    pub(super) fn read(&mut self, now: Instant) -> DumpRead {
        match self.read_some(now) {
            Ok((events, false)) => DumpRead::Some(events),
            Ok((events, true)) => {
                self.socket = None;
                DumpRead::Last(events)
            }
            Err(error) => {
                (self.socket, self.due) = (None, now + PAUSE);
                DumpRead::Failed(error.to_string())
            }
        }
    }

    fn read_some(&self, now: Instant) -> io::Result<(Vec<Event>, bool)> {
        if now.saturating_duration_since(self.began) > INTERVAL {
            return Err(io::Error::other("it takes more than a second"));
        }
        let (mut events, mut buffer) = (Vec::new(), vec![0; DATAGRAM]);
        let Some(socket) = &self.socket else { return Ok((events, true)) };
        for _ in 0..AT_ONCE {
            let length = match socket.recv(&mut &mut buffer[..], 0) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let DumpPart { events: some, is_last } = read_dump(&buffer[..length])?;
            events.extend(some);
            if is_last {
                return Ok((events, true));
            }
        }
        Ok((events, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_takes_longer_than_a_second_has_failed_and_none_begins_for_a_while() {
        let now = Instant::now();
        let mut dump = EntryDump::new(now);
        if !dump.begin_if_due(now).is_ok_and(|began| began) {
            return eprintln!("skipped: no ctnetlink");
        }
        assert!(dump.is_under_way() && dump.time_to_next(now) == INTERVAL);
        let late = now + Duration::from_millis(1001);
        assert!(matches!(dump.read(late), DumpRead::Failed(_)));
        assert!(!dump.is_under_way() && dump.time_to_next(late) == PAUSE);
        assert!(!dump.begin_if_due(late + INTERVAL).unwrap());
        assert!(dump.begin_if_due(late + PAUSE).unwrap());
    }
}
